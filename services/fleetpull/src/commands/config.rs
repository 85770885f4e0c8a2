//! `fleetpull config`

use std::path::Path;

use anyhow::{Error, Result};
use serde_json::json;
use settings::{DEFAULT_FILE, Loaded, Origin, Settings};

use crate::cli::{ConfigArgs, ConfigCommand, ConfigSources, OutputFormat};
use crate::configuration::Configuration;
use crate::exit::Exit;
use crate::node::check_bus;
use crate::node::fleet_key::read_key_file;
use crate::output;

/// Prints or checks the settings.
pub(super) fn carry_out(args: &ConfigArgs) -> Result<Exit> {
    match &args.command {
        ConfigCommand::Print(sources) => print(sources),
        ConfigCommand::Validate(sources) => validate(sources),
    }
}

fn print(sources: &ConfigSources) -> Result<Exit> {
    let Configuration { loaded, host } = Configuration::load(&sources.settings, Vec::new())?;
    let printed = match sources.output.format {
        OutputFormat::Text => settings::print_toml(&loaded, &host),
        OutputFormat::Json => settings::print_json(&loaded, &host),
    };
    output::document(printed.trim_end());
    Ok(Exit::Success)
}

fn validate(sources: &ConfigSources) -> Result<Exit> {
    let checked = Configuration::load(&sources.settings, Vec::new())
        .and_then(|configuration| check_files(configuration.settings()).map(|()| configuration));
    match checked {
        Ok(configuration) => {
            match sources.output.format {
                OutputFormat::Text => output::fact(&format!("the settings are valid: {}", read_from(sources, &configuration.loaded))),
                OutputFormat::Json => output::json(&json!({ "valid": true, "error": null })),
            }
            Ok(Exit::Success)
        }
        Err(error) => {
            match sources.output.format {
                OutputFormat::Text => output::complain(&error),
                OutputFormat::Json => output::json(&json!({ "valid": false, "error": output::error_text(&error) })),
            }
            Ok(Exit::Failure)
        }
    }
}

/// Checks the files that `run` refuses before it starts: the fleet's key, and those of the connection to NATS.
fn check_files(settings: &Settings) -> Result<()> {
    let key = settings.fleet.key_file.as_deref().map(|file| read_key_file(file).map(|_| ()).map_err(Error::from));
    let checks = key.into_iter().chain([check_bus(settings)]);
    let errors: Vec<String> = checks.filter_map(Result::err).map(|error| output::error_text(&error)).collect();
    if errors.is_empty() { Ok(()) } else { Err(Error::msg(errors.join("\n"))) }
}

/// Names the file and the variables that the settings come from.
fn read_from(sources: &ConfigSources, loaded: &Loaded) -> String {
    let file = match &sources.settings.config {
        Some(file) => file.display().to_string(),
        None if Path::new(DEFAULT_FILE).exists() => DEFAULT_FILE.to_owned(),
        None => format!("no file (there is no {DEFAULT_FILE})"),
    };
    let variables = loaded.origins.values().filter(|origin| matches!(origin, Origin::Environment { .. }));
    let sources: Vec<String> = std::iter::once(file).chain(variables.map(ToString::to_string)).collect();
    format!("{}, else defaults", sources.join(", "))
}
