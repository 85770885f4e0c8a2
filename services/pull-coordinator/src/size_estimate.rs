//! Size estimate of a pull: which blobs the image has, by its registry, and which of them are missing here.
//!
//! The registry is asked only if a pull would ask it now. A failure is shown to the caller and not reported to the tracker: a size
//! estimate must not make the fleet back off.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::human_duration;
use contract::messages::pull_coordinator::{BLOBS_MOST, BlobSize, Explanation, ImageSizeEstimate, PullPolicy};
use image::Digest;
use runtimes::{ImageRuntime, PullRequest, SizeEstimate};

use crate::catch_panic::catch_panic;

/// How long the registry may take to answer; a person waits for it.
const ESTIMATE_WITHIN: Duration = Duration::from_secs(20);

/// The blobs that the caller asks about, each once.
///
/// # Errors
/// There are too many, or one has no digest.
pub(crate) fn parse_blobs(blobs: &[BlobSize]) -> Result<Vec<(Digest, u64)>, String> {
    if blobs.len() > BLOBS_MOST {
        return Err(format!("{} blobs are more than an image has: at most {BLOBS_MOST} are read", blobs.len()));
    }
    let read = |blob: &BlobSize| Digest::parse(&blob.digest).map(|digest| (digest, blob.bytes)).map_err(|error| error.to_string());
    let once: BTreeMap<Digest, u64> = blobs.iter().map(read).collect::<Result<_, _>>()?;
    Ok(once.into_iter().collect())
}

/// Adds the size estimate to the explanation, or why there is none.
pub(crate) async fn add_estimate(explanation: &mut Explanation, runtime: &dyn ImageRuntime, request: &PullRequest) {
    if let Some(reason) = not_asked_because(explanation) {
        explanation.estimate_error = Some(reason);
        return;
    }
    let asking = catch_panic("size estimate", runtime.estimate_size(request));
    match tokio::time::timeout(ESTIMATE_WITHIN, asking).await.map(Option::flatten) {
        Ok(Some(Ok(estimate))) => explanation.size_estimate = Some(image_size_estimate(estimate)),
        Ok(Some(Err(failure))) => explanation.estimate_error = Some(failure.text),
        // This node's runtime cannot estimate sizes; another node's may.
        Ok(None) => {}
        Err(_) => {
            explanation.estimate_error = Some(format!("the registry did not answer within {ESTIMATE_WITHIN:?} with the image's manifest"))
        }
    }
}

/// Why a pull would not ask the registry now; none: it would.
fn not_asked_because(explanation: &Explanation) -> Option<String> {
    if let Some(left_ms) = explanation.next_attempt_ms.filter(|left_ms| *left_ms > 0) {
        let cause = explanation.cause.as_deref().unwrap_or("an earlier failure");
        let left = human_duration(left_ms.max(1_000));
        return Some(format!("its registry is not asked for another {left}, because of {cause}"));
    }
    (explanation.policy == PullPolicy::Never.as_str()).then(|| "the policy is Never: no registry is asked".to_owned())
}

fn image_size_estimate(estimate: SizeEstimate) -> ImageSizeEstimate {
    let blob = |(digest, bytes): (Digest, u64)| BlobSize { digest: digest.to_string(), bytes };
    ImageSizeEstimate { digest: Some(estimate.digest.to_string()), blobs: estimate.blobs.into_iter().map(blob).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(number: usize) -> BlobSize {
        BlobSize { digest: format!("sha256:{number:064x}"), bytes: 5 }
    }

    #[test]
    fn image_with_1001_blobs_is_read_and_one_more_is_refused() {
        let blobs: Vec<BlobSize> = (0..BLOBS_MOST).map(blob).collect();
        assert_eq!(parse_blobs(&blobs).map(|blobs| blobs.len()), Ok(BLOBS_MOST));
        assert!(parse_blobs(&[blobs, vec![blob(BLOBS_MOST)]].concat()).is_err_and(|refusal| refusal.starts_with("1002 blobs")));
    }

    #[test]
    fn equal_blobs_count_once_and_need_a_digest() {
        assert_eq!(parse_blobs(&[blob(1), blob(1)]).map(|blobs| blobs.len()), Ok(1));
        assert!(parse_blobs(&[BlobSize { digest: "../../etc/passwd".to_owned(), bytes: 1 }]).is_err());
    }

    #[test]
    fn long_wait_is_in_hours_and_minutes() {
        let explanation = |next_attempt_ms| Explanation { next_attempt_ms, ..Explanation::default() };
        assert_eq!(
            not_asked_because(&explanation(Some(21_598_200))).as_deref(),
            Some("its registry is not asked for another 5h59m, because of an earlier failure")
        );
        assert_eq!([None, Some(0)].map(|left| not_asked_because(&explanation(left))), [None, None]);
    }
}
