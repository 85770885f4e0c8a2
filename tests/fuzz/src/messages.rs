//! MessagePack: commands, replies, and values in buckets.

use contract::know::{self, AttemptKey, ReportKey, StoredClear, StoredLease, StoredPause, StoredReport};
use contract::messages::{agent, backoff_tracker, event_recorder, pull_coordinator, registrar, throttler};
use contract::subject;
use contract::{Command, PullEvent};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads commands of every kind and their replies: a value that can be read is written and read again unchanged.
pub(crate) fn commands_and_replies(data: &[u8]) {
    both::<agent::DescribeNode>(data);
    both::<agent::CountAll>(data);
    both::<agent::ReadMetrics>(data);
    both::<agent::ReadSetup>(data);
    both::<backoff_tracker::CheckBackoff>(data);
    both::<backoff_tracker::RequestClearance>(data);
    both::<backoff_tracker::BeginAttempt>(data);
    both::<backoff_tracker::ResolveAttempt>(data);
    both::<backoff_tracker::ReportAttempt>(data);
    both::<backoff_tracker::WithdrawClearance>(data);
    both::<backoff_tracker::CountBackoffs>(data);
    both::<backoff_tracker::SeeFleet>(data);
    both::<backoff_tracker::ListBackoffs>(data);
    both::<backoff_tracker::ClearBackoff>(data);
    both::<backoff_tracker::PauseSharing>(data);
    both::<event_recorder::RecordEvent>(data);
    both::<event_recorder::ListEvents>(data);
    both::<event_recorder::CountEvents>(data);
    both::<pull_coordinator::EnsureImage>(data);
    both::<pull_coordinator::ListPulls>(data);
    both::<pull_coordinator::ListStandingPulls>(data);
    both::<pull_coordinator::CancelStandingPull>(data);
    both::<pull_coordinator::ListImages>(data);
    both::<pull_coordinator::ExplainImage>(data);
    both::<registrar::ReportAlive>(data);
    both::<registrar::ListNodes>(data);
    both::<throttler::AcquirePermit>(data);
    both::<throttler::ReleasePermit>(data);
    both::<throttler::CountPermits>(data);
    both::<throttler::ReportLimits>(data);
    both::<throttler::GrantBudget>(data);
    both::<throttler::RenewBudget>(data);
    both::<throttler::ReturnBudget>(data);
    both::<throttler::BudgetTurn>(data);
    both::<throttler::SeeFleet>(data);
    both::<throttler::ListBudgets>(data);
    both::<throttler::ForgetQuota>(data);
    again::<PullEvent>(data);
}

fn both<C: Command>(data: &[u8]) {
    again::<C>(data);
    again::<C::Reply>(data);
}

fn again<T: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok(read) = rmp_serde::from_slice::<T>(data) else { return };
    // An answer of a newer version can be read but never written.
    let Ok(written) = rmp_serde::to_vec_named(&read) else { return };
    let again = rmp_serde::from_slice::<T>(&written)
        .and_then(|again| rmp_serde::to_vec_named(&again).map_err(|error| serde::de::Error::custom(error.to_string())));
    assert_eq!(again.ok(), Some(written), "{} is not read as it is written", std::any::type_name::<T>());
}

/// Reads stored values and their keys.
pub(crate) fn stored(data: &[u8]) {
    stored_again::<StoredReport>(data);
    stored_again::<StoredLease>(data);
    stored_again::<StoredPause>(data);
    stored_again::<StoredClear>(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(key) = ReportKey::read(text) {
        assert_eq!(ReportKey::read(&key.text()), Some(key));
    }
    if let Some(key) = AttemptKey::read(text) {
        assert_eq!(AttemptKey::read(&key.text()), Some(key));
    }
    if let Some(name) = subject::name_of(text) {
        assert_eq!(subject::token(&name), text);
    }
}

fn stored_again<T: Serialize + DeserializeOwned>(data: &[u8]) {
    let Ok(read) = know::decode::<T>(data) else { return };
    // A value that exceeds the limit when it is written in full is refused with an error.
    let Ok(written) = know::encode(&read) else { return };
    let again = know::decode::<T>(&written).ok().and_then(|again| know::encode(&again).ok());
    assert_eq!(again, Some(written), "{} is not read as it is written", std::any::type_name::<T>());
}
