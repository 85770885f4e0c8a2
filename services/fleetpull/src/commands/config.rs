//! `fleetpull config`

use anyhow::Result;
use serde_json::json;

use crate::cli::{ConfigArgs, ConfigCommand, ConfigSources, OutputFormat};
use crate::configuration::Configuration;
use crate::exit::Exit;
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
    output::fact(printed.trim_end());
    Ok(Exit::Success)
}

fn validate(sources: &ConfigSources) -> Result<Exit> {
    match Configuration::load(&sources.settings, Vec::new()) {
        Ok(_) => {
            match sources.output.format {
                OutputFormat::Text => output::fact("the settings are valid"),
                OutputFormat::Json => output::json(&json!({ "valid": true, "error": "" })),
            }
            Ok(Exit::Success)
        }
        Err(error) => {
            match sources.output.format {
                OutputFormat::Text => output::complain(&error),
                OutputFormat::Json => output::json(&json!({ "valid": false, "error": format!("{error:#}") })),
            }
            Ok(Exit::Failure)
        }
    }
}
