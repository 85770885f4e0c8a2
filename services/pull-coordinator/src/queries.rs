//! Handlers that list and explain pulls, and that list and cancel standing pulls.

use std::time::Duration;

use actix::{Handler, Message, MessageResult, ResponseFuture};
use actors::Ask;
use contract::CallError;
use contract::list_bounds::{keep_fitting, shorten};
use contract::messages::pull_coordinator::{
    CancelStandingPull, ExplainImage, Explanation, IMAGES_MOST, ImageList, LayerStatus, ListImages, ListPulls, ListStandingPulls,
    ListedImage, PullList, PullState, PullStatus, StandingPullList, StandingPullStatus, StandingPullsCancelled,
};
use futures::future::OptionFuture;
use image::Reference;
use runtimes::StoredImage;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use crate::actor::PullCoordinator;
use crate::core::request::milliseconds;
use crate::core::{FlightView, Input, kubelet_messages};
use crate::explain::Asked;

/// Asks for all pulls, however many there are, to count them. Sent only by the agent of this process.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "PullList")]
pub struct ListAllPulls;

impl Handler<ListAllPulls> for PullCoordinator {
    type Result = MessageResult<ListAllPulls>;

    fn handle(&mut self, _: ListAllPulls, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.all_pulls())
    }
}

impl Handler<Ask<ListPulls>> for PullCoordinator {
    type Result = MessageResult<Ask<ListPulls>>;

    fn handle(&mut self, _: Ask<ListPulls>, _: &mut Self::Context) -> Self::Result {
        MessageResult(Ok(bounded(self.all_pulls())))
    }
}

impl Handler<Ask<ListStandingPulls>> for PullCoordinator {
    type Result = MessageResult<Ask<ListStandingPulls>>;

    fn handle(&mut self, _: Ask<ListStandingPulls>, _: &mut Self::Context) -> Self::Result {
        let (standing_pulls, left_out) = fitting(self.core.standing_pulls(self.clock.now()));
        MessageResult(Ok(StandingPullList { standing_pulls, left_out }))
    }
}

impl Handler<Ask<ListImages>> for PullCoordinator {
    type Result = ResponseFuture<Result<ImageList, CallError>>;

    fn handle(&mut self, _: Ask<ListImages>, _: &mut Self::Context) -> Self::Result {
        let (runtime, now) = (self.runtime.clone(), self.clock.now().wall);
        Box::pin(async move {
            Ok(match runtime.images().await {
                Ok(images) => image_list(images, now),
                Err(failure) => ImageList { problem: Some(failure.text), ..ImageList::default() },
            })
        })
    }
}

impl Handler<Ask<CancelStandingPull>> for PullCoordinator {
    type Result = ResponseFuture<Result<StandingPullsCancelled, CallError>>;

    fn handle(&mut self, Ask(envelope): Ask<CancelStandingPull>, context: &mut Self::Context) -> Self::Result {
        let mut cancelled = self.core.standing_pulls(self.clock.now());
        cancelled.retain(|standing_pull| is_meant(standing_pull, &envelope.body.what));
        for standing_pull in &cancelled {
            self.feed(Input::StandingPullCancelled { standing_pull: standing_pull.standing_pull, by: envelope.body.by.clone() }, context);
        }
        // Answer only when this is on disk: otherwise a crash would bring the standing pulls back.
        let writing = self.core.writing_of_standing_pulls().filter(|_| !cancelled.is_empty());
        let written = writing.map(|writing| {
            let (until, written) = oneshot::channel();
            self.write_waiters.push((writing, until));
            written
        });
        let (cancelled, left_out) = fitting(cancelled);
        Box::pin(async move {
            // Without an answer the agent has ended, and so has this caller's wait.
            let error = OptionFuture::from(written).await.and_then(|written| written.ok().flatten());
            Ok(StandingPullsCancelled { cancelled, left_out, problem: error.as_deref().map(kubelet_messages::cancellation_not_kept) })
        })
    }
}

impl Handler<Ask<ExplainImage>> for PullCoordinator {
    type Result = ResponseFuture<Result<Explanation, CallError>>;

    fn handle(&mut self, Ask(envelope): Ask<ExplainImage>, _: &mut Self::Context) -> Self::Result {
        let in_flight = Reference::parse(&envelope.body.image).is_ok_and(|reference| self.core.is_in_flight(&reference));
        let asked = Asked {
            runtime: self.runtime.clone(),
            outbound: self.outbound.clone(),
            locality: self.locality.clone(),
            waits_for_fleet: self.core.waits_for_fleet().unwrap_or_default(),
        };
        let (span, trace) = self.enter_question("pull-coordinator.ExplainImage", &envelope.meta);
        Box::pin(crate::explain::explain(asked, envelope.body, in_flight, trace).instrument(span.as_tracing()))
    }
}

impl PullCoordinator {
    fn all_pulls(&self) -> PullList {
        let pulls = self.core.flights(self.clock.now()).into_iter().map(|view| self.pull_status(view)).collect();
        let answered = self.answered.and(self.core.ended_without_caller());
        let (standing, resting) = (self.core.standing_count() as u64, self.core.resting_count() as u64);
        PullList { pulls, answered, standing, resting, left_out: 0 }
    }

    fn pull_status(&self, view: FlightView) -> PullStatus {
        let progress = self.flights.get(&view.flight).map(|under_way| under_way.progress.snapshot()).unwrap_or_default();
        let (done_bytes, total_bytes) = progress.bytes();
        let layer = |layer: runtimes::LayerProgress| LayerStatus {
            digest: layer.digest,
            done_bytes: layer.done_bytes,
            total_bytes: layer.total_bytes,
        };
        PullStatus {
            image: view.image,
            state: if view.pulling { PullState::Pulling } else { PullState::Waiting },
            since_ms: milliseconds(view.since),
            callers: u32::try_from(view.callers).unwrap_or(u32::MAX),
            pods: view.pods,
            done_bytes,
            total_bytes,
            layers: progress.layers.into_iter().map(layer).collect(),
        }
    }
}

/// The list with its first pulls, as many as fit into one answer.
fn bounded(mut list: PullList) -> PullList {
    list.left_out = keep_fitting(&mut list.pulls);
    list
}

fn image_list(mut images: Vec<StoredImage>, now: Duration) -> ImageList {
    images.sort_by(|one, other| (&one.name, &one.platform).cmp(&(&other.name, &other.platform)));
    let all = images.len();
    let listed = |image: StoredImage| ListedImage {
        image: image.name,
        digest: image.digest,
        platform: image.platform,
        size_bytes: image.size_bytes,
        pulled_ms_ago: image.pulled_at.map(|time| milliseconds(now.saturating_sub(time))),
    };
    let mut images: Vec<ListedImage> = images.into_iter().take(IMAGES_MOST).map(listed).collect();
    keep_fitting(&mut images);
    ImageList { left_out: (all - images.len()) as u64, images, problem: None }
}

/// The first standing pulls, as many as fit into one answer, and how many do not. Long causes are shortened, so that usually all fit.
fn fitting(mut standing_pulls: Vec<StandingPullStatus>) -> (Vec<StandingPullStatus>, u64) {
    shorten(standing_pulls.iter_mut().map(|status| &mut status.cause));
    let left_out = keep_fitting(&mut standing_pulls);
    (standing_pulls, left_out)
}

/// Whether `what` names this standing pull: by its id, or by its image in any spelling.
fn is_meant(standing_pull: &StandingPullStatus, what: &str) -> bool {
    let normalised = |image: &str| Reference::parse(image).ok().map(|reference| reference.normalised().to_owned());
    let same_image = || normalised(&standing_pull.image).is_some_and(|image| normalised(what) == Some(image));
    standing_pull.standing_pull.to_string() == what || standing_pull.image == what || same_image()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_listed_by_name_as_far_as_a_message_takes_them() {
        let now = Duration::from_secs(100);
        let image = |number: usize| StoredImage {
            name: Some(format!("app:{number:04}")),
            pulled_at: Some(Duration::from_secs(40)),
            ..StoredImage::default()
        };
        let list = image_list((0..IMAGES_MOST + 5).rev().map(image).collect(), now);
        assert_eq!((list.images.len(), list.left_out), (IMAGES_MOST, 5));
        assert_eq!((list.images[0].image.as_deref(), list.images[0].pulled_ms_ago), (Some("app:0000"), Some(60_000)));
        let of_a_long_name = StoredImage { name: Some("x".repeat(4_096)), ..StoredImage::default() };
        let list = image_list(vec![of_a_long_name; 500], now);
        assert!(list.left_out > 0 && list.images.len() as u64 + list.left_out == 500, "{}", list.left_out);
        let bytes = serde_json::to_vec(&list).expect("JSON").len();
        assert!(bytes <= bus::MAX_PAYLOAD_BYTES, "{bytes}");
    }

    #[test]
    fn pulls_are_listed_as_far_as_a_message_takes_them() {
        let waiting = |image_bytes: usize| PullStatus {
            image: "x".repeat(image_bytes),
            state: PullState::Waiting,
            since_ms: 5_000,
            callers: 1,
            pods: Vec::new(),
            done_bytes: 0,
            total_bytes: 0,
            layers: Vec::new(),
        };
        for (image_bytes, are_all) in [(100, true), (4_096, false)] {
            let list = bounded(PullList { pulls: vec![waiting(image_bytes); 1_000], ..PullList::default() });
            assert_eq!((list.pulls.len() as u64 + list.left_out, list.left_out == 0), (1_000, are_all), "{image_bytes}");
        }
    }

    #[test]
    fn standing_pulls_are_listed_as_far_as_a_message_takes_them_with_short_causes_if_there_are_many() {
        for (count, image_bytes, cause_bytes, are_all, listed_cause_bytes) in [
            (0, 0, 0, true, 0),
            (1, 4_096, 65_664, true, 65_664),
            (20, 100, 10_000, true, 10_000),
            (1_000, 300, 65_664, true, 262),
            (1_000, 4_096, 10, false, 10),
        ] {
            let status = serde_json::json!({ "standing_pull": "4bf92f3577b34da6a3ce929d0e0e4736", "image": "x".repeat(image_bytes),
                "state": "held", "cause": "y".repeat(cause_bytes), "class": "registry_unavailable", "next_attempt_ms": 300_000 });
            let status: StandingPullStatus = serde_json::from_value(status).expect("a status");
            let (standing_pulls, left_out) = fitting(vec![status; count]);
            assert_eq!((standing_pulls.len() as u64 + left_out, left_out == 0), (count as u64, are_all), "{image_bytes} {cause_bytes}");
            assert!(standing_pulls.iter().all(|status| status.cause.len() == listed_cause_bytes), "{image_bytes} {cause_bytes}");
            // The names and numbers take more bytes as JSON than as MessagePack.
            let bytes = serde_json::to_vec(&StandingPullList { standing_pulls, left_out }).expect("JSON").len();
            assert!(bytes <= bus::MAX_PAYLOAD_BYTES, "{bytes}");
            assert!(are_all || bytes > 800_000, "{bytes}");
        }
    }
}
