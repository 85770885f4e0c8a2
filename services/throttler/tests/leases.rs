//! The lease of a budget leader, as the core requests, renews, loses and returns it.

use std::time::Duration;

use clock::{Now, Random};
use contract::messages::throttler::RegistryLimit;
use contract::{DEADLINES, PermitId};
use throttler::core::budget::{BudgetPolicy, BudgetRequest, Budgets, Effect, Input, Term};

const OWNER: &str = "hub";

/// The core's effects on leases, in one word each.
fn lease_effects(effects: &[Effect]) -> Vec<&'static str> {
    let of_lease = |effect: &Effect| match effect {
        Effect::Campaign { .. } => Some("campaign"),
        Effect::KeepLease { .. } => Some("keep"),
        Effect::DropLease { in_good_order: true, .. } => Some("drop in good order"),
        Effect::DropLease { in_good_order: false, .. } => Some("drop"),
        _ => None,
    };
    effects.iter().filter_map(of_lease).collect()
}

struct Node {
    core: Budgets,
    permit: PermitId,
}

impl Node {
    fn new() -> Self {
        let core = Budgets::new("n1".parse().unwrap(), BudgetPolicy::default(), Random::seeded(1));
        Self { core, permit: PermitId::random(&mut Random::seeded(2)) }
    }

    fn step(&mut self, at_ms: u64, input: Input) -> Vec<&'static str> {
        lease_effects(&self.core.step(Now { monotonic: ms(at_ms), wall: Duration::ZERO }, input))
    }

    fn want(&mut self, at_ms: u64) -> Vec<&'static str> {
        self.step(at_ms, Input::Want { owner: OWNER.to_owned(), permit: self.permit })
    }

    fn release(&mut self, at_ms: u64) -> Vec<&'static str> {
        self.step(at_ms, Input::Release { permit: self.permit, limits: Vec::new(), served: Some(true) })
    }

    fn elected(&mut self, at_ms: u64, asked_ms: u64) -> Vec<&'static str> {
        let term = Term { epoch: 7, first: true, until: ms(asked_ms) + DEADLINES.leader_lease };
        self.step(at_ms, Input::Elected { owner: OWNER.to_owned(), term })
    }

    fn kept(&mut self, at_ms: u64, asked_ms: u64) -> Vec<&'static str> {
        self.step(at_ms, Input::LeaseKept { owner: OWNER.to_owned(), epoch: 7, until: ms(asked_ms) + DEADLINES.leader_lease })
    }

    fn unknown(&mut self, at_ms: u64, asked_ms: u64) -> Vec<&'static str> {
        self.step(at_ms, Input::LeaseUnknown { owner: OWNER.to_owned(), asked: ms(asked_ms) })
    }

    fn leads(&self) -> bool {
        self.core.epoch_led(OWNER).is_some()
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_lease_is_renewed_each_second_and_soon_after_a_renewal_that_failed_and_ends_without_one() {
    let mut node = Node::new();
    assert_eq!(node.want(1_000), ["campaign"]);
    assert_eq!(node.elected(1_100, 1_050), [""; 0]);
    assert!(node.leads());
    assert_eq!(node.step(2_050, Input::Tick), ["keep"]);
    assert_eq!(node.kept(2_100, 2_050), [""; 0]);
    assert_eq!(node.step(3_050, Input::Tick), ["keep"]);
    assert_eq!(node.unknown(3_060, 3_050), [""; 0]);
    assert_eq!(node.step(3_300, Input::Tick), [""; 0]);
    assert_eq!(node.step(3_310, Input::Tick), ["keep"], "a quarter of a second after it failed");
    assert_eq!(node.step(5_049, Input::Tick), ["keep"], "no answer came");
    assert!(node.leads());
    node.step(5_050, Input::Tick);
    assert!(!node.leads(), "three seconds after the last renewal was asked for");
    assert_eq!(node.kept(5_060, 3_310), ["drop"], "it comes too late, and no node leads by it");
}

/// On a bus whose round trips take 400 ms, a campaign takes up to 2 s.
#[test]
fn a_node_leads_although_the_bus_takes_two_seconds_to_elect_it_and_another_leader_was_named_meanwhile() {
    for named_meanwhile in [false, true] {
        let mut node = Node::new();
        assert_eq!(node.want(1_000), ["campaign"]);
        for at in [1_500, 2_000, 2_500] {
            node.step(at, Input::Tick);
        }
        if named_meanwhile {
            node.step(2_600, Input::Lead { owner: OWNER.to_owned(), leader: Some(("n8".parse().unwrap(), 6)) });
        }
        node.elected(2_700, 1_900);
        assert!(node.leads(), "another leader was named: {named_meanwhile}");
        assert_eq!(node.step(2_900, Input::Tick), ["keep"], "a second after it was asked for");
    }
}

#[test]
fn lease_with_a_late_answer_is_not_led() {
    let mut node = Node::new();
    node.want(1_000);
    node.elected(4_050, 1_050);
    assert!(!node.leads());
}

#[test]
fn unused_leader_releases_its_lease_and_a_late_lease_is_deleted() {
    let mut node = Node::new();
    node.want(1_000);
    node.elected(1_100, 1_000);
    assert_eq!(node.release(1_200), [""; 0]);
    let mut at = 1_200;
    let dropped = loop {
        at += 500;
        let effects = node.step(at, Input::Tick);
        match effects[..] {
            [] => {}
            ["keep"] => drop(node.kept(at, at)),
            _ => break effects,
        }
    };
    assert_eq!((dropped, node.leads()), (vec!["drop in good order"], false));
    assert!((60_000..62_000).contains(&at), "after {at} ms");
    assert_eq!(node.kept(at + 10, at - 500), ["drop"], "another leader's permits may be out by now");
}

/// A whole fleet may lose the bus for longer than nodes check whether a leader knows of their pulls. Then nodes that have not pulled may
/// have elected the next leader, and the node that knows what is left of the quota wants no more permits.
#[test]
fn a_node_without_requests_reports_what_is_left_of_a_quota_to_the_leader_that_it_finds_when_the_bus_is_back() {
    let mut node = Node::new();
    node.want(1_000);
    node.step(1_000, Input::Lead { owner: OWNER.to_owned(), leader: Some(("n8".parse().unwrap(), 8)) });
    let window_ms = 6 * 3_600_000;
    let limits = vec![RegistryLimit { limit: 100, remaining: 0, window_ms, ..RegistryLimit::default() }];
    node.step(1_100, Input::Release { permit: node.permit, limits, served: Some(true) });
    node.step(1_200, Input::BusLost);
    let mut at = 1_200;
    while at < 40_000 {
        at += 500;
        node.step(at, Input::Tick);
    }
    assert_eq!(node.step(at + 100, Input::Tick), [""; 0], "it looks for no leader");
    assert_eq!(node.step(at + 500, Input::BusBack), ["campaign"], "it looks up the leader");
    let leader = Some(("n9".parse().unwrap(), 9));
    let now = Now { monotonic: ms(at + 700), wall: Duration::ZERO };
    let effects = node.core.step(now, Input::Lead { owner: OWNER.to_owned(), leader });
    let reported = effects.iter().find_map(|effect| match effect {
        Effect::Call { to, call: BudgetRequest::Renew(renew), .. } if to.as_str() == "n9" => Some(renew.known.limits.clone()),
        _ => None,
    });
    assert_eq!(reported.map(|limits| limits.len()), Some(1), "{effects:?}");
}
