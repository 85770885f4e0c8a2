//! Limits that a registry states with a manifest, which CRI does not show.

use e2e::{Registry, Workplace, until};
use memory_registry::{Fault, FaultAction, MadeImage, Quota};
use serde_json::Value;
use std::time::Duration;
use support::nats::current_program;
use support::requirement::met;

use super::fleet::Fleet;
use super::scripted::{Services, pulled};

const NODES: usize = 3;
/// The limit of Docker Hub.
const PULLS: u64 = 100;
const WINDOW_S: u64 = 21_600;
/// The longest time after the services answer; pulls wait for permits while the budget is learned.
const SERVED_WITHIN: Duration = Duration::from_secs(60);

#[test]
fn a_fleet_behind_cri_learns_of_limits_by_heads_alone() {
    if met(current_program()).is_none() {
        return;
    }
    let (place, registry) = (Workplace::new(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    registry.faults().add(Fault::new("/manifests/", FaultAction::Quota(Quota::new(PULLS, WINDOW_S))));
    let services = Services::start(NODES, &pulled());
    let fleet = Fleet::on(&place, &services.endpoints());
    // The pulls take long, as those of a large image do.
    services.each.iter().for_each(support::scripted_cri::ScriptedCri::hold_pulls);
    let command = fleet.standing_pull(&registry.image("shop/web:v1"), &[]);
    let limit = until("the budget knows the registry's limit", || {
        let budgets = place.run(&["budget", "list", "-o", "json", "--nats", &fleet.server.url()]).expect(0).objects();
        budgets.iter().find_map(|budget| budget["known"]["limits"].as_array()?.first().cloned())
    });
    let field_of = |field: &str| limit[field].as_u64();
    assert_eq!((field_of("limit"), field_of("window_ms")), (Some(PULLS), Some(WINDOW_S * 1_000)), "{limit}");
    // A HEAD does not count as a pull, and each node may have got a permit since.
    let let_go_at_most = PULLS - NODES as u64..=PULLS;
    assert!(field_of("remaining").is_some_and(|remaining| let_go_at_most.contains(&remaining)), "{limit}");
    services.each.iter().for_each(support::scripted_cri::ScriptedCri::release);
    fleet.all_served(command, SERVED_WITHIN, &["pulled"]);
    let methods: Vec<Value> = registry.requests().into_iter().map(|request| request.method.into()).collect();
    assert!(methods.iter().all(|method| method == "HEAD"), "{methods:?}");
    assert!((1..=NODES).contains(&methods.len()), "one a minute and node: {methods:?}");
}
