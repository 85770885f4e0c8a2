//! The subjects that each role may publish and subscribe to, computed from the functions that spell subjects.

use contract::know::{KEYS, LEADERS, LEASES, MEMBERS, PAUSES, POLICY, REPORTS, SharedBucket};
use contract::messages::agent::{CountAll, DescribeNode, ReadMetrics, ReadSetup};
use contract::messages::backoff_tracker::{CountBackoffs, ListBackoffs};
use contract::messages::event_recorder::{CountEvents, ListEvents};
use contract::messages::pull_coordinator::{CancelStandingPull, EnsureImage, ExplainImage, ListImages, ListPulls, ListStandingPulls};
use contract::messages::registrar::ListNodes;
use contract::messages::throttler::{BudgetTurn, CountPermits, GrantBudget, ListBudgets, RenewBudget, ReturnBudget};
use contract::policy::POLICY_KEY;
use contract::subject::{Fleet, SERVICES_API, token};
use contract::{Command, NodeName, Service};

use crate::Role;

/// The key of the fleet in its bucket.
const FLEET_KEY: &str = "fleet";
/// Answers of agents: an agent asks every 2 s whether the caller of a long pull still waits, and answers at its end.
const ANSWERS_OF_AGENTS: Responses = Responses { max: 100_000, expires_s: 24 * 60 * 60 };
/// Answers of commands: a command answers once, that it still waits.
const ANSWERS_OF_COMMANDS: Responses = Responses { max: 1, expires_s: 10 };

/// Subjects that are allowed for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The reason.
    pub why: &'static str,
    /// Subjects and patterns in NATS's syntax.
    pub subjects: Vec<String>,
}

/// How many answers to one request a user may send, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responses {
    /// The number of messages.
    pub max: i64,
    /// The time in seconds.
    pub expires_s: u64,
}

/// The permissions of one user. Everything else is forbidden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// The subjects that it may publish to.
    pub publish: Vec<Group>,
    /// The subjects that it may subscribe to.
    pub subscribe: Vec<Group>,
    /// The answers that it may send; none: none.
    pub responses: Option<Responses>,
}

/// The prefix of a user's inboxes. Only this user may subscribe there, so no other user reads these answers.
#[must_use]
pub fn inbox_prefix(name: &NodeName) -> String {
    format!("_INBOX_{}", token(name.as_str()))
}

impl Permissions {
    /// The permissions of a user with this name and role.
    #[must_use]
    pub fn of(fleet: &Fleet, role: Role, name: &NodeName) -> Self {
        let maker = Maker { fleet, name };
        match role {
            Role::Node => maker.node(),
            Role::Viewer => maker.command_line(maker.questions()),
            Role::Puller => maker.command_line([maker.questions(), maker.pulls()].concat()),
            Role::Operator => maker.operator(),
            Role::Setup => maker.setup(),
        }
    }

    /// Every subject that may be published to.
    pub fn published(&self) -> impl Iterator<Item = &String> {
        self.publish.iter().flat_map(|group| &group.subjects)
    }

    /// Every subject that may be subscribed to.
    pub fn subscribed(&self) -> impl Iterator<Item = &String> {
        self.subscribe.iter().flat_map(|group| &group.subjects)
    }
}

fn group(why: &'static str, subjects: impl IntoIterator<Item = String>) -> Group {
    Group { why, subjects: subjects.into_iter().collect() }
}

/// Computes the permissions of one user of a fleet.
struct Maker<'a> {
    fleet: &'a Fleet,
    name: &'a NodeName,
}

impl Maker<'_> {
    fn node(&self) -> Permissions {
        let Self { fleet, name } = *self;
        let publish = vec![
            group("Its own events.", [fleet.events(None, Some(name))]),
            group("To ask whether another agent has the name already, and for bus.local_delivery = false.", [fleet.commands_to(name)]),
            group(
                "To be known to the fleet, and to claim of its budgets, in its own name, from whichever node leads them.",
                [
                    fleet.commands_to_leader(Service::Registrar),
                    self.claim::<GrantBudget>(),
                    self.claim::<RenewBudget>(),
                    self.claim::<ReturnBudget>(),
                    self.to_any::<BudgetTurn>(),
                ],
            ),
            group("When it is the registrar.", [fleet.digest(name)]),
            self.writes(),
            self.reads_of_buckets(),
            group(
                "In a cluster these are read from the bucket's leader, which alone knows all that was written.",
                [LEASES, LEADERS, POLICY, KEYS].map(|purpose| self.by_leader(purpose)),
            ),
            self.reads_of_the_stream(),
            group("The round trip by which a subscription is confirmed.", [self.inboxes()]),
            group("Whether the server has JetStream.", ["$JS.API.INFO".to_owned()]),
        ];
        let received = [
            fleet.commands_to(name),
            fleet.commands_to_all(),
            fleet.commands_to_leader(Service::Registrar),
            fleet.all_knowledge(),
            fleet.digests(),
            format!("{SERVICES_API}.>"),
            self.inboxes(),
        ];
        let subscribe = vec![group("Commands to it, to all and to the registrar; shared knowledge; the services API.", received)];
        Permissions { publish, subscribe, responses: Some(ANSWERS_OF_AGENTS) }
    }

    /// The keys that a node writes.
    fn writes(&self) -> Group {
        let token = token(self.name.as_str());
        let own = [self.key(REPORTS, &format!("{token}.>")), self.key(MEMBERS, &token)];
        let shared = [LEASES, LEADERS, PAUSES].map(|purpose| self.key(purpose, ">"));
        let all = own.into_iter().chain(shared).chain([self.key(KEYS, FLEET_KEY)]);
        group("What it knows and that it is a member, under its own name alone; leases, pauses and the fleet's key.", all)
    }

    fn reads_of_buckets(&self) -> Group {
        let info = [REPORTS, LEASES, LEADERS, PAUSES, POLICY, KEYS, MEMBERS].map(|purpose| self.info(&self.stream(purpose)));
        let whole = [REPORTS, LEASES, PAUSES].map(|purpose| format!("$JS.API.DIRECT.GET.{}", self.stream(purpose)));
        let keys = [REPORTS, LEASES, LEADERS, PAUSES, POLICY, KEYS].map(|purpose| self.single(purpose));
        group("To read the buckets, which the login of the role setup makes.", info.into_iter().chain(whole).chain(keys))
    }

    fn reads_of_the_stream(&self) -> Group {
        let stream = self.fleet.event_stream();
        let read = [self.info(&stream), "$JS.API.STREAM.NAMES".to_owned(), format!("$JS.API.DIRECT.GET.{stream}")];
        group("The stream of events: whether it is there, and which of its own events it has.", read)
    }

    /// Commands that change nothing and ask no registry.
    fn questions(&self) -> Vec<Group> {
        let fleet = self.fleet;
        let subjects = [
            fleet.command_to_all(DescribeNode::SERVICE, DescribeNode::VERB),
            fleet.command_to_leader(ListNodes::SERVICE, ListNodes::VERB),
            self.to_any::<CountAll>(),
            self.to_any::<ReadMetrics>(),
            self.to_any::<ReadSetup>(),
            self.to_any::<ListEvents>(),
            self.to_any::<CountEvents>(),
            self.to_any::<ListPulls>(),
            self.to_any::<ListStandingPulls>(),
            self.to_any::<ListImages>(),
            self.to_any::<ListBackoffs>(),
            self.to_any::<CountBackoffs>(),
            self.to_any::<ListBudgets>(),
            self.to_any::<CountPermits>(),
        ];
        vec![group("Questions that change nothing and ask no registry.", subjects)]
    }

    fn pulls(&self) -> Vec<Group> {
        let subjects = [self.to_any::<EnsureImage>(), self.to_any::<CancelStandingPull>(), self.to_any::<ExplainImage>()];
        vec![group("To let nodes pull, to end standing pulls, and to ask what a pull would do, which may ask a registry.", subjects)]
    }

    fn operator(&self) -> Permissions {
        let commands = group("Every command to every node.", [self.fleet.all_commands()]);
        let policy = group(
            "To set the fleet policy, and to see who has changed it meanwhile.",
            [self.key(POLICY, POLICY_KEY), self.single(POLICY), self.by_leader(POLICY)],
        );
        self.command_line(vec![commands, policy])
    }

    /// The permissions of a person at a command line who may send these commands.
    fn command_line(&self, commands: Vec<Group>) -> Permissions {
        let fleet = self.fleet;
        let mut publish = commands;
        publish.push(group(
            "The services API; a round trip; whether the server has JetStream.",
            [format!("{SERVICES_API}.>"), self.inboxes(), "$JS.API.INFO".to_owned()],
        ));
        let buckets = [MEMBERS, POLICY].map(|purpose| self.stream(purpose));
        let read = |bucket: &String| [self.info(bucket), format!("$JS.API.DIRECT.GET.{bucket}")];
        publish.push(group("To read which nodes belong to the fleet, and the fleet policy.", buckets.iter().flat_map(read)));
        publish.push(group("To read events.", [format!("$JS.API.DIRECT.GET.{}", fleet.event_stream())]));
        let subscribe = vec![group("Events, and answers.", [fleet.all_events(), self.inboxes()])];
        Permissions { publish, subscribe, responses: Some(ANSWERS_OF_COMMANDS) }
    }

    fn setup(&self) -> Permissions {
        let buckets = SharedBucket::all(self.fleet).map(|bucket| format!("KV_{}", bucket.name));
        let streams: Vec<String> = buckets.into_iter().chain([self.fleet.event_stream()]).collect();
        let calls = |call: &'static str| streams.iter().map(move |stream| format!("$JS.API.STREAM.{call}.{stream}"));
        let publish = vec![
            group("A round trip; whether the server has JetStream.", [self.inboxes(), "$JS.API.INFO".to_owned()]),
            group(
                "To make buckets and the stream, and to change their settings.",
                calls("INFO").chain(calls("CREATE")).chain(calls("UPDATE")),
            ),
        ];
        Permissions { publish, subscribe: vec![group("Answers.", [self.inboxes()])], responses: None }
    }

    /// A command to budget leaders that carries this node's name.
    fn claim<C: Command>(&self) -> String {
        self.fleet.command_from_to_any(self.name, C::SERVICE, C::VERB)
    }

    fn to_any<C: Command>(&self) -> String {
        self.fleet.command_to_any(C::SERVICE, C::VERB)
    }

    fn key(&self, purpose: &str, key: &str) -> String {
        format!("$KV.{}.{key}", self.fleet.bucket(purpose))
    }

    fn stream(&self, purpose: &str) -> String {
        format!("KV_{}", self.fleet.bucket(purpose))
    }

    /// The subject to read single keys of a bucket.
    fn single(&self, purpose: &str) -> String {
        format!("$JS.API.DIRECT.GET.{}.>", self.stream(purpose))
    }

    /// The subject to read single keys from the bucket's leader.
    fn by_leader(&self, purpose: &str) -> String {
        format!("$JS.API.STREAM.MSG.GET.{}", self.stream(purpose))
    }

    fn info(&self, stream: &str) -> String {
        format!("$JS.API.STREAM.INFO.{stream}")
    }

    fn inboxes(&self) -> String {
        format!("{}.>", inbox_prefix(self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(role: Role, name: &str) -> Permissions {
        Permissions::of(&Fleet::default(), role, &name.parse().unwrap())
    }

    /// Whether a subject matches the pattern.
    fn matches(pattern: &str, subject: &str) -> bool {
        let (mut pattern, mut subject) = (pattern.split('.'), subject.split('.'));
        loop {
            match (pattern.next(), subject.next()) {
                (None, None) => return true,
                (Some(">"), Some(_)) => return true,
                (Some("*"), Some(_)) => {}
                (Some(own), Some(other)) if own == other => {}
                _ => return false,
            }
        }
    }

    fn may_publish(permissions: &Permissions, subject: &str) -> bool {
        permissions.published().any(|pattern| matches(pattern, subject))
    }

    #[test]
    fn a_node_writes_in_its_own_name_alone() {
        let fleet = Fleet::default();
        let (own, other): (NodeName, NodeName) = ("n1.example".parse().unwrap(), "n2".parse().unwrap());
        let node = of(Role::Node, own.as_str());
        let subjects = |name: &NodeName| {
            let token = token(name.as_str());
            [
                fleet.event(contract::EventReason::Failed, Some("ghcr.io"), name),
                fleet.present(None, name),
                fleet.digest(name),
                format!("$KV.{}.{token}.not_found.ab", fleet.bucket(REPORTS)),
                format!("$KV.{}.{token}", fleet.bucket(MEMBERS)),
                fleet.command_from(name, &other, GrantBudget::SERVICE, GrantBudget::VERB),
                fleet.command(name, EnsureImage::SERVICE, EnsureImage::VERB),
                format!("{}.x", inbox_prefix(name)),
            ]
        };
        for (own, other) in subjects(&own).iter().zip(&subjects(&other)) {
            assert!(may_publish(&node, own), "{own}");
            assert!(!may_publish(&node, other), "{other}");
        }
    }

    #[test]
    fn no_user_publishes_what_the_server_alone_republishes() {
        let fleet = Fleet::default();
        for role in Role::ALL {
            for subject in [REPORTS, LEASES, PAUSES, POLICY].map(|backoff_key| format!("{}.a", fleet.knowledge(backoff_key))) {
                assert!(!may_publish(&of(role, "n1"), &subject), "{role} {subject}");
            }
        }
    }

    #[test]
    fn operators_alone_write_the_policy_and_all_who_use_it_read_it() {
        let all = Role::ALL.map(|role| (role, of(role, "n1")));
        let publishers = |subject: &str| all.iter().filter(|(_, may)| may_publish(may, subject)).map(|(role, _)| *role).collect::<Vec<_>>();
        assert_eq!(publishers("$KV.fleetpull-policy.fleet"), [Role::Operator]);
        assert_eq!(publishers("$KV.fleetpull-policy.other"), []);
        assert_eq!(publishers("$JS.API.STREAM.PURGE.KV_fleetpull-policy"), []);
        assert_eq!(publishers("$JS.API.STREAM.UPDATE.KV_fleetpull-policy"), [Role::Setup]);
        assert_eq!(publishers("$JS.API.DIRECT.GET.KV_fleetpull-policy"), [Role::Viewer, Role::Puller, Role::Operator]);
        assert_eq!(publishers("$JS.API.DIRECT.GET.KV_fleetpull-policy.$KV.fleetpull-policy.fleet"), [Role::Node, Role::Operator]);
    }

    #[test]
    fn a_puller_pulls_and_an_operator_clears_too() {
        use contract::messages::backoff_tracker::{ClearBackoff, PauseSharing};
        use contract::messages::throttler::ForgetQuota;
        fn may<C: Command>(role: Role) -> bool {
            let subject = Fleet::default().command(&"n1".parse().unwrap(), C::SERVICE, C::VERB);
            may_publish(&of(role, "ann"), &subject)
        }
        assert!(!may::<EnsureImage>(Role::Viewer) && may::<EnsureImage>(Role::Puller) && may::<EnsureImage>(Role::Operator));
        for may in [may::<ClearBackoff>, may::<PauseSharing>, may::<ForgetQuota>] {
            assert_eq!([Role::Viewer, Role::Puller, Role::Operator, Role::Setup].map(may), [false, false, true, false]);
        }
        assert!(may::<ListPulls>(Role::Viewer) && may::<ListPulls>(Role::Puller));
    }

    #[test]
    fn no_user_subscribes_to_anothers_inboxes_or_to_a_bucket() {
        for role in Role::ALL {
            let permissions = of(role, "n1");
            for subject in ["_INBOX_n2.x", "_INBOX.x", "$KV.fleetpull-keys.fleet", "fleetpull.v1.cmd.n2.agent.describe"] {
                assert!(!permissions.subscribed().any(|pattern| matches(pattern, subject)), "{role} {subject}");
            }
        }
    }

    #[test]
    fn two_fleets_on_one_server_have_nothing_in_common() {
        let other = Permissions::of(&Fleet::named("team-b").unwrap(), Role::Node, &"n1".parse().unwrap());
        let common = ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "_INBOX_n1.>", "$SRV.>"];
        for subject in other.published().chain(other.subscribed()).filter(|subject| !common.contains(&subject.as_str())) {
            assert!(subject.contains("team-b") || subject.contains("TEAM-B"), "{subject}");
        }
    }
}
