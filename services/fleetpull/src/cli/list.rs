//! The options of every list: its format, and whether it is watched.

use clap::{Args, ValueEnum};

use super::groups::{Format, OWN};

/// How a list is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// A table that fits the terminal.
    #[default]
    Text,
    /// A table with more columns, in which nothing is shortened.
    Wide,
    /// One JSON object a line, and nothing else on stdout.
    Json,
    /// One YAML document for each object, and nothing else on stdout.
    Yaml,
    /// Names alone, one a line.
    Name,
}

impl Format for ListFormat {
    const HELP: &'static str = "How the list is written to stdout: text, wide for more columns with nothing shortened, json for one object a \
                                line, yaml for one document each, or name for names alone";
}

/// Whether colours are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColourChoice {
    /// If a terminal shows them and NO_COLOR is not set.
    #[default]
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

impl ColourChoice {
    /// True if colours are written, given whether the output is a terminal and what the environment says.
    #[must_use]
    pub fn is_wanted(self, is_terminal: bool, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => is_terminal && !is_set("NO_COLOR") && variable("TERM").is_none_or(|terminal| terminal != "dumb"),
        }
    }
}

/// How a table is shown.
#[derive(Clone, Debug, Default, Args)]
pub struct TableArgs {
    /// Without the line of column names.
    #[arg(long, help_heading = OWN)]
    pub no_headers: bool,
    /// Sort the rows by this column: its name as the header has it, in any case and with - for a space.
    #[arg(long, value_name = "COLUMN", help_heading = OWN)]
    pub sort_by: Option<String>,
    /// Colours: auto (on a terminal, unless NO_COLOR is set), always or never.
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, hide_possible_values = true, help_heading = OWN)]
    pub color: ColourChoice,
}

/// How a list is shown that can be watched.
#[derive(Clone, Debug, Default, Args)]
pub struct ListArgs {
    /// How its table is shown.
    #[command(flatten)]
    pub table: TableArgs,
    /// Refresh every 2 s, until Ctrl-C.
    #[arg(short, long, help_heading = OWN)]
    pub watch: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_follows_option_terminal_and_environment() {
        let none: &[(&str, &str)] = &[];
        for (choice, is_terminal, environment, expected) in [
            (ColourChoice::Auto, true, none, true),
            (ColourChoice::Auto, false, none, false),
            (ColourChoice::Auto, true, &[("NO_COLOR", "1")], false),
            (ColourChoice::Auto, true, &[("NO_COLOR", "")], true),
            (ColourChoice::Auto, true, &[("TERM", "dumb")], false),
            (ColourChoice::Always, false, &[("NO_COLOR", "1")], true),
            (ColourChoice::Never, true, none, false),
        ] {
            let variable = |name: &str| environment.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned());
            assert_eq!(choice.is_wanted(is_terminal, &variable), expected, "{choice:?} {is_terminal} {environment:?}");
        }
    }
}
