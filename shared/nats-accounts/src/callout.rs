//! The auth callout of nats-server: the server asks for the identity of a client, and gets a signed user or a signed refusal.

use contract::subject::Fleet;
use nkeys::{KeyPair, KeyPairType};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::nats_jwt;
use crate::{FLEET_ACCOUNT, Identity, Jwks, Permissions, Refusal, Responses, RoleMap, TokenRules, certificate};

/// The subject of a server's requests.
pub const AUTHORIZATION_REQUESTS: &str = "$SYS.REQ.USER.AUTH";
/// The audience of these requests.
const AUDIENCE: &str = "nats-authorization-request";
/// The longest validity of an identity, in seconds; then the server ends the connection, and the client logs in again.
const IDENTITY_S: u64 = 60 * 60;
/// The version of the claims.
const VERSION: u8 = 2;
/// No limit, in claims.
const UNLIMITED: i64 = -1;

/// Why a key cannot sign answers.
#[derive(Debug, thiserror::Error)]
#[error("it is not the seed of {0}")]
pub struct NotASigner(&'static str);

/// The kind of key that signs answers.
const AN_ACCOUNT: NotASigner = NotASigner("an account (SA...)");

/// The account key that the server trusts. Never printed.
pub struct Signer(KeyPair);

impl Signer {
    /// Reads the text of a file with a seed.
    ///
    /// # Errors
    /// It holds no seed of an account.
    pub fn from_seed_file(text: &str) -> Result<Self, NotASigner> {
        let seed = text.lines().map(str::trim).find(|line| line.starts_with('S')).ok_or(AN_ACCOUNT)?;
        let key = KeyPair::from_seed(seed).map_err(|_| AN_ACCOUNT)?;
        if matches!(key.key_pair_type(), KeyPairType::Account) { Ok(Self(key)) } else { Err(AN_ACCOUNT) }
    }

    /// The public key for `issuer` in the server's configuration.
    #[must_use]
    pub fn public_key(&self) -> String {
        self.0.public_key()
    }
}

/// Answers requests of servers.
pub struct Callout {
    /// The fleet whose permissions are given.
    pub fleet: Fleet,
    /// Signs answers.
    pub signer: Signer,
    /// The rules for tokens; none: no tokens are accepted.
    pub tokens: Option<TokenRules>,
    /// The roles of logins.
    pub roles: RoleMap,
}

/// Why a request gets no answer.
#[derive(Debug, thiserror::Error)]
pub enum CalloutError {
    /// It has another form than a server's request.
    #[error("it is no authorization request of a nats-server: {0}")]
    Malformed(&'static str),
    /// It is not from a server, or for another issuer.
    #[error("it is not for this service: {0}")]
    NotForUs(&'static str),
    /// The answer could not be signed.
    #[error("the answer cannot be signed")]
    CannotSign,
}

/// The answer to a request.
pub struct Answer {
    /// The signed answer for the server.
    pub payload: String,
    /// The identity, or the refusal, for the log.
    pub outcome: Result<Identity, Refusal>,
    /// The host that the client connects from.
    pub client_host: String,
    /// The client's name for its connection.
    pub client_name: String,
}

#[derive(Deserialize)]
struct Request {
    aud: String,
    sub: String,
    nats: Question,
}

#[derive(Deserialize)]
struct Question {
    #[serde(rename = "type")]
    kind: String,
    server_id: Server,
    user_nkey: String,
    #[serde(default)]
    client_info: Client,
    connect_opts: Shown,
    client_tls: Option<Tls>,
}

#[derive(Deserialize)]
struct Server {
    id: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Client {
    host: String,
    name: String,
}

/// The client's login. It holds a secret, so it can be neither printed nor serialised.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Shown {
    auth_token: String,
    /// Some clients can send a token only as a password.
    pass: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Tls {
    verified_chains: Vec<Vec<String>>,
}

/// A request that a server has signed.
pub struct Asked(Question);

impl Asked {
    /// The client's token, if there is one.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        let Shown { auth_token, pass } = &self.0.connect_opts;
        [auth_token, pass].into_iter().map(String::as_str).find(|text| !text.is_empty())
    }
}

impl Callout {
    /// Reads a request, and checks that a server has signed it and that it is for this service.
    ///
    /// # Errors
    /// A check has failed.
    pub fn read(&self, payload: &[u8]) -> Result<Asked, CalloutError> {
        let (request, issuer): (Request, String) = nats_jwt::verified(payload).map_err(CalloutError::Malformed)?;
        if !issuer.starts_with('N') || request.nats.server_id.id != issuer {
            return Err(CalloutError::NotForUs("it is not signed by the server that it names"));
        }
        if request.aud != AUDIENCE || request.nats.kind != "authorization_request" {
            return Err(CalloutError::NotForUs("it is another kind of claims"));
        }
        if request.sub != self.signer.public_key() {
            return Err(CalloutError::NotForUs(
                "the server expects another issuer: its auth_callout.issuer is not the public key of this service",
            ));
        }
        Ok(Asked(request.nats))
    }

    /// Answers with an identity for one hour with the permissions of its role, or with a refusal.
    ///
    /// # Errors
    /// The answer cannot be signed.
    pub fn answer(&self, asked: Asked, keys: Option<&Jwks>, now_s: u64) -> Result<Answer, CalloutError> {
        let outcome = self.identify(&asked, keys, now_s);
        let Question { server_id, user_nkey, client_info, .. } = asked.0;
        let mut response = json!({ "type": "authorization_response", "version": VERSION });
        match &outcome {
            Ok(identity) => response["jwt"] = Value::String(self.user(identity, &user_nkey, now_s)?),
            // The server logs the reason; the client only learns that it was refused.
            Err(refusal) => response["error"] = Value::String(refusal.to_string()),
        }
        let claims = json!({ "aud": server_id.id, "sub": user_nkey, "iat": now_s, "nats": response });
        let payload = nats_jwt::sign(&self.signer.0, claims).map_err(|_| CalloutError::CannotSign)?;
        Ok(Answer { payload, outcome, client_host: client_info.host, client_name: client_info.name })
    }

    /// A token has precedence over a certificate, because the client chose to send it.
    fn identify(&self, asked: &Asked, keys: Option<&Jwks>, now_s: u64) -> Result<Identity, Refusal> {
        let chains = asked.0.client_tls.as_ref().map(|tls| tls.verified_chains.as_slice()).unwrap_or_default();
        let leaf = chains.first().and_then(|chain| chain.first());
        match (asked.token(), &self.tokens, keys, leaf) {
            (Some(token), Some(rules), Some(keys), _) => rules.identify(token, keys, &self.roles, now_s),
            (None, _, _, Some(leaf)) => certificate::identify(leaf, &self.roles, now_s),
            _ => Err(Refusal::NothingShown),
        }
    }

    /// The server's user for an identity.
    fn user(&self, identity: &Identity, user_nkey: &str, now_s: u64) -> Result<String, CalloutError> {
        let permissions = Permissions::of(&self.fleet, identity.role, &identity.name);
        let (publish, subscribe): (Vec<&String>, Vec<&String>) = (permissions.published().collect(), permissions.subscribed().collect());
        let mut nats = json!({
            "type": "user", "version": VERSION, "pub": { "allow": publish }, "sub": { "allow": subscribe },
            "subs": UNLIMITED, "data": UNLIMITED, "payload": UNLIMITED,
        });
        if let Some(Responses { max, expires_s }) = permissions.responses {
            nats["resp"] = json!({ "max": max, "ttl": expires_s * 1_000_000_000 });
        }
        let until_s = identity.until_s.min(now_s + IDENTITY_S);
        let claims = json!({
            "aud": FLEET_ACCOUNT, "sub": user_nkey, "name": identity.name.as_str(), "iat": now_s, "exp": until_s, "nats": nats,
        });
        nats_jwt::sign(&self.signer.0, claims).map_err(|_| CalloutError::CannotSign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn callout() -> Callout {
        let signer = Signer(KeyPair::new_account());
        Callout { fleet: Fleet::default(), signer, tokens: None, roles: RoleMap::default() }
    }

    fn question(callout: &Callout, server: &KeyPair, change: impl Fn(&mut Value)) -> Vec<u8> {
        let mut claims = json!({
            "aud": AUDIENCE, "sub": callout.signer.public_key(),
            "nats": {
                "type": "authorization_request", "server_id": { "id": server.public_key() }, "user_nkey": "U",
                "client_info": { "host": "10.0.0.1" }, "connect_opts": { "protocol": 1 },
            },
        });
        change(&mut claims);
        nats_jwt::sign(server, claims).unwrap().into_bytes()
    }

    #[test]
    fn only_a_servers_own_request_for_this_issuer_is_answered() {
        let (callout, server) = (callout(), KeyPair::new_server());
        let asked = callout.read(&question(&callout, &server, |_| {})).unwrap();
        let answer = callout.answer(asked, None, 1_000).unwrap();
        assert_eq!((answer.outcome.unwrap_err(), answer.client_host.as_str()), (Refusal::NothingShown, "10.0.0.1"));
        let (claims, issuer): (Value, String) = nats_jwt::verified(answer.payload.as_bytes()).unwrap();
        assert_eq!((issuer, claims["aud"].as_str()), (callout.signer.public_key(), Some(server.public_key().as_str())));
        assert!(claims["nats"]["jwt"].is_null() && claims["nats"]["error"].is_string());

        let user = KeyPair::new_user();
        type Change = fn(&mut Value);
        let changes: [(&KeyPair, Change); 4] = [
            (&user, |claims| claims["nats"]["server_id"]["id"] = json!("N")),
            (&server, |claims| claims["nats"]["server_id"]["id"] = json!("NOTHER")),
            (&server, |claims| claims["aud"] = json!("other")),
            (&server, |claims| claims["sub"] = json!("AOTHER")),
        ];
        for (key, change) in changes {
            assert!(matches!(callout.read(&question(&callout, key, change)), Err(CalloutError::NotForUs(_))));
        }
        for nonsense in [&b""[..], b"{}", b"a.b.c"] {
            assert!(matches!(callout.read(nonsense), Err(CalloutError::Malformed(_))));
        }
    }

    #[test]
    fn an_identity_lasts_an_hour_and_not_longer_than_what_was_shown() {
        let callout = callout();
        for (until_s, expected) in [(1_000 + 600, 1_600), (1_000 + 86_400, 1_000 + IDENTITY_S)] {
            let name = "n1".parse().unwrap();
            let identity = Identity { name, role: crate::Role::Node, until_s, known_by: String::new() };
            let user = callout.user(&identity, "U", 1_000).unwrap();
            let (claims, _): (Value, String) = nats_jwt::verified(user.as_bytes()).unwrap();
            assert_eq!((claims["exp"].as_u64(), claims["aud"].as_str()), (Some(expected), Some(FLEET_ACCOUNT)));
            assert!(claims["nats"]["pub"]["allow"].as_array().unwrap().iter().any(|subject| subject == "fleetpull.v1.evt.*.*.n1"));
        }
    }

    #[test]
    fn only_an_account_signs() {
        assert!(Signer::from_seed_file(&KeyPair::new_account().seed().unwrap()).is_ok());
        for text in [KeyPair::new_user().seed().unwrap(), String::new(), "SA".to_owned()] {
            assert!(Signer::from_seed_file(&text).is_err());
        }
    }
}
