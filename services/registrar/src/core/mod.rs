//! The sans-IO core: decides when an agent reports, when it asks for the registrar's lease, renews it and gives it up; as registrar it
//! keeps the roster of nodes.
//!
//! Invariants, also if messages are lost, late or doubled and nodes die:
//! - no two agents answer as registrar at the same time: an agent's term ends at the agent before it ends at the server;
//! - a digest has an effect only if its publisher holds the lease;
//! - an agent that has not left has nothing to do before [`Membership::next_due`].

mod invariants;
mod membership;
mod roster;
mod step;

pub use lease::Answer;
pub use membership::Membership;
pub use step::{Call, Counts, Effect, Input, Looked, Member, Reply};
