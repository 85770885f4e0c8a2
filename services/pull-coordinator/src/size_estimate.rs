//! What a pull would fetch: what the image consists of, as its registry says, and how much of that is missing here.
//!
//! A registry is asked only where a pull would ask it now, and what comes of it is told to nobody but who asked: somebody who
//! wonders is no reason for a fleet to hold back.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::messages::pull_coordinator::{BLOBS_MOST, BlobSize, Explanation, ImageWeight, PullPolicy};
use image::Digest;
use runtimes::{ImageRuntime, PullRequest, Weight};

use crate::contained::contained;

/// How long the registry may take: somebody waits for it before a screen.
const WEIGHED_WITHIN: Duration = Duration::from_secs(20);

/// The blobs that somebody asks about, each once.
///
/// # Errors
/// There are too many, or one has no digest.
pub(crate) fn read(blobs: &[BlobSize]) -> Result<Vec<(Digest, u64)>, String> {
    if blobs.len() > BLOBS_MOST {
        return Err(format!("{} blobs are more than an image has: at most {BLOBS_MOST} are read", blobs.len()));
    }
    let read = |blob: &BlobSize| Digest::parse(&blob.digest).map(|digest| (digest, blob.bytes)).map_err(|error| error.to_string());
    let once: BTreeMap<Digest, u64> = blobs.iter().map(read).collect::<Result<_, _>>()?;
    Ok(once.into_iter().collect())
}

/// Asks the registry, if a pull would ask it now, and adds what it says to the explanation, or why it said nothing.
pub(crate) async fn weigh(explanation: &mut Explanation, runtime: &dyn ImageRuntime, request: &PullRequest) {
    let unwilling = match explanation {
        Explanation { next_attempt_ms: Some(left), cause, .. } => {
            let cause = cause.as_deref().unwrap_or("an earlier failure");
            Some(format!("its registry is not asked for another {:.1} s, because of {cause}", *left as f64 / 1_000.0))
        }
        Explanation { policy, .. } if policy == PullPolicy::Never.as_str() => Some("the policy is Never: no registry is asked".to_owned()),
        _ => None,
    };
    if unwilling.is_some() {
        explanation.weigh_error = unwilling;
        return;
    }
    let asking = contained("size estimate", runtime.weigh(request));
    match tokio::time::timeout(WEIGHED_WITHIN, asking).await.map(Option::flatten) {
        Ok(Some(Ok(weight))) => explanation.weight = Some(told(weight)),
        Ok(Some(Err(failure))) => explanation.weigh_error = Some(failure.text),
        // Another node may have a runtime that can.
        Ok(None) => {}
        Err(_) => explanation.weigh_error = Some(format!("the registry did not say within {WEIGHED_WITHIN:?} what the image consists of")),
    }
}

fn told(weight: Weight) -> ImageWeight {
    let blob = |(digest, bytes): (Digest, u64)| BlobSize { digest: digest.to_string(), bytes };
    ImageWeight { digest: Some(weight.digest.to_string()), blobs: weight.blobs.into_iter().map(blob).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(number: usize) -> BlobSize {
        BlobSize { digest: format!("sha256:{number:064x}"), bytes: 5 }
    }

    #[test]
    fn an_image_with_a_thousand_layers_is_read_and_more_is_not() {
        let blobs: Vec<BlobSize> = (0..BLOBS_MOST).map(blob).collect();
        assert_eq!(read(&blobs).map(|blobs| blobs.len()), Ok(BLOBS_MOST));
        assert!(read(&[blobs, vec![blob(BLOBS_MOST)]].concat()).is_err_and(|refusal| refusal.starts_with("1002 blobs")));
    }

    #[test]
    fn a_blob_counts_once_and_has_a_digest() {
        assert_eq!(read(&[blob(1), blob(1)]).map(|blobs| blobs.len()), Ok(1));
        assert!(read(&[BlobSize { digest: "../../etc/passwd".to_owned(), bytes: 1 }]).is_err());
    }
}
