//! Faults that tests plant, to see that their checkers find them.

/// A rule that is broken on purpose; nothing but tests asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Leads, probes and slots are taken without asking for the lease.
    LeasesIgnored,
    /// A success that others report changes nothing.
    SuccessIgnored,
    /// One node's word counts as everybody's, also after others have contradicted it.
    BelievesAnybody,
    /// Delays double at each step, without end.
    StepsGrow,
    /// What a node reads at its start is thrown away.
    StartsAnew,
    /// Kubelet's rule holds nothing: whatever the fleet does not forbid is tried.
    OwnRuleIgnored,
    /// Who logs in is taken for anybody of its scope: the 401 of one binds all, and is asked for again as if no account could be
    /// locked.
    LoginsIgnored,
    /// Refusals by the node's own back-off name no attempt.
    AttemptsUnnamed,
}
