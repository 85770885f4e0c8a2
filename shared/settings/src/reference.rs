//! The commented reference file, made from the table of keys.

use std::fmt::Write;

use crate::key::Key;
use crate::table::keys;

/// The longest line of a comment, in characters, so that people read it without scrolling.
const WIDTH_CHARS: usize = 120;

const HEAD: &str = "\
# Fleetpull: every setting with its default. This file changes nothing: copy the lines that you need.
#
# A value comes from the first of these that gives one: a flag, FLEETPULL_<SECTION>_<KEY> in the environment, the file
# (--config FILE, else /etc/fleetpull/config.toml), for nats.* the nats CLI's own NATS_<KEY>, the default.
# `fleetpull config print` shows the settings in force and their origins; `fleetpull config validate` checks a file.
# An agent reads its settings when it starts: restart it after a change.
#
# Durations need a unit (ms, s, m, h): \"500ms\", \"10s\", \"1m30s\". Secrets are given by the path of a file. In paths ~ is not
# expanded, and a relative path begins at the working directory.
#
# Above each key: its unit and range, what kubelet has instead and why the default here differs, and which flag
# and variables give it.
# Made from the table in shared/settings/src/table.rs: UPDATE_REFERENCE=1 cargo test -p settings reference
";

/// The text of `config/fleetpull.toml`.
#[must_use]
pub fn render_reference() -> String {
    let mut text = HEAD.to_owned();
    let mut section = "";
    for key in keys() {
        let (of, name) = key.name.split_once('.').unwrap_or(("", key.name));
        text.push('\n');
        if of != section {
            section = of;
            let _infallible = writeln!(text, "[{section}]");
        }
        text.push_str(&describe(key));
        let _infallible = writeln!(text, "{name} = {}", key.default_toml());
    }
    text
}

fn describe(key: &Key) -> String {
    let kubelet = if key.kubelet.is_empty() { "has no such setting" } else { key.kubelet };
    let why = if key.why.is_empty() { String::new() } else { format!(" Why it differs here: {}.", key.why) };
    let flag = key.flag.map(|flag| format!("{flag}, ")).unwrap_or_default();
    let nats = key.nats_variable.map(|variable| format!(", {variable}")).unwrap_or_default();
    [
        comment("", key.help),
        comment("  unit:    ", &format!("{}; {}", key.kind.unit(), key.kind.range())),
        comment("  kubelet: ", &format!("{kubelet}.{why}")),
        comment("  given by:", &format!("{flag}{}{nats}", key.environment())),
    ]
    .concat()
}

/// A paragraph as comment lines; the later lines are aligned with the first word.
fn comment(label: &str, paragraph: &str) -> String {
    let mut lines = vec![format!("#{label}")];
    for word in paragraph.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH_CHARS => line.extend([" ", word]),
            _ => lines.push(format!("#{:width$} {word}", "", width = label.len())),
        }
    }
    lines.join("\n") + "\n"
}
