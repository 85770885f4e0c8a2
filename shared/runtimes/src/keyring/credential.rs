//! One login, and the text about it that may be shown.

use std::fmt;

use url::Url;

use super::audience::may_be_sent;

/// A login for a registry. Its secret parts are never printed or serialised.
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
    /// The user's name; empty if there is a token instead.
    #[must_use]
    pub fn username(&self) -> &str {
        &self.username
    }

    /// The password; empty if there is a token instead.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// A refresh token, exchanged at the registry's token server; empty if there is none.
    #[must_use]
    pub fn identity_token(&self) -> &str {
        &self.identity_token
    }

    /// A bearer token, sent to the registry unchanged; empty if there is none.
    #[must_use]
    pub fn registry_token(&self) -> &str {
        &self.registry_token
    }

    /// The entry that the login is stored under: a registry, perhaps with a path.
    #[must_use]
    pub fn server_address(&self) -> &str {
        &self.server_address
    }

    /// Whether it may be sent to this address of a registry or token server.
    pub(crate) fn may_be_sent_to(&self, address: &Url) -> bool {
        may_be_sent(&self.server_address, address)
    }

    /// Its kind and source, for people: `login for registry.example in /root/.docker/config.json`. Other nodes see it, so it has neither a
    /// secret nor the user's name.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether two credentials are the same to a registry.
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
    fn debug_prints_the_source_alone() {
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
