//! Kubelet's rule for one failure: a back-off of 10 s that doubles to 300 s, for each pod, image and node.

/// The back-off after the first failure.
const FIRST_MS: u64 = 10_000;
/// The longest back-off. It doubles up to this.
const LONGEST_MS: u64 = 300_000;
/// Kubelet forgets a back-off that is not renewed for this long.
pub(super) const FORGOTTEN_AFTER_MS: u64 = 2 * LONGEST_MS;

/// The attempts from a failure until `span_ms` later, both included.
pub(super) fn attempts_within(span_ms: u64) -> u64 {
    let (mut attempts, mut next_ms, mut delay_ms) = (1, FIRST_MS, FIRST_MS);
    while next_ms <= span_ms {
        attempts += 1;
        delay_ms = (2 * delay_ms).min(LONGEST_MS);
        if delay_ms == LONGEST_MS {
            return attempts + (span_ms - next_ms) / LONGEST_MS;
        }
        next_ms += delay_ms;
    }
    attempts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_follow_kubelets_steps() {
        let table = [
            (0, 1),
            (9_999, 1),
            (10_000, 2),
            (29_999, 2),
            (30_000, 3),
            (70_000, 4),
            (150_000, 5),
            (309_999, 5),
            (310_000, 6),
            (609_999, 6),
            (610_000, 7),
            (910_000, 8),
            (3_600_000, 16),
        ];
        for (span_ms, attempts) in table {
            assert_eq!(attempts_within(span_ms), attempts, "{span_ms}");
        }
        assert!(attempts_within(u64::MAX) > 1_000_000, "and it ends");
    }
}
