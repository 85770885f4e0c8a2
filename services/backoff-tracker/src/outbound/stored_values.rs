//! Reports, clears and leases as the bus stores them.

use std::time::Duration;

use contract::FailureClass;
use contract::know::{AboutKind, AttemptKey, Found, KnowError, ReportKey, StoredAbout, StoredClear, StoredReport, encode_as};

use crate::core::knowledge::{About, FailureDetails, Finding, LONGEST_KEPT, LeaseName, Report, keep_for};

/// A value as the bus takes it.
pub(super) struct Stored {
    pub(super) key: String,
    pub(super) value: Vec<u8>,
    pub(super) ttl: Duration,
}

/// The age of a report when it is written, and the server's time then.
#[derive(Clone, Copy, Debug)]
pub(super) struct WriteTime {
    pub(super) age: Duration,
    pub(super) server_ms: Option<u64>,
}

/// An operator's clear as it is stored; an error if it is too large.
pub(super) fn clear(version: u32, key: &str, clear: &StoredClear, time: WriteTime) -> Result<Stored, KnowError> {
    let value = encode_as(version, &StoredClear { age_ms: milliseconds(time.age), written_ms: time.server_ms, ..clear.clone() })?;
    Ok(Stored { key: key.to_owned(), value, ttl: LONGEST_KEPT })
}

/// A report as it is stored; an error if it is too large.
pub(super) fn report(version: u32, report: &Report, time: WriteTime) -> Result<Stored, KnowError> {
    let nothing = FailureDetails::default();
    let (found, details) = match &report.finding {
        Finding::Succeeded => (Found::Succeeded, &nothing),
        Finding::Failed(details) => (Found::Failed, details),
        Finding::Unanswered(details) => (Found::Unanswered, details),
    };
    let stored = StoredReport {
        view: report.backoff_key.view().clone(),
        about: about(report.backoff_key.about()),
        attempt: report.attempt,
        trace: report.trace,
        found,
        message: details.message.clone(),
        step: details.step,
        retry_after_ms: details.retry_after.map(milliseconds),
        repository: details.repository.clone(),
        in_a_row: if details.in_a_row > 1 { details.in_a_row } else { 0 },
        failing_for_ms: milliseconds(details.failing_for),
        succeeded_ago_ms: details.succeeded_ago.map(milliseconds),
        age_ms: milliseconds(time.age),
        written_ms: time.server_ms,
    };
    let class: FailureClass = report.backoff_key.class();
    let key = ReportKey { node: report.reporter.clone(), class: Some(class), backoff_key: report.backoff_key.id().0 }.text();
    // Whole seconds, and 1 s longer than any node keeps it.
    let ttl = Duration::from_secs(keep_for(report).as_secs() + 1);
    Ok(Stored { key, value: encode_as(version, &stored)?, ttl })
}

/// The key of a lease.
pub(crate) fn lease_key(name: LeaseName) -> String {
    let (kind, backoff_key, which) = match name {
        LeaseName::Probe(backoff_key, attempt) => ("probe", backoff_key, u128::from(attempt)),
        LeaseName::Lead(backoff_key, number) => ("lead", backoff_key, u128::from(number)),
        LeaseName::Slot(backoff_key, number) => ("slot", backoff_key, u128::from(number)),
    };
    AttemptKey { kind: kind.to_owned(), backoff_key: backoff_key.0, which }.text()
}

fn about(about: &About) -> StoredAbout {
    let of = |kind| StoredAbout { kind, ..StoredAbout::default() };
    match about.clone() {
        About::BudgetOwner(owner) => StoredAbout { owner, ..of(AboutKind::BudgetOwner) },
        About::Endpoint { endpoint, zone } => StoredAbout { endpoint, zone, ..of(AboutKind::Endpoint) },
        About::TokenServer { endpoint, zone } => StoredAbout { endpoint, zone, ..of(AboutKind::TokenServer) },
        About::Blobs { endpoint, zone } => StoredAbout { endpoint, zone, ..of(AboutKind::Blobs) },
        About::Registry => of(AboutKind::Registry),
        About::Repository(repository) => StoredAbout { repository, ..of(AboutKind::Repository) },
        About::Reference { reference, scope, mirrored } => StoredAbout { reference, scope, mirrored, ..of(AboutKind::Reference) },
        About::Login { repository, fingerprint, anonymous } => StoredAbout { repository, fingerprint, anonymous, ..of(AboutKind::Login) },
        About::Platform { reference, platform } => StoredAbout { reference, platform, ..of(AboutKind::Platform) },
        About::Content { reference, endpoint } => StoredAbout { reference, endpoint, ..of(AboutKind::Content) },
        About::Signature { reference, policy } => StoredAbout { reference, policy, ..of(AboutKind::Signature) },
    }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
