//! Kubelet's messages, letter for letter, and Fleetpull's own. Names are quoted as by Go's `%q`: see [`image::go::quote`].

use std::time::Duration;

use contract::Reason;
use image::go::{duration, quote};

use super::bounds;
use super::request::milliseconds;

/// An error text of a runtime with this prefix means [`Reason::RegistryUnavailable`].
const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
/// An error text of a runtime with this prefix means [`Reason::SignatureValidationFailed`].
const SIGNATURE_VALIDATION_FAILED: &str = "SignatureValidationFailed";
/// The bytes of a MiB. Free room is rounded down, and everything else up.
const MIB: u64 = 1 << 20;

/// The image string cannot be parsed; `error` is kubelet's text for it.
#[must_use]
pub fn invalid_name(image: &str, error: &str) -> String {
    format!("Failed to apply default image tag {}: {error}", quote(image))
}

/// The runtime could not say whether the image is present. Kubelet quotes the image id, which is empty at this point.
#[must_use]
pub fn inspect_failed(error: &str) -> String {
    format!("Failed to inspect image {}: {error}", quote(""))
}

/// The image is absent, and the policy is Never.
#[must_use]
pub fn never_pull(image: &str) -> String {
    format!("Container image {} is not present with pull policy of Never", quote(image))
}

/// The image was present.
#[must_use]
pub fn present(image: &str) -> String {
    format!("Container image {} already present on machine", quote(image))
}

/// A pull begins.
#[must_use]
pub fn pulling(image: &str) -> String {
    format!("Pulling image {}", quote(image))
}

/// A pull succeeded. `pull` is the time of the pull alone, `whole` includes the waiting.
#[must_use]
pub fn pulled(image: &str, pull: Duration, whole: Duration, size_bytes: u64) -> String {
    format!(
        "Successfully pulled image {} in {} ({} including waiting). Image size: {size_bytes} bytes.",
        quote(image),
        duration(pull),
        duration(whole)
    )
}

/// A pull failed; `error` is the runtime's own text.
#[must_use]
pub fn pull_failed(image: &str, error: &str) -> String {
    format!("Failed to pull image {}: {error}", quote(image))
}

/// Refused too soon after a failure. The event has no cause; the answer has one if it is known.
#[must_use]
pub fn back_off(image: &str, cause: Option<&str>) -> String {
    match cause {
        Some(cause) if !cause.is_empty() => format!("Back-off pulling image {}: {cause}", quote(image)),
        _ => format!("Back-off pulling image {}", quote(image)),
    }
}

/// Not in kubelet: a pull without a pod is refused while fewer than `pull.keep_free` bytes are free.
#[must_use]
pub fn no_room(image: &str, free: u64, keep: u64) -> String {
    format!(
        "{} is not pulled: no pod asked for it, and with {} MiB free the node is {} MiB short of pull.keep_free = {} MiB; remove images \
         that nobody needs, or lower pull.keep_free",
        quote(image),
        free / MIB,
        keep.saturating_sub(free).div_ceil(MIB),
        keep.div_ceil(MIB),
    )
}

/// Not in kubelet: a pull without a pod would leave fewer than `pull.keep_free` bytes free.
#[must_use]
pub fn too_large(missing: u64, free: u64, keep: u64) -> String {
    format!(
        "no pod asked for it, and with {} MiB still to come and {} MiB free the node would be {} MiB short of pull.keep_free = {} MiB; \
         remove images that nobody needs, or lower pull.keep_free",
        missing.div_ceil(MIB),
        free / MIB,
        keep.saturating_sub(free.saturating_sub(missing)).div_ceil(MIB),
        keep.div_ceil(MIB),
    )
}

/// Not in kubelet: a leader or prober got no manifest in its time.
#[must_use]
pub fn no_answer(registry: &str, within: Duration) -> String {
    format!("no answer within {}: {registry} has not sent the manifest", duration(within))
}

/// Not in kubelet: a leader or prober got no byte of a blob in its time.
#[must_use]
pub fn no_blob(registry: &str, within: Duration) -> String {
    format!("no answer within {}: {registry} has not sent a requested blob", duration(within))
}

/// Not in kubelet: the cause if a pull waited for another node's attempt without a result.
#[must_use]
pub fn no_clearance(within: Duration) -> String {
    format!("no clearance within {}: still waiting for the result of another node's attempt", duration(within))
}

/// Not in kubelet: the cause if a standing pull waits for another node's attempt and no failure is known.
pub(super) const CLEARANCE_UNDECIDED: &str = "still waiting for the result of another node's attempt";

/// Not in kubelet: the cause if a pull waits for the fleet's budget.
#[must_use]
pub fn no_budget(registry: &str, wait: Duration) -> String {
    format!("the fleet's budget for {registry} is used up, its turn comes in {}", duration(wait))
}

/// Not in kubelet: the event that a pull waits for the fleet's budget.
#[must_use]
pub fn waits_for_budget(image: &str, waited: Duration, registry: &str, wait: Duration) -> String {
    let turn = if wait.is_zero() { "it is not known yet for how long".to_owned() } else { format!("its turn comes in {}", duration(wait)) };
    format!("Pull of image {} waits for the fleet's budget for {registry}, for {} so far: {turn}", quote(image), duration(seconds(waited)))
}

/// Not in kubelet: the event that a pull waits for other pulls of its node.
#[must_use]
pub fn waits_for_slot(image: &str, waited: Duration, ahead: u64) -> String {
    let waited = duration(seconds(waited));
    format!("Pull of image {} waits for its turn on this node, for {waited} so far: {ahead} are before it", quote(image))
}

fn seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// A time of a second or more, rounded to tenths of a second.
fn rounded(time: Duration) -> Duration {
    if time.as_secs() == 0 { time } else { Duration::from_millis(milliseconds(time).saturating_add(50) / 100 * 100) }
}

/// Not in kubelet: a standing pull's time is over and the image is absent. The time is rounded, because a command sends what is left of the
/// given time some milliseconds after it began.
#[must_use]
pub fn standing_pull_over(limit: Duration, last: &str) -> String {
    let over = format!("not there within {}: the time given with --wait is over", duration(rounded(limit)));
    if last.is_empty() { over } else { format!("{over}; the last answer was: {last}") }
}

/// Not in kubelet: a person has cancelled a standing pull. `by` is `user@host`, or empty if unknown.
#[must_use]
pub fn standing_pull_cancelled(image: &str, by: &str) -> String {
    let cancelled = format!("the standing pull of {} was cancelled", quote(image));
    if by.is_empty() { cancelled } else { format!("{cancelled} by {}", bounds::shown_user(by)) }
}

/// Not in kubelet: the same detached pull already exists, since when and for how much longer.
#[must_use]
pub fn already_standing(since: Duration, left: Duration) -> String {
    format!("already standing for {}, and for {} more", duration(seconds(since)), duration(seconds(left)))
}

/// Not in kubelet: the node has its largest number of standing pulls.
#[must_use]
pub fn too_many_standing_pulls(most: usize) -> String {
    format!("{most} standing pulls are kept on this node, which is the limit: cancel some with fleetpull cancel, or pull without --wait")
}

/// Not in kubelet: the id names a standing pull of another image.
#[must_use]
pub fn other_standing_pull(image: &str) -> String {
    format!("the standing pull of this id is for {}: choose another id", quote(image))
}

/// Not in kubelet: a standing pull goes on, but could not be stored.
#[must_use]
pub fn standing_pull_not_kept(error: &str) -> String {
    format!("the standing pull goes on, but not beyond a restart of the agent: {error}")
}

/// Not in kubelet: a detached caller's time is over before its standing pull is stored.
#[must_use]
pub fn standing_pull_not_kept_yet() -> String {
    "the standing pull goes on, but its file is still being written: a restart of the agent may end it".to_owned()
}

/// Not in kubelet: standing pulls were cancelled, but that could not be stored.
#[must_use]
pub fn cancellation_not_kept(error: &str) -> String {
    format!("the cancelled standing pulls begin again if the agent is restarted: {error}")
}

/// The reason and the message that kubelet derives from a runtime's error text.
#[must_use]
pub fn reason_of_pull_error(image: &str, error: &str) -> (Reason, String) {
    if let Some(rest) = error.strip_prefix(REGISTRY_UNAVAILABLE) {
        return (Reason::RegistryUnavailable, format!("image pull failed for {image} because the registry is unavailable{rest}"));
    }
    if let Some(rest) = error.strip_prefix(SIGNATURE_VALIDATION_FAILED) {
        return (Reason::SignatureValidationFailed, format!("image pull failed for {image} because the signature validation failed{rest}"));
    }
    (Reason::ErrImagePull, error.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_error_reason_follows_the_prefix_alone() {
        // The table of kubelet's TestEvalCRIPullErr, with edge cases.
        let table = [
            ("test", Reason::ErrImagePull, "test"),
            ("RegistryUnavailable", Reason::RegistryUnavailable, "image pull failed for test because the registry is unavailable"),
            (
                "RegistryUnavailable: foo",
                Reason::RegistryUnavailable,
                "image pull failed for test because the registry is unavailable: foo",
            ),
            (
                "SignatureValidationFailed",
                Reason::SignatureValidationFailed,
                "image pull failed for test because the signature validation failed",
            ),
            (
                "SignatureValidationFailed: bar",
                Reason::SignatureValidationFailed,
                "image pull failed for test because the signature validation failed: bar",
            ),
            ("[RegistryUnavailable, x]", Reason::ErrImagePull, "[RegistryUnavailable, x]"),
            (
                "rpc error: code = Unavailable desc = RegistryUnavailable",
                Reason::ErrImagePull,
                "rpc error: code = Unavailable desc = RegistryUnavailable",
            ),
            ("registryunavailable", Reason::ErrImagePull, "registryunavailable"),
            ("", Reason::ErrImagePull, ""),
        ];
        for (error, reason, message) in table {
            assert_eq!(reason_of_pull_error("test", error), (reason, message.to_owned()), "{error}");
        }
    }

    #[test]
    fn time_of_a_standing_pull_is_the_time_that_was_given() {
        for (left_ms, given) in [(29_999, "30s"), (59_960, "1m0s"), (2_500, "2.5s"), (20_400, "20.4s"), (250, "250ms")] {
            let over = standing_pull_over(Duration::from_millis(left_ms), "");
            assert_eq!(over, format!("not there within {given}: the time given with --wait is over"));
        }
    }

    #[test]
    fn room_is_counted_in_mib() {
        let (free, keep) = (12_578_816, 2 << 30);
        let no_room = no_room("a:1", free, keep);
        assert!(no_room.contains("with 11 MiB free the node is 2037 MiB short of pull.keep_free = 2048 MiB; remove images"), "{no_room}");
        let too_large = too_large(1, keep, keep);
        let words = "with 1 MiB still to come and 2048 MiB free the node would be 1 MiB short of pull.keep_free = 2048 MiB; remove";
        assert!(too_large.contains(words), "{too_large}");
    }

    #[test]
    fn messages_equal_those_of_kubelet() {
        assert_eq!(inspect_failed("boom"), "Failed to inspect image \"\": boom");
        assert_eq!(back_off("a\"b", None), "Back-off pulling image \"a\\\"b\"");
        assert_eq!(back_off("a", Some("")), "Back-off pulling image \"a\"");
        assert_eq!(back_off("a", Some("ErrImagePull: 404")), "Back-off pulling image \"a\": ErrImagePull: 404");
        assert_eq!(
            pulled("a", Duration::from_micros(1_234_567), Duration::from_millis(90_250), 42),
            "Successfully pulled image \"a\" in 1.234s (1m30.25s including waiting). Image size: 42 bytes."
        );
    }
}
