//! A registry's quota in words, and a used-up quota as time passes.

use contract::messages::throttler::RegistryLimit;

use super::units;

/// A used-up quota for which all pulls from a registry wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentQuota {
    /// The quota, as its budget's leader reports it.
    pub limit: RegistryLimit,
    /// The milliseconds until one more pull has quota: other pulls may wait before it.
    pub wait_ms: u64,
}

impl SpentQuota {
    /// The quota `elapsed_ms` later. None if one more pull has quota by then.
    #[must_use]
    pub fn after(&self, elapsed_ms: u64) -> Option<Self> {
        let wait_ms = self.wait_ms.checked_sub(elapsed_ms).filter(|wait_ms| *wait_ms > 0)?;
        let reset_ms = self.limit.reset_ms.map(|reset_ms| reset_ms.saturating_sub(elapsed_ms));
        Some(Self { limit: RegistryLimit { reset_ms, ..self.limit.clone() }, wait_ms })
    }
}

/// `quota 0 of 100 left per 6h, resets in 134m`, as far as the registry reports it.
#[must_use]
pub fn in_words(limit: &RegistryLimit) -> String {
    let mut words = match limit.limit {
        0 => format!("quota {} left", limit.remaining),
        all => format!("quota {} of {all} left", limit.remaining),
    };
    if limit.window_ms > 0 {
        words.push_str(&format!(" per {}", units::age(limit.window_ms)));
    }
    if let Some(reset_ms) = limit.reset_ms {
        words.push_str(&format!(", resets in {}", units::age(reset_ms)));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_reads_as_far_as_the_registry_reports_it() {
        for (limit, window_ms, reset_ms, words) in [
            (100, 21_600_000, Some(8_040_000), "quota 0 of 100 left per 6h, resets in 134m"),
            (100, 21_600_000, None, "quota 0 of 100 left per 6h"),
            (3, 0, Some(120_000), "quota 0 of 3 left, resets in 2m"),
            (0, 0, Some(52_000), "quota 0 left, resets in 52s"),
            (0, 0, None, "quota 0 left"),
        ] {
            assert_eq!(in_words(&RegistryLimit { limit, window_ms, reset_ms, ..RegistryLimit::default() }), words);
        }
    }

    #[test]
    fn used_up_quota_ends_with_its_wait() {
        let spent = |wait_ms, reset_ms| SpentQuota { limit: RegistryLimit { reset_ms, ..RegistryLimit::default() }, wait_ms };
        for (elapsed_ms, expected) in [
            (0, Some(spent(9_000, Some(5_000)))),
            (4_000, Some(spent(5_000, Some(1_000)))),
            (8_999, Some(spent(1, Some(0)))),
            (9_000, None),
            (u64::MAX, None),
        ] {
            assert_eq!(spent(9_000, Some(5_000)).after(elapsed_ms), expected, "after {elapsed_ms} ms");
        }
    }
}
