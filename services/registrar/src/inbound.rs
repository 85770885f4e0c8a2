//! Takes the registrar's commands and digests from the bus.

use actix::Addr;
use actors::{Served, Wiring};
use bus::{BusError, Message};
use contract::NodeName;
use contract::messages::registrar::{FleetDigest, ListNodes, ReportAlive};
use contract::subject::name_of;
use serde::de::DeserializeOwned;

use crate::actor::Registrar;

/// The deepest nesting of a message that is read. Real ones have fewer than five levels; a forged one must not exhaust the stack.
const MAX_DEPTH: usize = 16;
/// The largest digest that is read; one with 1,000 zones is smaller.
const DIGEST_MAX_BYTES: usize = 256 * 1024;

/// Serves the registrar's commands until the returned value is dropped.
///
/// # Errors
/// The bus is closed.
pub(crate) async fn serve_as_registrar(wiring: Wiring, actor: Addr<Registrar>) -> Result<Vec<Served>, BusError> {
    // In parallel, because each waits for the server to confirm its subscription.
    let (alive, list) = futures::try_join!(
        actors::serve_as_leader::<ReportAlive>(&wiring, actor.clone().recipient()),
        actors::serve_as_leader::<ListNodes>(&wiring, actor.recipient())
    )?;
    Ok(vec![alive, list])
}

/// Decodes a message; none if it is not of this type.
pub(crate) fn decode<T: DeserializeOwned>(payload: &[u8]) -> Option<T> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(payload);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer).ok()
}

/// A digest and its publisher. The publisher is taken from the subject, because a server lets a node publish below its own token alone.
pub(crate) fn read_digest(message: &Message) -> Option<(NodeName, FleetDigest)> {
    if message.payload.len() > DIGEST_MAX_BYTES {
        return None;
    }
    let (_, token) = message.subject.rsplit_once('.')?;
    let registrar = name_of(token)?.parse().ok()?;
    Some((registrar, decode(&message.payload)?))
}

/// Counts the digests that cannot be read.
#[derive(Debug, Default)]
pub(crate) struct Unreadable(u64);

impl Unreadable {
    /// Logs a digest. Repeats are logged ever more rarely, because a client may send any number.
    pub(crate) fn note(&mut self, message: &Message) {
        self.0 += 1;
        if self.0.is_power_of_two() {
            tracing::warn!(subject = message.subject, bytes = message.payload.len(), digests = self.0, "a digest could not be read");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use contract::subject::Fleet;
    use support::counted_log::CountedLog;

    use super::*;
    use crate::outbound::{digest_message, encode};

    #[test]
    fn digest_publisher_is_read_from_the_subject() {
        let fleet = Fleet::default();
        let digest = FleetDigest { reports_sequence: 7, ..FleetDigest::default() };
        let message = digest_message(&fleet, &"n1.example".parse().unwrap(), &digest);
        assert_eq!(message.subject, "fleetpull.v1.digest.n1_2eexample");
        assert_eq!(read_digest(&message), Some(("n1.example".parse().unwrap(), digest)));
    }

    #[test]
    fn unreadable_digests_are_logged_ever_more_rarely() {
        let log = CountedLog::down_to(tracing::Level::WARN);
        tracing::subscriber::with_default(log.clone(), || {
            let mut unreadable = Unreadable::default();
            (0..1_000).for_each(|_| unreadable.note(&Message::new("fleetpull.v1.digest.n1", "nonsense")));
        });
        assert_eq!(log.lines(), 10);
    }

    #[test]
    fn malformed_digest_is_ignored() {
        let huge = vec![0x80; DIGEST_MAX_BYTES + 1];
        for payload in [&b""[..], b"\xff", b"nonsense", &[0x91; 10_000], &huge] {
            assert_eq!(read_digest(&Message::new("fleetpull.v1.digest.n1", payload.to_vec())), None);
        }
        let digest = encode(&FleetDigest::default());
        assert!(read_digest(&Message::new("fleetpull.v1.digest.n1", digest.clone())).is_some());
        for subject in ["fleetpull.v1.digest._zz", "fleetpull.v1.digest._", "digest"] {
            assert_eq!(read_digest(&Message::new(subject, digest.clone())), None);
        }
    }
}
