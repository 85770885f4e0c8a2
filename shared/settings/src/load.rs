//! Joins file, environment and flags into settings.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Value;

use crate::check;
use crate::file;
use crate::key::{ENVIRONMENT_PREFIX, Key};
use crate::kind::Kind;
use crate::model::Settings;
use crate::problem::{Origin, Problem, SettingsError};
use crate::server_url::hide_passwords;
use crate::suggest;
use crate::table::{find, keys};

/// This file is read if it exists and no other file is named.
pub const DEFAULT_FILE: &str = "/etc/fleetpull/config.toml";

/// Which file is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ConfigFile {
    /// No file. For tests, and for commands whose settings must be the same on every host.
    #[default]
    None,
    /// [`DEFAULT_FILE`] if it exists.
    Default,
    /// This file, which must exist.
    At(PathBuf),
}

/// Where values come from.
#[derive(Clone, Default)]
pub struct Sources {
    /// Has precedence over the defaults.
    pub file: ConfigFile,
    /// Names and values; has precedence over the file.
    pub environment: Vec<(String, String)>,
    /// Dotted keys and values; they have precedence over everything else. The key of a list or of labels may be given several times.
    pub flags: Vec<(String, String)>,
}

/// Settings, and where each value came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The settings, valid by themselves and together.
    pub settings: Settings,
    /// By dotted key; every key is present.
    pub origins: BTreeMap<&'static str, Origin>,
    /// Oddities that do no harm, such as an unknown variable.
    pub warnings: Vec<String>,
}

/// One value for one key.
pub(crate) struct Assignment {
    pub(crate) key: &'static Key,
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}

/// The environment of this process. Bytes that are not UTF-8 become replacement characters, which [`Settings::load`] refuses in the
/// variables of Fleetpull.
#[must_use]
pub fn process_environment() -> Vec<(String, String)> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

impl Settings {
    /// Reads all sources and checks the values.
    ///
    /// # Errors
    /// All problems of all sources.
    pub fn load(sources: Sources) -> Result<Loaded, SettingsError> {
        let mut loader = Loader::default();
        loader.nats_variables(&sources.environment);
        loader.file(&sources.file);
        loader.environment(&sources.environment);
        loader.flags(&sources.flags);
        loader.finish()
    }
}

#[derive(Default)]
struct Loader {
    /// In ascending precedence: a later assignment replaces an earlier one of the same key.
    assignments: Vec<Assignment>,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Loader {
    /// The nats CLI's own variables. An empty variable counts as not set.
    fn nats_variables(&mut self, environment: &[(String, String)]) {
        for (variable, text) in environment.iter().filter(|(_, text)| !text.is_empty()) {
            if let Some(key) = keys().iter().find(|key| key.nats_variable == Some(variable)) {
                self.text(key, text, Origin::Environment { variable: variable.clone() });
            }
        }
    }

    fn file(&mut self, file: &ConfigFile) {
        let path = match file {
            ConfigFile::At(path) => path.as_path(),
            ConfigFile::Default if has_entry(Path::new(DEFAULT_FILE)) => Path::new(DEFAULT_FILE),
            ConfigFile::Default | ConfigFile::None => return,
        };
        let (assignments, problems) = file::read(path);
        self.assignments.extend(assignments);
        self.problems.extend(problems);
    }

    fn environment(&mut self, environment: &[(String, String)]) {
        for (variable, text) in environment.iter().filter(|(variable, _)| variable.starts_with(ENVIRONMENT_PREFIX)) {
            match keys().iter().find(|key| key.environment() == *variable) {
                Some(key) => self.text(key, text, Origin::Environment { variable: variable.clone() }),
                None => self.warnings.push(unknown_variable(variable)),
            }
        }
    }

    fn flags(&mut self, flags: &[(String, String)]) {
        let mut joined: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, text) in flags {
            joined.entry(name).or_default().push(text);
        }
        for (name, texts) in joined {
            let Some(key) = find(name) else {
                let origin = Origin::Flag { flag: name.to_owned() };
                self.problems.push(Problem::at(origin, format!("is not a known key; {}", suggest::hint(name))));
                continue;
            };
            let text = match key.kind {
                Kind::Labels | Kind::Servers => texts.join(","),
                _ => texts.last().copied().unwrap_or_default().to_owned(),
            };
            self.text(key, &text, Origin::Flag { flag: key.flag.unwrap_or(key.name).to_owned() });
        }
    }

    fn text(&mut self, key: &'static Key, text: &str, origin: Origin) {
        let read = if text.contains(char::REPLACEMENT_CHARACTER) { Err("is not UTF-8".to_owned()) } else { key.kind.parse_text(text) };
        match read {
            Ok(value) => self.assignments.push(Assignment { key, value, origin }),
            Err(what) => {
                let text = format!("{text:?}");
                let shown = if key.kind == Kind::Servers { hide_passwords(&text) } else { text };
                self.problems.push(Problem::of(origin, key.name, what).with_value(&shown));
            }
        }
    }

    /// A login that is given as a setting of Fleetpull removes the logins of other kinds that the nats CLI's variables give.
    fn one_login(&mut self) {
        let of_cli = |assignment: &Assignment| matches!(&assignment.origin, Origin::Environment { variable } if assignment.key.nats_variable == Some(variable));
        const LOGINS: [&str; 3] = ["nats.creds", "nats.nkey", "nats.token_file"];
        let is_login = |assignment: &Assignment| LOGINS.contains(&assignment.key.name);
        for login in LOGINS {
            if self.assignments.iter().any(|assignment| assignment.key.name == login && !of_cli(assignment)) {
                self.assignments.retain(|assignment| assignment.key.name == login || !is_login(assignment) || !of_cli(assignment));
            }
        }
    }

    fn finish(mut self) -> Result<Loaded, SettingsError> {
        let mut origins: BTreeMap<&'static str, Origin> = keys().iter().map(|key| (key.name, Origin::Default)).collect();
        let mut table = toml::Table::try_from(Settings::default()).map_err(|error| bug(&error))?;
        self.one_login();
        for Assignment { key, value, origin } in self.assignments {
            set(&mut table, key.name, value);
            origins.insert(key.name, origin);
        }
        let settings = Settings::deserialize(table).map_err(|error| bug(&error))?;
        let wrong: BTreeSet<String> = self.problems.iter().filter_map(|problem| problem.key.clone()).collect();
        self.problems.extend(check::together(&settings, &origins, &wrong));
        if self.problems.is_empty() {
            Ok(Loaded { settings, origins, warnings: self.warnings })
        } else {
            Err(SettingsError { problems: self.problems })
        }
    }
}

/// Whether there is a file or a link with this name. A link whose target is missing is reported when it is read: with the defaults, an
/// agent would run without its fleet.
fn has_entry(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

fn set(table: &mut toml::Table, name: &str, value: Value) {
    let Some((section, key)) = name.split_once('.') else { return };
    if let Some(section) = table.get_mut(section).and_then(Value::as_table_mut) {
        section.insert(key.to_owned(), value);
    }
}

fn unknown_variable(variable: &str) -> String {
    let name = variable.trim_start_matches(ENVIRONMENT_PREFIX).to_lowercase();
    let near = keys().iter().find(|key| suggest::nearest(&name.replacen('_', ".", 1)) == Some(key.name));
    match near {
        Some(key) => format!("{variable} is not a setting and is ignored; did you mean {}?", key.environment()),
        None => format!("{variable} is not a setting and is ignored"),
    }
}

/// The problem for a table of keys that does not fit the types. A test checks that they fit.
fn bug(error: &dyn std::fmt::Display) -> SettingsError {
    SettingsError {
        problems: vec![Problem::at(
            Origin::Default,
            format!("the table of settings does not fit their types: {error}; this is a bug of fleetpull"),
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_whose_target_is_missing_is_read_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("config.toml");
        assert!(!has_entry(&link));
        std::os::unix::fs::symlink(folder.path().join("missing"), &link).unwrap();
        assert!(has_entry(&link));
        let error = Settings::load(Sources { file: ConfigFile::At(link), ..Sources::default() }).unwrap_err();
        assert!(error.to_string().contains("cannot be opened"), "{error}");
    }
}
