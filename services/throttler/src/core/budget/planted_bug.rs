//! Faults that tests plant, to see that their checkers find them.

/// A rule that is broken on purpose; nothing but tests asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// A new leader grants at once, without learning who holds what.
    LearnsNothing,
    /// A leader goes on granting when its lease is over, and nodes listen to leaders of the past.
    NoFence,
    /// Grants are not spread over time.
    Unpaced,
    /// What is out is not counted against what remains of a quota.
    QuotaIsCountedLate,
    /// The rate is not adapted to what the registry can do.
    NeverSlows,
    /// A leader goes by its own settings, whatever the fleet policy says.
    PolicyIgnored,
    /// Permits that are renewed are taken back all the same.
    RenewalsIgnored,
}
