//! A lying node: its forged reports could keep other nodes from a good image, or make them ask for a bad one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actors::bucket_spec;
use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
use bus::memory::MemoryBus;
use bus::{KeyValue, SharedState as _};
use clock::Random;
use contract::AttemptId;
use contract::know::{Found, KeyKind, ReportKey, SharedBucket, StoredKeyInView, StoredReport, decode, encode};
use contract::subject::Fleet;

use crate::plan::TOOL;
use crate::world::{name, view};

/// The Retry-After of a forged report: 10 years.
const FORGED_RETRY_AFTER_MS: u64 = 10 * 365 * 24 * 3_600_000;
/// How long a server keeps a forged report.
const FORGED_TTL: Duration = Duration::from_secs(600);

/// Writes reports under the liar's own key that could keep other nodes from a good image.
pub async fn lie(hub: &MemoryBus, liar: usize, number: u64) {
    let view = view();
    let scope = "anonymous".to_owned();
    let (in_view, stored) = match number % 3 {
        0 => (
            KeyInView::Reference { reference: TOOL.to_owned(), scope: scope.clone(), mirrored: false },
            StoredKeyInView { kind: KeyKind::Reference, reference: TOOL.to_owned(), scope, ..StoredKeyInView::default() },
        ),
        1 => {
            let repository = TOOL.trim_end_matches(":1").to_owned();
            (
                KeyInView::Login { repository: repository.clone(), fingerprint: scope.clone(), anonymous: true },
                StoredKeyInView { kind: KeyKind::Login, repository, fingerprint: scope, anonymous: true, ..StoredKeyInView::default() },
            )
        }
        _ => {
            let owner = "default|r.example|direct||anonymous|default".to_owned();
            (KeyInView::BudgetOwner(owner.clone()), StoredKeyInView { kind: KeyKind::BudgetOwner, owner, ..StoredKeyInView::default() })
        }
    };
    let backoff_key = BackoffKey::new(view.clone(), in_view);
    let report = StoredReport {
        view,
        in_view: stored,
        attempt: AttemptId::random(&mut Random::from_system()),
        trace: None,
        found: Found::Failed,
        message: "forged".to_owned(),
        step: 1_000,
        retry_after_ms: Some(FORGED_RETRY_AFTER_MS),
        repository: String::new(),
        in_a_row: 0,
        failing_for_ms: 0,
        for_all_ago_ms: 0,
        succeeded_ago_ms: None,
        age_ms: 0,
        written_ms: None,
    };
    let key = ReportKey { node: name(liar), class: Some(backoff_key.class()), backoff_key: backoff_key.id().0 };
    write(&*reports(hub).await, &key, &report).await;
}

/// Claims under the liar's own key that it has just succeeded at everything at which another node failed last.
pub async fn claim_successes(hub: &MemoryBus, liar: usize) {
    let (liar, bucket) = (name(liar), reports(hub).await);
    let mut failed = BTreeMap::new();
    for stored in bucket.snapshot(None).await.expect("the bus is open").entries {
        let (key, report) = (ReportKey::read(&stored.entry.key), decode::<StoredReport>(&stored.entry.value));
        if let (Some(key), Ok(report)) = (key, report)
            && key.node != liar
            && report.found == Found::Failed
        {
            failed.insert(key.backoff_key, (key, report));
        }
    }
    for (key, report) in failed.into_values() {
        let attempt = AttemptId::random(&mut Random::from_system());
        let succeeded = StoredReport { attempt, trace: None, found: Found::Succeeded, age_ms: 0, written_ms: None, ..report };
        write(&*bucket, &ReportKey { node: liar.clone(), ..key }, &succeeded).await;
    }
}

async fn reports(hub: &MemoryBus) -> Arc<dyn KeyValue> {
    hub.bucket(&bucket_spec(SharedBucket::reports(&Fleet::default()))).await.expect("the bus is open")
}

async fn write(reports: &dyn KeyValue, key: &ReportKey, report: &StoredReport) {
    reports.put(&key.text(), encode(report).expect("it fits").into(), Some(FORGED_TTL)).await.expect("it is stored");
}
