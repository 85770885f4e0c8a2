//! Selects nodes by their labels, with Kubernetes' selectors: by equality, by set and by number.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter::Peekable;
use std::str::FromStr;
use std::vec::IntoIter;

/// Appended to every selector error.
const FORM: &str = "a selector is conditions with commas between them: zone=a,disk!=hdd,gpu,!edge,rack in (r1, r2),rack notin (r3),cores>4";
/// Kubernetes' limit for the value of a label.
const VALUE_MAX_CHARS: usize = 63;

/// Conditions on the labels of a node, which must all be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    text: String,
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Condition {
    key: String,
    is: Wanted,
}

/// The condition on the value of one label.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    OneOf(BTreeSet<String>),
    NoneOf(BTreeSet<String>),
    There,
    NotThere,
    Above(i64),
    Below(i64),
}

impl Selector {
    /// True if a node with these labels is selected. As in Kubernetes, a missing label counts as a different value.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.conditions.iter().all(|condition| condition.is.met_by(labels.get(&condition.key).map(String::as_str)))
    }

    /// The selector as the user wrote it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl Wanted {
    fn met_by(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|label| label.parse::<i64>().ok());
        match self {
            Self::OneOf(values) => label.is_some_and(|label| values.contains(label)),
            Self::NoneOf(values) => label.is_none_or(|label| !values.contains(label)),
            Self::There => label.is_some(),
            Self::NotThere => label.is_none(),
            Self::Above(least) => number().is_some_and(|number| number > *least),
            Self::Below(most) => number().is_some_and(|number| number < *most),
        }
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            // Kubernetes selects everything here. But an unset variable of a script must not select the whole fleet.
            return Err(format!("it is empty: without it every node is meant; {FORM}"));
        }
        let mut parser = Parser { tokens: tokens(text).into_iter().peekable() };
        let conditions = parser.conditions().map_err(|wrong| format!("{wrong}; {FORM}"))?;
        Ok(Self { text: text.to_owned(), conditions })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'t> {
    Word(&'t str),
    Sign(&'static str),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Word(text) | Self::Sign(text)) = self;
        write!(f, "`{text}`")
    }
}

/// Longer signs first, because the first match wins.
const SIGNS: [&str; 9] = ["!=", "==", "=", "!", "(", ")", ",", ">", "<"];

/// Splits the text into words and signs; white space only separates words.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (token, length) = match SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            Some(sign) => (Token::Sign(sign), sign.len()),
            None => {
                let end = rest.find(|sign: char| sign.is_whitespace() || "=!(),<>".contains(sign)).unwrap_or(rest.len());
                (Token::Word(rest.get(..end).unwrap_or_default()), end)
            }
        };
        tokens.push(token);
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    tokens
}

struct Parser<'t> {
    tokens: Peekable<IntoIter<Token<'t>>>,
}

impl<'t> Parser<'t> {
    fn conditions(&mut self) -> Result<Vec<Condition>, String> {
        let mut conditions = vec![self.condition()?];
        loop {
            match self.tokens.next() {
                None => return Ok(conditions),
                Some(Token::Sign(",")) => conditions.push(self.condition()?),
                Some(token) => return Err(format!("{token} is out of place after a whole condition")),
            }
        }
    }

    fn condition(&mut self) -> Result<Condition, String> {
        if self.takes("!") {
            return Ok(Condition { key: self.key("after `!`")?, is: Wanted::NotThere });
        }
        let key = self.key("at the start of a condition")?;
        let is = match self.tokens.peek().copied() {
            None | Some(Token::Sign(",")) => Wanted::There,
            Some(sign @ Token::Sign("=" | "==" | "!=")) => {
                self.tokens.next();
                let values = BTreeSet::from([self.value(sign)?]);
                if sign == Token::Sign("!=") { Wanted::NoneOf(values) } else { Wanted::OneOf(values) }
            }
            Some(sign @ Token::Sign(">" | "<")) => {
                self.tokens.next();
                let value = self.value(sign)?;
                let number = value.parse().map_err(|_| format!("a whole number was expected after {sign}, not `{value}`"))?;
                if sign == Token::Sign(">") { Wanted::Above(number) } else { Wanted::Below(number) }
            }
            Some(word @ Token::Word("in" | "notin")) => {
                self.tokens.next();
                let values = self.list(&key, word)?;
                if word == Token::Word("in") { Wanted::OneOf(values) } else { Wanted::NoneOf(values) }
            }
            Some(token) => return Err(format!("{token} is out of place after `{key}`")),
        };
        Ok(Condition { key, is })
    }

    fn key(&mut self, place: &str) -> Result<String, String> {
        match self.tokens.next() {
            // As in Kubernetes these are no keys: in `in (a)` the key is missing.
            Some(Token::Word(word)) if !matches!(word, "in" | "notin") => key(word),
            Some(token) => Err(format!("a label key was expected {place}, not {token}")),
            None => Err(format!("the selector ends where a label key was expected, {place}")),
        }
    }

    /// The value after a sign. It may be empty.
    fn value(&mut self, sign: Token<'_>) -> Result<String, String> {
        match self.tokens.peek().copied() {
            None | Some(Token::Sign(",")) => Ok(String::new()),
            Some(Token::Word(word)) => {
                self.tokens.next();
                value(word)
            }
            Some(token) => Err(format!("a value was expected after {sign}, not {token}")),
        }
    }

    /// Values in brackets. Nothing between two commas is an empty value.
    fn list(&mut self, key: &str, word: Token<'_>) -> Result<BTreeSet<String>, String> {
        if !self.takes("(") || self.tokens.peek() == Some(&Token::Sign(")")) {
            return Err(format!("values in brackets were expected after {word}, as in `{key} in (a, b)`"));
        }
        let mut values = BTreeSet::new();
        loop {
            values.insert(match self.tokens.peek().copied() {
                Some(Token::Word(word)) => {
                    self.tokens.next();
                    value(word)?
                }
                _ => String::new(),
            });
            match self.tokens.next() {
                Some(Token::Sign(",")) => {}
                Some(Token::Sign(")")) => return Ok(values),
                Some(token) => return Err(format!("{token} is out of place in the list after {word}")),
                None => return Err(format!("the bracket after {word} is not closed")),
            }
        }
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        self.tokens.next_if_eq(&Token::Sign(sign)).is_some()
    }
}

/// Checks the key of a label.
fn key(word: &str) -> Result<String, String> {
    if word.chars().all(|character| character.is_ascii_alphanumeric() || "-_./".contains(character)) {
        return Ok(word.to_owned());
    }
    Err(format!("`{word}` is not a label key: letters, digits and - _ . /"))
}

/// Checks the value of a label. An invalid value would never match.
fn value(word: &str) -> Result<String, String> {
    if word.len() <= VALUE_MAX_CHARS && word.chars().all(|character| character.is_ascii_alphanumeric() || "-_.".contains(character)) {
        return Ok(word.to_owned());
    }
    Err(format!("`{word}` is not a label value: at most {VALUE_MAX_CHARS} letters, digits and - _ ."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_matches_as_in_kubernetes() {
        let labels = [("zone", "a"), ("example.com/gpu", ""), ("cores", "16"), ("in", "x")];
        let labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let table = [
            ("zone=a", true),
            ("zone==a", true),
            (" zone = a ", true),
            ("zone=b", false),
            ("zone!=b", true),
            ("zone!=a", false),
            ("disk!=hdd", true),
            ("zone", true),
            ("disk", false),
            ("!disk", true),
            ("! disk", true),
            ("!zone", false),
            ("example.com/gpu=", true),
            ("example.com/gpu", true),
            ("disk=", false),
            ("zone=a,!disk,example.com/gpu", true),
            ("zone=a,disk", false),
            ("zone=in", false),
            ("zone in (a)", true),
            ("zone in (a, b)", true),
            ("zone in(b,a)", true),
            ("zone  in\t( b , c )", false),
            ("disk in (ssd)", false),
            ("zone notin (b, c)", true),
            ("zone notin (a, b)", false),
            ("disk notin (hdd)", true),
            ("zone notin (in, notin)", true),
            ("example.com/gpu in (,t4)", true),
            ("zone in (,b)", false),
            ("disk notin (,)", true),
            ("zone in (a, b),disk notin (hdd),!edge,zone!=c,cores>8", true),
            ("zone in (a, b),edge", false),
            ("cores>15", true),
            ("cores>16", false),
            ("cores<17", true),
            ("cores < 16", false),
            ("zone>1", false),
            ("disk<1", false),
            ("cores>-1", true),
        ];
        for (text, expected) in table {
            assert_eq!(text.parse::<Selector>().map(|selector| selector.matches(&labels)), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_selector_is_refused_with_the_reason() {
        let long = format!("zone={}", "a".repeat(64));
        let table = [
            ("", "it is empty: without it every node is meant"),
            (" ", "it is empty"),
            (",", "a label key was expected at the start of a condition, not `,`"),
            ("zone=a,", "the selector ends where a label key was expected, at the start of a condition"),
            ("zone=a,,disk", "a label key was expected at the start of a condition, not `,`"),
            ("=a", "a label key was expected at the start of a condition, not `=`"),
            ("!", "the selector ends where a label key was expected, after `!`"),
            ("!=a", "a label key was expected at the start of a condition, not `!=`"),
            ("!zone=a", "`=` is out of place after a whole condition"),
            ("!!zone", "a label key was expected after `!`, not `!`"),
            ("in (a)", "a label key was expected at the start of a condition, not `in`"),
            ("zone in a", "values in brackets were expected after `in`, as in `zone in (a, b)`"),
            ("zone notin", "values in brackets were expected after `notin`, as in `zone in (a, b)`"),
            ("zone in ()", "values in brackets were expected after `in`"),
            ("zone in (a", "the bracket after `in` is not closed"),
            ("zone in (a b)", "`b` is out of place in the list after `in`"),
            ("zone in (a=b)", "`=` is out of place in the list after `in`"),
            ("zone notin (a, (b))", "`(` is out of place in the list after `notin`"),
            ("zone in (a) (b)", "`(` is out of place after a whole condition"),
            ("zone in (a)b", "`b` is out of place after a whole condition"),
            ("zone=(a)", "a value was expected after `=`, not `(`"),
            ("zone=!a", "a value was expected after `=`, not `!`"),
            ("zone===a", "a value was expected after `==`, not `=`"),
            ("zone=a=b", "`=` is out of place after a whole condition"),
            ("zone=a b", "`b` is out of place after a whole condition"),
            ("a b", "`b` is out of place after `a`"),
            ("zone Notin (a)", "`Notin` is out of place after `zone`"),
            ("cores>many", "a whole number was expected after `>`, not `many`"),
            ("cores<", "a whole number was expected after `<`, not ``"),
            ("cores>=4", "a value was expected after `>`, not `=`"),
            ("zone:a", "`zone:a` is not a label key: letters, digits and - _ . /"),
            ("zone=a/b", "`a/b` is not a label value: at most 63 letters"),
            ("zone in (a, b;c)", "`b;c` is not a label value"),
            ("zöne=a", "is not a label key"),
            (long.as_str(), "is not a label value: at most 63"),
        ];
        for (text, why) in table {
            let error = text.parse::<Selector>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.ends_with("rack in (r1, r2),rack notin (r3),cores>4"), "{text}: {error}");
        }
    }
}
