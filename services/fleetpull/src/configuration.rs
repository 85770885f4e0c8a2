//! From the command line to settings.

use anyhow::Result;
use settings::{ConfigFile, Host, LogFormat, Settings, Sources};

use crate::cli::SettingsArgs;

/// Settings with what of the host decides about places.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// As loaded, with where each value came from.
    pub loaded: settings::Loaded,
    /// This host.
    pub host: Host,
}

impl Configuration {
    /// Reads file, environment and `flags`. Warnings go to stderr.
    ///
    /// # Errors
    /// Every setting that is wrong, named with where it stands and what is allowed.
    pub fn load(args: &SettingsArgs, flags: Vec<(String, String)>) -> Result<Self> {
        let environment = settings::process_environment();
        let host = Host::of(&environment);
        let file = args.config.clone().map_or(ConfigFile::Default, ConfigFile::At);
        let loaded = Settings::load(Sources { file, environment, flags })?;
        for warning in &loaded.warnings {
            crate::output::warn(warning);
        }
        Ok(Self { loaded, host })
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// Sets the log up: as set, but no more than `quietest` unless somebody asked for a level.
    pub fn start_log(&self, quietest: &str) {
        let asked = self.loaded.origins.get("log.level").is_some_and(|origin| *origin != settings::Origin::Default);
        let level = if asked { self.settings().log.level.as_str() } else { quietest };
        telemetry::log_through(level, self.settings().log.format == LogFormat::Json, || crate::output::live::Log);
    }
}
