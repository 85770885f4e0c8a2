//! The sans-IO core: when an agent reports, when it asks for the registrar's lease, renews it and gives it up, and, as registrar, who is
//! there.
//!
//! What holds, whatever is lost, late or doubled, and whichever node dies:
//! - two agents that look at the time answer as registrar at no time together: an agent's term ends here before it ends at the server;
//! - a digest is believed if its publisher holds the lease, and nobody else's changes anything;
//! - an agent that has not left has something to do at [`Membership::next_due`], and nothing before.

mod invariants;
mod membership;
mod roster;
mod step;

pub use lease::Answer;
pub use membership::{BUCKET_ANSWERS_WITHIN, LEASE_FOR, Membership};
pub use step::{Call, Counts, Effect, Input, Looked, Member, Reply};
