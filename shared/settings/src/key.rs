//! One row of the table of keys.

use crate::kind::Kind;
use crate::model::Settings;

/// The prefix of every environment variable of Fleetpull.
pub(crate) const ENVIRONMENT_PREFIX: &str = "FLEETPULL_";

/// One setting: its name, kind, help and sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Key {
    /// Section and key with a dot between: `store.fsync`.
    pub name: &'static str,
    /// Which values are allowed.
    pub kind: Kind,
    /// What the setting does, in one or two sentences.
    pub help: &'static str,
    /// The setting of kubelet that corresponds to it; empty where there is none.
    pub kubelet: &'static str,
    /// Why the default differs from kubelet's; empty where it does not or where there is nothing to compare.
    pub why: &'static str,
    /// The command-line flag, if there is one.
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

    /// The default, written as in the file.
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
