//! Which nodes, by their labels: the equality-based selectors of Kubernetes.

use std::collections::BTreeMap;
use std::str::FromStr;

/// What the labels of a node must be: all of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Condition {
    Is(String, String),
    IsNot(String, String),
    Has(String),
    HasNot(String),
}

impl Selector {
    /// Whether a node with these labels is meant. As in Kubernetes a label that is not there is another value.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.conditions.iter().all(|condition| match condition {
            Condition::Is(key, value) => labels.get(key) == Some(value),
            Condition::IsNot(key, value) => labels.get(key) != Some(value),
            Condition::Has(key) => labels.contains_key(key),
            Condition::HasNot(key) => !labels.contains_key(key),
        })
    }

    /// As it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let conditions = text.split(',').map(condition).collect::<Option<Vec<_>>>();
        let conditions = conditions.ok_or("a selector is labels with commas between them: zone=a,disk!=hdd,gpu,!edge")?;
        Ok(Self { text: text.to_owned(), conditions })
    }
}

fn condition(text: &str) -> Option<Condition> {
    let text = text.trim();
    let pair = |key: &str, value: &str| Some((word(key)?, value.trim().to_owned()));
    if let Some((key, value)) = text.split_once("!=") {
        return pair(key, value).map(|(key, value)| Condition::IsNot(key, value));
    }
    if let Some((key, value)) = text.split_once('=') {
        return pair(key, value.strip_prefix('=').unwrap_or(value)).map(|(key, value)| Condition::Is(key, value));
    }
    match text.strip_prefix('!') {
        Some(key) => word(key).map(Condition::HasNot),
        None => word(text).map(Condition::Has),
    }
}

/// A label's key: something, and none of the signs of a selector.
fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let fit = !text.is_empty() && text.chars().all(|character| character.is_ascii_alphanumeric() || "-_./".contains(character));
    fit.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_matches_as_in_kubernetes() {
        let labels = BTreeMap::from([("zone".to_owned(), "a".to_owned()), ("example.com/gpu".to_owned(), String::new())]);
        let table = [
            ("zone=a", true),
            ("zone==a", true),
            ("zone = a", true),
            ("zone=b", false),
            ("zone!=b", true),
            ("zone!=a", false),
            ("disk!=hdd", true),
            ("zone", true),
            ("disk", false),
            ("!disk", true),
            ("!zone", false),
            ("example.com/gpu=", true),
            ("zone=a,!disk,example.com/gpu", true),
            ("zone=a,disk", false),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Selector>().map(|selector| selector.matches(&labels)), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused() {
        for text in ["", ",", "zone=a,", "=a", "!", "!=a", "zone in (a, b)", "a b"] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
