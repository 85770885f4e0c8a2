//! One row of the table of keys.

use crate::kind::Kind;
use crate::model::Settings;

/// The prefix of every variable of the environment that is ours.
pub(crate) const ENVIRONMENT_PREFIX: &str = "FLEETPULL_";

/// What there is to know of one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Dotted: section and key.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it does, in one or two sentences.
    pub help: &'static str,
    /// What kubelet has in its place.
    pub kubelet: &'static str,
    /// Why ours differs from kubelet's; empty where it does not or where there is nothing to compare.
    pub why: &'static str,
    /// The flag of the command line, if there is one.
    pub flag: Option<&'static str>,
    /// The variable of the nats CLI that is read when nothing else gives a value.
    pub nats_variable: Option<&'static str>,
}

impl Key {
    /// `FLEETPULL_STORE_FSYNC` for `store.fsync`.
    #[must_use]
    pub fn environment(&self) -> String {
        format!("{ENVIRONMENT_PREFIX}{}", self.name.to_uppercase().replace('.', "_"))
    }

    /// The default as it would stand in the file.
    #[must_use]
    pub fn default_toml(&self) -> String {
        toml::Table::try_from(Settings::default()).ok().and_then(|table| value_of(&table, self.name)).unwrap_or_default()
    }
}

/// The value of a dotted key in TOML.
pub(crate) fn value_of(table: &toml::Table, name: &str) -> Option<String> {
    let (section, key) = name.split_once('.')?;
    table.get(section)?.as_table()?.get(key).map(toml::Value::to_string)
}
