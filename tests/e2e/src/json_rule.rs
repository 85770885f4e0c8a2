//! The rule for every JSON object that the program writes.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// How a line of JSON breaks the rule: each key occurs once; an absent value is null and not an empty text; `*_ms` is a duration in
/// milliseconds; `*_at` is a time of RFC 3339.
#[must_use]
pub(crate) fn broken(line: &str) -> Vec<String> {
    let mut broken = Vec::new();
    match serde_json::from_str::<Checked>(line) {
        Err(error) => broken.push(error.to_string()),
        Ok(Checked(value)) => check("", &value, &mut broken),
    }
    broken
}

fn check(key: &str, value: &Value, broken: &mut Vec<String>) {
    match value {
        Value::String(text) if text.is_empty() => broken.push(format!("{key} is an empty text: absent is null")),
        Value::Object(fields) => fields.iter().for_each(|(key, value)| check(key, value, broken)),
        Value::Array(items) => items.iter().for_each(|item| check(key, item, broken)),
        _ => {}
    }
    let is_time = |text: &str| OffsetDateTime::parse(text, &Rfc3339).is_ok();
    if key.ends_with("_ms") && !(value.is_number() || value.is_null()) {
        broken.push(format!("{key} is a duration in milliseconds, not {value}"));
    }
    if key.ends_with("_at") && !(value.is_null() || value.as_str().is_some_and(is_time)) {
        broken.push(format!("{key} is a moment of RFC 3339, not {value}"));
    }
    if key.ends_with("_ms_ago") {
        broken.push(format!("{key}: an age is written as a moment, in {}_at", key.trim_end_matches("_ms_ago")));
    }
}

/// A value in which each key occurs once.
struct Checked(Value);

impl<'de> Deserialize<'de> for Checked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Once).map(Self)
    }
}

struct Once;

impl<'de> Visitor<'de> for Once {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Checked(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut all = serde_json::Map::new();
        while let Some((key, Checked(value))) = fields.next_entry::<String, Checked>()? {
            if all.insert(key.clone(), value).is_some() {
                return Err(de::Error::custom(format!("the key {key} occurs twice")));
            }
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::broken;

    #[test]
    fn each_break_of_the_rule_is_found() {
        let table = [
            (r#"{"a": null, "b": [1.5, {"c_ms": 5, "d_at": "2026-01-31T12:00:00.5Z"}], "e": true, "f": -1}"#, 0),
            (r#"{"a": 1, "b": {"c": 1, "c": 2}}"#, 1),
            (r#"{"a": ""}"#, 1),
            (r#"{"a": [{"b": ""}], "c_ms": "5", "d_at": 5, "e_at": "today", "f_ms_ago": 5}"#, 5),
            (r#"{"a""#, 1),
        ];
        for (line, breaks) in table {
            assert_eq!(broken(line).len(), breaks, "{line}: {:?}", broken(line));
        }
    }
}
