//! The replies to checks, reports and clears.

use std::time::Duration;

use backoff_tracker::core::BackoffPolicy;
use backoff_tracker::core::knowledge::{Clearing, Effect, Input, Knowledge, Reply};
use clock::Random;
use contract::messages::backoff_tracker::{AttemptReported, BackoffAnswer, CheckBackoff, ReportAttempt};
use contract::{AttemptId, FailureClass};

use super::node::{Node, failed, failure, image, key, target};

const IMAGE: &str = "r/a:1";

#[test]
fn a_node_without_a_fleet_replies_by_kubelets_rule_in_order_and_does_nothing_else() {
    let mut core = Knowledge::new("me".parse().unwrap(), BackoffPolicy::default());
    let check = || Input::Check(CheckBackoff { key: key(IMAGE), peek: false, target: Some(target()) });
    let (attempt, failure) = (AttemptId::random(&mut Random::seeded(1)), Some(failure(FailureClass::NotFound)));
    let report = ReportAttempt { key: key(IMAGE), attempt, attempt_span: None, failure, target: Some(target()) };
    let inputs = [check(), Input::PullEnded(report), check(), Input::Clear(IMAGE.to_owned()), check()];
    let mut effects = core.step_all(Duration::ZERO, inputs);
    let refused = effects.remove(2);
    assert!(
        matches!(&refused, Effect::Reply(Reply::Checked(BackoffAnswer::Refused(held))) if held.next_attempt_ms == 10_000),
        "{refused:?}"
    );
    let replies = [
        Reply::Checked(BackoffAnswer::Allowed),
        Reply::Reported(AttemptReported { next_attempt_ms: Some(10_000), entry: None }),
        Reply::Cleared {
            cleared: vec![IMAGE.to_owned()],
            clearing: Some(Clearing { image: Some(format!("docker.io/{IMAGE}")), backoff_keys: vec![] }),
        },
        Reply::Checked(BackoffAnswer::Allowed),
    ];
    assert_eq!(effects, replies.map(Effect::Reply));
    assert_eq!(core.next_wake(), None);
}

#[test]
fn check_that_reports_of_other_nodes_refuse_is_answered_and_does_nothing_else() {
    let mut node = Node::of(1_000);
    for reporter in ["n1", "n2"] {
        node.receive(reporter, image(), failed(1));
    }
    let check = Input::Check(CheckBackoff { key: key(IMAGE), peek: false, target: Some(target()) });
    let effects = node.core.step(node.now, check);
    assert!(
        matches!(&effects[..], [Effect::Reply(Reply::Checked(BackoffAnswer::Refused(held)))] if held.learned_by.is_some()),
        "{effects:?}"
    );
}
