//! Parts of a fleet: a number of nodes, or a percentage.

use std::fmt;
use std::str::FromStr;

/// The most nodes that one command works on at a time, because each holds a request open.
const MOST_NODES: usize = 10_000;

/// How many nodes pull at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parallelism {
    /// This number of nodes.
    Nodes(usize),
    /// This percentage of the nodes.
    Share(Percentage),
}

/// A percentage from 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Percentage(u8);

impl Parallelism {
    /// The number of nodes out of `nodes`; at least one.
    #[must_use]
    pub fn of(self, nodes: usize) -> usize {
        match self {
            Self::Nodes(count) => count,
            Self::Share(share) => share.of(nodes).max(1),
        }
    }
}

impl Percentage {
    /// This percentage of `whole`, rounded up.
    #[must_use]
    pub fn of(self, whole: usize) -> usize {
        whole.saturating_mul(usize::from(self.0)).div_ceil(100)
    }
}

impl FromStr for Parallelism {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let advice = || format!("how many nodes pull at a time: 1 to {MOST_NODES}, or 1% to 100%");
        if text.ends_with('%') {
            return text.parse().map(Self::Share).map_err(|_| advice());
        }
        let count = number(text).filter(|count| (1..=MOST_NODES).contains(count));
        count.map(Self::Nodes).ok_or_else(advice)
    }
}

impl FromStr for Percentage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(number).filter(|percent| (1..=100).contains(percent));
        let percent = percent.and_then(|percent| u8::try_from(percent).ok());
        percent.map(Self).ok_or_else(|| "a part of the whole: 1% to 100%, like 95%".to_owned())
    }
}

impl fmt::Display for Percentage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}%", self.0)
    }
}

/// Accepts digits alone: `+5` and ` 5` are typing errors.
fn number(text: &str) -> Option<usize> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_and_percentages_parse() {
        let table = [("1", 1_000, 1), ("100", 7, 100), ("10000", 1, 10_000), ("1%", 50, 1), ("25%", 10, 3), ("100%", 7, 7), ("50%", 0, 1)];
        for (text, nodes, expected) in table {
            assert_eq!(text.parse::<Parallelism>().map(|part| part.of(nodes)), Ok(expected), "{text} of {nodes}");
        }
    }

    #[test]
    fn invalid_share_names_accepted_forms() {
        for text in ["", "0", "-1", "+5", "1.5", "10001", "0%", "101%", "%", "x%", " 5", "5 %", "99999999999999999999999"] {
            let refused = text.parse::<Parallelism>();
            assert_eq!(refused, Err("how many nodes pull at a time: 1 to 10000, or 1% to 100%".to_owned()), "{text}");
        }
        assert!("95".parse::<Percentage>().is_err_and(|advice| advice.contains("like 95%")));
    }
}
