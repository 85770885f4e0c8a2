//! The rules that several values must keep together.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{OnExhausted, Settings};
use crate::problem::{Origin, Problem};

/// A problem for every broken rule, unless one of its keys already has a problem of its own.
pub(crate) fn together(settings: &Settings, origins: &BTreeMap<&'static str, Origin>, wrong: &BTreeSet<String>) -> Vec<Problem> {
    rules(settings)
        .into_iter()
        .filter(|rule| rule.broken && !rule.keys.iter().any(|key| wrong.contains(*key)))
        .map(|rule| Problem::of(place(rule.keys, origins), rule.keys[0], rule.what))
        .collect()
}

struct Rule {
    broken: bool,
    /// The key that the problem names first, and the other key of the rule.
    keys: [&'static str; 2],
    what: String,
}

fn rules(settings: &Settings) -> Vec<Rule> {
    let Settings { throttle, backoff, nats, .. } = settings;
    vec![
        Rule {
            broken: backoff.initial > backoff.max,
            keys: ["backoff.initial", "backoff.max"],
            what: format!(
                "is {}, more than backoff.max = {}: make it at most that",
                humantime::format_duration(backoff.initial),
                humantime::format_duration(backoff.max)
            ),
        },
        Rule {
            broken: throttle.on_exhausted == OnExhausted::Wait && throttle.qps > 0.0 && throttle.burst == 0,
            keys: ["throttle.burst", "throttle.on_exhausted"],
            what: "is 0 with throttle.on_exhausted = wait, so every pull would wait for ever: make it at least 1, or throttle.qps 0 for no limit".to_owned(),
        },
        Rule {
            broken: nats.cert.is_some() && nats.key.is_none(),
            keys: ["nats.cert", "nats.key"],
            what: "needs nats.key: a client certificate is of no use without its key".to_owned(),
        },
        Rule {
            broken: nats.key.is_some() && nats.cert.is_none(),
            keys: ["nats.key", "nats.cert"],
            what: "needs nats.cert: the key of a client certificate is of no use without it".to_owned(),
        },
        Rule {
            broken: nats.creds.is_some() && nats.nkey.is_some(),
            keys: ["nats.nkey", "nats.creds"],
            what: "is given together with nats.creds, and each is a login: give one of them".to_owned(),
        },
        Rule {
            broken: nats.token_file.is_some() && (nats.creds.is_some() || nats.nkey.is_some()),
            keys: ["nats.token_file", if nats.creds.is_some() { "nats.creds" } else { "nats.nkey" }],
            what: "is given together with nats.creds or nats.nkey, and each is a login: give one of them".to_owned(),
        },
    ]
}

/// The origin of the first of the rule's keys that has a value other than by default.
fn place(keys: [&'static str; 2], origins: &BTreeMap<&'static str, Origin>) -> Origin {
    let given = keys.iter().filter_map(|key| origins.get(key)).find(|origin| **origin != Origin::Default);
    given.cloned().unwrap_or(Origin::Default)
}
