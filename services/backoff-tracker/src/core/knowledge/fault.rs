//! Faults that tests plant, to see that their checkers find them.

/// A rule that is broken on purpose; nothing but tests asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Leads, probes and slots are taken without asking for the lease.
    LeasesIgnored,
    /// A success that others report changes nothing.
    SuccessIgnored,
    /// One node's word counts as everybody's, also after others have contradicted it.
    BelievesAnybody,
}
