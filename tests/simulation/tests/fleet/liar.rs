//! A lying node: its forged reports could keep other nodes from a good image.

use std::time::Duration;

use actors::bucket_spec;
use backoff_tracker::core::knowledge::{BackoffKey, KeyInView};
use bus::SharedState as _;
use bus::memory::MemoryBus;
use clock::Random;
use contract::AttemptId;
use contract::know::{Found, KeyKind, ReportKey, SharedBucket, StoredKeyInView, StoredReport, encode};
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
    let key = ReportKey { node: name(liar), class: Some(backoff_key.class()), backoff_key: backoff_key.id().0 }.text();
    let fleet = Fleet::default();
    let reports = hub.bucket(&bucket_spec(SharedBucket::reports(&fleet))).await.expect("the bus is open");
    reports.put(&key, encode(&report).expect("it fits").into(), Some(FORGED_TTL)).await.expect("it is stored");
}
