//! The configuration of a nats-server, in the server's own language.

use std::fmt::Write as _;

use contract::NodeName;
use contract::subject::Fleet;

use crate::{Group, Permissions, Role};

/// The account that the fleet's users are in.
pub const FLEET_ACCOUNT: &str = "FLEET";
/// The account of the auth callout, which has no access to the fleet's subjects.
const AUTH_ACCOUNT: &str = "AUTH";
/// The longest login in seconds if the server asks the auth callout, which may have to fetch keys first.
const LOGIN_WITHIN_S: u64 = 8;

/// A user with a key of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name of the node or the login.
    pub name: NodeName,
    /// The role.
    pub role: Role,
    /// The public key of its nkey; only the user has the seed.
    pub public_key: String,
}

/// The auth callout, which answers for users without a key here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalloutConfig {
    /// The public key of the account nkey that signs its answers.
    pub issuer: String,
    /// The public key of the callout's own login.
    pub user: String,
}

/// The accounts of a fleet, for one server or for each server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// The fleet.
    pub fleet: Fleet,
    /// The public key of the system account's login, which has no access to the fleet's subjects.
    pub system: String,
    /// The fleet's users.
    pub users: Vec<User>,
    /// The auth callout for other logins.
    pub callout: Option<CalloutConfig>,
}

/// The addresses and files of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connections {
    /// `server_name`.
    pub server_name: String,
    /// `listen`.
    pub listen: String,
    /// The server's certificate (PEM).
    pub cert_file: String,
    /// Its key.
    pub key_file: String,
    /// The authority of client certificates; if set, each client must have one.
    pub client_ca_file: Option<String>,
    /// The directory of JetStream's storage.
    pub store_dir: String,
}

impl Default for Connections {
    fn default() -> Self {
        Self {
            server_name: "fleet-1".to_owned(),
            listen: "0.0.0.0:4222".to_owned(),
            cert_file: "/etc/nats/server.pem".to_owned(),
            key_file: "/etc/nats/server.key".to_owned(),
            client_ca_file: None,
            store_dir: "/var/lib/nats".to_owned(),
        }
    }
}

impl Connections {
    /// The text of `nats-server.conf`, which includes the file `accounts.conf` in its directory.
    #[must_use]
    pub fn render(&self) -> String {
        let Self { server_name, listen, cert_file, key_file, client_ca_file, store_dir } = self;
        let verify = client_ca_file.as_ref().map_or_else(String::new, |ca| {
            format!("  # Each client shows a certificate of this authority; the auth callout identifies it.\n  ca_file: {ca:?}\n  verify: true\n")
        });
        format!(
            "# nats-server for a fleet. Check: nats-server -t -c nats-server.conf\n\
             #\n\
             # This is one server. Each of a cluster has the same accounts.conf, a name of its own and a `cluster` block: see deploy/README.md.\n\
             \n\
             listen: {listen:?}\n\
             server_name: {server_name:?}\n\
             \n\
             # Keys prove the logins; TLS keeps the messages secret. Agents trust this certificate by `nats.ca` (or `ca` of a context).\n\
             tls {{\n  cert_file: {cert_file:?}\n  key_file: {key_file:?}\n{verify}}}\n\
             \n\
             jetstream {{\n  store_dir: {store_dir:?}\n}}\n\
             \n\
             # Who may do what. After a change of it: nats-server --signal reload\n\
             include \"accounts.conf\"\n"
        )
    }
}

impl ServerConfig {
    /// The text of `accounts.conf`.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = header(&self.fleet);
        text += "# The state of the server itself: `nats server report ...` as the user `system`, which sees nothing of the fleet.\n";
        text += "system_account: SYS\n\naccounts {\n";
        line(&mut text, 2, &format!("SYS {{\n    users: [\n      {{ nkey: {} }} # system\n    ]\n  }}", self.system));
        if let Some(callout) = &self.callout {
            line(&mut text, 2, "# The auth callout alone, which the server asks to identify clients.");
            line(&mut text, 2, &format!("{AUTH_ACCOUNT} {{\n    users: [\n      {{ nkey: {} }} # auth-callout\n    ]\n  }}", callout.user));
        }
        line(&mut text, 2, &format!("{FLEET_ACCOUNT} {{"));
        text += LIMITS;
        line(&mut text, 4, "users: [");
        let mut explained: Vec<Role> = Vec::new();
        for user in &self.users {
            let first = !explained.contains(&user.role);
            explained.push(user.role);
            self.user(&mut text, user, first);
        }
        text += "    ]\n  }\n}\n";
        if let Some(callout) = &self.callout {
            text += &self.authorization(callout);
        }
        text
    }

    /// Writes one user; the reasons are written for the first user of each role only.
    fn user(&self, text: &mut String, user: &User, explain: bool) {
        let permissions = Permissions::of(&self.fleet, user.role, &user.name);
        line(text, 6, "{");
        line(text, 8, &format!("nkey: {} # {}", user.public_key, user.name));
        line(text, 8, &format!("# role {}", user.role));
        line(text, 8, "permissions {");
        for (what, groups) in [("publish", &permissions.publish), ("subscribe", &permissions.subscribe)] {
            line(text, 10, &format!("{what}: ["));
            groups.iter().for_each(|group| group_lines(text, group, explain));
            line(text, 10, "]");
        }
        if let Some(responses) = permissions.responses {
            if explain && user.role == Role::Node {
                line(
                    text,
                    10,
                    "# Answers to callers. A pull may take long: the default of two minutes would cut its answer off, and each 2 s",
                );
                line(text, 10, "# the node asks whether its caller still waits.");
            }
            line(text, 10, &format!("allow_responses: {{ max: {}, expires: \"{}s\" }}", responses.max, responses.expires_s));
        }
        line(text, 8, "}");
        line(text, 6, "}");
    }

    fn authorization(&self, callout: &CalloutConfig) -> String {
        let keys: Vec<&str> = [callout.user.as_str(), self.system.as_str()]
            .into_iter()
            .chain(self.users.iter().map(|user| user.public_key.as_str()))
            .collect();
        let mut text =
            String::from("\n# A client without a key above is identified by `fleetpull nats-auth`, for an hour.\nauthorization {\n");
        line(&mut text, 2, &format!("timeout: {LOGIN_WITHIN_S}"));
        line(&mut text, 2, "auth_callout {");
        line(&mut text, 4, "# The server trusts what this account key has signed: auth-callout.issuer.nk");
        line(&mut text, 4, &format!("issuer: {}", callout.issuer));
        line(&mut text, 4, &format!("account: {AUTH_ACCOUNT}"));
        line(&mut text, 4, "# These have keys, and come in while the callout is away.");
        line(&mut text, 4, "auth_users: [");
        keys.iter().for_each(|key| line(&mut text, 6, key));
        text += "    ]\n  }\n}\n";
        text
    }
}

fn line(text: &mut String, indent: usize, what: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{:indent$}{what}", "");
}

fn group_lines(text: &mut String, group: &Group, explain: bool) {
    if explain {
        line(text, 12, &format!("# {}", group.why));
    }
    group.subjects.iter().for_each(|subject| line(text, 12, &format!("\"{subject}\"")));
}

const LIMITS: &str =
    "    # The seven buckets take 54 MiB, the stream of events 1 GiB (events.stream_max_bytes); three times that in a cluster.
    jetstream: { max_mem: 0, max_file: 4GB, max_streams: 9, max_bytes_required: true }
    # Of connections in all, and of each its subscriptions (an agent has some 50) and the bytes of a message.
    limits { max_connections: 20000, max_subscriptions: 1000, max_payload: 1MB }
";

fn header(fleet: &Fleet) -> String {
    let (name, stream) = (fleet.name(), fleet.event_stream());
    format!(
        "# Made by `fleetpull nats-setup --accounts`: instead of changing it, run that again, then `nats-server --signal reload`.\n\
         # With these accounts a node can publish only as itself, and can neither make nor change a bucket.\n\
         #\n\
         # Before the agents start, and after an upgrade, run `fleetpull nats-setup` as the user `setup`: it makes the fleet's buckets.\n\
         #\n\
         # Who may do what on `{name}.v1.`:\n\
         {ROLES}\
         #\n\
         # and in the fleet's buckets (stream KV_{name}-<bucket>, key after $KV.{name}-<bucket>.):\n\
         {BUCKETS}\
         #\n\
         # The stream {stream} stores what is published on evt: a node writes under its own name alone; nodes, operators, pullers and\n\
         # viewers read.\n\
         #\n\
         {REST}\n"
    )
}

const ROLES: &str = "\
#              publish                                              subscribe
#   node       its own events; commands to itself; reports to       commands to itself, to all and to the registrar; shared
#              the registrar; budget claims in its own name;        knowledge; the services API
#              its own digest; answers
#   operator   commands to every node: pulls, cancels, clears, pauses;  events
#              writes the fleet policy; reads who is a member
#   puller     as a viewer; pulls, cancels, and asks what a pull       events
#              would do
#   viewer     questions to every node that change nothing and ask     events
#              no registry: nodes, pulls, events, backoff list,
#              budget list; reads who is a member, and the policy
#   setup      nothing                                              nothing
";

const BUCKETS: &str = "\
#   reports    a node writes below its own name alone; all nodes read
#   leases     all nodes read, and write by compare-and-set, because they compete for leases
#   leaders    the same for the leases of budget leaders and of the registrar; not republished, because they are renewed often
#   pauses     all nodes write and read
#   members    a node writes its own record alone; operators, pullers and viewers read which nodes there are
#   policy     operators write; all nodes, pullers and viewers read
#   keys       all nodes write and read; no other role, because with the fleet's key guesses of logins can be tested
";

const REST: &str = "\
# The server republishes what is stored in reports, leases, pauses and policy on `know.<bucket>.<key>`. No user may publish there, so
# the key of a message shows which node wrote it.
#
# `setup` alone makes buckets and changes their settings. No user can delete or purge a bucket, or single messages of it: add one if
# you need that.
#
# A compromised node can lie about itself, and take leases (each ends by itself). With the header `Nats-Rollup: all`, which
# nats-server insists on where keys expire, it can empty reports, leases, leaders, pauses and members, not policy and keys: nodes
# then use the reports that they have received, and write what is new. It can neither make, change, delete or purge a bucket, nor command
# another node, publish a report, digest or event in its name, or receive requests to others.
#
# Every user has an nkey of its own: the seed stays with the user (nats.nkey, mode 0600), the public key is here. Answers arrive
# on inboxes, and each user has a prefix of its own for them, so that nobody reads another's: it is in the user's context of the
# nats CLI (nats.context), which `fleetpull nats-setup --accounts` writes too.
";
