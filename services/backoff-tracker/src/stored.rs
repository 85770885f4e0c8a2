//! From values that the bus stores to inputs of the core.

use std::sync::Arc;
use std::time::Duration;

use bus::{BucketStatus, Message};
use bytes::Bytes;
use contract::know::{
    AttemptKey, Found, KeyKind, MAX_KEYS_CLEARED, ReportKey, StoredClear, StoredKeyInView, StoredLease, StoredPause, StoredReport, decode,
    pause_key,
};
use contract::subject::name_of;
use contract::{AttemptId, DEADLINES};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::core::knowledge::{BackoffKey, BackoffKeyId, FailureDetails, Finding, Input, KeyInView, LONGEST, LeaseName, Report};

const NANOSECONDS_IN_MILLISECOND: i128 = 1_000_000;

/// When the server stored a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    /// How long ago.
    pub(crate) age: Duration,
    /// By the server's clock, in nanoseconds since 1970, if known.
    pub(crate) at: Option<i128>,
}

impl Stored {
    /// The age of a value: `age_ms` when it was written, the time until the server stored it (`written_ms` is the server's time at the
    /// write), and the time since. The time in between counts at most [`LONGEST`], because a longer one means that a clock was set.
    fn age_of(self, age_ms: u64, written_ms: Option<u64>) -> Duration {
        let written = written_ms.map(|written| i128::from(written) * NANOSECONDS_IN_MILLISECOND);
        let waited = self.at.zip(written).map(|(at, written)| u64::try_from((at - written).max(0)).unwrap_or(u64::MAX));
        let waited = Duration::from_nanos(waited.unwrap_or_default()).min(LONGEST);
        Duration::from_millis(age_ms).saturating_add(waited).saturating_add(self.age)
    }
}

/// A report as it was read, with what its age is computed from.
#[derive(Clone, Debug)]
pub struct ReadReport {
    /// The report.
    pub report: Arc<Report>,
    age_ms: u64,
    written_ms: Option<u64>,
}

/// Returns a back-off key that is known already.
pub type KnownKeys<'a> = dyn Fn(BackoffKeyId) -> Option<Arc<BackoffKey>> + 'a;

/// Reads reports as [`read_report`] does.
pub type ReadsReports = Arc<dyn Fn(ReportKey, &Bytes, &KnownKeys<'_>) -> Option<ReadReport> + Send + Sync>;

impl ReadReport {
    pub(crate) fn into_input(self, stored: Stored) -> Input {
        Input::ReportReceived { age: stored.age_of(self.age_ms, self.written_ms), report: self.report }
    }
}

/// Reads a report. None if it cannot be read, is of an unknown kind, or does not match its key. For most back-off keys this is not the first
/// report: the key is shared with `known`, and its id is not computed.
#[must_use]
pub fn read_report(key: ReportKey, value: &Bytes, known: &KnownKeys<'_>) -> Option<ReadReport> {
    let report: StoredReport = decode(value).ok()?;
    let in_view = in_view(report.in_view)?;
    let known = known(BackoffKeyId(key.backoff_key)).filter(|known| *known.view() == report.view && *known.in_view() == in_view);
    let backoff_key = known.unwrap_or_else(|| Arc::new(BackoffKey::new(report.view, in_view)));
    if backoff_key.id().0 != key.backoff_key || key.class != Some(backoff_key.class()) {
        return None;
    }
    let details = FailureDetails {
        message: report.message,
        step: report.step,
        retry_after: report.retry_after_ms.map(Duration::from_millis),
        repository: report.repository,
        in_a_row: report.in_a_row,
        failing_for: Duration::from_millis(report.failing_for_ms),
        for_all_ago: Duration::from_millis(report.for_all_ago_ms),
        succeeded_ago: report.succeeded_ago_ms.map(Duration::from_millis),
    };
    let finding = match report.found {
        Found::Succeeded => Finding::Succeeded,
        Found::Failed => Finding::Failed(details.bounded()),
        Found::Unanswered => Finding::Unanswered(details.bounded()),
        Found::Unknown => return None,
    };
    let (age_ms, written_ms) = (report.age_ms, report.written_ms);
    let report = Arc::new(Report { reporter: key.node, backoff_key, attempt: report.attempt, trace: report.trace, finding });
    Some(ReadReport { report, age_ms, written_ms })
}

/// Reads an operator's clear.
pub(crate) fn cleared(value: &[u8], stored: Stored) -> Option<Input> {
    let clear: StoredClear = decode(value).ok()?;
    let backoff_keys = clear.backoff_keys.iter().take(MAX_KEYS_CLEARED).filter_map(|text| BackoffKeyId::parse(text)).collect();
    Some(Input::Cleared { image: clear.image, backoff_keys, age: stored.age_of(clear.age_ms, clear.written_ms) })
}

/// A change of a lease, as it is republished.
pub(crate) fn lease(key: &str, message: &Message) -> Option<Input> {
    let name = lease_name(&AttemptKey::read(key)?)?;
    if is_deleted(message) {
        return Some(Input::LeaseFreed(name));
    }
    let lease: StoredLease = decode(&message.payload).ok()?;
    Some(Input::LeaseTaken { name, holder: lease.holder, left: DEADLINES.attempt_lease })
}

/// A pause under its key, stored this long ago; without a value it has ended. None if the key is of no pause that this version knows.
pub(crate) fn pause(key: &str, value: Option<&[u8]>, stored: Duration) -> Option<Input> {
    let pause: StoredPause = match value {
        Some(value) => decode(value).ok()?,
        None => StoredPause { registry: key.strip_prefix("registry.").and_then(name_of), ..StoredPause::default() },
    };
    if pause_key(pause.registry.as_deref()) != key {
        return None;
    }
    let left = Duration::from_millis(pause.for_ms).saturating_sub(stored);
    Some(Input::Pause { registry: pause.registry, left, by: pause.by })
}

/// Whether a republished change means that there is no value any more.
pub(crate) fn is_deleted(message: &Message) -> bool {
    has_expired(message) || matches!(message.headers.get("KV-Operation"), Some("DEL" | "PURGE"))
}

/// Whether a republished change means that a value's time to live is over.
pub(crate) fn has_expired(message: &Message) -> bool {
    message.headers.get("Nats-Marker-Reason").is_some()
}

/// When the server stored a value that was `age` old at the time of `status`, in nanoseconds of its clock.
pub(crate) fn stored_at(status: &BucketStatus, age: Duration) -> Option<i128> {
    let asked = status.made_at.checked_add(status.age).filter(|_| !status.made_at.is_zero())?;
    i128::try_from(asked.saturating_sub(age).as_nanos()).ok()
}

/// When the server stored a change, in nanoseconds of its clock.
pub(crate) fn stamp_of(message: &Message) -> Option<i128> {
    let stamp = message.headers.get("Nats-Time-Stamp")?;
    Some(OffsetDateTime::parse(stamp, &Rfc3339).ok()?.unix_timestamp_nanos())
}

fn lease_name(key: &AttemptKey) -> Option<LeaseName> {
    let backoff_key = BackoffKeyId(key.backoff_key);
    match key.kind.as_str() {
        "probe" => Some(LeaseName::Probe(backoff_key, AttemptId::from(key.which))),
        "lead" => Some(LeaseName::Lead(backoff_key, u8::try_from(key.which).ok()?)),
        "slot" => Some(LeaseName::Slot(backoff_key, u8::try_from(key.which).ok()?)),
        _ => None,
    }
}

fn in_view(stored: StoredKeyInView) -> Option<KeyInView> {
    let StoredKeyInView { kind, owner, endpoint, zone, repository, reference, scope, mirrored, fingerprint, anonymous, platform, policy } =
        stored;
    Some(match kind {
        KeyKind::BudgetOwner => KeyInView::BudgetOwner(owner),
        KeyKind::Endpoint => KeyInView::Endpoint { endpoint, zone },
        KeyKind::TokenServer => KeyInView::TokenServer { endpoint, zone },
        KeyKind::Blobs => KeyInView::Blobs { endpoint, zone },
        KeyKind::Registry => KeyInView::Registry,
        KeyKind::Repository => KeyInView::Repository(repository),
        KeyKind::Reference => KeyInView::Reference { reference, scope, mirrored },
        KeyKind::Login => KeyInView::Login { repository, fingerprint, anonymous },
        KeyKind::Platform => KeyInView::Platform { reference, platform },
        KeyKind::Content => KeyInView::Content { reference, endpoint },
        KeyKind::Signature => KeyInView::Signature { reference, policy },
        KeyKind::Unknown => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clear_of_ids_that_cannot_be_read_clears_the_others() {
        let id = BackoffKeyId(7);
        let unreadable = ["", "7", "not hexadecimal"].map(str::to_owned);
        let backoff_keys = unreadable.into_iter().chain([id.to_string(), format!("0{id}")]).collect();
        let value = contract::know::encode(&StoredClear { backoff_keys, ..StoredClear::default() }).expect("it is small");
        let input = cleared(&value, Stored { age: Duration::ZERO, at: None });
        assert!(matches!(&input, Some(Input::Cleared { backoff_keys, .. }) if *backoff_keys == [id]), "{input:?}");
    }

    #[test]
    fn expired_key_ends_the_pause_that_it_names_and_no_other() {
        let ended = |key: &str| match pause(key, None, Duration::ZERO) {
            Some(Input::Pause { registry, left, .. }) => Some((registry, left)),
            _ => None,
        };
        assert_eq!(ended("all"), Some((None, Duration::ZERO)));
        assert_eq!(ended("registry.r_2eexample"), Some((Some("r.example".to_owned()), Duration::ZERO)));
        // A kind of a newer version, and names that no pause is stored under.
        for key in ["", "image.a", "all.x", "registry", "registry.", "registry.r_2Eexample", "registry._72_2eexample", "registry.a.b"] {
            assert_eq!(ended(key), None, "{key}");
        }
    }

    #[test]
    fn the_time_that_a_report_waited_in_a_connection_counts_as_age() {
        const SECOND: i128 = 1_000_000_000;
        let second = Duration::from_secs;
        let table = [
            // Old writers do not send the time; for values read at the start it is not known when the server stored them.
            (Some(100 * SECOND), None, second(3)),
            (None, Some(90_000), second(3)),
            (Some(100 * SECOND), Some(100_000), second(3)),
            (Some(100 * SECOND), Some(80_000), second(23)),
            (Some(100 * SECOND + 7), Some(100_000), second(3) + Duration::from_nanos(7)),
            // A clock of the server that was set back, and one that was set forward by an hour.
            (Some(100 * SECOND), Some(400_000), second(3)),
            (Some(3_700 * SECOND), Some(100_000), second(3) + LONGEST),
            // Nonsense.
            (Some(100 * SECOND), Some(u64::MAX), second(3)),
            (Some(i128::from(u64::MAX) * 1_000_000), Some(0), second(3) + LONGEST),
            (Some(-SECOND), Some(0), second(3)),
        ];
        for (at, written_ms, age) in table {
            assert_eq!(Stored { age: second(1), at }.age_of(2_000, written_ms), age, "{at:?} {written_ms:?}");
        }
        assert_eq!(Stored { age: Duration::MAX, at: None }.age_of(u64::MAX, None), Duration::MAX);
    }
}
