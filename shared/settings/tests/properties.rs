//! Loading returns for every input, and accepted settings can be printed and loaded again.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::prelude::*;
use settings::{ConfigFile, Host, Settings, Sources, keys, print_json, print_toml};

fn load_file(text: &[u8]) -> Result<settings::Loaded, settings::SettingsError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Settings::load(Sources { file: ConfigFile::At(file.path().to_owned()), ..Sources::default() })
}

/// TOML values, valid and nearly valid.
fn toml_value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| format!("{number:?}")),
        any::<bool>().prop_map(|on| on.to_string()),
        any::<String>().prop_map(|text| toml::Value::String(text).to_string()),
        "[0-9]{0,30}(ns|us|ms|s|m|h|d|M|y| )?[0-9]{0,20}(s|ms)?".prop_map(|text| format!("{text:?}")),
        "(nats|tls|http)?(://)?[a-z:@/,\\[\\]]{0,12}".prop_map(|text| format!("{text:?}")),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
        Just("[[], {}, 1]".to_owned()),
        Just("{ a = 1, \"\" = \"\" }".to_owned()),
        Just("1979-05-27T07:32:00Z".to_owned()),
    ]
}

fn key_name() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..keys().len()).prop_map(|index| keys()[index].name.to_owned()),
        "[a-z]{1,8}\\.[a-z_]{1,12}",
        any::<String>().prop_map(|text| toml::Value::String(text).to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn file_of_any_bytes_is_loaded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _answered = load_file(&bytes);
    }

    #[test]
    fn file_of_any_toml_is_loaded_or_refused_with_problems(pairs in prop::collection::vec((key_name(), toml_value()), 0..6)) {
        let text: String = pairs.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        match load_file(text.as_bytes()) {
            Ok(loaded) => prop_assert!(!print_json(&loaded, &Host::default()).is_empty()),
            Err(error) => prop_assert!(!error.problems.is_empty() && !error.to_string().is_empty()),
        }
    }

    #[test]
    fn accepted_text_of_a_variable_or_flag_can_be_printed_and_loaded_again(
        index in 0..keys().len(),
        text in prop_oneof![any::<String>(), toml_value(), "[a-z0-9=,./:]{0,20}", "[1-9][0-9]{0,3}(ms|s|m|h)"],
        as_flag in any::<bool>(),
    ) {
        let key = &keys()[index];
        let mut sources = Sources::default();
        if as_flag {
            sources.flags.push((key.name.to_owned(), text));
        } else {
            sources.environment.push((key.environment(), text));
        }
        let Ok(loaded) = Settings::load(sources) else { return Ok(()) };
        let again = load_file(print_toml(&loaded, &Host::default()).as_bytes());
        // Printing hides passwords, so URLs with user info differ.
        prop_assert!(again.is_ok_and(|again| again.settings == loaded.settings || key.name == "nats.url"));
    }
}
