//! Writes to the bus: reports under the node's own name, and released leases, one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bus::KeyValue;
use contract::FailureClass;
use contract::know::{AboutKind, AttemptKey, Found, KnowError, ReportKey, StoredAbout, StoredClear, StoredReport, encode_as};
use contract::version::FIRST;
use lease::{LeaseStore, Owned};
use tokio::sync::mpsc;

use crate::core::knowledge::{About, FailureDetails, Finding, LONGEST_KEPT, LeaseName, Report, keep_for};
use crate::dating::Dating;

/// Writes that wait for the bus; a node publishes a few reports per second at most. Further writes are dropped, counted, and written again
/// from the replica when the bus is back.
pub(crate) const WRITES_WAITING: usize = 1_024;
/// How long one write may take before the next one starts. A lost report is written again.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// The time between a report and the release of a lease: both go to every node, and nodes wait for the report. It is longer than 1,000
/// nodes take to receive the report. Meanwhile no node asks for the lease, because it has the report.
const RELEASED_AFTER: Duration = Duration::from_millis(100);

/// A write to the bus.
#[derive(Debug)]
pub(crate) enum Write {
    /// A report of this node, and its date. Its age is computed when it is written.
    Report { report: Arc<Report>, date: Duration },
    /// What an operator cleared here, and when.
    Clear { key: String, clear: StoredClear, date: Duration },
    /// A lease of this node to release.
    Release(Owned),
}

/// A value as the bus takes it.
struct Stored {
    key: String,
    value: Vec<u8>,
    ttl: Duration,
}

/// The age of a report when it is written, and the server's time then.
#[derive(Clone, Copy, Debug)]
struct WriteTime {
    age: Duration,
    server_ms: Option<u64>,
}

/// The state of the writer.
#[derive(Debug)]
pub(crate) struct Written {
    /// The version to write in, which all other nodes read.
    pub(crate) version: AtomicU32,
    /// Reports that the bus has taken.
    pub(crate) sent: AtomicU64,
    /// Reports that the bus has not taken.
    pub(crate) unsent: AtomicU64,
    /// By how much the server's clock is ahead of this node's, in nanoseconds; [`NOT_KNOWN`] until it is known.
    server_ahead: AtomicI64,
}

/// The difference to the server's clock is not known.
const NOT_KNOWN: i64 = i64::MIN;

impl Default for Written {
    fn default() -> Self {
        let (sent, unsent) = (AtomicU64::default(), AtomicU64::default());
        Self { version: AtomicU32::new(FIRST), sent, unsent, server_ahead: AtomicI64::new(NOT_KNOWN) }
    }
}

impl Written {
    /// Sets by how much the server's clock is ahead of this node's, in nanoseconds.
    pub(crate) fn knows_server_ahead_by(&self, ahead: Option<i128>) {
        let ahead = ahead.and_then(|ahead| i64::try_from(ahead).ok()).unwrap_or(NOT_KNOWN);
        self.server_ahead.store(ahead, Ordering::Relaxed);
    }

    /// The server's time at a time of this node's, in milliseconds since 1970.
    fn server_ms(&self, now: Duration) -> Option<u64> {
        let ahead = Some(self.server_ahead.load(Ordering::Relaxed)).filter(|ahead| *ahead != NOT_KNOWN)?;
        let server = Duration::from_nanos(u64::try_from(i128::try_from(now.as_nanos()).ok()? + i128::from(ahead)).ok()?);
        u64::try_from(server.as_millis()).ok()
    }
}

/// A lease to release, and when.
struct Due {
    owned: Owned,
    at: Duration,
}

/// Writes until the actor ends, in the order of the actor's effects: a report before the release of its attempt's lease. Reports do not
/// wait for leases.
pub(crate) async fn write_all(
    reports: Arc<dyn KeyValue>,
    leases: Arc<LeaseStore>,
    mut writes: mpsc::Receiver<Write>,
    written: Arc<Written>,
    clock: Dating,
) {
    let mut reported = Duration::ZERO;
    let mut due: VecDeque<Due> = VecDeque::new();
    loop {
        let now = clock.now().monotonic;
        let wait = due.front().map_or(Duration::MAX, |next| next.at.saturating_sub(now));
        let write = tokio::select! {
            biased;
            () = tokio::time::sleep(wait), if !due.is_empty() => None,
            write = writes.recv(), if due.len() < WRITES_WAITING => match write {
                Some(write) => Some(write),
                None => break,
            },
        };
        let now = clock.now().monotonic;
        let write_time = |date: Duration| WriteTime { age: now.saturating_sub(date), server_ms: written.server_ms(now) };
        let version = written.version.load(Ordering::Relaxed);
        let stored = match write {
            Some(Write::Report { report, date }) => self::report(version, &report, write_time(date)),
            Some(Write::Clear { key, clear, date }) => cleared(version, key, clear, write_time(date)),
            Some(Write::Release(owned)) => {
                due.push_back(Due { owned, at: reported + RELEASED_AFTER });
                continue;
            }
            None => {
                if let Some(next) = due.pop_front() {
                    release(&leases, next).await;
                }
                continue;
            }
        };
        match stored {
            Ok(stored) => put(&*reports, stored, &written).await,
            Err(error) => tracing::warn!(%error, "a report or clear of this node was not published: its names are too long to store"),
        }
        reported = clock.now().monotonic;
    }
    for last in due {
        release(&leases, last).await;
    }
}

/// Releases a lease. If its revision differs, another node holds it by now. If the bus does not answer, it expires by itself.
async fn release(leases: &LeaseStore, Due { owned, .. }: Due) {
    let released = tokio::time::timeout(WRITE_LIMIT, leases.delete(&owned)).await;
    if let Ok(Err(error)) = released {
        tracing::debug!(%error, "a lease was not released; it expires by itself");
    }
}

async fn put(reports: &dyn KeyValue, Stored { key, value, ttl }: Stored, written: &Written) {
    let put = tokio::time::timeout(WRITE_LIMIT, reports.put(&key, value.into(), Some(ttl))).await;
    let count = if matches!(put, Ok(Ok(_))) { &written.sent } else { &written.unsent };
    count.fetch_add(1, Ordering::Relaxed);
    if let Ok(Err(error)) = put {
        tracing::debug!(key, %error, "a report was not written; it is written again when the bus is back");
    }
}

fn cleared(version: u32, key: String, clear: StoredClear, time: WriteTime) -> Result<Stored, KnowError> {
    let value = encode_as(version, &StoredClear { age_ms: milliseconds(time.age), written_ms: time.server_ms, ..clear })?;
    Ok(Stored { key, value, ttl: LONGEST_KEPT })
}

/// A report as it is stored; an error if it is too large.
fn report(version: u32, report: &Report, time: WriteTime) -> Result<Stored, KnowError> {
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

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use actors::bucket_spec;
    use bus::memory::MemoryBus;
    use bus::{Messaging as _, SharedState as _};
    use clock::Clock;
    use contract::know::{LEASES, REPORTS, SharedBucket};
    use contract::subject::Fleet;
    use contract::{AttemptId, View};
    use futures::StreamExt as _;

    use lease::{LeaseParts, Taken};

    use super::*;
    use crate::core::knowledge::{BackoffKey, PROBE_DEADLINE};

    fn failure_of(image: &str) -> Write {
        let about = About::Reference { reference: image.to_owned(), scope: String::new(), mirrored: false };
        let backoff_key = Arc::new(BackoffKey::new(View::default(), about));
        let finding = Finding::Failed(FailureDetails { message: "404".to_owned(), step: 1, ..FailureDetails::default() });
        let report = Report { reporter: "n1".parse().unwrap(), backoff_key, attempt: AttemptId::from(1), trace: None, finding };
        Write::Report { report: Arc::new(report), date: Duration::ZERO }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_released_after_its_report_and_no_report_waits_for_the_release() {
        let (fleet, clock) = (Fleet::default(), Clock::simulated(Duration::from_secs(1_000_000)));
        let bus = MemoryBus::new(clock.clone());
        let reports = bus.bucket(&bucket_spec(SharedBucket::reports(&fleet))).await.unwrap();
        let of_leases = LeaseParts {
            state: Arc::new(bus.connect()),
            bucket: bucket_spec(SharedBucket::leases(&fleet)),
            holder: "n1".parse().unwrap(),
            instance: String::new(),
            term: PROBE_DEADLINE,
            clock: clock.clone(),
        };
        let leases = Arc::new(LeaseStore::new(of_leases));
        assert!(matches!(leases.take("lead.1.0", "").await, Ok(Taken::Now(_))));
        let owned = leases.give_up("lead.1.0", None).unwrap();
        let arriving = bus.subscribe(&fleet.all_knowledge(), None).await.unwrap();
        let (writes, waiting) = mpsc::channel(WRITES_WAITING);
        for write in [failure_of("a:1"), Write::Release(owned), failure_of("a:2")] {
            writes.send(write).await.unwrap();
        }
        drop(tokio::spawn(write_all(reports, leases, waiting, Arc::default(), Dating::by(clock.clone()))));
        let began = clock.now().monotonic;
        let arrived: Vec<(&str, Duration)> = arriving
            .take(3)
            .map(|message| {
                let of = [REPORTS, LEASES].into_iter().find(|bucket| fleet.key_of(bucket, &message.subject).is_some()).unwrap();
                (of, clock.now().monotonic - began)
            })
            .collect()
            .await;
        assert_eq!(arrived, [(REPORTS, Duration::ZERO), (REPORTS, Duration::ZERO), (LEASES, RELEASED_AFTER)]);
    }
}
