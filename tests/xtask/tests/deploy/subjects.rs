//! The subjects that each login of the example may publish and receive.

use bus::{BusError, Messaging};
use futures::StreamExt;
use support::nats::current_program;
use support::requirement::met;

use super::fleet::{Fleet, LIMIT, answer, message, next};

#[tokio::test]
async fn a_node_publishes_events_in_its_own_name_alone() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, operator, viewer) = (fleet.connect("n1").await, fleet.connect("operator").await, fleet.connect("viewer").await);
    let mut events = viewer.subscribe("fleetpull.v1.evt.>", None).await.unwrap();
    let mut seen_by_operator = operator.subscribe("fleetpull.v1.evt.>", None).await.unwrap();
    // Messages of one connection keep their order: when the last has come, those before it were refused.
    for subject in ["fleetpull.v1.evt.Failed.ghcr_2eio.n2", "fleetpull.v1.evt.n1", "fleetpull.v1.evt.Failed.ghcr_2eio.n1"] {
        n1.publish(message(subject)).await.unwrap();
    }
    assert_eq!(next(&mut events).await.subject, "fleetpull.v1.evt.Failed.ghcr_2eio.n1");
    assert_eq!(next(&mut seen_by_operator).await.subject, "fleetpull.v1.evt.Failed.ghcr_2eio.n1");
}

#[tokio::test]
async fn a_node_takes_commands_to_itself_and_to_all_and_answers_them() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2, operator) = (fleet.connect("n1").await, fleet.connect("n2").await, fleet.connect("operator").await);
    let command = "fleetpull.v1.cmd.n1.agent.describe";
    let _refused = n2.subscribe(command, None).await.unwrap();
    let nobody = operator.request(message(command), LIMIT).await.unwrap_err();
    assert_eq!(nobody, BusError::NoResponders { subject: command.to_owned() });

    let mut own = n1.subscribe("fleetpull.v1.cmd.n1.>", None).await.unwrap();
    let mut to_all = n1.subscribe("fleetpull.v1.cmd._all.>", None).await.unwrap();
    let mut services = n1.subscribe("$SRV.PING", None).await.unwrap();
    let answering = async {
        answer(&n1, &mut own).await;
        answer(&n1, &mut to_all).await;
        answer(&n1, &mut services).await;
        answer(&n1, &mut own).await;
    };
    let asking = async {
        for subject in [command, "fleetpull.v1.cmd._all.agent.describe", "$SRV.PING"] {
            operator.request(message(subject), LIMIT).await.unwrap();
        }
        // A second agent of the same name sends this, and so does every service without local delivery.
        n1.request(message(command), LIMIT).await.unwrap();
    };
    tokio::join!(answering, asking);
}

#[tokio::test]
async fn a_node_commands_no_other_node_and_a_viewer_none_at_all() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2, viewer, operator) =
        (fleet.connect("n1").await, fleet.connect("n2").await, fleet.connect("viewer").await, fleet.connect("operator").await);
    let mut received = n2.subscribe("fleetpull.v1.cmd.n2.>", None).await.unwrap();
    for stranger in [&n1, &viewer] {
        stranger.publish(message("fleetpull.v1.cmd.n2.agent.forged")).await.unwrap();
        // After a round trip of the stranger the server has checked everything that it published before.
        drop(stranger.subscribe("fleetpull.v1.evt.>", None).await.unwrap());
    }
    operator.publish(message("fleetpull.v1.cmd.n2.agent.describe")).await.unwrap();
    assert_eq!(next(&mut received).await.subject, "fleetpull.v1.cmd.n2.agent.describe");
}

#[tokio::test]
async fn only_the_server_publishes_knowledge_and_only_the_named_node_a_digest() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2, operator) = (fleet.connect("n1").await, fleet.connect("n2").await, fleet.connect("operator").await);
    let knowledge = n2.subscribe("fleetpull.v1.know.>", None).await.unwrap();
    let digests = n2.subscribe("fleetpull.v1.digest.*", None).await.unwrap();
    let mut received = futures::stream::select(knowledge, digests).boxed();
    let forged = [
        "know.reports.n1.not_found.ab",
        "know.reports.n2.not_found.ab",
        "know.leases.registrar",
        "know.pauses.all",
        "know.policy.fleet",
        "digest.n2",
    ];
    for subject_end in forged {
        let subject = format!("fleetpull.v1.{subject_end}");
        n1.publish(message(&subject)).await.unwrap();
        operator.publish(message(&subject)).await.unwrap();
    }
    // After a round trip of the operator the server has checked everything that it published before.
    drop(operator.subscribe("fleetpull.v1.evt.>", None).await.unwrap());
    n1.publish(message("fleetpull.v1.digest.n1")).await.unwrap();
    assert_eq!(next(&mut received).await.subject, "fleetpull.v1.digest.n1");
}

#[tokio::test]
async fn a_node_reports_to_the_registrar_and_claims_budgets_of_any_node_and_of_nobody_else_anything() {
    if met(current_program()).is_none() {
        return;
    }
    let fleet = Fleet::start().await;
    let (n1, n2) = (fleet.connect("n1").await, fleet.connect("n2").await);
    let mut registrar = n2.subscribe("fleetpull.v1.cmd._leader.registrar.alive", None).await.unwrap();
    let mut leader = n2.subscribe("fleetpull.v1.cmd.n2.throttler.grant-budget.*", None).await.unwrap();
    let mut permits = n2.subscribe("fleetpull.v1.cmd.n2.throttler.release", None).await.unwrap();
    let answering = async {
        answer(&n2, &mut registrar).await;
        answer(&n2, &mut leader).await;
    };
    let asking = async {
        n1.publish(message("fleetpull.v1.cmd.n2.throttler.release")).await.unwrap();
        n1.request(message("fleetpull.v1.cmd._leader.registrar.alive"), LIMIT).await.unwrap();
        n1.publish(message("fleetpull.v1.cmd.n2.throttler.grant-budget.n3")).await.unwrap();
        n1.request(message("fleetpull.v1.cmd.n2.throttler.grant-budget.n1"), LIMIT).await.unwrap();
    };
    tokio::join!(answering, asking);
    assert!(futures::FutureExt::now_or_never(permits.next()).is_none(), "a permit of another node was released");
    assert!(futures::FutureExt::now_or_never(leader.next()).is_none(), "a budget was claimed in another node's name");
}
