//! The fleet's key in the fleet's bucket: the first agent makes it, and the others read it.

use std::time::Duration;

use actors::bucket_spec;
use bus::{BusRef, Entry, KeyValueError};
use bytes::Bytes;
use clock::Random;
use contract::know::SharedBucket;
use contract::subject::Fleet;
use runtimes::keyring::{FLEET_KEY_BYTES, FleetKey};
use tracing::{debug, info, warn};

/// The name of the key in the bucket.
const FLEET_KEY: &str = "fleet";
/// The pause while there is no key. Until then, logins are only this node's own.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The pause once there is a key: after this time a wiped bucket gets its key back, and a key that was replaced is used.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long the server may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

type Key = [u8; FLEET_KEY_BYTES];

/// Why there is no key now.
#[derive(Debug, thiserror::Error)]
enum NoKey {
    #[error("the bucket of keys does not answer")]
    Silent,
    #[error(transparent)]
    Bucket(#[from] KeyValueError),
    #[error(
        "what is kept as the fleet's key is {bytes} bytes long instead of {FLEET_KEY_BYTES}: delete it, and the next agent makes a new one"
    )]
    NotAKey { bytes: usize, revision: u64 },
}

/// What to log about the content of the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum News {
    NotAKey,
    KeyAgain,
}

/// Finds what is news, because content that is no key stays until an operator deletes it.
#[derive(Debug, Default)]
struct Content {
    /// The revision of content that is no key.
    not_a_key: Option<u64>,
}

impl Content {
    fn see(&mut self, answer: &Result<Key, NoKey>) -> Option<News> {
        match answer {
            Ok(_) => self.not_a_key.take().map(|_| News::KeyAgain),
            Err(NoKey::NotAKey { revision, .. }) => {
                let known = self.not_a_key.replace(*revision);
                (known != Some(*revision)).then_some(News::NotAKey)
            }
            Err(NoKey::Silent | NoKey::Bucket(_)) => None,
        }
    }
}

/// Fills `handle` as soon as there is a key, and makes one if there is none. Then follows changes of the key in the bucket. Never returns.
pub async fn keep_key(handle: FleetKey, bus: BusRef, fleet: Fleet, mut random: Random) {
    let mut held: Option<Key> = None;
    let mut content = Content::default();
    loop {
        let own = held.unwrap_or_else(|| new_key(&mut random));
        let answer = tokio::time::timeout(ANSWER_WITHIN, agree(&bus, &fleet, own)).await.unwrap_or(Err(NoKey::Silent));
        let news = content.see(&answer);
        match answer {
            Ok(key) => {
                if news == Some(News::KeyAgain) {
                    info!("what is kept as the fleet's key is a key again");
                }
                if held != Some(key) {
                    info!(changed = held.is_some(), "the fleet's key is known: logins are named by it");
                    handle.fill(&key);
                    held = Some(key);
                }
            }
            Err(error) if news == Some(News::NotAKey) => warn!(%error, "there is no key of the fleet"),
            Err(error) => debug!(%error, "the fleet's key is not known yet, or could not be looked at"),
        }
        tokio::time::sleep(if held.is_some() { LOOK_EVERY } else { LOOK_AGAIN }).await;
    }
}

/// The fleet's key: the stored one, else `own`, which is then stored. If several agents make a key at the same time, all use the same one.
async fn agree(bus: &BusRef, fleet: &Fleet, own: Key) -> Result<Key, NoKey> {
    let keys = bus.bucket(&bucket_spec(SharedBucket::keys(fleet))).await.map_err(KeyValueError::from)?;
    if let Some(kept) = keys.get(FLEET_KEY).await? {
        return read(&kept);
    }
    match keys.create(FLEET_KEY, Bytes::copy_from_slice(&own), None).await {
        Ok(_) => Ok(own),
        Err(KeyValueError::Conflict { .. }) => keys.get(FLEET_KEY).await?.map_or(Err(NoKey::Silent), |kept| read(&kept)),
        Err(error) => Err(error.into()),
    }
}

fn read(kept: &Entry) -> Result<Key, NoKey> {
    <Key>::try_from(&kept.value[..]).map_err(|_| NoKey::NotAKey { bytes: kept.value.len(), revision: kept.revision })
}

fn new_key(random: &mut Random) -> Key {
    let mut key = [0; FLEET_KEY_BYTES];
    for piece in key.chunks_mut(size_of::<u64>()) {
        piece.copy_from_slice(&random.word().to_be_bytes()[..piece.len()]);
    }
    key
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tasks of a test")]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use bus::SharedState as _;
    use bus::memory::MemoryBus;
    use clock::Clock;

    use super::*;

    /// A bus with an empty bucket.
    fn hub() -> MemoryBus {
        MemoryBus::new(Clock::simulated(Duration::from_secs(1_700_000_000)))
    }

    async fn kept(hub: &MemoryBus) -> Option<Bytes> {
        let keys = hub.bucket(&bucket_spec(SharedBucket::keys(&Fleet::default()))).await.unwrap();
        keys.get(FLEET_KEY).await.unwrap().map(|entry| entry.value)
    }

    fn keep(hub: &MemoryBus, seed: u64) -> FleetKey {
        let handle = FleetKey::new();
        let bus: BusRef = Arc::new(hub.connect());
        tokio::spawn(keep_key(handle.clone(), bus, Fleet::default(), Random::seeded(seed)));
        handle
    }

    #[tokio::test(start_paused = true)]
    async fn many_agents_that_begin_together_come_to_one_key() {
        let hub = hub();
        let agreed: Vec<Key> = futures::future::join_all((0..20).map(|seed| {
            let bus: BusRef = Arc::new(hub.connect());
            async move { agree(&bus, &Fleet::default(), new_key(&mut Random::seeded(seed))).await.unwrap() }
        }))
        .await;
        assert!(agreed.iter().all(|key| *key == agreed[0]));
        assert_eq!(kept(&hub).await.unwrap()[..], agreed[0][..]);
        assert_ne!(agreed[0], new_key(&mut Random::seeded(999)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_was_wiped_is_put_back_as_it_was() {
        let hub = hub();
        let handle = keep(&hub, 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(handle.is_filled());
        let before = kept(&hub).await.unwrap();
        hub.lose_bucket("fleetpull-keys");
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(kept(&hub).await, Some(before));
    }

    #[tokio::test(start_paused = true)]
    async fn invalid_stored_key_is_neither_used_nor_replaced() {
        let hub = hub();
        let bucket = hub.bucket(&bucket_spec(SharedBucket::keys(&Fleet::default()))).await.unwrap();
        bucket.put(FLEET_KEY, Bytes::from_static(b"short"), None).await.unwrap();
        let handle = keep(&hub, 1);
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(!handle.is_filled());
        assert_eq!(kept(&hub).await.unwrap()[..], b"short"[..]);
        bucket.delete(FLEET_KEY, None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(handle.is_filled());
    }

    #[tokio::test(start_paused = true)]
    async fn key_stored_by_an_operator_is_used() {
        let hub = hub();
        let _first = keep(&hub, 1);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let bucket = hub.bucket(&bucket_spec(SharedBucket::keys(&Fleet::default()))).await.unwrap();
        bucket.put(FLEET_KEY, Bytes::from(vec![7; FLEET_KEY_BYTES]), None).await.unwrap();
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(kept(&hub).await.unwrap()[..], [7; FLEET_KEY_BYTES]);
    }

    #[test]
    fn invalid_key_and_its_correction_are_each_reported_once() {
        let not_a_key = |revision| Err(NoKey::NotAKey { bytes: 5, revision });
        let key = || Ok([7; FLEET_KEY_BYTES]);
        let mut content = Content::default();
        for (answer, news) in [
            (key(), None),
            (not_a_key(2), Some(News::NotAKey)),
            (not_a_key(2), None),
            (Err(NoKey::Silent), None),
            (not_a_key(2), None),
            (not_a_key(3), Some(News::NotAKey)),
            (key(), Some(News::KeyAgain)),
            (key(), None),
            (not_a_key(5), Some(News::NotAKey)),
        ] {
            assert_eq!(content.see(&answer), news, "{answer:?}");
        }
    }

    #[test]
    fn error_about_an_invalid_key_shows_no_content() {
        let shown = read(&Entry { key: FLEET_KEY.to_owned(), value: Bytes::from_static(b"s3cret"), revision: 1 }).unwrap_err().to_string();
        assert!(shown.contains("6 bytes") && !shown.contains("s3cret"), "{shown}");
    }
}
