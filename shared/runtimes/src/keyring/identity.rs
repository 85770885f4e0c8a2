//! A node's identity at a registry, as keyed hashes that other nodes can compare and from which nobody can guess the login.

use super::audience::Audience;
use super::credential::Credential;
use super::fleet_key::{FleetKey, KeyedHash};

/// The scope of a node without a login.
const ANONYMOUS: &str = "anonymous";
/// The prefix of a scope that is not comparable between nodes.
const NODE_ONLY: &str = "node-only:";
/// The user name that helpers give with a token.
const TOKEN_USER: &str = "<token>";

/// A node's identity at a registry. No part of a login can be read from its hashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `anonymous`, or the same text on all nodes with the same user; `node-only:...` if nodes cannot compare it.
    pub scope: String,
    /// The hash of scope and secret; empty without a login.
    pub fingerprint: String,
}

impl Identity {
    /// The identity of a node without a login.
    pub(super) fn anonymous() -> Self {
        Self { scope: ANONYMOUS.to_owned(), fingerprint: String::new() }
    }

    /// The identity of a node that cannot find out its own login; constant for the life of the process.
    pub(super) fn unknown(audiences: &[Audience]) -> Self {
        let hash = KeyedHash::of_process();
        let names = || audiences.iter().map(Audience::repository);
        Self {
            scope: format!("{NODE_ONLY}{}", hash.hash(["unknown scope"].into_iter().chain(names()))),
            fingerprint: hash.hash(["unknown fingerprint"].into_iter().chain(names())),
        }
    }

    /// The identity of a node with these logins, in the order of use. Nodes whose helpers give logins with different rights have different
    /// values of `credential_group`.
    pub(super) fn of(logins: &[Credential], key: &FleetKey, credential_group: &str) -> Self {
        if logins.is_empty() {
            return Self::anonymous();
        }
        let (hash, prefix) = match key.hasher() {
            Some(hash) => (hash, ""),
            None => (KeyedHash::of_process(), NODE_ONLY),
        };
        let scopes = logins.iter().map(|login| scope_of(login, &hash, credential_group));
        let fingerprints = logins.iter().map(|login| fingerprint_of(login, &hash, credential_group));
        Self { scope: format!("{prefix}{}", joined(&hash, scopes.collect())), fingerprint: joined(&hash, fingerprints.collect()) }
    }
}

fn scope_of(login: &Credential, hash: &KeyedHash, credential_group: &str) -> String {
    let server = login.server_address();
    match &login.helper {
        // A helper gives each node its own secret and often its own user name, so the group decides which nodes are equal.
        Some(helper) => {
            let user = if login.username.is_empty() { TOKEN_USER } else { &login.username };
            hash.hash(["helper", server, helper, user, credential_group])
        }
        None if !login.username.is_empty() => hash.hash(["login", server, &login.username]),
        // A token without a name can only be compared as a whole.
        None => hash.hash(["token", server, &login.identity_token, &login.registry_token]),
    }
}

fn fingerprint_of(login: &Credential, hash: &KeyedHash, credential_group: &str) -> String {
    let scope = scope_of(login, hash, credential_group);
    hash.hash(["secret", &scope, &login.username, &login.password, &login.identity_token, &login.registry_token])
}

/// A single hash unchanged; several as the hash of their sequence.
fn joined(hash: &KeyedHash, hashes: Vec<String>) -> String {
    match hashes.as_slice() {
        [only] => only.clone(),
        several => hash.hash(["several"].into_iter().chain(several.iter().map(String::as_str))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::FLEET_KEY_BYTES;

    fn key(byte: u8) -> FleetKey {
        let key = FleetKey::new();
        key.fill(&[byte; FLEET_KEY_BYTES]);
        key
    }

    fn login(user: &str, password: &str) -> Credential {
        Credential {
            username: user.to_owned(),
            password: password.to_owned(),
            server_address: "registry.example".to_owned(),
            ..Credential::default()
        }
    }

    fn minted(user: &str, secret: &str) -> Credential {
        Credential { helper: Some("ecr".to_owned()), ..login(user, secret) }
    }

    #[test]
    fn equal_users_share_a_scope_and_a_new_secret_changes_the_fingerprint() {
        let of = |login: Credential| Identity::of(&[login], &key(1), "");
        let (old, new) = (of(login("deploy", "old")), of(login("deploy", "new")));
        assert_eq!(old, of(login("deploy", "old")));
        assert_eq!(old.scope, new.scope);
        assert_ne!(old.fingerprint, new.fingerprint);
        assert_ne!(old.scope, of(login("other", "old")).scope);
        assert_ne!(old.scope, Identity::of(&[login("deploy", "old")], &key(2), "").scope);
        assert_eq!((old.scope.len(), old.fingerprint.len()), (32, 32));
    }

    #[test]
    fn helper_logins_are_equal_within_a_group() {
        let of = |login: Credential, group: &str| Identity::of(&[login], &key(1), group);
        assert_eq!(of(minted("AWS", "a"), "blue").scope, of(minted("AWS", "b"), "blue").scope);
        assert_ne!(of(minted("AWS", "a"), "blue").fingerprint, of(minted("AWS", "b"), "blue").fingerprint);
        assert_ne!(of(minted("AWS", "a"), "blue").scope, of(minted("AWS", "a"), "green").scope);
        assert_ne!(of(minted("AWS", "a"), "").scope, of(login("AWS", "a"), "").scope);
        assert_eq!(of(login("AWS", "a"), "blue"), of(login("AWS", "a"), "green"), "a static login is what it is");
    }

    #[test]
    fn tokens_without_a_name_differ_by_the_token() {
        let token = |token: &str| Credential { identity_token: token.to_owned(), ..login("", "") };
        let of = |login: Credential| Identity::of(&[login], &key(1), "");
        assert_eq!(of(token("a")).scope, of(token("a")).scope);
        assert_ne!(of(token("a")).scope, of(token("b")).scope);
    }

    #[test]
    fn without_a_key_only_anonymous_is_comparable() {
        let none = FleetKey::new();
        assert_eq!(Identity::of(&[], &none, ""), Identity::anonymous());
        assert_eq!(Identity::of(&[], &key(1), "").scope, "anonymous");
        let alone = Identity::of(&[login("deploy", "old")], &none, "");
        assert!(alone.scope.starts_with("node-only:"), "{alone:?}");
        assert_eq!(alone, Identity::of(&[login("deploy", "old")], &none, ""), "the same as long as the process lives");
        assert_ne!(alone.scope, Identity::of(&[login("other", "old")], &none, "").scope);
        assert!(Identity::unknown(&[]).scope.starts_with("node-only:"));
    }

    #[test]
    fn several_logins_are_one_identity_by_their_order() {
        let (a, b) = (login("a", "1"), login("b", "1"));
        let of = |logins: &[Credential]| Identity::of(logins, &key(1), "").scope;
        assert_ne!(of(&[a.clone(), b.clone()]), of(&[b.clone(), a.clone()]));
        assert_ne!(of(&[a.clone(), b]), of(&[a]));
    }
}
