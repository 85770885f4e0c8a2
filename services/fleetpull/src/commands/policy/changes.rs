//! The differences between two fleet policies.

use std::collections::BTreeSet;

use contract::policy::{Caps, FleetPolicy, ShareAtMost};
use serde::Serialize;
use serde_json::Value;

/// A changed value. The names and their meaning are an interface.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Change {
    /// The registry. Null for every registry.
    registry: Option<String>,
    /// `share`, `pulls_per_second` or `pulls_at_once`.
    value: &'static str,
    /// Null if it was not set.
    before: Value,
    /// Null if it is no longer set.
    after: Value,
}

impl Change {
    /// The change as a line of a list.
    pub(super) fn line(&self) -> String {
        let Self { registry, value, before, after } = self;
        let whose = registry.as_deref().unwrap_or("every registry");
        format!("{whose}: {value} {} -> {}", shown(before), shown(after))
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(word) => word.clone(),
        Value::Null => "not set".to_owned(),
        // A whole number is written without a fraction: 200, not 200.0.
        number => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
    }
}

/// The changes, in the order of the document.
pub(super) fn between(before: &FleetPolicy, after: &FleetPolicy) -> Vec<Change> {
    let share = |policy: &FleetPolicy| Value::from(policy.share.map(ShareAtMost::as_str));
    let mut changes: Vec<Change> = changed(None, "share", share(before), share(after)).into_iter().collect();
    changes.extend(of_caps(None, before.budget, after.budget));
    let registries: BTreeSet<&String> = before.registry.keys().chain(after.registry.keys()).collect();
    for registry in registries {
        let caps = |policy: &FleetPolicy| policy.registry.get(registry).copied().unwrap_or_default();
        changes.extend(of_caps(Some(registry), caps(before), caps(after)));
    }
    changes
}

fn of_caps(registry: Option<&String>, before: Caps, after: Caps) -> Vec<Change> {
    let per_second = |caps: Caps| Value::from(caps.pulls_per_second);
    let at_once = |caps: Caps| Value::from(caps.pulls_at_once);
    let changes = [
        changed(registry, "pulls_per_second", per_second(before), per_second(after)),
        changed(registry, "pulls_at_once", at_once(before), at_once(after)),
    ];
    changes.into_iter().flatten().collect()
}

fn changed(registry: Option<&String>, value: &'static str, before: Value, after: Value) -> Option<Change> {
    (before != after).then(|| Change { registry: registry.cloned(), value, before, after })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn policy(of_all: Caps, of_hub: Option<Caps>) -> FleetPolicy {
        let registry: BTreeMap<_, _> = of_hub.map(|caps| ("docker.io".to_owned(), caps)).into_iter().collect();
        FleetPolicy { budget: of_all, registry, ..FleetPolicy::default() }
    }

    #[test]
    fn each_value_that_changes_has_its_line() {
        let slow = Caps { pulls_per_second: Some(2.5), pulls_at_once: Some(3) };
        let quick = Caps { pulls_per_second: Some(200.0), pulls_at_once: Some(3) };
        let lines = |before: &FleetPolicy, after: &FleetPolicy| between(before, after).iter().map(Change::line).collect::<Vec<_>>();
        let (none, all) = (policy(Caps::NONE, None), policy(quick, Some(slow)));
        assert_eq!(lines(&all, &all), [""; 0]);
        assert_eq!(lines(&policy(quick, None), &policy(slow, None)), ["every registry: pulls_per_second 200 -> 2.5"]);
        assert_eq!(
            lines(&none, &all),
            [
                "every registry: pulls_per_second not set -> 200",
                "every registry: pulls_at_once not set -> 3",
                "docker.io: pulls_per_second not set -> 2.5",
                "docker.io: pulls_at_once not set -> 3",
            ]
        );
        assert_eq!(lines(&all, &none).len(), 4);
        assert_eq!(lines(&none, &policy(Caps::NONE, Some(Caps::NONE))), [""; 0], "a table without values says nothing");
        let observing = FleetPolicy { share: Some(ShareAtMost::Observe), ..none.clone() };
        assert_eq!(lines(&none, &observing), ["every registry: share not set -> observe"]);
        let json = serde_json::to_value(between(&none, &all)).expect("serialises");
        assert_eq!(json[2], serde_json::json!({ "registry": "docker.io", "value": "pulls_per_second", "before": null, "after": 2.5 }));
    }
}
