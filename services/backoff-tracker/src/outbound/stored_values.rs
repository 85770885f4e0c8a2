//! Reports, clears and leases as the bus stores them.

use std::time::Duration;

use contract::FailureClass;
use contract::know::{AttemptKey, Found, KeyKind, KnowError, ReportKey, StoredClear, StoredKeyInView, StoredReport, encode_as};

use crate::core::knowledge::{FailureDetails, Finding, KeyInView, LONGEST_KEPT, LeaseName, Report, keep_for};
use crate::core::milliseconds;

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
        in_view: in_view(report.backoff_key.in_view()),
        attempt: report.attempt,
        trace: report.trace,
        found,
        message: details.message.clone(),
        step: details.step,
        retry_after_ms: details.retry_after.map(milliseconds),
        repository: details.repository.clone(),
        in_a_row: if details.in_a_row > 1 { details.in_a_row } else { 0 },
        failing_for_ms: milliseconds(details.failing_for),
        for_all_ago_ms: milliseconds(details.for_all_ago),
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

pub(crate) fn lease_key(name: LeaseName) -> String {
    let (kind, backoff_key, which) = match name {
        LeaseName::Probe(backoff_key, attempt) => ("probe", backoff_key, u128::from(attempt)),
        LeaseName::Lead(backoff_key, number) => ("lead", backoff_key, u128::from(number)),
        LeaseName::Slot(backoff_key, number) => ("slot", backoff_key, u128::from(number)),
    };
    AttemptKey { kind: kind.to_owned(), backoff_key: backoff_key.0, which }.text()
}

fn in_view(in_view: &KeyInView) -> StoredKeyInView {
    let of = |kind| StoredKeyInView { kind, ..StoredKeyInView::default() };
    match in_view.clone() {
        KeyInView::BudgetOwner(owner) => StoredKeyInView { owner, ..of(KeyKind::BudgetOwner) },
        KeyInView::Endpoint { endpoint, zone } => StoredKeyInView { endpoint, zone, ..of(KeyKind::Endpoint) },
        KeyInView::TokenServer { endpoint, zone } => StoredKeyInView { endpoint, zone, ..of(KeyKind::TokenServer) },
        KeyInView::Blobs { endpoint, zone } => StoredKeyInView { endpoint, zone, ..of(KeyKind::Blobs) },
        KeyInView::Registry => of(KeyKind::Registry),
        KeyInView::Repository(repository) => StoredKeyInView { repository, ..of(KeyKind::Repository) },
        KeyInView::Reference { reference, scope, mirrored } => StoredKeyInView { reference, scope, mirrored, ..of(KeyKind::Reference) },
        KeyInView::Login { repository, fingerprint, anonymous } => {
            StoredKeyInView { repository, fingerprint, anonymous, ..of(KeyKind::Login) }
        }
        KeyInView::Platform { reference, platform } => StoredKeyInView { reference, platform, ..of(KeyKind::Platform) },
        KeyInView::Content { reference, endpoint } => StoredKeyInView { reference, endpoint, ..of(KeyKind::Content) },
        KeyInView::Signature { reference, policy } => StoredKeyInView { reference, policy, ..of(KeyKind::Signature) },
    }
}
