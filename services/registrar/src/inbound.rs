//! From the bus to the actor.

use actix::Addr;
use actors::{Served, Wiring};
use bus::{BusError, Message};
use contract::NodeName;
use contract::messages::registrar::{FleetDigest, ListNodes, ReportAlive};
use contract::subject::name_of;
use serde::de::DeserializeOwned;

use crate::actor::Registrar;

/// How deep a message may nest: ours stay under five, and a deeper one from a stranger must not exhaust the stack.
const MAX_DEPTH: usize = 16;
/// A digest of a thousand zones stays under this; more is nobody's digest.
const DIGEST_MAX_BYTES: usize = 256 * 1024;

/// Takes the registrar's commands from the bus until what is returned is dropped.
///
/// # Errors
/// The bus is closed.
pub(crate) async fn serve_as_registrar(wiring: Wiring, actor: Addr<Registrar>) -> Result<Vec<Served>, BusError> {
    // At once, because each waits for the server to confirm it.
    let (alive, list) = futures::try_join!(
        actors::serve_as_leader::<ReportAlive>(&wiring, actor.clone().recipient()),
        actors::serve_as_leader::<ListNodes>(&wiring, actor.recipient())
    )?;
    Ok(vec![alive, list])
}

/// None: it is no such thing.
pub(crate) fn decode<T: DeserializeOwned>(payload: &[u8]) -> Option<T> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(payload);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer).ok()
}

/// Who published a digest, and what it says. The subject says who: a server lets a node publish below its own token alone.
pub(crate) fn read_digest(message: &Message) -> Option<(NodeName, FleetDigest)> {
    if message.payload.len() > DIGEST_MAX_BYTES {
        return None;
    }
    let (_, token) = message.subject.rsplit_once('.')?;
    let registrar = name_of(token)?.parse().ok()?;
    Some((registrar, decode(&message.payload)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use contract::subject::Fleet;

    use super::*;
    use crate::outbound::{digest_message, encode};

    #[test]
    fn a_digest_says_who_published_it_by_its_subject() {
        let fleet = Fleet::default();
        let digest = FleetDigest { reports_sequence: 7, ..FleetDigest::default() };
        let message = digest_message(&fleet, &"n1.example".parse().unwrap(), &digest);
        assert_eq!(message.subject, "fleetpull.v1.digest.n1_2eexample");
        assert_eq!(read_digest(&message), Some(("n1.example".parse().unwrap(), digest)));
    }

    #[test]
    fn nonsense_is_no_digest() {
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
