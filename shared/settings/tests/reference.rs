//! The reference file equals the table of keys, shows every key with its default, and loads to the defaults.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use settings::{ConfigFile, Settings, Sources, keys, render_reference};

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config/fleetpull.toml")
}

#[test]
fn reference_file_equals_the_table_and_loads_to_the_defaults() {
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(reference(), render_reference()).unwrap();
    }
    let kept = std::fs::read_to_string(reference()).unwrap();
    assert!(kept == render_reference(), "config/fleetpull.toml is out of date: run UPDATE_REFERENCE=1 cargo test -p settings reference");
    let loaded = Settings::load(Sources { file: ConfigFile::At(reference()), ..Sources::default() }).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    for (key, origin) in &loaded.origins {
        assert_eq!(origin.kind(), "file", "{key} is missing in the reference");
    }
}

#[test]
fn table_and_types_have_the_same_keys() {
    let table = toml::Table::try_from(Settings::default()).unwrap();
    let of_types: Vec<String> =
        table.iter().flat_map(|(section, keys)| keys.as_table().unwrap().keys().map(move |key| format!("{section}.{key}"))).collect();
    let mut of_table: Vec<&str> = keys().iter().map(|key| key.name).collect();
    of_table.sort_unstable();
    assert_eq!(of_types, of_table);
}

#[test]
fn every_row_of_the_table_is_complete() {
    for key in keys() {
        assert!(key.help.ends_with('.') || key.help.ends_with(')'), "{}: help is whole sentences", key.name);
        assert!(!key.default_toml().is_empty(), "{}: no default", key.name);
        assert!(!key.why.ends_with('.') && !key.kubelet.ends_with('.'), "{}: the reference adds the full stop", key.name);
        assert!(key.why.is_empty() || !key.kubelet.is_empty(), "{}: differs from nothing", key.name);
    }
}
