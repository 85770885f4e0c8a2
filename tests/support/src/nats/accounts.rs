//! The accounts of deploy/nats, with keys and certificates that the test creates.

use std::path::Path;

use nkeys::KeyPair;
use tempfile::TempDir;

use super::{Authority, NatsConfig};

/// The accounts of deploy/nats. Dropping it removes its files.
pub struct Accounts {
    text: String,
    authority: Authority,
    /// The seed of each user in a file with the user's name, and the data of JetStream.
    folder: TempDir,
}

impl Accounts {
    /// The accounts as in deploy/nats, with a new key for each user.
    ///
    /// # Panics
    /// When the example has changed so that it has no users or includes other files.
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
        // The line is `nkey: U... # name`, also within braces.
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

    /// The whole example, in a file that `nats-server -t` can check.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The configuration of a server with these accounts; it listens on free ports.
    #[must_use]
    pub fn config(&self) -> NatsConfig {
        let lines: Vec<&str> = self.text.lines().filter(|line| !line.starts_with("listen")).collect();
        NatsConfig::default().without_jetstream().with(&lines.join("\n"))
    }

    /// Deletes the data of JetStream. The server must not run.
    ///
    /// # Panics
    /// When there is no data.
    pub fn wipe_store(&self) {
        std::fs::remove_dir_all(self.folder.path().join("store")).expect("the store can be removed");
    }

    /// Writes a context of the nats CLI for a user below `config_home`, as the comments of the example describe.
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
