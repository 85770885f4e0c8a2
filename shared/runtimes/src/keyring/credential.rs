//! One login, and what may be said of it aloud.

use std::fmt;

use url::Url;

use super::audience::may_be_sent;

/// A login for a registry. It can be asked for its parts but is never printed or serialised with them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential {
    pub(super) username: String,
    pub(super) password: String,
    pub(super) identity_token: String,
    pub(super) registry_token: String,
    pub(super) server_address: String,
    pub(super) source: String,
    /// The helper that gave it.
    pub(super) helper: Option<String>,
}

impl Credential {
    /// The user's name; empty where a token stands for it.
    #[must_use]
    pub fn username(&self) -> &str {
        &self.username
    }

    /// The password; empty where a token stands for it.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// A refresh token, to be exchanged at the registry's token server; empty if there is none.
    #[must_use]
    pub fn identity_token(&self) -> &str {
        &self.identity_token
    }

    /// A bearer token, sent to the registry as it is; empty if there is none.
    #[must_use]
    pub fn registry_token(&self) -> &str {
        &self.registry_token
    }

    /// What the login was kept under: registry, with a path where the entry has one.
    #[must_use]
    pub fn server_address(&self) -> &str {
        &self.server_address
    }

    /// Whether it may be shown to this address, a registry's or a token server's.
    pub(crate) fn may_be_sent_to(&self, address: &Url) -> bool {
        may_be_sent(&self.server_address, address)
    }

    /// What it is and where it comes from, for people: `login for registry.example in /root/.docker/config.json`. Neither a secret nor
    /// the user's name is in it, as it is told to other nodes.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether two credentials would be the same to a registry, wherever they were found.
    pub(super) fn same_login(&self, other: &Self) -> bool {
        self.username == other.username
            && self.password == other.password
            && self.identity_token == other.identity_token
            && self.registry_token == other.registry_token
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Credential").field(&self.source).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_names_the_source_and_nothing_else() {
        let credential = Credential {
            username: "deploy".to_owned(),
            password: "hunter2".to_owned(),
            identity_token: "token-a".to_owned(),
            registry_token: "token-b".to_owned(),
            server_address: "registry.example".to_owned(),
            source: "login for registry.example in /a/config.json".to_owned(),
            helper: None,
        };
        assert_eq!(format!("{credential:?}"), "Credential(\"login for registry.example in /a/config.json\")");
    }
}
