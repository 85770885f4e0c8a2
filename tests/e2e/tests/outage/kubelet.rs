//! Kubelet's rule, measured: the same nodes with `fleet.share = off`, with a registry that fails in the same way at the same time.
//!
//! The result does not depend on the bus, because these nodes do not use it, so one run of each case serves for all tests.

use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

use e2e::{Watch, Workplace, until_within};

use super::case::Case;
use super::fleet::{Outage, all_at_once, test_name};

const NODES: usize = 5;
/// The most additional time of real kubelets: kubelet checks a pod every 10 s x U[1, 1.5], and only then notices that its back-off is over.
/// The nodes here make the attempt at once; and a node without the bus first looks for its budget's leader for 8 s.
const LOOKS_WITHIN: Duration = Duration::from_secs(15);
/// The longest time until a command and five agents have started, on a busy machine.
const ASKED_WITHIN: Duration = Duration::from_secs(30);

/// The results of nodes that go by kubelet's rule in an outage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Failing requests of each node.
    pub(crate) each: u64,
    /// How long after healing the last node was served.
    served: Duration,
}

static FIGURES: [OnceLock<Figures>; Case::ALL.len()] = [const { OnceLock::new() }; Case::ALL.len()];

/// Measures kubelet's rule in a case on another thread, while the caller's test runs.
pub(crate) struct KubeletsRule(JoinHandle<Figures>);

impl KubeletsRule {
    pub(crate) fn of(case: Case) -> Self {
        let builder = std::thread::Builder::new().name(format!("kubelet's rule, {case:?}"));
        Self(builder.spawn(move || *FIGURES[case as usize].get_or_init(|| measure(case))).expect("a thread can be had"))
    }

    /// Waits for the figures.
    pub(crate) fn figures(self) -> Figures {
        self.0.join().expect("the measurement of kubelet's rule ends well")
    }
}

impl Figures {
    /// Asserts that the failing requests of a fleet are within its own limit or that of kubelet's rule, whichever allows more.
    pub(crate) fn hold_for(self, outage: &Outage<'_>, failing: u64) {
        let at_most = outage.case.failing_at_most().max(self.each * outage.agents.len() as u64);
        eprintln!("{}: {failing} failing requests (at most {at_most})", test_name());
        let at: Vec<_> = outage.registry.requests().into_iter().map(|request| request.at).collect();
        assert!(failing <= at_most, "{}: {failing} failing requests, {self:?}, at {at:.1?}", test_name());
    }

    /// The longest time after healing for a node that must be served as soon as by kubelet's rule. It is no shorter than the rest of the
    /// registry's `Retry-After`, which that rule ignores.
    pub(crate) fn served_within(self, retry_after_left: Duration) -> Duration {
        self.served.max(retry_after_left) + LOOKS_WITHIN
    }
}

fn measure(case: Case) -> Figures {
    let place = Workplace::new().with("FLEETPULL_FLEET_SHARE", "off");
    let mut outage = Outage::begin_apart(&place, case, NODES);
    let command = outage.standing_pull();
    // By kubelet's rule the times count from a node's own first failure, which on a busy machine is seconds after the start of the command.
    until_within("all have asked", ASKED_WITHIN, || (outage.registry.requests().len() >= NODES).then_some(()));
    outage.began = Watch::start();
    let (healed, failing) = outage.end_outage();
    let served = outage.stored(healed);
    eprintln!("kubelet's rule, {case:?}: {failing} failing requests by {NODES} nodes, all served {served:.1?} after healing");
    drop(command);
    Figures { each: failing.div_ceil(NODES as u64), served }
}

#[test]
fn nodes_that_share_nothing_keep_to_kubelets_rule() {
    all_at_once(&[("as kubelet", as_kubelet)], &Case::ALL);
}

/// If the registry answers at once, each node makes an attempt at 0, 10 and 30 s, and then at 70 s.
fn as_kubelet(case: Case) {
    let figures = KubeletsRule::of(case).figures();
    if case != Case::Hang {
        assert_eq!(figures.each, 3, "{figures:?}");
        assert!(figures.served >= Duration::from_secs(8) && figures.served <= Duration::from_secs(15), "{figures:?}");
    }
}
