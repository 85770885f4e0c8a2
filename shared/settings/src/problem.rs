//! The origin of a value, and the problems with it.

use std::fmt;
use std::path::PathBuf;

/// The most characters of a wrong value that are shown.
const SHOWN_CHARS: usize = 120;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// No source gave a value.
    Default,
    /// A line of the file.
    File {
        /// The path of the file.
        path: PathBuf,
        /// The line, counted from 1; 0 when it is not known.
        line: usize,
    },
    /// An environment variable.
    Environment {
        /// The name of the variable.
        variable: String,
    },
    /// A command-line flag.
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

/// One wrong value or source, with its place and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Problem {
    /// Where the problem is.
    pub origin: Origin,
    /// The key, if the problem concerns one.
    pub key: Option<String>,
    /// The value as given, without passwords and shortened, if the problem concerns one.
    pub value: Option<String>,
    /// What is wrong and what is allowed.
    pub what: String,
}

impl Problem {
    /// A problem that concerns no key.
    pub(crate) fn at(origin: Origin, what: impl Into<String>) -> Self {
        Self { origin, key: None, value: None, what: what.into() }
    }

    /// A problem with a key.
    pub(crate) fn of(origin: Origin, key: &str, what: impl Into<String>) -> Self {
        Self { key: Some(key.to_owned()), ..Self::at(origin, what) }
    }

    /// The same problem, showing the value as given.
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

/// All problems of the given settings.
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
