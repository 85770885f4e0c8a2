//! Measures waits for the node's metrics, in the shell: the cores know nothing of metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::{PermitId, TraceContext};
use metrics::{Cause, Instruments, Lease};

/// The most waits that are measured at once. When there are more, the oldest is forgotten; this is rare, because a node's queue holds
/// 1,000.
const MEASURED_MOST: usize = 2_000;

/// The instruments, and the pulls that wait: for what, and since when.
#[derive(Debug, Default)]
pub(crate) struct Counting {
    instruments: Instruments,
    waits: BTreeMap<PermitId, Wait>,
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    /// True while it waits for the fleet's permit; then it waits for a slot of the node.
    for_permit: bool,
    since: Duration,
    trace: TraceContext,
}

impl Counting {
    pub(crate) fn of(instruments: Instruments) -> Self {
        Self { instruments, ..Self::default() }
    }

    /// A pull asks for a permit. Asking again changes nothing.
    pub(crate) fn asked(&mut self, now: Duration, permit: PermitId, for_permit: bool, trace: TraceContext) {
        if self.waits.contains_key(&permit) {
            return;
        }
        if self.waits.len() >= MEASURED_MOST
            && let Some(oldest) = self.waits.iter().min_by_key(|(permit, wait)| (wait.since, **permit)).map(|(permit, _)| *permit)
        {
            self.waits.remove(&oldest);
        }
        self.waits.insert(permit, Wait { for_permit, since: now, trace });
    }

    /// The fleet has granted the permit: from now on the pull waits for the node.
    pub(crate) fn permit_given(&mut self, now: Duration, permit: PermitId) {
        let Some(wait) = self.waits.get_mut(&permit).filter(|wait| wait.for_permit) else { return };
        self.instruments.waited(Cause::Permit, now.saturating_sub(wait.since), wait.trace);
        (wait.for_permit, wait.since) = (false, now);
    }

    /// The node lets the pull begin.
    pub(crate) fn slot_given(&mut self, now: Duration, permit: PermitId) {
        if let Some(Wait { since, trace, .. }) = self.waits.remove(&permit) {
            self.instruments.waited(Cause::Slot, now.saturating_sub(since), trace);
        }
    }

    /// The wait ends without a grant: the pull was refused or given up.
    pub(crate) fn ended(&mut self, now: Duration, permit: PermitId) {
        if let Some(Wait { for_permit, since, trace }) = self.waits.remove(&permit) {
            let cause = if for_permit { Cause::Permit } else { Cause::Slot };
            self.instruments.waited(cause, now.saturating_sub(since), trace);
        }
    }

    /// The node has taken the lease of a budget.
    pub(crate) fn lease_taken(&self) {
        self.instruments.lease_taken(Lease::Budget);
    }

    pub(crate) fn lease_lost(&self) {
        self.instruments.lease_lost(Lease::Budget);
    }
}

#[cfg(test)]
mod tests {
    use clock::Random;
    use metrics::{Readings, samples};

    use super::*;

    fn counts(instruments: &Instruments) -> Vec<(String, f64)> {
        let text = instruments.text(Readings::default());
        let of_waits = samples(&text).filter(|sample| sample.name == "fleetpull_wait_duration_seconds_sum" && sample.value > 0.0);
        let mut sums: Vec<_> = of_waits.map(|sample| (sample.label("cause").unwrap_or_default().to_owned(), sample.value)).collect();
        sums.sort_by(|one, other| one.0.cmp(&other.0));
        sums
    }

    #[test]
    fn waits_for_the_fleet_and_for_the_node_are_distinguished_and_counted_once() {
        let (instruments, mut random) = (Instruments::default(), Random::seeded(1));
        let mut counting = Counting::of(instruments.clone());
        let (permit, trace) = (PermitId::random(&mut random), TraceContext::root(&mut random));
        let at = Duration::from_secs;
        counting.asked(at(1), permit, true, trace);
        counting.asked(at(2), permit, true, trace);
        counting.permit_given(at(4), permit);
        counting.permit_given(at(5), permit);
        counting.slot_given(at(6), permit);
        counting.slot_given(at(9), permit);
        let refused = PermitId::random(&mut random);
        counting.asked(at(10), refused, true, trace);
        counting.ended(at(20), refused);
        counting.ended(at(30), refused);
        assert_eq!(
            counts(&instruments),
            [("permit".to_owned(), 13.0), ("slot".to_owned(), 2.0)],
            "a wait that ends with a refusal is one too"
        );
    }

    #[test]
    fn waits_that_are_given_up_take_no_room() {
        let mut random = Random::seeded(1);
        let mut counting = Counting::default();
        for second in 0..2 * MEASURED_MOST as u64 {
            counting.asked(Duration::from_secs(second), PermitId::random(&mut random), false, TraceContext::root(&mut random));
        }
        assert_eq!(counting.waits.len(), MEASURED_MOST);
    }
}
