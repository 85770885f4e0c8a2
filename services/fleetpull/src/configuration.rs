//! From the command line to settings.

use anyhow::Result;
use settings::{ConfigFile, Host, LogFormat, Settings, Sources};
use telemetry::traces::{Attributes, Exporting, Options, Reading};

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
        let configuration = Self::read(args, flags)?;
        for warning in &configuration.loaded.warnings {
            crate::output::warn(warning);
        }
        Ok(configuration)
    }

    /// The same, without a word.
    ///
    /// # Errors
    /// As [`Self::load`].
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

    /// Sets the log up: as set, but no more than `quietest` unless somebody asked for a level.
    pub fn start_log(&self, quietest: &str) {
        let (level, json) = self.log_of(quietest);
        telemetry::log_through(level, json, || crate::output::live::Log);
    }

    /// The same, for a command that has spans: they are exported if the standard variables (`OTEL_*`) say so. What is wrong with these
    /// is logged, and hinders no pull.
    pub fn start_log_and_traces(&self, quietest: &str, about: Attributes) {
        let (level, json) = self.log_of(quietest);
        let Reading { options, warnings } = Options::read(|name| std::env::var(name).ok());
        let started = options.map(|options| Exporting::start(options, about, self.settings().traces.keep_slow));
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

    /// Level and whether it is JSON.
    fn log_of<'a>(&'a self, quietest: &'a str) -> (&'a str, bool) {
        crate::output::trace_link::set(self.settings().traces.link.clone());
        let asked = self.loaded.origins.get("log.level").is_some_and(|origin| *origin != settings::Origin::Default);
        let level = if asked { self.settings().log.level.as_str() } else { quietest };
        (level, self.settings().log.format == LogFormat::Json)
    }
}
