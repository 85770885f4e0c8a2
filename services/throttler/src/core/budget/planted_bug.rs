//! Bugs that tests plant to prove that their checkers work.

/// A rule that is broken on purpose. Only tests set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A new leader grants at once, without learning which permits are held.
    LearnsNothing,
    /// A leader continues to grant when its lease is over, and nodes accept leaders of earlier epochs.
    NoFence,
    /// Grants are not spread over time.
    Unpaced,
    /// Outstanding permits are not counted against what is left of a quota.
    QuotaIsCountedLate,
    /// A leader uses its own settings and ignores the fleet policy.
    PolicyIgnored,
    /// Permits expire although they are renewed.
    RenewalsIgnored,
}
