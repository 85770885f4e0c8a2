//! Compares an agent with a recording of kubelet's own image manager.
//!
//! Contract: the same CRI answers lead to the same reason, message, image reference, events, CRI calls and logins, byte for byte except
//! durations, whether the actors communicate in the process or over a bus. Every case of the recording runs, except those that one of the
//! rules below excludes. The number of each rule's cases is fixed, so that no case is excluded unnoticed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recording;
mod replay;

use actors::Delivery;
use contract::Reason;
use integration::real;

use recording::{Case, Recording};

/// Cases that are not compared, each with its reason and their number.
const RULES: [Rule; 4] = [
    Rule {
        tag: "odd-policy",
        why: "an unknown policy cannot be requested; if the image name is invalid, the policy does not matter and the case runs",
        takes: |case| case.is("odd-policy") && !case.runtime_image.is_empty(),
        cases: 36,
    },
    Rule {
        tag: "code-beyond-16",
        why: "gRPC ends at code 16; the test's server can neither send nor the agent's client keep another",
        takes: |case| case.is("code-beyond-16"),
        cases: 4,
    },
    Rule {
        tag: "not-there-after-pull",
        why: "an agent verifies a pull: a success without an image is a failure, tested below; other answers after a pull are compared",
        takes: |case| case.is("not-there-after-pull") && case.pull_without_an_image(),
        cases: 2,
    },
    Rule {
        tag: "back-off-kept-after-success",
        why: "a success ends the back-off, as the conformance tests show",
        takes: |case| case.is("back-off-kept-after-success"),
        cases: 1,
    },
];
const CASES: usize = 758;

struct Rule {
    tag: &'static str,
    why: &'static str,
    takes: fn(&Case) -> bool,
    cases: usize,
}

/// The first rule that excludes a case.
fn rule_for(case: &Case) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.takes)(case))
}

#[test]
fn every_recorded_case_is_counted_under_its_rule() {
    let recording = Recording::read();
    assert_eq!(recording.cases.len(), CASES);
    for rule in &RULES {
        let taken = recording.cases.iter().filter(|case| rule_for(case).is_some_and(|first| first.tag == rule.tag)).count();
        assert_eq!(taken, rule.cases, "{}: {}", rule.tag, rule.why);
    }
    for tag in ["credentials", "several-pods", "throttle", "unicode-tables"] {
        let mut tagged = recording.cases.iter().filter(|case| case.is(tag)).peekable();
        assert!(tagged.peek().is_some() && tagged.all(|case| rule_for(case).is_none()), "all cases of {tag} run");
    }
}

#[test]
fn an_agent_answers_as_kubelet_did() {
    let recording = Recording::read();
    let mut differences = Vec::new();
    let mut compared = 0;
    let cases = recording.cases.iter().filter(|case| rule_for(case).is_none());
    real(async {
        for (case, delivery) in cases.flat_map(|case| [(case, Delivery::Local), (case, Delivery::Bus)]) {
            let results = replay::replay(&recording.source, case, delivery).await;
            compared += 1;
            for (number, (ours, call)) in results.iter().zip(&case.calls).enumerate() {
                if *ours != call.result {
                    differences.push(format!(
                        "{}, {delivery:?}, call {}\n kubelet: {:?}\n    ours: {ours:?}",
                        case.name,
                        number + 1,
                        call.result
                    ));
                }
            }
        }
    });
    let (count, shown) = (differences.len(), differences.iter().take(10).map(String::as_str).collect::<Vec<_>>().join("\n"));
    assert!(differences.is_empty(), "{count} calls differ, among them\n{shown}");
    assert_eq!(compared, 2 * (CASES - RULES.iter().map(|rule| rule.cases).sum::<usize>()));
}

/// Early versions of Docker also reported pulls that had not happened, and kubelet checked the image then.
#[test]
fn unlike_kubelet_a_success_without_an_image_is_a_failure() {
    let recording = Recording::read();
    real(async {
        for case in recording.cases.iter().filter(|case| rule_for(case).is_some_and(|rule| rule.tag == "not-there-after-pull")) {
            let results = replay::replay(&recording.source, case, Delivery::Local).await;
            assert_eq!(results[0].reason, Reason::ErrImagePull.to_string(), "{}", case.name);
            assert!(results[0].message.contains("the runtime reported success, but the image is not there"), "{}", results[0].message);
            assert_eq!(results[0].cri_calls, case.calls[0].result.cri_calls, "{}", case.name);
        }
    });
}
