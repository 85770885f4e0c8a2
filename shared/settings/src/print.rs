//! Prints the settings in force and the origin of each value.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::key::{Key, value_of};
use crate::load::Loaded;
use crate::model::Settings;
use crate::places::Host;
use crate::table::keys;

/// The settings in force as TOML that can be read again, each value with its origin. Passwords in URLs are hidden.
#[must_use]
pub fn print_toml(loaded: &Loaded, host: &Host) -> String {
    let mut text = String::new();
    let mut section = "";
    for line in lines(loaded, host) {
        let (of, name) = line.key.name.split_once('.').unwrap_or(("", line.key.name));
        if of != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            section = of;
            let _infallible = writeln!(text, "{gap}[{section}]");
        }
        let here = line.here.map(|here| format!("; here {here}")).unwrap_or_default();
        let origin = format!("{}{here}", line.origin).replace(char::is_control, "?");
        let _infallible = writeln!(text, "{name} = {}  # {origin}", line.value);
    }
    text
}

/// The same as one JSON object a line: `key, value, origin` (`default`, `file`, `environment`, `flag`), `place`, `environment`,
/// `unit`, and `here`, the value that an empty setting has on this host.
#[must_use]
pub fn print_json(loaded: &Loaded, host: &Host) -> String {
    let settings = serde_json::to_value(&loaded.settings).unwrap_or_default();
    let mut text = String::new();
    for line in lines(loaded, host) {
        let pointer = format!("/{}", line.key.name.replace('.', "/"));
        let object = serde_json::json!({
            "key": line.key.name,
            // An empty text means that the setting has no value.
            "value": settings.pointer(&pointer).filter(|value| value.as_str() != Some("")),
            "origin": loaded.origins.get(line.key.name).map(|origin| origin.kind()),
            "place": line.origin,
            "environment": line.key.environment(),
            "unit": line.key.kind.unit(),
            "here": line.here,
        });
        let _infallible = writeln!(text, "{object}");
    }
    text
}

/// The settings that are not their defaults, by key, as they are written in the file. Passwords in URLs are hidden.
#[must_use]
pub fn differing(loaded: &Loaded) -> BTreeMap<String, String> {
    let tables = [&loaded.settings, &Settings::default()].map(|settings| toml::Table::try_from(settings).unwrap_or_default());
    let [in_force, by_default] = tables.each_ref().map(|table| move |key: &Key| value_of(table, key.name).unwrap_or_default());
    let differing = keys().iter().filter(|key| in_force(key) != by_default(key));
    differing.map(|key| (key.name.to_owned(), in_force(key))).collect()
}

struct Line {
    key: &'static Key,
    value: String,
    origin: String,
    here: Option<String>,
}

fn lines(loaded: &Loaded, host: &Host) -> Vec<Line> {
    let table = toml::Table::try_from(&loaded.settings).unwrap_or_default();
    let line = |key: &'static Key| Line {
        key,
        value: value_of(&table, key.name).unwrap_or_default(),
        origin: loaded.origins.get(key.name).map(ToString::to_string).unwrap_or_default(),
        here: here(key, loaded, host),
    };
    keys().iter().map(line).collect()
}

/// The value that an empty setting has on this host, if the host determines one.
fn here(key: &Key, loaded: &Loaded, host: &Host) -> Option<String> {
    let settings = &loaded.settings;
    match key.name {
        "store.dir" if settings.store.dir.is_none() => settings.store.dir_on(host).ok().map(|dir| dir.display().to_string()),
        "runtime.endpoint" if settings.runtime.endpoint.is_none() => settings.runtime.endpoint_on(std::path::Path::exists).ok(),
        _ => None,
    }
}
