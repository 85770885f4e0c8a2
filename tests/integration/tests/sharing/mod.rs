//! A coordinator that shares, with a scripted tracker, over the real actors with a paused clock.
//!
//! Contracts: the tracker is asked with the node's own view and gets the result of an attempt, in order; if a pull loses its clearance, it
//! is ended and started again, and it ends as failed without a manifest in time; a tracker that does not answer delays a pull for a bounded
//! time; standing pulls go on through failures and restarts, are listed, cancelled and detached; too few free bytes refuse a pull without a
//! pod; an explanation names the node that learned of the failure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod early;
mod manifest_check;
mod resolved;
mod script;

use std::time::Duration;

use clock::Clock;
use contract::messages::backoff_tracker::Clearance;
use contract::messages::pull_coordinator::{CancelStandingPull, EnsureImage, ExplainImage, Explanation, OutcomeKind, StandingPullState};
use contract::{FailureClass, Reason, Stage};
use integration::{paused, pod, until};
use pull_coordinator::{Extras, StandingPullFile, StandingPullStore as _};
use runtimes::scripted::{ScriptedCall, ScriptedRuntime};
use script::{IMAGE, Node, Received, Script, clearance, held, lead, not_found, standing, wanted};

#[test]
fn a_tracker_is_asked_with_the_nodes_own_view_and_receives_reports_in_order() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.hold(IMAGE);
        script.then([lead()]);
        let node = Node::sharing(&runtime, &script, None);
        let pull = node.begin(wanted());
        runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
        assert_eq!(script.resolutions(), []);
        runtime.resolve(IMAGE);
        until("the manifest is reported", || async { script.resolutions().len() == 1 }).await;
        runtime.let_go(IMAGE);
        assert_eq!(pull.await.unwrap().outcome, OutcomeKind::Pulled);
        until("the standing pull is given back", || async { matches!(script.received().last(), Some(Received::Withdraw(_))) }).await;
        let received = script.received();
        let Received::Check(check) = &received[0] else { panic!("{received:?}") };
        let asked = script.clearances_requested().remove(0);
        assert_eq!(check.target.as_ref(), Some(&asked.target));
        let target = asked.target;
        assert_eq!((target.view.scope.as_str(), target.view.registry.as_str()), ("eu", "localhost:5000"));
        assert_eq!((target.view.boot.as_str(), target.zone.as_str()), ("boot", "a"));
        assert_eq!(target.budget_owner, "eu|localhost:5000|unknown|boot|anonymous|nat-1");
        let resolutions = script.resolutions();
        assert_eq!(resolutions.iter().map(|resolution| resolution.stage).collect::<Vec<_>>(), [Stage::Manifest, Stage::Blob, Stage::Whole]);
        assert!(
            resolutions.iter().all(
                |resolution| (resolution.clearance, resolution.attempt, &resolution.failure) == (asked.clearance, asked.attempt, &None)
            ),
            "{resolutions:?}"
        );
    });
}

#[test]
fn an_attempt_that_is_abandoned_ends_and_begins_anew() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.hold(IMAGE);
        script.then([clearance()]);
        let node = Node::sharing(&runtime, &script, None);
        let pull = node.begin(wanted());
        runtime.wait_for(&ScriptedCall::Pull(IMAGE.to_owned()), 1).await;
        script.answer(&Clearance::Abandoned);
        runtime.wait_for(&ScriptedCall::GivenUp(IMAGE.to_owned()), 1).await;
        runtime.let_go(IMAGE);
        until("clearance is asked for again", || async { script.waiting.borrow().len() == 1 }).await;
        script.answer(&clearance());
        assert_eq!(pull.await.unwrap().outcome, OutcomeKind::Pulled);
        let asked = script.clearances_requested();
        assert_eq!(asked[0].clearance, asked[2].clearance);
        assert_ne!(asked[0].attempt, asked[2].attempt);
        assert!(
            script.resolutions().iter().all(|resolution| resolution.failure.is_none()),
            "an abandoned attempt is not reported as a failure"
        );
    });
}

#[test]
fn a_registry_that_hangs_fails_for_all_in_time() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.hold(IMAGE);
        script.then([lead()]);
        let node = Node::sharing(&runtime, &script, None);
        let outcome = node.put(wanted()).await;
        assert_eq!((outcome.reason, outcome.class), (Some(Reason::ErrImagePull), Some(FailureClass::RegistryUnavailable)));
        assert_eq!(outcome.message, "no answer within 15s: localhost:5000 has not sent the manifest");
        assert_eq!(outcome.duration_ms, 15_000);
        assert!(runtime.calls().contains(&ScriptedCall::GivenUp(IMAGE.to_owned())));
        let failure = script.resolutions().remove(0).failure.unwrap();
        assert_eq!((failure.class, failure.authoritative), (FailureClass::RegistryUnavailable, false));
    });
}

#[test]
fn a_tracker_that_does_not_answer_holds_a_pull_back_for_a_bounded_time() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        let node = Node::sharing(&runtime, &script, None);
        let clock = Clock::simulated(Duration::ZERO);
        // The tracker delays its answers, and then answers only that nothing is decided.
        let outcome = node.put(wanted()).await;
        assert_eq!((outcome.outcome, outcome.waiting_ms), (OutcomeKind::Backoff, 10_000));
        assert!(outcome.message.ends_with("no clearance within 10s: still waiting for the result of another node's attempt"));
        assert_eq!(clock.now().monotonic, Duration::from_secs(10));
        assert_eq!(node.pulls(), 0);
    });
}

#[test]
fn a_refused_caller_learns_which_node_found_the_failure() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        script.then([Clearance::Refused(held())]);
        let node = Node::sharing(&runtime, &script, None);
        let outcome = node.put(wanted()).await;
        assert_eq!(outcome.message, format!("Back-off pulling image \"{IMAGE}\": ErrImagePull: gone"));
        assert_eq!((outcome.learned_by.as_deref(), outcome.learned_ms_ago), (Some("n9"), Some(2_000)));
        *script.held.borrow_mut() = Some(held());
        let wanted = ExplainImage { image: IMAGE.to_owned(), ..ExplainImage::default() };
        let explanation: Explanation = node.put(wanted).await;
        assert_eq!(
            (explanation.next_attempt_ms, explanation.since_ms, explanation.binds.as_deref()),
            (Some(8_000), Some(9_000), Some("everybody"))
        );
        assert_eq!(explanation.learned_trace_id.as_deref(), Some("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(explanation.view.map(|view| view.boot).as_deref(), Some("boot"));
    });
}

#[test]
fn node_that_only_observes_waits_for_no_budget() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        let node = Node::sharing(&runtime, &script, None);
        for (share, waits) in [("enforce", true), ("observe", false)] {
            share.clone_into(&mut script.share.borrow_mut());
            let explanation: Explanation = node.put(ExplainImage { image: IMAGE.to_owned(), ..ExplainImage::default() }).await;
            assert_eq!(explanation.budget.is_some(), waits, "{share}");
        }
    });
}

#[test]
fn a_standing_pull_goes_on_when_the_fleet_grants_clearance() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.answer_pulls(IMAGE, [Err(not_found())]);
        script.then([lead()]);
        let node = Node::sharing(&runtime, &script, None);
        let caller = node.begin(standing());
        until("it has failed", || async { script.resolutions().len() == 1 }).await;
        assert_eq!(script.resolutions()[0].failure.as_ref().map(|failure| failure.authoritative), Some(true));
        // Far longer than kubelet's back-off, while another node probes.
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(node.pulls(), 1);
        runtime.answer_pulls(IMAGE, []);
        let status = node.standing_pulls().await.remove(0);
        assert_eq!((status.state, status.callers, status.attempts), (StandingPullState::Waiting, 1, 2));
        assert_eq!(status.cause, "ErrImagePull: gone");
        script.answer(&clearance());
        let outcome = caller.await.unwrap();
        assert_eq!((outcome.outcome, outcome.standing_pull), (OutcomeKind::Pulled, standing().standing_pull));
        assert_eq!(node.standing_pulls().await, []);
    });
}

#[test]
fn a_standing_pull_lives_through_a_restart_of_the_agent_and_of_its_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("standing-pulls.json");
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        let node = Node::sharing(&runtime, &script, Some(&path));
        let outcome = node.put(EnsureImage { detach: true, ..standing() }).await;
        assert!(outcome.stands && outcome.standing_pull == standing().standing_pull && path.exists());
        let other = EnsureImage { image: "registry/other:v1".to_owned(), standing_pull: "2".to_owned().try_into().ok(), ..standing() };
        node.put(EnsureImage { detach: true, ..other }).await;
        let kept = || StandingPullFile::new(path.clone()).load().unwrap().len();
        assert_eq!(kept(), 2);
        let cancelled = node.put(CancelStandingPull { what: format!("{:032x}", 2), by: String::new() }).await.cancelled;
        assert_eq!((cancelled.len(), kept()), (1, 1), "what the answer lists as cancelled does not come back");
    });
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        script.then([clearance()]);
        let node = Node::sharing(&runtime, &script, Some(&path));
        assert_eq!(node.standing_pulls().await.len(), 1, "it stands before anybody asks again");
        let outcome = node.put(standing()).await;
        assert_eq!((outcome.outcome, outcome.standing_pull, node.pulls()), (OutcomeKind::Pulled, standing().standing_pull, 1));
    });
    std::fs::write(&path, "{").unwrap();
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        script.then([clearance()]);
        let node = Node::sharing(&runtime, &script, Some(&path));
        assert_eq!(node.standing_pulls().await, [], "a damaged file stops no agent");
        assert_eq!(node.put(wanted()).await.outcome, OutcomeKind::Pulled);
    });
}

#[test]
fn answer_says_that_a_cancellation_could_not_be_stored() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("state");
    std::fs::create_dir(&folder).unwrap();
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        let node = Node::sharing(&runtime, &script, Some(&folder.join("standing-pulls.json")));
        node.put(EnsureImage { detach: true, ..standing() }).await;
        std::fs::remove_dir_all(&folder).unwrap();
        let cancelled = node.put(CancelStandingPull { what: IMAGE.to_owned(), by: String::new() }).await;
        assert_eq!(cancelled.cancelled.len(), 1);
        let problem = cancelled.problem.unwrap_or_default();
        assert!(problem.starts_with("the cancelled standing pulls begin again if the agent is restarted: cannot create"), "{problem}");
    });
}

#[test]
fn standing_pulls_are_cancelled_by_id_and_by_image_however_spelled() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        let node = Node::sharing(&runtime, &script, None);
        let standing_pull = |image: &str, number: &str| EnsureImage {
            image: image.to_owned(),
            standing_pull: number.to_owned().try_into().ok(),
            ..standing()
        };
        let callers = [
            node.begin(standing_pull("busybox", "a")),
            node.begin(standing_pull("busybox:latest", "b")),
            node.begin(standing_pull(IMAGE, "c")),
        ];
        until("all stand", || async { node.standing_pulls().await.len() == 3 }).await;
        let cancel = |what: &str| CancelStandingPull { what: what.to_owned(), by: "alice@host".to_owned() };
        assert_eq!(node.put(cancel("alpine")).await.cancelled, []);
        assert_eq!(node.put(cancel("docker.io/library/busybox")).await.cancelled.len(), 2);
        assert_eq!(node.put(cancel(&format!("{:032x}", 12))).await.cancelled.len(), 1);
        for caller in callers {
            assert!(caller.await.unwrap().message.ends_with("was cancelled by alice@host"));
        }
        assert_eq!((node.standing_pulls().await, node.pulls()), (vec![], 0));
    });
}

#[test]
fn little_room_refuses_what_no_pod_asked_for() {
    paused(async {
        let (runtime, script) = (ScriptedRuntime::new(), Script::default());
        runtime.set_free_bytes(Some(999));
        let node = Node::start(&runtime, &script, |_, _| Extras { keep_free: Some(1_000), ..Extras::default() });
        let outcome = node.put(wanted()).await;
        assert_eq!((outcome.reason, outcome.class), (Some(Reason::ErrImagePull), Some(FailureClass::NodeLocal)));
        assert!(outcome.message.contains("the node is 1 MiB short of pull.keep_free = 1 MiB"), "{}", outcome.message);
        let outcome = node.put(EnsureImage { pod: Some(pod("web")), ..wanted() }).await;
        assert_eq!(outcome.outcome, OutcomeKind::Pulled);
        assert_eq!(script.clearances_requested(), [], "a node that shares nothing requests no clearance");
    });
}
