//! The accounts of deploy/, with keys and certificates that a test knows.

use std::path::Path;

use nkeys::KeyPair;
use tempfile::TempDir;

use super::{Authority, NatsConfig};

/// The accounts of deploy/nats. What it made goes when it is dropped.
pub struct Accounts {
    text: String,
    authority: Authority,
    /// The seed of each user in a file of the user's name, and what JetStream keeps.
    folder: TempDir,
}

impl Accounts {
    /// The accounts as they are in deploy/, each user with a new key.
    ///
    /// # Panics
    /// When the example is not as it was: it names no user, or other files.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each has other keys")]
    pub fn new() -> Self {
        let example = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats").join(name);
            std::fs::read_to_string(path).expect("deploy/ has accounts")
        };
        let (server, include) = (example("nats-server.conf"), "include \"accounts.conf\"");
        assert!(server.contains(include), "the server's configuration includes the accounts");
        let mut text = server.replace(include, &example("accounts.conf"));
        let (folder, authority) = (TempDir::with_prefix("accounts-").expect("a folder can be made"), Authority::new("of the fleet"));
        let (certificate, key) = authority.issue("127.0.0.1");
        let store = folder.path().join("store");
        for (example, own) in [("/etc/nats/server.pem", certificate), ("/etc/nats/server.key", key), ("/var/lib/nats", store)] {
            assert!(text.contains(example), "the example names {example}");
            text = text.replace(example, own.to_str().expect("paths of tests are text"));
        }
        // `nkey: U... # name`, also within braces.
        let user = |line: &str| Some((line.split("nkey: ").nth(1)?.get(..56)?.to_owned(), line.rsplit(' ').next()?.to_owned()));
        let users: Vec<(String, String)> = text.lines().filter_map(user).filter(|(key, _)| key.starts_with('U')).collect();
        assert!(!users.is_empty(), "the example has users");
        for (example, name) in users {
            let pair = KeyPair::new_user();
            text = text.replace(&example, &pair.public_key());
            std::fs::write(folder.path().join(name), pair.seed().expect("a new key has a seed")).expect("the folder can be written");
        }
        Self { text, authority, folder }
    }

    /// The whole example, as `nats-server -t` checks it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A server with these accounts; it listens where there is room.
    #[must_use]
    pub fn config(&self) -> NatsConfig {
        let lines: Vec<&str> = self.text.lines().filter(|line| !line.starts_with("listen")).collect();
        NatsConfig::default().without_jetstream().with(&lines.join("\n"))
    }

    /// Loses what JetStream keeps. The server must not run.
    ///
    /// # Panics
    /// When there is nothing kept.
    pub fn wipe_store(&self) {
        std::fs::remove_dir_all(self.folder.path().join("store")).expect("the store can be removed");
    }

    /// Writes a context of the nats CLI for a user below `config_home`, as the comments of the example say.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write_context(&self, config_home: &Path, user: &str, address: &str) {
        let (seed, ca) = (self.folder.path().join(user), self.authority.certificate());
        assert!(seed.is_file(), "the example has no user {user}");
        let context =
            format!("{{ \"url\": \"tls://{address}\", \"nkey\": {seed:?}, \"ca\": {ca:?}, \"inbox_prefix\": \"_INBOX_{user}\" }}");
        let contexts = config_home.join("nats/context");
        std::fs::create_dir_all(&contexts).expect("a folder can be made");
        std::fs::write(contexts.join(format!("{user}.json")), context).expect("the context can be written");
    }
}
