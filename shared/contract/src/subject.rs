//! Subjects: one function for each, and the only place where they are spelled.
//!
//! | subject | kind | payload |
//! |---|---|---|
//! | `<fleet>.v1.cmd.<node>.<service>.<verb>` | request and reply | MessagePack of a [`crate::Command`] |
//! | `<fleet>.v1.cmd.<node>.<service>.<verb>.<sender>` | the same, from one node to another | MessagePack |
//! | `<fleet>.v1.cmd._all.agent.<verb>` | request, one reply of every agent | MessagePack |
//! | `<fleet>.v1.cmd._leader.<service>.<verb>` | request and reply, by the agent that holds the service's lease | MessagePack |
//! | `<fleet>.v1.know.<bucket>` and what is below it | shared state, republished from the bucket | MessagePack |
//! | `<fleet>.v1.digest.<node>` | the state of the fleet, from its registrar | MessagePack |
//! | `<fleet>.v1.evt.<reason>.<registry>.<node>` | event, stored in the stream `<FLEET>_EVENTS` | CloudEvents 1.0 JSON |
//! | `<fleet>.v1.evt.present.<registry>.<node>` | event: the image was there already; not stored | CloudEvents 1.0 JSON |
//!
//! Names are encoded into tokens: `[A-Za-z0-9-]` is unchanged, every other byte becomes `_` and two hex digits, and a missing name is the
//! token `_`. So a token never holds a dot, a wildcard or a space.

use std::fmt::Write as _;

use crate::hex::hex;
use crate::{EventReason, NodeName, Service};

/// The token of a missing name: the registry of a reference that cannot be parsed.
const NAMELESS: &str = "_";
/// Stands for every node. It cannot be a node's token, in which an underscore is always followed by two hex digits.
const EVERY_NODE: &str = "_all";
/// In place of a reason: the image was there already. Kubelet's reason for this is `Pulled`, whose events are stored.
const PRESENT: &str = "present";
/// In place of a node: the node that holds the lease of the service.
const LEADER: &str = "_leader";

/// The root of the NATS services API, which lists the services of every node.
pub const SERVICES_API: &str = "$SRV";

/// The name of a fleet, the first token of all its subjects and the prefix of its buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet(String);

/// Why a fleet name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a fleet name: use 1 to 32 of the characters A-Z a-z 0-9 _ -")]
pub struct FleetNameError(String);

impl Fleet {
    /// Checks the name: 1 to 32 of `[A-Za-z0-9_-]`, so that it is one token and a valid bucket prefix.
    ///
    /// # Errors
    /// The name has other characters, is empty or too long.
    pub fn named(name: &str) -> Result<Self, FleetNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > 32 || !name.bytes().all(allowed) {
            return Err(FleetNameError(name.chars().take(64).collect()));
        }
        Ok(Self(name.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The subject of one command to one service of one node.
    #[must_use]
    pub fn command(&self, node: &NodeName, service: Service, verb: &str) -> String {
        format!("{}.v1.cmd.{}.{}.{verb}", self.0, token(node.as_str()), service.name())
    }

    /// The subject of one command from one node to one service of another.
    #[must_use]
    pub fn command_from(&self, sender: &NodeName, node: &NodeName, service: Service, verb: &str) -> String {
        format!("{}.{}", self.command(node, service, verb), token(sender.as_str()))
    }

    /// Matches [`Fleet::command_from`] of every sender.
    #[must_use]
    pub fn command_from_any(&self, node: &NodeName, service: Service, verb: &str) -> String {
        format!("{}.*", self.command(node, service, verb))
    }

    /// The subject of one command to every agent.
    #[must_use]
    pub fn command_to_all(&self, service: Service, verb: &str) -> String {
        format!("{}.v1.cmd.{EVERY_NODE}.{}.{verb}", self.0, service.name())
    }

    /// The subject of one command to the agent that leads a service for the whole fleet.
    #[must_use]
    pub fn command_to_leader(&self, service: Service, verb: &str) -> String {
        format!("{}.v1.cmd.{LEADER}.{}.{verb}", self.0, service.name())
    }

    /// Matches every command to one node.
    #[must_use]
    pub fn commands_to(&self, node: &NodeName) -> String {
        format!("{}.v1.cmd.{}.>", self.0, token(node.as_str()))
    }

    /// Matches every command that every agent takes.
    #[must_use]
    pub fn commands_to_all(&self) -> String {
        format!("{}.v1.cmd.{EVERY_NODE}.>", self.0)
    }

    /// Matches every command to the node that leads a service for the whole fleet.
    #[must_use]
    pub fn commands_to_leader(&self, service: Service) -> String {
        self.command_to_leader(service, "*")
    }

    /// Matches every command to any node.
    #[must_use]
    pub fn all_commands(&self) -> String {
        format!("{}.v1.cmd.>", self.0)
    }

    /// Matches one command to any node, and to all.
    #[must_use]
    pub fn command_to_any(&self, service: Service, verb: &str) -> String {
        format!("{}.v1.cmd.*.{}.{verb}", self.0, service.name())
    }

    /// Matches [`Fleet::command_from`] of this sender to any node.
    #[must_use]
    pub fn command_from_to_any(&self, sender: &NodeName, service: Service, verb: &str) -> String {
        format!("{}.{}", self.command_to_any(service, verb), token(sender.as_str()))
    }

    /// A token of shared state: the server republishes the bucket of the same name below it.
    #[must_use]
    pub fn knowledge(&self, backoff_key: &str) -> String {
        format!("{}.v1.know.{backoff_key}", self.0)
    }

    /// Matches all shared state below one token.
    #[must_use]
    pub fn knowledge_below(&self, backoff_key: &str) -> String {
        format!("{}.>", self.knowledge(backoff_key))
    }

    /// Matches all shared state. One subscription to it receives changes in the order in which they were published.
    #[must_use]
    pub fn all_knowledge(&self) -> String {
        format!("{}.v1.know.>", self.0)
    }

    /// The key in this bucket whose change is republished on `subject`; none if it is another subject.
    #[must_use]
    pub fn key_of<'a>(&self, bucket: &str, subject: &'a str) -> Option<&'a str> {
        subject.strip_prefix(self.name())?.strip_prefix(".v1.know.")?.strip_prefix(bucket)?.strip_prefix('.')
    }

    /// The subject of a registrar's digest: a node may publish only below its own token. It is not below `know`, to which nodes subscribe
    /// as a whole even if the digest does not concern them.
    #[must_use]
    pub fn digest(&self, registrar: &NodeName) -> String {
        format!("{}.v1.digest.{}", self.0, token(registrar.as_str()))
    }

    /// Matches the digests of every registrar.
    #[must_use]
    pub fn digests(&self) -> String {
        format!("{}.v1.digest.*", self.0)
    }

    /// A bucket of the fleet: `reports`, `leases`, `leaders`, `pauses`, `members`, `policy`, `keys`.
    #[must_use]
    pub fn bucket(&self, purpose: &str) -> String {
        format!("{}-{purpose}", self.0)
    }

    /// The name of a service in the NATS services API; it includes the fleet, so that two fleets on one server never mix.
    #[must_use]
    pub fn service_name(&self, service: Service) -> String {
        format!("{}-{}", self.0, service.name())
    }

    /// The subject of an event that is stored.
    #[must_use]
    pub fn event(&self, reason: EventReason, registry: Option<&str>, node: &NodeName) -> String {
        self.event_of(&token(reason.as_str()), registry, node)
    }

    /// The subject of an event that an image was already present.
    #[must_use]
    pub fn present(&self, registry: Option<&str>, node: &NodeName) -> String {
        self.event_of(PRESENT, registry, node)
    }

    fn event_of(&self, reason: &str, registry: Option<&str>, node: &NodeName) -> String {
        format!("{}.v1.evt.{reason}.{}.{}", self.0, registry.map_or_else(|| NAMELESS.to_owned(), token), token(node.as_str()))
    }

    /// Matches every event.
    #[must_use]
    pub fn all_events(&self) -> String {
        format!("{}.v1.evt.>", self.0)
    }

    /// The stream that stores the fleet's events.
    #[must_use]
    pub fn event_stream(&self) -> String {
        format!("{}_EVENTS", self.0.to_uppercase())
    }

    /// The subjects that this stream stores: the events of every stored reason. Events that an image was already present are not included.
    #[must_use]
    pub fn stored_events(&self) -> Vec<String> {
        EventReason::ALL.iter().map(|reason| format!("{}.v1.evt.{}.>", self.0, token(reason.as_str()))).collect()
    }

    /// The transform (source and destination) of that stream: with a node's name in the stored subject, replaced nodes would make ever more
    /// subjects, so a number made from it takes its place.
    #[must_use]
    pub fn event_transform(&self) -> (String, String) {
        let fleet = &self.0;
        (
            format!("{fleet}.v1.evt.*.*.*"),
            format!("{fleet}.v1.evt.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}.{{{{partition({EVENT_PARTITIONS},3)}}}}"),
        )
    }

    /// The subjects under which the stream stores a node's events: the one shared with other nodes and, for a stream of an older version,
    /// the one with its own name.
    #[must_use]
    pub fn stored_events_of(&self, reason: Option<EventReason>, node: &NodeName) -> Vec<String> {
        let own = self.events(reason, Some(node));
        let others = own.rsplit_once('.').map(|(before, name)| format!("{before}.{}", fnv(name) % EVENT_PARTITIONS));
        others.into_iter().chain([own]).collect()
    }

    /// Matches published events; a missing argument matches all.
    #[must_use]
    pub fn events(&self, reason: Option<EventReason>, node: Option<&NodeName>) -> String {
        format!(
            "{}.v1.evt.{}.*.{}",
            self.0,
            reason.map_or_else(|| "*".to_owned(), |reason| token(reason.as_str())),
            node.map_or_else(|| "*".to_owned(), |node| token(node.as_str()))
        )
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self("fleetpull".to_owned())
    }
}

/// The number of subjects for the events of one reason and registry: a node that resumes also reads the events of a few other nodes, 20 of
/// 10,000.
const EVENT_PARTITIONS: u32 = 512;

/// 32-bit FNV-1a, by which nats-server chooses partitions.
fn fnv(token: &str) -> u32 {
    token.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// Encodes any name into one token.
#[must_use]
pub fn token(name: &str) -> String {
    if name.is_empty() {
        return NAMELESS.to_owned();
    }
    let mut token = String::with_capacity(name.len());
    for byte in name.bytes() {
        if is_readable(byte) {
            token.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(token, "_{byte:02x}");
        }
    }
    token
}

/// Whether a subject of [`Fleet::command_from`] names this sender.
#[must_use]
pub fn is_from(subject: &str, sender: &NodeName) -> bool {
    subject.rsplit('.').next() == Some(token(sender.as_str()).as_str())
}

/// The name of a token; none if it is not one of ours. Each name has one token, so two keys or subjects never name the same node or
/// registry.
#[must_use]
pub fn name_of(token: &str) -> Option<String> {
    match token {
        NAMELESS => return Some(String::new()),
        "" => return None,
        _ => {}
    }
    let mut name = Vec::with_capacity(token.len());
    let mut bytes = token.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'_' => {
                let encoded = u8::try_from(hex(&[bytes.next()?, bytes.next()?])?).ok()?;
                if is_readable(encoded) {
                    return None;
                }
                name.push(encoded);
            }
            byte if is_readable(byte) => name.push(byte),
            _ => return None,
        }
    }
    String::from_utf8(name).ok()
}

/// Whether a token has this byte of a name unchanged.
fn is_readable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_read_as_documented() {
        let fleet = Fleet::default();
        let node: NodeName = "n1.example".parse().expect("a name");
        assert_eq!(fleet.command(&node, Service::PullCoordinator, "ensure"), "fleetpull.v1.cmd.n1_2eexample.pull-coordinator.ensure");
        let sender: NodeName = "n2.example".parse().expect("a name");
        let budget = fleet.command_from(&sender, &node, Service::Throttler, "grant-budget");
        assert_eq!(budget, "fleetpull.v1.cmd.n1_2eexample.throttler.grant-budget.n2_2eexample");
        assert!(is_from(&budget, &sender) && !is_from(&budget, &node));
        assert_eq!(
            fleet.command_from_any(&node, Service::Throttler, "grant-budget"),
            "fleetpull.v1.cmd.n1_2eexample.throttler.grant-budget.*"
        );
        assert_eq!(fleet.command_to_all(Service::Agent, "describe"), "fleetpull.v1.cmd._all.agent.describe");
        assert_eq!(fleet.commands_to(&node), "fleetpull.v1.cmd.n1_2eexample.>");
        assert_eq!(fleet.commands_to_leader(Service::Registrar), "fleetpull.v1.cmd._leader.registrar.*");
        assert_eq!(fleet.command_to_any(Service::Agent, "count"), "fleetpull.v1.cmd.*.agent.count");
        assert_eq!(
            fleet.command_from_to_any(&sender, Service::Throttler, "grant-budget"),
            "fleetpull.v1.cmd.*.throttler.grant-budget.n2_2eexample"
        );
        assert_eq!((fleet.all_commands().as_str(), fleet.commands_to_all().as_str()), ("fleetpull.v1.cmd.>", "fleetpull.v1.cmd._all.>"));
        assert_eq!(fleet.all_events(), "fleetpull.v1.evt.>");
        assert_eq!(
            fleet.event(EventReason::BackOff, Some("localhost:5000"), &node),
            "fleetpull.v1.evt.BackOff.localhost_3a5000.n1_2eexample"
        );
        assert_eq!(fleet.event(EventReason::InspectFailed, None, &node), "fleetpull.v1.evt.InspectFailed._.n1_2eexample");
        assert_eq!(fleet.present(None, &node), "fleetpull.v1.evt.present._.n1_2eexample");
        assert_eq!(fleet.event_stream(), "FLEETPULL_EVENTS");
        let (source, destination) = fleet.event_transform();
        assert_eq!(source, "fleetpull.v1.evt.*.*.*");
        assert_eq!(destination, "fleetpull.v1.evt.{{wildcard(1)}}.{{wildcard(2)}}.{{partition(512,3)}}");
        assert_eq!(fleet.stored_events_of(None, &node), ["fleetpull.v1.evt.*.*.182", "fleetpull.v1.evt.*.*.n1_2eexample"]);
        assert!(fleet.stored_events().contains(&"fleetpull.v1.evt.Pulled.>".to_owned()));
        assert_eq!(fleet.events(None, Some(&node)), "fleetpull.v1.evt.*.*.n1_2eexample");
        assert_eq!(fleet.all_knowledge(), "fleetpull.v1.know.>");
        assert_eq!(fleet.knowledge_below("policy"), "fleetpull.v1.know.policy.>");
        assert_eq!((fleet.digest(&node).as_str(), fleet.digests().as_str()), ("fleetpull.v1.digest.n1_2eexample", "fleetpull.v1.digest.*"));
        assert_eq!(fleet.key_of("reports", "fleetpull.v1.know.reports.a.b"), Some("a.b"));
        assert_eq!(fleet.key_of("reports", "fleetpull.v1.know.reportsx.a"), None);
    }

    #[test]
    fn each_name_has_one_token_without_special_characters() {
        for name in ["", "a", "docker.io", "[::1]:5000", "a_b", "_all", "all", "a*>. \u{e9}"] {
            let token = token(name);
            assert_eq!(name_of(&token).as_deref(), Some(name));
            assert!(token.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')), "{token}");
            assert_ne!(token, EVERY_NODE);
        }
        // The last ones are other spellings of `n`, `-`, `.` and of the empty name.
        for foreign in ["_a", "_zz", "_+f", "a.b", "a*", "_6e", "_2d", "_2E", ""] {
            assert_eq!(name_of(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn fleet_names_are_one_token() {
        assert!(Fleet::named("team-a_1").is_ok());
        for bad in ["", "a.b", "a b", "*", &"x".repeat(33)] {
            assert!(Fleet::named(bad).is_err(), "{bad}");
        }
    }
}
