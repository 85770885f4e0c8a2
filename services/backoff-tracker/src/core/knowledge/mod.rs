//! What the fleet knows of failures, as one node holds it: the sans-IO core of learning together.
//!
//! A failure is about a [`BackoffKey`]; a node says what it saw of a back-off key in a [`Report`], under its own name and no other; every
//! node derives the same [`Entry`] from all reports of a back-off key. [`Knowledge`] holds a node's requests against the entries: who is
//! refused and until when, who goes ahead for all (by a lease that the bus gives to one), who waits for that one's report, and
//! when each goes on after it. Without a bus each node goes by kubelet's own rule.
//!
//! | kept | by |
//! |---|---|
//! | one failing request for all | `entry`: nobody tries before the next attempt; `decide`: then who holds the lease |
//! | awake at once | `node`: a success heard looks at every request it touches; `fleet`: each in its turn |
//! | a sick node harms only itself | `entry`: which nodes it refuses; `replica`: which nodes are distrusted |
//! | never worse than kubelet | `decide`: alone, [`super::Delays`] decides, and for seconds what was known before: `without_bus` |

mod backoff_key;
mod cadence;
mod decide;
mod derived;
mod entry;
mod exemptions;
mod fleet;
mod hanging;
mod input;
mod invariants;
mod key_reports;
mod lease;
mod lease_waits;
#[cfg(test)]
mod looks_tests;
mod node;
mod openings;
mod planted_bug;
mod queries;
mod recent_attempts;
mod replica;
mod report;
mod reporters;
mod request;
mod requests;
mod result;
mod retry_pauses;
mod target;
mod unpublished;
mod without_bus;

use std::time::Duration;

pub use backoff_key::{About, BackoffKey, BackoffKeyId, Reach, hash128};
pub use cadence::{LONGEST, LONGEST_RETRY_AFTER, delay};
pub use contract::{Target, View};
pub use entry::{Binding, Entry, PROBE_DEADLINE, UNCONFIRMED_FOR};
pub use exemptions::{LONGEST_PAUSE, MAX_PAUSES, PauseInForce};
pub use fleet::BUDGET_PER_SECOND;
pub use input::{Decision, Duty, Effect, Input, LeaseAnswer, Outcome, Refusal};
pub use lease::{BUS_ANSWER, BUS_ANSWER_MOST, LeaseName, MISSES_TO_GONE, RequestId};
pub use node::{Knowledge, KnowledgeCounts, MAX_REQUESTS};
pub use openings::{EntryNews, EntryNewsKind};
pub use planted_bug::PlantedBug;
pub use queries::Clearing;
pub use replica::{DISTRUSTED_FOR, LONGEST_KEPT, MAX_KEYS_OF_ONE, MAX_REPORTS, OLDEST, Replica, ReplicaCounts, keep_for};
pub use report::{FailureDetails, Finding, MAX_MESSAGE_BYTES, Report};
pub use target::Failure;

/// A resolution without an answer for so long is told to the others.
pub const UNANSWERED_AFTER: Duration = Duration::from_secs(2);
/// A registry that has answered nobody for so long is asked by a few only, until it answers.
pub const QUIET_AFTER: Duration = Duration::from_secs(30);
/// A registry that served somebody so lately is not down: it does some of what it is asked, and the fleet's budget slows down instead.
pub const SERVED_LATELY: Duration = Duration::from_secs(10);
/// An image that somebody resolved within this time is pulled without waiting for anybody.
pub const RESOLVED_LATELY: Duration = Duration::from_secs(60);
