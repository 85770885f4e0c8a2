//! Reads a value of a kind from the text of a variable or a flag, or from TOML.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use toml::Value;
use toml::de::DeValue;

use super::{GROUP_MAX_CHARS, Kind, LABELS_MAX, LEAST_PER_SECOND, NAME_MAX_CHARS, SERVERS_MAX, TOKEN_MAX_CHARS};
use crate::text::bytes;

/// The longest label value in Kubernetes; keys may be longer by their prefix.
const LABEL_VALUE_MAX_CHARS: usize = 63;

impl Kind {
    /// Reads the text of a variable or a flag.
    pub(crate) fn parse_text(&self, text: &str) -> Result<Value, String> {
        let read = match self {
            Self::Switch => text.parse().ok().map(Value::Boolean),
            Self::Count { .. } => text.parse().ok().and_then(|count: i64| self.count(count)),
            Self::Rate { .. } => text.parse().ok().and_then(|rate: f64| self.rate(rate)),
            Self::Servers => servers(text.split(',').map(str::trim).filter(|url| !url.is_empty())),
            Self::Labels => labels_of_text(text),
            _ => return self.parse_string(text),
        };
        read.ok_or_else(|| self.must_be())
    }

    /// Reads a value of the file.
    pub(crate) fn parse_toml(&self, value: &DeValue<'_>) -> Result<Value, String> {
        let read = match (self, value) {
            (Self::Switch, DeValue::Boolean(on)) => Some(Value::Boolean(*on)),
            (Self::Count { .. }, DeValue::Integer(count)) => {
                i64::from_str_radix(count.as_str(), count.radix()).ok().and_then(|count| self.count(count))
            }
            (Self::Rate { .. }, DeValue::Integer(rate)) if rate.radix() == 10 => {
                rate.as_str().parse().ok().and_then(|rate| self.rate(rate))
            }
            (Self::Rate { .. }, DeValue::Float(rate)) => rate.as_str().parse().ok().and_then(|rate| self.rate(rate)),
            (Self::Servers, DeValue::Array(list)) => {
                let urls: Option<Vec<&str>> = list.iter().map(|url| url.get_ref().as_str()).collect();
                urls.and_then(|urls| servers(urls.into_iter()))
            }
            (Self::Labels, DeValue::Table(table)) => {
                let pairs: Option<Vec<_>> =
                    table.iter().map(|(key, value)| Some((key.get_ref().as_ref(), value.get_ref().as_str()?))).collect();
                pairs.and_then(|pairs| labels(pairs.into_iter()))
            }
            (Self::Switch | Self::Count { .. } | Self::Rate { .. }, DeValue::String(text)) if self.parse_text(text).is_ok() => {
                return Err(format!("must be {}, written without quotes", self.allowed()));
            }
            (Self::Switch | Self::Count { .. } | Self::Rate { .. }, _) => None,
            (_, DeValue::String(text)) => return self.parse_text(text),
            (Self::Duration { .. }, DeValue::Integer(number)) => {
                return Err(format!("must be {}: write it as \"{}s\" if seconds are meant", self.allowed(), number.as_str()));
            }
            _ => None,
        };
        read.ok_or_else(|| self.must_be())
    }

    fn must_be(&self) -> String {
        format!("must be {}", self.allowed())
    }

    /// Reads the kinds that are a string in the file too.
    fn parse_string(&self, text: &str) -> Result<Value, String> {
        let on_one_line = !text.chars().any(char::is_control);
        let fits = match self {
            Self::Token { may_be_empty } => (*may_be_empty && text.is_empty()) || is_name(text, TOKEN_MAX_CHARS, "_-"),
            Self::NodeName => text.is_empty() || (is_name(text, NAME_MAX_CHARS, "._-") && !text.starts_with('.') && text != "localhost"),
            Self::Choice(words) => words.contains(&text),
            Self::Endpoint => {
                text.is_empty() || (on_one_line && text.strip_prefix("unix://").is_some_and(|path| path.len() > 1 && path.starts_with('/')))
            }
            Self::Address => text.is_empty() || text.parse::<SocketAddr>().is_ok(),
            Self::Path => on_one_line && !text.starts_with('~'),
            Self::Duration { min, max } => return self.duration(text, *min, *max),
            Self::Group { may_be_empty } => (*may_be_empty && text.is_empty()) || is_name(text, GROUP_MAX_CHARS, "._-/"),
            Self::Bytes { max } => {
                let size = bytes::parse(text).filter(|size| size <= max);
                return size.map(|size| Value::String(bytes::format(size))).ok_or_else(|| self.must_be());
            }
            _ => on_one_line,
        };
        if fits { Ok(Value::String(text.to_owned())) } else { Err(self.must_be()) }
    }

    fn duration(&self, text: &str, min: Duration, max: Duration) -> Result<Value, String> {
        if text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty() {
            return Err(format!("{}: write {text}s if seconds are meant", self.must_be()));
        }
        match humantime::parse_duration(text) {
            Ok(span) if (min..=max).contains(&span) => Ok(Value::String(humantime::format_duration(span).to_string())),
            _ => Err(self.must_be()),
        }
    }

    fn count(&self, count: i64) -> Option<Value> {
        let Self::Count { min, max } = self else { return None };
        (i64::from(*min)..=i64::from(*max)).contains(&count).then_some(Value::Integer(count))
    }

    fn rate(&self, rate: f64) -> Option<Value> {
        let Self::Rate { max } = self else { return None };
        // `contains` is false for NaN; `abs` because -0 would be shown as "-0".
        (rate == 0.0 || (LEAST_PER_SECOND..=*max).contains(&rate)).then_some(Value::Float(rate.abs()))
    }
}

fn is_name(text: &str, max_chars: usize, also: &str) -> bool {
    !text.is_empty() && text.len() <= max_chars && text.chars().all(|c| c.is_ascii_alphanumeric() || also.contains(c))
}

fn servers<'t>(urls: impl Iterator<Item = &'t str>) -> Option<Value> {
    let urls: Vec<&str> = urls.collect();
    (urls.len() <= SERVERS_MAX && urls.iter().all(|url| is_server(url)))
        .then(|| Value::Array(urls.into_iter().map(|url| Value::String(url.to_owned())).collect()))
}

/// Whether this can be the URL of a NATS server. The bus parses it in full; the check here reports the problem early and with its place.
fn is_server(url: &str) -> bool {
    let (scheme, rest) = url.split_once("://").unwrap_or(("nats", url));
    let host = rest.rsplit('@').next().unwrap_or(rest).trim_end_matches('/');
    matches!(scheme, "nats" | "tls")
        && !host.is_empty()
        && !host.starts_with(':')
        && !url.chars().any(|c| c.is_whitespace() || c.is_control())
}

fn labels_of_text(text: &str) -> Option<Value> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pairs: Option<Vec<(&str, &str)>> = pairs.map(|pair| pair.split_once('=')).collect();
    labels(pairs?.into_iter())
}

fn labels<'t>(pairs: impl Iterator<Item = (&'t str, &'t str)>) -> Option<Value> {
    let mut table = BTreeMap::new();
    for (key, value) in pairs {
        let fits = is_name(key, NAME_MAX_CHARS, "._-/") && (value.is_empty() || is_name(value, LABEL_VALUE_MAX_CHARS, "._-"));
        if !fits {
            return None;
        }
        table.insert(key.to_owned(), Value::String(value.to_owned()));
    }
    (table.len() <= LABELS_MAX).then(|| Value::Table(table.into_iter().collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Kind = Kind::Duration { min: Duration::from_millis(100), max: Duration::from_secs(3600) };

    const SIZE: Kind = Kind::Bytes { max: 4 << 30 };

    #[test]
    fn text_of_a_variable_or_flag_is_read_or_refused() {
        let count = Kind::Count { min: 1, max: 1000 };
        let rate = Kind::Rate { max: 100.0 };
        for (kind, text, expected) in [
            (Kind::Switch, "true", Some("true")),
            (Kind::Switch, "yes", None),
            (Kind::Switch, "", None),
            (count, "1", Some("1")),
            (count, "1000", Some("1000")),
            (count, "0", None),
            (count, "1001", None),
            (count, "3.5", None),
            (count, "-1", None),
            (count, "99999999999999999999", None),
            (rate, "0.5", Some("0.5")),
            (rate, "0.01", Some("0.01")),
            (rate, "0.009", None),
            // The time between two starts would not fit a duration.
            (rate, "1e-300", None),
            (rate, "-0", Some("0.0")),
            (rate, "NaN", None),
            (rate, "inf", None),
            (rate, "-1", None),
            (SPAN, "1m30s", Some("\"1m 30s\"")),
            (SPAN, "500ms", Some("\"500ms\"")),
            (SPAN, "10", None),
            (SPAN, "0", None),
            (SPAN, "99ms", None),
            (SPAN, "2h", None),
            (SPAN, "", None),
            (Kind::Token { may_be_empty: false }, "blue-1", Some("\"blue-1\"")),
            (Kind::Token { may_be_empty: false }, "a.b", None),
            (Kind::Token { may_be_empty: false }, "", None),
            (Kind::Token { may_be_empty: true }, "", Some("\"\"")),
            (Kind::NodeName, "", Some("\"\"")),
            (Kind::NodeName, "n1.example", Some("\"n1.example\"")),
            (Kind::NodeName, "localhost", None),
            (Kind::NodeName, "..", None),
            (Kind::NodeName, "a/b", None),
            (Kind::Choice(&["wait", "fail"]), "fail", Some("\"fail\"")),
            (Kind::Choice(&["wait", "fail"]), "Fail", None),
            (Kind::Endpoint, "unix:///run/c.sock", Some("\"unix:///run/c.sock\"")),
            (Kind::Endpoint, "/run/c.sock", None),
            (Kind::Endpoint, "tcp://h:1", None),
            (Kind::Endpoint, "unix:///", None),
            (Kind::Address, "", Some("\"\"")),
            (Kind::Address, "127.0.0.1:9464", Some("\"127.0.0.1:9464\"")),
            (Kind::Address, "[::]:9464", Some("\"[::]:9464\"")),
            (Kind::Address, ":9464", None),
            (Kind::Address, "localhost:9464", None),
            (Kind::Address, "127.0.0.1", None),
            (Kind::Address, "127.0.0.1:99999", None),
            (Kind::Address, "http://127.0.0.1:9464", None),
            (Kind::Path, "~/images", None),
            (Kind::Group { may_be_empty: false }, "eu-1/dmz", Some("\"eu-1/dmz\"")),
            (Kind::Group { may_be_empty: false }, "", None),
            (Kind::Group { may_be_empty: true }, "", Some("\"\"")),
            (Kind::Group { may_be_empty: true }, "a b", None),
            (SIZE, "2GiB", Some("\"2GiB\"")),
            (SIZE, "2048 MiB", Some("\"2GiB\"")),
            (SIZE, "0B", Some("\"0B\"")),
            (SIZE, "2", None),
            (SIZE, "2GB", None),
            (SIZE, "-1B", None),
            (SIZE, "5GiB", None),
            (SIZE, "99999999999999999999TiB", None),
            (SIZE, "18446744073709551615TiB", None),
            (Kind::Path, "/a\n", None),
            (Kind::Servers, "", Some("[]")),
            (Kind::Servers, "nats://a:4222, tls://b,c:4222", Some("[\"nats://a:4222\", \"tls://b\", \"c:4222\"]")),
            (Kind::Servers, "nats://[::1]:4222", Some("[\"nats://[::1]:4222\"]")),
            (Kind::Servers, "http://a", None),
            (Kind::Servers, "nats://", None),
            (Kind::Servers, "nats://:4222", None),
            (Kind::Servers, "nats://a b", None),
            (Kind::Labels, "", Some("{}")),
            (Kind::Labels, "zone=a,disk=", Some("{ disk = \"\", zone = \"a\" }")),
            (Kind::Labels, "zone", None),
            (Kind::Labels, "=a", None),
            (Kind::Labels, "a b=c", None),
        ] {
            let read = kind.parse_text(text);
            assert_eq!(read.as_ref().ok().map(Value::to_string).as_deref(), expected, "{kind:?} {text:?}");
            if let Err(what) = read {
                assert!(what.starts_with("must be "), "{what}");
            }
        }
    }

    #[test]
    fn duration_without_a_unit_is_refused_with_the_right_spelling() {
        assert!(SPAN.parse_text("10").unwrap_err().ends_with("write 10s if seconds are meant"));
        assert!(
            SPAN.parse_toml(DeValue::parse("10").unwrap().get_ref()).unwrap_err().ends_with("write it as \"10s\" if seconds are meant")
        );
    }

    #[test]
    fn values_of_the_file_have_their_own_type() {
        for (kind, value, expected) in [
            (Kind::Switch, "true", Some("true")),
            (Kind::Switch, "\"true\"", None),
            (Kind::Switch, "1", None),
            (Kind::Count { min: 0, max: 99 }, "0x10", Some("16")),
            (Kind::Count { min: 0, max: 99 }, "\"16\"", None),
            (Kind::Count { min: 0, max: 99 }, "16.0", None),
            (Kind::Rate { max: 10.0 }, "5", Some("5.0")),
            (Kind::Rate { max: 10.0 }, "0.25", Some("0.25")),
            (Kind::Rate { max: 10.0 }, "nan", None),
            (SPAN, "\"10s\"", Some("\"10s\"")),
            (Kind::Servers, "[\"a:1\", \"b:2\"]", Some("[\"a:1\", \"b:2\"]")),
            (Kind::Servers, "\"a:1,b:2\"", Some("[\"a:1\", \"b:2\"]")),
            (Kind::Servers, "[1]", None),
            (Kind::Labels, "{ zone = \"a\" }", Some("{ zone = \"a\" }")),
            (Kind::Labels, "{ zone = 1 }", None),
            (Kind::Path, "1979-05-27", None),
        ] {
            let read = kind.parse_toml(DeValue::parse(value).unwrap().get_ref());
            assert_eq!(read.ok().map(|value| value.to_string()).as_deref(), expected, "{kind:?} {value}");
        }
    }
}
