//! Planted bugs, with which tests prove that their checkers work.

/// A rule that is broken on purpose, for tests only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Leads, probes and slots are taken without asking for the lease.
    LeasesIgnored,
    /// A success that other nodes report changes nothing.
    SuccessIgnored,
    /// One node's report counts as corroborated, even if others succeed where it fails.
    TrustsEveryReporter,
    /// Delays double at each step, without end.
    StepsGrow,
    /// The reports that a node reads at its start are dropped.
    StartsAnew,
    /// Kubelet's rule refuses nothing: every pull that no entry refuses is attempted.
    OwnRuleIgnored,
    /// Credentials are ignored: a 401 of one login refuses all logins of its scope, and is attempted again as if no account could be
    /// locked.
    LoginsIgnored,
    /// Refusals by the node's own back-off name no attempt.
    AttemptsUnnamed,
}
