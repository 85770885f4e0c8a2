//! The sans-IO core of shared back-off: what the fleet knows of failures, as one node holds it.
//!
//! A failure is about a [`BackoffKey`]. A node publishes a [`Report`] on a back-off key under its own name only, and every node derives the
//! same [`Entry`] from all reports on a key. [`Knowledge`] decides about a node's requests by the entries: which are refused and until
//! when, which make the attempt for all nodes (by a lease that the bus grants to one node), which wait for that node's report, and when
//! each continues after it. Without a bus each node uses kubelet's rule, and a node that does not share has no reports, so that this rule
//! alone decides.
//!
//! | guarantee | where |
//! |---|---|
//! | one failing request for all | `entry`: no attempt before the next one is due; `clearance_leases`: which node holds the lease |
//! | all continue at once | `received_reports`: a success looks at every request that it touches; `key_reports`: a second node confirms it; `fleet`: each continues in its turn |
//! | a sick node harms only itself | `entry`: which nodes it refuses; `replica`: which failures are refuted |
//! | never worse than kubelet | `decide`: without a bus [`super::BackoffPolicy`] decides; `without_bus`: for seconds, known entries still count |

mod backoff_key;
mod binding;
mod bus_answers;
mod cadence;
mod clearance_leases;
mod clears;
mod counts;
mod decide;
mod entry;
mod exemptions;
mod failed_keys;
mod fleet;
mod hanging;
mod input;
mod invariants;
mod key_reports;
mod lease;
mod lease_waits;
mod list;
#[cfg(test)]
mod looks_tests;
mod node;
mod openings;
mod own_failures;
mod own_rule;
mod planted_bug;
mod publish;
mod queries;
mod received_reports;
mod recent_attempts;
mod refusal;
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

use contract::DEADLINES;

pub use backoff_key::{BackoffKey, BackoffKeyId, KeyInView, Reach, hash128};
pub use cadence::{LONGEST, delay};
pub use clears::Clearing;
pub use contract::messages::backoff_tracker::AttemptFailure;
pub use contract::{Target, View};
pub use entry::Entry;
pub use exemptions::{LONGEST_PAUSE, MAX_PAUSES, PauseInForce};
pub use fleet::BUDGET_PER_SECOND;
pub use input::{Decision, Duty, Effect, Input, LeaseAnswer, Outcome, Refusal, Reply};
pub use lease::{LeaseName, MISSES_UNTIL_LOST, RequestId};
pub use node::{Knowledge, MAX_REQUESTS};
pub use openings::{EntryNews, EntryNewsKind};
pub use planted_bug::PlantedBug;
pub use replica::{KEPT_FOR, LONGEST_KEPT, MAX_KEYS_OF_ONE, MAX_REPORTS, OLDEST, keep_for};
pub use report::{FailureDetails, Finding, MAX_MESSAGE_BYTES, Report};

/// If a registry has answered no node for this long, only a few nodes ask it until it answers.
pub const QUIET_AFTER: Duration = Duration::from_secs(30);
/// If a registry has served any node within this time, it is not down: it serves some requests, and the fleet's budget slows down instead.
pub const SERVED_LATELY: Duration = DEADLINES.served_lately;
/// If any node has resolved an image within this time, the image is pulled without waiting for a leader.
pub const RESOLVED_LATELY: Duration = Duration::from_secs(60);
