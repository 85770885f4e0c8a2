//! Where a value came from, and what is wrong with it.

use std::fmt;
use std::path::PathBuf;

/// The most characters of a wrong value that are shown.
const SHOWN_CHARS: usize = 120;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave one.
    Default,
    /// A line of the file, counted from 1; 0 when the line is not known.
    File {
        /// Which file.
        path: PathBuf,
        /// Which line.
        line: usize,
    },
    /// A variable of the environment.
    Environment {
        /// Its name.
        variable: String,
    },
    /// A flag of the command line.
    Flag {
        /// As it is typed: `--store`.
        flag: String,
    },
}

impl Origin {
    /// `default`, `file`, `environment` or `flag`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Environment { .. } => "environment",
            Self::Flag { .. } => "flag",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => formatter.write_str("default"),
            Self::File { path, line: 0 } => write!(formatter, "{}", path.display()),
            Self::File { path, line } => write!(formatter, "{}:{line}", path.display()),
            Self::Environment { variable } => formatter.write_str(variable),
            Self::Flag { flag } => formatter.write_str(flag),
        }
    }
}

/// One thing that is wrong, with its place and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// Where.
    pub origin: Origin,
    /// The key, if it is about one.
    pub key: Option<String>,
    /// The value as given, without passwords and shortened, if it is about one.
    pub value: Option<String>,
    /// What is wrong and what is allowed.
    pub what: String,
}

impl Problem {
    /// A problem with a place alone.
    pub(crate) fn at(origin: Origin, what: impl Into<String>) -> Self {
        Self { origin, key: None, value: None, what: what.into() }
    }

    /// A problem with a key.
    pub(crate) fn of(origin: Origin, key: &str, what: impl Into<String>) -> Self {
        Self { key: Some(key.to_owned()), ..Self::at(origin, what) }
    }

    /// The same with the value as given.
    pub(crate) fn with_value(self, value: &str) -> Self {
        let mut shown: String = value.chars().take(SHOWN_CHARS).collect();
        if shown.len() < value.len() {
            shown.push('…');
        }
        Self { value: Some(shown), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", self.origin)?;
        match (&self.key, &self.value) {
            (Some(key), Some(value)) => write!(formatter, "{key} = {value}: ")?,
            (Some(key), None) => write!(formatter, "{key}: ")?,
            (None, _) => {}
        }
        formatter.write_str(&self.what)
    }
}

/// Everything that is wrong with the settings given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct SettingsError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [problem] => write!(formatter, "a setting is wrong: {problem}"),
            problems => {
                write!(formatter, "{} settings are wrong:", problems.len())?;
                problems.iter().try_for_each(|problem| write!(formatter, "\n  {problem}"))
            }
        }
    }
}
