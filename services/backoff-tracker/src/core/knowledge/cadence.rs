//! When the next attempt of a shared entry is due.

use std::time::Duration;

use super::backoff_key::{BackoffKey, KeyInView, fraction};
use contract::{FailureClass, RETRY_AFTER_MAX};

/// The longest time between two attempts, apart from `Retry-After`.
pub const LONGEST: Duration = Duration::from_secs(300);
/// The most that jitter changes a delay, as a share of it. It makes delays shorter, so that a waiting caller learns within the longest step
/// that an image is there; only the delays of a login are made longer.
const JITTER: f64 = 0.1;
/// Added to `Retry-After`, so that budgets that share a window do not return together.
const RETRY_AFTER_SPREAD: Duration = Duration::from_secs(2);

const UNAVAILABLE_S: [u64; 3] = [2, 4, 8];
const OTHERS_S: [u64; 4] = [10, 20, 40, 60];
/// Long, and jitter makes them longer only, because registries lock accounts after repeated wrong passwords.
const DENIED_LOGIN_S: [u64; 2] = [60, 300];

/// The delay until the next attempt after the failure that took the entry to `step` (1 is the first). The jitter is the same on every node.
#[must_use]
pub fn delay(backoff_key: &BackoffKey, step: u32, retry_after: Option<Duration>) -> Duration {
    let share = share(backoff_key, step);
    if let Some(asked) = retry_after {
        return asked.min(RETRY_AFTER_MAX) + RETRY_AFTER_SPREAD.mul_f64(share);
    }
    let table = table(backoff_key);
    let index = usize::try_from(step.max(1) - 1).unwrap_or(usize::MAX).min(table.len() - 1);
    let jitter = if is_login(backoff_key) { JITTER * share } else { -JITTER * share };
    Duration::from_secs(table[index]).mul_f64(1.0 + jitter).min(LONGEST)
}

fn table(backoff_key: &BackoffKey) -> &'static [u64] {
    match backoff_key.class() {
        FailureClass::RegistryUnavailable => &UNAVAILABLE_S,
        _ if is_login(backoff_key) => &DENIED_LOGIN_S,
        _ => &OTHERS_S,
    }
}

/// Whether the key is about an account that can be locked.
fn is_login(backoff_key: &BackoffKey) -> bool {
    matches!(backoff_key.in_view(), KeyInView::Login { anonymous: false, .. })
}

/// Uniform in `[0, 1)` over back-off keys and steps.
fn share(backoff_key: &BackoffKey, step: u32) -> f64 {
    let id = backoff_key.id().0;
    // splitmix64's finaliser over the folded id.
    let mut bits = (id as u64) ^ ((id >> 64) as u64) ^ u64::from(step).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    fraction(bits ^ (bits >> 31))
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::View;

    fn login(anonymous: bool) -> KeyInView {
        KeyInView::Login { repository: "a".to_owned(), fingerprint: "f".to_owned(), anonymous }
    }

    #[test]
    fn each_class_has_its_cadence() {
        let endpoint = KeyInView::Endpoint { endpoint: "e".to_owned(), zone: "z".to_owned() };
        let reference = KeyInView::Reference { reference: "r".to_owned(), scope: "s".to_owned(), mirrored: false };
        let content = KeyInView::Content { reference: "r".to_owned(), endpoint: "e".to_owned() };
        let table: [(KeyInView, &[u64]); 7] = [
            (endpoint, &[2, 4, 8, 8, 8]),
            (KeyInView::Registry, &[2, 4, 8, 8, 8]),
            (KeyInView::Repository("a".to_owned()), &[2, 4, 8, 8, 8]),
            (reference, &[10, 20, 40, 60, 60]),
            (content, &[10, 20, 40, 60, 60]),
            (login(true), &[10, 20, 40, 60, 60]),
            (KeyInView::BudgetOwner("o".to_owned()), &[10, 20, 40, 60, 60]),
        ];
        for (in_view, expected) in table {
            let backoff_key = BackoffKey::new(View::default(), in_view);
            for (step, seconds) in (1..).zip(expected) {
                let base = Duration::from_secs(*seconds);
                let delay = delay(&backoff_key, step, None);
                assert!(delay <= base && delay >= base.mul_f64(0.9), "{:?} step {step}: {delay:?}", backoff_key.in_view());
            }
        }
    }

    #[test]
    fn a_login_is_never_attempted_before_its_delay_is_over() {
        for number in 0..100 {
            let in_view = KeyInView::Login { repository: number.to_string(), fingerprint: "f".to_owned(), anonymous: false };
            let backoff_key = BackoffKey::new(View::default(), in_view);
            let first = delay(&backoff_key, 1, None).as_secs_f64();
            assert!((60.0..=66.0).contains(&first), "{first}");
            assert_eq!((delay(&backoff_key, 2, None), delay(&backoff_key, 9, None)), (LONGEST, LONGEST));
        }
    }

    /// A missing image is attempted again within 60 s: the other 5 s of the 65 s are for nodes that let others go first, the lease and the
    /// permit.
    #[test]
    fn no_step_of_a_missing_image_is_longer_than_a_minute() {
        for number in 0..100 {
            let in_view = KeyInView::Reference { reference: format!("r/a:{number}"), scope: "s".to_owned(), mirrored: false };
            let backoff_key = BackoffKey::new(View::default(), in_view);
            assert!((1..20).all(|step| delay(&backoff_key, step, None) <= Duration::from_secs(60)));
        }
    }

    #[test]
    fn retry_after_is_obeyed_within_reason() {
        let backoff_key = BackoffKey::new(View::default(), KeyInView::BudgetOwner("o".to_owned()));
        let after = |seconds| delay(&backoff_key, 1, Some(Duration::from_secs(seconds)));
        assert!(after(20) >= Duration::from_secs(20) && after(20) <= Duration::from_secs(22));
        assert!(after(u64::MAX) <= RETRY_AFTER_MAX + RETRY_AFTER_SPREAD, "ten years are an hour");
    }

    #[test]
    fn out_of_range_step_is_clamped() {
        let backoff_key = BackoffKey::new(View::default(), KeyInView::Registry);
        assert!(delay(&backoff_key, u32::MAX, None) <= Duration::from_secs(8));
        assert!(delay(&backoff_key, 0, None) > Duration::from_millis(1_799));
        assert!(delay(&backoff_key, 0, None) <= Duration::from_secs(2));
    }
}
