//! How long reports are kept, and how many.

use std::time::Duration;

use contract::RETRY_AFTER_MAX;

use super::{Replica, kind};
use crate::core::knowledge::backoff_key::BackoffKeyId;
use crate::core::knowledge::entry::Received;
use crate::core::knowledge::report::Report;
use crate::core::knowledge::reporters::ReporterId;

/// How long a report is kept. No rule looks further back.
pub const KEPT_FOR: Duration = Duration::from_secs(600);
/// A report is kept this much longer than the registry's `Retry-After`.
const KEPT_BEYOND_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The longest that any report is kept.
pub const LONGEST_KEPT: Duration = Duration::from_secs(RETRY_AFTER_MAX.as_secs() + KEPT_BEYOND_RETRY_AFTER.as_secs());
/// The oldest age with which a report is taken. Older ones are replays or come from a broken clock, and count as this old. The
/// clock of this core begins no later than here, so that a report from before the node started has a date.
pub const OLDEST: Duration = Duration::from_secs(24 * 3_600);
/// How often reports that are too old are looked for.
const COLLECTED_EVERY: Duration = Duration::from_secs(10);
/// How many keys one node may report: a bad registry with a few hundred images. For one more its oldest report is forgotten.
pub const MAX_KEYS_OF_ONE: usize = 512;
/// How many reports are kept in all, 40 MiB at most. For one more the oldest report of the node with the most reports is
/// forgotten.
pub const MAX_REPORTS: usize = 32_768;

impl Replica {
    pub(super) fn clamped(&mut self, report: &Report, age: Duration) -> Duration {
        let asks_for_years = report.finding.details().and_then(|details| details.retry_after).is_some_and(|asked| asked > RETRY_AFTER_MAX);
        if age > OLDEST || asks_for_years {
            self.counts.reports_clamped_total += 1;
        }
        age.min(OLDEST)
    }

    pub(super) fn make_room(&mut self, reporter: ReporterId) {
        if self.reporters.count_of(reporter) > MAX_KEYS_OF_ONE {
            self.forget_oldest_of(reporter);
        }
        if self.reporters.reports() > MAX_REPORTS
            && let Some(most) = self.reporters.with_most_reports()
        {
            self.forget_oldest_of(most);
        }
    }

    pub(super) fn collect_garbage(&mut self, now: Duration) {
        if now < self.collected + COLLECTED_EVERY {
            return;
        }
        self.collected = now;
        self.cleared.retain(|_, date| now < *date + LONGEST_KEPT);
        self.cleared_images.retain(|_, date| now < *date + LONGEST_KEPT);
        if now <= self.oldest_expires {
            return;
        }
        let all = || self.backoff_keys.iter().flat_map(|(backoff_key, reports)| reports.expiries().map(|(by, at)| (*backoff_key, by, at)));
        let expired: Vec<(BackoffKeyId, ReporterId)> =
            all().filter(|(_, _, expires)| *expires < now).map(|(backoff_key, by, _)| (backoff_key, by)).collect();
        let oldest = all().map(|(_, _, expires)| expires).filter(|expires| *expires >= now).min();
        self.oldest_expires = oldest.unwrap_or(Duration::MAX);
        for (backoff_key, by) in expired {
            self.forget(backoff_key, by);
        }
    }

    fn forget_oldest_of(&mut self, by: ReporterId) {
        if let Some(backoff_key) = self.reporters.oldest_of(by) {
            self.forget(backoff_key, by);
            self.counts.reports_evicted_total += 1;
        }
    }

    fn forget(&mut self, backoff_key: BackoffKeyId, by: ReporterId) {
        if let Some(reports) = self.backoff_keys.get_mut(&backoff_key) {
            let kind = reports.any().map(|received| kind(&received.report.backoff_key));
            reports.remove(by);
            let fails = reports.fails();
            if reports.is_empty() {
                self.backoff_keys.remove(&backoff_key);
            }
            if let Some(kind) = kind {
                self.note_failing(kind, backoff_key, fails);
            }
        }
        self.reporters.forget(by, backoff_key);
    }
}

pub(in crate::core::knowledge) fn expires(received: &Received) -> Duration {
    received.date + kept_for(received.claim.and_then(|claim| claim.retry_after))
}

/// How long a report is of use.
#[must_use]
pub fn keep_for(report: &Report) -> Duration {
    kept_for(report.finding.details().and_then(|details| details.retry_after))
}

fn kept_for(asked: Option<Duration>) -> Duration {
    KEPT_FOR.max(asked.unwrap_or_default().min(RETRY_AFTER_MAX) + KEPT_BEYOND_RETRY_AFTER)
}
