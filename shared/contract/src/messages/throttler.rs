//! The messages of the throttler.

mod budget;
mod budget_list;
mod fleet;
mod forget_quota;
mod limits;
mod permits;

pub use budget::{
    BUDGET_PERMITS_PER_NODE, BudgetAnswer, BudgetRenewed, BudgetReturned, BudgetTurn, BudgetTurnReceived, GrantBudget, RenewBudget,
    ReturnBudget,
};
pub use budget_list::{BudgetList, BudgetState, BudgetWaiter, ListBudgets};
pub use fleet::{FleetNoted, SeeFleet};
pub use forget_quota::{ForgetQuota, QuotaForgotten};
pub use limits::{KnownLimits, LimitsReported, PermitLimits, RegistryLimit, ReportLimits, SOURCE_MAX_BYTES, all_used_up};
pub use permits::{AcquirePermit, CountPermits, PermitAnswer, PermitCounts, PermitReleased, ReleasePermit};
