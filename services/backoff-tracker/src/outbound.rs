//! Writes to the bus: reports under the node's own name, clears, and released leases.

mod stored_values;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bus::KeyValue;
use contract::know::{KnowError, StoredClear};
use contract::version::FIRST;
use futures::StreamExt as _;
use futures::stream::{FuturesOrdered, FuturesUnordered};
use lease::{LeaseStore, Owned};
use tokio::sync::mpsc;

use self::stored_values::{Stored, WriteTime};
use crate::core::knowledge::Report;
use crate::dating::Dating;

pub(crate) use self::stored_values::lease_key;

/// Writes that wait for the bus; a node publishes a few reports per second at most. Further writes are dropped, counted, and written again
/// from the replica when the bus is back.
pub(crate) const WRITES_WAITING: usize = 1_024;
/// Reports, or releases, that are on their way at the same time: more than one pull makes, so that all of them take one round trip.
const AT_ONCE: usize = 16;
/// How long one write may take. A lost report is written again.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// The time between a report and the release of a lease: both go to every node, and nodes wait for the report. It is longer than 1,000
/// nodes take to receive the report. Meanwhile no node asks for the lease, because it has the report.
const RELEASED_AFTER: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) enum Write {
    /// A value to store.
    Store(Value),
    /// A lease of this node to release.
    Release(Owned),
}

/// A value to store, and its date. Its age is computed when it is written.
#[derive(Debug)]
pub(crate) enum Value {
    /// A report of this node.
    Report { report: Arc<Report>, date: Duration },
    /// What an operator cleared here, and when.
    Clear { key: String, clear: StoredClear, date: Duration },
}

/// The state of the writer.
#[derive(Debug)]
pub(crate) struct Written {
    /// The version to write in, which all other nodes read.
    pub(crate) version: AtomicU32,
    pub(crate) sent: AtomicU64,
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

/// A lease to release.
struct Due {
    owned: Owned,
    /// After this many reports have been written.
    after: u64,
    /// When it is released; none until the reports before it have been written.
    at: Option<Duration>,
}

/// Writes until the actor ends, in the order of the actor's effects: a report before the release of its attempt's lease, and two reports of
/// one key one after the other. Other writes do not wait for each other.
pub(crate) async fn write_all(
    reports: Arc<dyn KeyValue>,
    leases: Arc<LeaseStore>,
    mut writes: mpsc::Receiver<Write>,
    written: Arc<Written>,
    clock: Dating,
) {
    let (mut sending, mut releasing) = (FuturesOrdered::new(), FuturesUnordered::new());
    // The keys of what is being sent, in the same order.
    let mut keys: VecDeque<String> = VecDeque::new();
    let (mut begun, mut ended, mut ended_at) = (0_u64, 0_u64, Duration::ZERO);
    let mut due: VecDeque<Due> = VecDeque::new();
    let mut next: Option<Value> = None;
    loop {
        let now = clock.now().monotonic;
        if let Some(stored) = next.as_ref().map(|value| stored(value, now, &written)) {
            match stored {
                Ok(stored) if keys.contains(&stored.key) => {}
                Ok(stored) => {
                    next = None;
                    begun += 1;
                    keys.push_back(stored.key.clone());
                    sending.push_back(put(Arc::clone(&reports), stored, Arc::clone(&written)));
                }
                Err(error) => {
                    next = None;
                    tracing::warn!(%error, "a report or clear of this node was not published: its names are too long to store");
                }
            }
        }
        let release_in = due.front().and_then(|next| next.at).map(|at| at.saturating_sub(now));
        tokio::select! {
            biased;
            () = tokio::time::sleep(release_in.unwrap_or_default()), if release_in.is_some() && releasing.len() < AT_ONCE => {
                if let Some(next) = due.pop_front() {
                    releasing.push(release(Arc::clone(&leases), next.owned));
                }
            }
            Some(()) = sending.next(), if !sending.is_empty() => {
                keys.pop_front();
                (ended, ended_at) = (ended + 1, clock.now().monotonic);
                let freed = due.iter_mut().filter(|due| due.at.is_none() && due.after <= ended);
                freed.for_each(|due| due.at = Some(ended_at + RELEASED_AFTER));
            }
            Some(()) = releasing.next(), if !releasing.is_empty() => {}
            write = writes.recv(), if next.is_none() && sending.len() < AT_ONCE && due.len() < WRITES_WAITING => match write {
                Some(Write::Release(owned)) => {
                    due.push_back(Due { owned, after: begun, at: (begun == ended).then_some(ended_at + RELEASED_AFTER) });
                }
                Some(Write::Store(value)) => next = Some(value),
                None => break,
            },
        }
    }
    while sending.next().await.is_some() {}
    releasing.extend(due.into_iter().map(|last| release(Arc::clone(&leases), last.owned)));
    while releasing.next().await.is_some() {}
}

/// What is stored for a value that is written now; an error if it is too large.
fn stored(value: &Value, now: Duration, written: &Written) -> Result<Stored, KnowError> {
    let write_time = |date: Duration| WriteTime { age: now.saturating_sub(date), server_ms: written.server_ms(now) };
    let version = written.version.load(Ordering::Relaxed);
    match value {
        Value::Report { report, date } => stored_values::report(version, report, write_time(*date)),
        Value::Clear { key, clear, date } => stored_values::clear(version, key, clear, write_time(*date)),
    }
}

/// Releases a lease. If its revision differs, another node holds it by now. If the bus does not answer, it expires by itself.
async fn release(leases: Arc<LeaseStore>, owned: Owned) {
    let released = tokio::time::timeout(WRITE_LIMIT, leases.delete(&owned)).await;
    if let Ok(Err(error)) = released {
        tracing::debug!(%error, "a lease was not released; it expires by itself");
    }
}

async fn put(reports: Arc<dyn KeyValue>, Stored { key, value, ttl }: Stored, written: Arc<Written>) {
    let put = tokio::time::timeout(WRITE_LIMIT, reports.put(&key, value.into(), Some(ttl))).await;
    let count = if matches!(put, Ok(Ok(_))) { &written.sent } else { &written.unsent };
    count.fetch_add(1, Ordering::Relaxed);
    if let Ok(Err(error)) = put {
        tracing::debug!(key, %error, "a report was not written; it is written again when the bus is back");
    }
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
    use contract::{AttemptId, DEADLINES, View};
    use lease::{LeaseParts, Taken};

    use super::*;
    use crate::core::knowledge::{BackoffKey, FailureDetails, Finding, KeyInView};

    fn failure_of(image: &str) -> Write {
        let in_view = KeyInView::Reference { reference: image.to_owned(), scope: String::new(), mirrored: false };
        let backoff_key = Arc::new(BackoffKey::new(View::default(), in_view));
        let finding = Finding::Failed(FailureDetails { message: "404".to_owned(), step: 1, ..FailureDetails::default() });
        let report = Report { reporter: "n1".parse().unwrap(), backoff_key, attempt: AttemptId::from(1), trace: None, finding };
        Write::Store(Value::Report { report: Arc::new(report), date: Duration::ZERO })
    }

    const ROUND_TRIP: Duration = Duration::from_millis(400);

    /// Writes the reports, and the release of a lease between the first two; returns the buckets that have changed, and when.
    async fn written(slow: bool, images: &[&str]) -> Vec<(&'static str, Duration)> {
        let (fleet, clock) = (Fleet::default(), Clock::simulated(Duration::from_secs(1_000_000)));
        let bus = MemoryBus::new(clock.clone());
        let reports = bus.bucket(&bucket_spec(SharedBucket::reports(&fleet))).await.unwrap();
        let of_leases = LeaseParts {
            state: Arc::new(bus.connect()),
            bucket: bucket_spec(SharedBucket::leases(&fleet)),
            holder: "n1".parse().unwrap(),
            instance: String::new(),
            term: DEADLINES.attempt_lease,
            clock: clock.clone(),
        };
        let leases = Arc::new(LeaseStore::new(of_leases));
        assert!(matches!(leases.take("lead.1.0", "").await, Ok(Taken::Now(_))));
        let owned = leases.give_up("lead.1.0", None).unwrap();
        let arriving = bus.subscribe(&fleet.all_knowledge(), None).await.unwrap();
        let (writes, waiting) = mpsc::channel(WRITES_WAITING);
        let mut images = images.iter();
        writes.send(failure_of(images.next().unwrap())).await.unwrap();
        writes.send(Write::Release(owned)).await.unwrap();
        let changes = images.len() + 2;
        for image in images {
            writes.send(failure_of(image)).await.unwrap();
        }
        bus.set_delay(if slow { ROUND_TRIP } else { Duration::ZERO });
        drop(tokio::spawn(write_all(reports, leases, waiting, Arc::default(), Dating::by(clock.clone()))));
        let began = clock.now().monotonic;
        arriving
            .take(changes)
            .map(|message| {
                let of = [REPORTS, LEASES].into_iter().find(|bucket| fleet.key_of(bucket, &message.subject).is_some()).unwrap();
                (of, clock.now().monotonic - began)
            })
            .collect()
            .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_released_after_its_report_and_no_report_waits_for_the_release() {
        let written = written(false, &["a:1", "a:2"]).await;
        assert_eq!(written, [(REPORTS, Duration::ZERO), (REPORTS, Duration::ZERO), (LEASES, RELEASED_AFTER)]);
    }

    #[tokio::test(start_paused = true)]
    async fn reports_of_different_keys_do_not_wait_for_each_others_answers() {
        let written = written(true, &["a:1", "a:2", "a:3", "a:1"]).await;
        let at_once = (REPORTS, Duration::ZERO);
        assert_eq!(written, [at_once, at_once, at_once, (REPORTS, ROUND_TRIP), (LEASES, ROUND_TRIP + RELEASED_AFTER)]);
    }
}
