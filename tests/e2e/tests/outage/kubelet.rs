//! Kubelet's rule, really run: the same nodes with `fleet.share = off`, before a registry that fails in the same way at the same time.
//!
//! What they come to is the same whatever befalls a bus that they say nothing on, so one run of each case stands beside all plays.

use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::Duration;

use e2e::{Watch, Workplace, until_within};

use super::case::Case;
use super::fleet::{Outage, all_at_once, play};

const NODES: usize = 5;
/// Kubelet looks at a pod every 10 s x U[1, 1.5] and sees then that its back-off is over: up to so much later. What is run here tries when
/// it is over; and a node that goes alone looks for its budget's leader for 8 s first.
const LOOKS_WITHIN: Duration = Duration::from_secs(15);
/// Starting a command and five agents, on a machine that does other things.
const ASKED_WITHIN: Duration = Duration::from_secs(30);

/// What nodes by kubelet's rule came to in an outage.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    /// Failing requests of a node.
    pub(crate) each: u64,
    /// How long after healing the last was served.
    served: Duration,
}

static FIGURES: [OnceLock<Figures>; Case::ALL.len()] = [const { OnceLock::new() }; Case::ALL.len()];

/// What kubelet's rule comes to in a case; beside the play that this is called from.
pub(crate) struct KubeletsRule(JoinHandle<Figures>);

impl KubeletsRule {
    pub(crate) fn of(case: Case) -> Self {
        let play = std::thread::Builder::new().name(format!("kubelet's rule, {case:?}"));
        Self(play.spawn(move || *FIGURES[case as usize].get_or_init(|| play_of(case))).expect("a thread can be had"))
    }

    /// The figures, once they are there.
    pub(crate) fn figures(self) -> Figures {
        self.0.join().expect("kubelet's rule was played to its end")
    }
}

impl Figures {
    /// Holds the failing requests of a fleet against its own bar and against kubelet's rule, whichever allows more.
    pub(crate) fn hold_for(self, outage: &Outage<'_>, failing: u64) {
        let at_most = outage.case.failing_at_most().max(self.each * outage.agents.len() as u64);
        eprintln!("{}: {failing} failing requests (at most {at_most})", play());
        let at: Vec<_> = outage.registry.requests().into_iter().map(|request| request.at).collect();
        assert!(failing <= at_most, "{}: {failing} failing requests, {self:?}, at {at:.1?}", play());
    }

    /// Who is served so soon after healing is served as soon as by kubelet's rule. What the registry still asks to be left alone for, which
    /// that rule does not hear, comes first.
    pub(crate) fn served_within(self, left_alone: Duration) -> Duration {
        self.served.max(left_alone) + LOOKS_WITHIN
    }
}

fn play_of(case: Case) -> Figures {
    let place = Workplace::new().with("FLEETPULL_FLEET_SHARE", "off");
    let mut outage = Outage::begin_apart(&place, case, NODES);
    let command = outage.standing_pull();
    // By kubelet's rule time counts from a node's own first failure, which on a busy machine is seconds after the command began.
    until_within("all have asked", ASKED_WITHIN, || (outage.registry.requests().len() >= NODES).then_some(()));
    outage.began = Watch::start();
    let (healed, failing) = outage.heals();
    let served = outage.stored(healed);
    eprintln!("kubelet's rule, {case:?}: {failing} failing requests by {NODES} nodes, all served {served:.1?} after healing");
    drop(command);
    Figures { each: failing.div_ceil(NODES as u64), served }
}

#[test]
fn nodes_that_share_nothing_go_by_kubelets_rule() {
    all_at_once(&[("as kubelet", as_kubelet)], &Case::ALL);
}

/// Answered at once, each node tries at 0, 10 and 30 s, and then at 70 s.
fn as_kubelet(case: Case) {
    let figures = KubeletsRule::of(case).figures();
    if case != Case::Hang {
        assert_eq!(figures.each, 3, "{figures:?}");
        assert!(figures.served >= Duration::from_secs(8) && figures.served <= Duration::from_secs(15), "{figures:?}");
    }
}
