//! Parses the headers in which registries state their limits.
//!
//! Docker Hub: `ratelimit-limit: 100;w=21600`, `ratelimit-remaining: 76;w=21600`, `docker-ratelimit-source: 192.0.2.7`. The
//! drafts of the IETF: `RateLimit: limit=100, remaining=50, reset=5`, later `RateLimit-Policy: "hour";q=100;w=3600` with
//! `RateLimit: "hour";r=50;t=30`. Others: `x-ratelimit-limit`, `-remaining` and `-reset`.

use std::time::Duration;

use contract::messages::throttler::{RegistryLimit, SOURCE_MAX_BYTES};
use http::HeaderMap;

use crate::oci_layout::failure::bounded;

/// The most windows that are read from one answer; registries state one or two.
const WINDOWS_MAX: usize = 8;
/// The longest window that is respected: a month. A longer one would stop a fleet for good.
const WINDOW_MAX: Duration = Duration::from_secs(31 * 24 * 60 * 60);
/// A reset above this is a date in seconds since 1970 (after 2001), not a delay (of 31 years).
const RESET_IS_DATE: u64 = 1_000_000_000;

/// An item of a structured header's list, with its parameters: `"hour";q=100;w=3600, "day";q=500` has two.
struct Item<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, u64)>,
}

impl Item<'_> {
    fn parameter(&self, name: &str) -> Option<u64> {
        self.parameters.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| *value)
    }
}

/// The limits that an answer's headers state. `wall` is the time since 1970.
pub(super) fn limits(headers: &HeaderMap, wall: Duration) -> Vec<RegistryLimit> {
    let source = text(headers, "docker-ratelimit-source").map(|source| bounded(source.trim(), SOURCE_MAX_BYTES).to_owned());
    let source = source.filter(|source| !source.is_empty() && source.chars().all(|letter| letter.is_ascii_graphic()));
    let found = [named_windows(headers), counted_windows(headers, "ratelimit"), counted_windows(headers, "x-ratelimit")];
    let mut limits = found.into_iter().find(|limits| !limits.is_empty()).unwrap_or_default();
    for limit in &mut limits {
        // The remaining number cannot exceed the limit.
        limit.remaining = if limit.limit == 0 { limit.remaining } else { limit.remaining.min(limit.limit) };
        limit.source.clone_from(&source);
        limit.window_ms = limit.window_ms.min(millis(WINDOW_MAX));
        limit.reset_ms = limit.reset_ms.map(|reset| delay(reset / 1_000, wall));
    }
    limits
}

/// Parses `RateLimit` with `RateLimit-Policy`, in both drafts' forms.
fn named_windows(headers: &HeaderMap) -> Vec<RegistryLimit> {
    let (Some(state), policy) = (text(headers, "ratelimit"), text(headers, "ratelimit-policy").unwrap_or_default()) else {
        return Vec::new();
    };
    let policies = items(policy);
    if state.contains("remaining=") {
        // One window, its fields separated by commas; the policy is `100;w=60`.
        let fields: Vec<_> = state.split([',', ';']).filter_map(pair).collect();
        let field = |name: &str| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let Some(remaining) = field("remaining") else { return Vec::new() };
        let limit = field("limit").unwrap_or_default();
        let window = policies.iter().find(|policy| policy.name.parse() == Ok(limit)).and_then(|policy| policy.parameter("w"));
        return vec![window_of(limit, remaining, window, field("reset"))];
    }
    let window = |item: &Item<'_>| {
        let policy = policies.iter().find(|policy| policy.name == item.name);
        let of_policy = |name| policy.and_then(|policy| policy.parameter(name));
        Some(window_of(of_policy("q").unwrap_or_default(), item.parameter("r")?, of_policy("w"), item.parameter("t")))
    };
    items(state).iter().filter_map(window).collect()
}

/// Parses `<prefix>-limit`, `<prefix>-remaining`, `<prefix>-reset`: numbers, perhaps followed by the window.
fn counted_windows(headers: &HeaderMap, prefix: &str) -> Vec<RegistryLimit> {
    let read = |name: &str| items(text(headers, &format!("{prefix}-{name}")).unwrap_or_default());
    let (limits, remaining) = (read("limit"), read("remaining"));
    let reset = text(headers, &format!("{prefix}-reset")).and_then(|reset| reset.trim().parse().ok());
    let window = |left: &Item<'_>| {
        let window = left.parameter("w");
        // The limit with the same window; if there is none, the first, whose window ends first.
        let same = limits.iter().find(|limit| window.is_some() && limit.parameter("w") == window);
        let limit = same.or(limits.first()).and_then(|limit| limit.name.parse().ok()).unwrap_or_default();
        // `100, 100;w=60` is the limit followed by its policy.
        let policy = || limits.iter().filter(|policy| policy.name.parse() == Ok(limit)).find_map(|policy| policy.parameter("w"));
        Some(window_of(limit, left.name.parse().ok()?, window.or_else(policy), reset))
    };
    remaining.iter().filter_map(window).collect()
}

/// A limit with window and reset in seconds; the reset may still be a date.
fn window_of(limit: u64, remaining: u64, window: Option<u64>, reset: Option<u64>) -> RegistryLimit {
    RegistryLimit {
        source: None,
        limit,
        remaining,
        window_ms: window.unwrap_or_default().saturating_mul(1_000),
        reset_ms: reset.map(|reset| reset.saturating_mul(1_000)),
    }
}

/// Milliseconds until a reset, which is in seconds from now or since 1970.
fn delay(reset: u64, wall: Duration) -> u64 {
    let seconds = if reset >= RESET_IS_DATE { reset.saturating_sub(wall.as_secs()) } else { reset };
    seconds.saturating_mul(1_000).min(millis(WINDOW_MAX))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn items(list: &str) -> Vec<Item<'_>> {
    let filled = list.split(',').filter(|item| !item.trim().is_empty()).take(WINDOWS_MAX);
    let read = |item| {
        let mut parts = str::split(item, ';');
        let name = parts.next().unwrap_or_default().trim().trim_matches('"');
        Item { name, parameters: parts.filter_map(pair).collect() }
    };
    filled.map(read).collect()
}

/// Parses `w=21600`.
fn pair(text: &str) -> Option<(&str, u64)> {
    let (name, value) = text.split_once('=')?;
    Some((name.trim(), value.trim().trim_matches('"').parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    const WALL: Duration = Duration::from_secs(1_700_000_000);

    fn read(pairs: &[(&str, &str)]) -> Vec<(u64, u64, u64, Option<u64>)> {
        let header = |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
        let headers = pairs.iter().map(header).collect();
        limits(&headers, WALL).iter().map(|limit| (limit.limit, limit.remaining, limit.window_ms, limit.reset_ms)).collect()
    }

    #[test]
    fn limits_are_parsed_in_every_known_form() {
        let hub = [("ratelimit-limit", "100;w=21600"), ("ratelimit-remaining", "76;w=21600"), ("docker-ratelimit-source", "192.0.2.7")];
        let two = [("ratelimit-limit", "100;w=60, 500;w=3600"), ("ratelimit-remaining", "9;w=60, 400;w=3600")];
        let draft_3 = [("ratelimit-limit", "100, 100;w=60"), ("ratelimit-remaining", "50"), ("ratelimit-reset", "30")];
        let draft_7 = [("ratelimit", "limit=100, remaining=50, reset=5"), ("ratelimit-policy", "100;w=60")];
        let draft_8 =
            [("ratelimit-policy", "\"hour\";q=100;w=3600, \"day\";q=500;w=86400"), ("ratelimit", "\"hour\";r=50;t=30, \"day\";r=499")];
        for (headers, expected) in [
            (&hub[..], vec![(100, 76, 21_600_000, None)]),
            (&two, vec![(100, 9, 60_000, None), (500, 400, 3_600_000, None)]),
            (&draft_3, vec![(100, 50, 60_000, Some(30_000))]),
            (&draft_7, vec![(100, 50, 60_000, Some(5_000))]),
            (&draft_8, vec![(100, 50, 3_600_000, Some(30_000)), (500, 499, 86_400_000, None)]),
            (
                &[("x-ratelimit-limit", "60"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000100")],
                vec![(60, 0, 0, Some(100_000))],
            ),
            (&[("ratelimit-remaining", "7")], vec![(0, 7, 0, None)]),
            (&[("ratelimit-limit", "100;w=21600")], vec![]),
            (&[], vec![]),
        ] {
            assert_eq!(read(headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn malformed_limits_are_ignored_or_bounded() {
        let month = 31 * 24 * 60 * 60 * 1_000;
        let many = vec!["1;w=1"; 1_000].join(",");
        for (headers, expected) in [
            (vec![("ratelimit-limit", "lots"), ("ratelimit-remaining", "-5")], vec![]),
            (vec![("ratelimit-remaining", "99999999999999999999999")], vec![]),
            (vec![("ratelimit-limit", ";;;,,="), ("ratelimit-remaining", "3;w")], vec![(0, 3, 0, None)]),
            (
                vec![("ratelimit-limit", "1;w=18446744073709551615"), ("ratelimit-remaining", "0;w=18446744073709551615")],
                vec![(1, 0, month, None)],
            ),
            (vec![("ratelimit", "\"x\";r=1;t=999999999")], vec![(0, 1, 0, Some(month))]),
            (vec![("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1600000000")], vec![(0, 0, 0, Some(0))]),
            (vec![("ratelimit", "remaining=, limit")], vec![]),
        ] {
            assert_eq!(read(&headers), expected, "{headers:?}");
        }
        assert_eq!(read(&[("ratelimit-limit", &many), ("ratelimit-remaining", &many)]).len(), WINDOWS_MAX);
    }

    #[test]
    fn source_of_a_limit_is_bounded() {
        let source = |value: &str| {
            let headers = HeaderMap::from_iter([
                (HeaderName::from_static("docker-ratelimit-source"), HeaderValue::from_str(value).unwrap()),
                (HeaderName::from_static("ratelimit-remaining"), HeaderValue::from_static("1")),
            ]);
            limits(&headers, WALL).remove(0).source
        };
        assert_eq!(source(" 192.0.2.7 ").as_deref(), Some("192.0.2.7"));
        assert_eq!(source(""), None);
        assert_eq!(source("two words"), None);
        assert_eq!(source(&"x".repeat(500)).map(|source| source.len()), Some(SOURCE_MAX_BYTES));
    }
}
