//! Bodies that are generated while they are sent, correct or with a fault.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;

use crate::catalogue::Blob;
use crate::counters::Counters;
use crate::faults::BodyFault;

/// The body of an answer.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The chunk of zeros of an endless body.
const ENDLESS_CHUNK_BYTES: usize = 64 * 1024;
/// How often a slowed body sends.
const SLOW_STEP: Duration = Duration::from_millis(20);

/// A body of these bytes.
pub(crate) fn full(content: Bytes) -> Body {
    Full::new(content).map_err(|never| match never {}).boxed_unsync()
}

/// A range of a blob, counted while it is sent.
pub(crate) fn of_blob(blob: Blob, range: Range<u64>, digest: &str, counters: &Arc<Mutex<Counters>>, fault: Option<BodyFault>) -> Body {
    let parts = stream::unfold((blob, range), |(blob, range)| async move {
        let mut part = blob.part_from(range.start);
        part.truncate(range.end.saturating_sub(range.start).min(part.len() as u64) as usize);
        let rest = range.start + part.len() as u64..range.end;
        (!part.is_empty()).then(|| (Ok(part), (blob, rest)))
    });
    framed(parts, fault, Some(InFlight::start(digest, counters)))
}

/// A body of these bytes with a fault.
pub(crate) fn spoilt(content: Bytes, fault: BodyFault) -> Body {
    framed(stream::iter([Ok(content)]), Some(fault), None)
}

/// The announced length of a body of `length` bytes with `fault`; none if none is announced.
pub(crate) fn announced(length: u64, fault: Option<BodyFault>) -> Option<u64> {
    match fault {
        Some(BodyFault::Endless | BodyFault::EndAfter(_)) => None,
        Some(BodyFault::ShortBy(bytes)) => Some(length.saturating_sub(bytes)),
        _ => Some(length),
    }
}

type Part = io::Result<Bytes>;

fn framed(parts: impl Stream<Item = Part> + Send + 'static, fault: Option<BodyFault>, in_flight: Option<InFlight>) -> Body {
    use futures::StreamExt;
    let spoiler = Spoiler { parts: Box::pin(parts.fuse()), sent: 0, waiting: Bytes::new(), over: false };
    let parts = stream::unfold(spoiler, move |mut spoiler| async move {
        let part = match fault {
            None => spoiler.parts.next().await,
            Some(fault) => spoiler.next(fault).await,
        };
        part.map(|part| (part, spoiler))
    });
    let frames = parts.map(move |part| {
        if let (Some(in_flight), Ok(part)) = (&in_flight, &part) {
            in_flight.sent(part.len() as u64);
        }
        part.map(Frame::data)
    });
    StreamBody::new(frames).boxed_unsync()
}

struct Spoiler {
    parts: std::pin::Pin<Box<dyn Stream<Item = Part> + Send>>,
    sent: u64,
    /// The bytes that a slowed body has not sent yet.
    waiting: Bytes,
    over: bool,
}

impl Spoiler {
    async fn next(&mut self, fault: BodyFault) -> Option<Part> {
        use futures::StreamExt;
        if self.over {
            return None;
        }
        let part = if self.waiting.is_empty() { self.parts.next().await } else { Some(Ok(std::mem::take(&mut self.waiting))) };
        let Some(Ok(mut part)) = part else {
            return match (part, fault) {
                (None, BodyFault::Endless) => Some(Ok(Bytes::from(vec![0; ENDLESS_CHUNK_BYTES]))),
                (other, _) => other,
            };
        };
        let start = self.sent;
        match fault {
            BodyFault::CutAfter(bytes) if start + part.len() as u64 > bytes => {
                if bytes <= start {
                    self.over = true;
                    // Lets the connection send the earlier bytes first.
                    tokio::task::yield_now().await;
                    return Some(Err(io::Error::other("cut by a fault")));
                }
                let rest = part.split_off((bytes - start) as usize);
                self.waiting = rest;
            }
            BodyFault::EndAfter(bytes) if start + part.len() as u64 > bytes => {
                part.truncate((bytes - start) as usize);
                self.over = true;
            }
            BodyFault::StallAfter(bytes) if start + part.len() as u64 > bytes => {
                if bytes <= start {
                    std::future::pending::<()>().await;
                }
                self.waiting = part.split_off((bytes - start) as usize);
            }
            BodyFault::CorruptAt(offset) if (start..start + part.len() as u64).contains(&offset) => {
                let mut changed = part.to_vec();
                changed[(offset - start) as usize] ^= 0x55;
                part = Bytes::from(changed);
            }
            BodyFault::BytesPerSecond(speed) => {
                let step = (speed * SLOW_STEP.as_millis() as u64 / 1000).max(1);
                self.waiting = part.split_off(step.min(part.len() as u64) as usize);
                tokio::time::sleep(SLOW_STEP).await;
            }
            _ => {}
        }
        self.sent += part.len() as u64;
        Some(Ok(part))
    }
}

/// Counts a blob's body as in flight until it is dropped.
struct InFlight {
    digest: String,
    counters: Arc<Mutex<Counters>>,
}

impl InFlight {
    fn start(digest: &str, counters: &Arc<Mutex<Counters>>) -> Self {
        counters.lock().unwrap_or_else(PoisonError::into_inner).blob_started(digest);
        Self { digest: digest.to_owned(), counters: Arc::clone(counters) }
    }

    fn sent(&self, bytes: u64) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        *counters.blob_bytes.entry(self.digest.clone()).or_default() += bytes;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).in_flight -= 1;
    }
}
