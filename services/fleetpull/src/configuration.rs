//! Loads the settings for the command line.

use anyhow::Result;
use settings::{ConfigFile, Host, LogFormat, Settings, Sources};
use telemetry::traces::{Attributes, Exporting, Options, Reading};

use crate::cli::SettingsArgs;

/// The settings, and the properties of the host that paths depend on.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The loaded settings, with the origin of each value.
    pub loaded: settings::Loaded,
    /// This host.
    pub host: Host,
}

impl Configuration {
    /// Reads the file, the environment and `flags`. Warnings go to stderr.
    ///
    /// # Errors
    /// Every invalid setting, with its place and the allowed values.
    pub fn load(args: &SettingsArgs, flags: Vec<(String, String)>) -> Result<Self> {
        let configuration = Self::read(args, flags)?;
        for warning in &configuration.loaded.warnings {
            crate::output::warn(warning);
        }
        Ok(configuration)
    }

    /// Like [`Self::load`], but without warnings.
    ///
    /// # Errors
    /// Those of [`Self::load`].
    pub fn read(args: &SettingsArgs, flags: Vec<(String, String)>) -> Result<Self> {
        let environment = settings::process_environment();
        let host = Host::of(&environment);
        let file = args.config.clone().map_or(ConfigFile::Default, ConfigFile::At);
        let loaded = Settings::load(Sources { file, environment, flags })?;
        Ok(Self { loaded, host })
    }

    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// Starts the log with the configured level, or with `quietest` if no level was requested.
    pub fn start_log(&self, quietest: &str) {
        let (level, json) = self.log_of(quietest);
        telemetry::log_through(level, json, || crate::output::live::Log);
    }

    /// Like [`Self::start_log`], and exports spans if the standard variables (`OTEL_*`) request it. Errors in these variables are logged,
    /// but do not stop the command.
    pub fn start_log_and_traces(&self, quietest: &str, attributes: Attributes) {
        let (level, json) = self.log_of(quietest);
        let Reading { options, warnings } = Options::read(|name| std::env::var(name).ok());
        let started = options.map(|options| Exporting::start(options, attributes, self.settings().traces.keep_slow));
        match started {
            Some(Ok(exporting)) => telemetry::log_and_export(level, json, || crate::output::live::Log, exporting),
            Some(Err(error)) => {
                telemetry::log_through(level, json, || crate::output::live::Log);
                tracing::warn!(%error, "traces are not exported");
            }
            None => telemetry::log_through(level, json, || crate::output::live::Log),
        }
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// The level, and true for JSON.
    fn log_of<'a>(&'a self, quietest: &'a str) -> (&'a str, bool) {
        crate::output::trace_link::set(self.settings().traces.link.clone());
        let asked = self.loaded.origins.get("log.level").is_some_and(|origin| *origin != settings::Origin::Default);
        let level = if asked { self.settings().log.level.as_str() } else { quietest };
        (level, self.settings().log.format == LogFormat::Json)
    }
}
