//! Decentralised logins, which companies use: an operator, an account, and users with credentials files.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nkeys::KeyPair;
use serde_json::{Value, json};

/// An operator with one account.
pub struct Tenancy {
    operator: KeyPair,
    account: KeyPair,
    /// The system account, which JetStream needs.
    system_account: KeyPair,
}

impl Tenancy {
    /// Creates an operator and an account.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "each is another one")]
    pub fn new() -> Self {
        Self { operator: KeyPair::new_operator(), account: KeyPair::new_account(), system_account: KeyPair::new_account() }
    }

    /// The lines of configuration that make a server trust this operator and load the account.
    #[must_use]
    pub fn configuration(&self) -> String {
        let operator = token(&self.operator, &self.operator, "operator", json!({}));
        let account = token(&self.operator, &self.account, "account", json!({ "limits": limits(true) }));
        let system_account = token(&self.operator, &self.system_account, "account", json!({ "limits": limits(false) }));
        let (name, system_name) = (self.account.public_key(), self.system_account.public_key());
        format!(
            "operator: {operator}\nsystem_account: {system_name}\nresolver: MEMORY\n\
             resolver_preload: {{ {name}: {account}, {system_name}: {system_account} }}\n"
        )
    }

    /// The text of a credentials file for a new user of the account.
    ///
    /// # Panics
    /// Never: a new key has a seed.
    #[must_use]
    pub fn credentials(&self) -> String {
        let user = KeyPair::new_user();
        let token = token(&self.account, &user, "user", json!({ "subs": -1, "data": -1, "payload": -1 }));
        let seed = user.seed().expect("a new key has a seed");
        format!(
            "-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n\
             ************************* IMPORTANT *************************\n\
             NKEY Seed printed below can be used to sign and prove identity.\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        )
    }
}

/// A JWT for `subject` of the kind `kind`, signed by `issuer`.
fn token(issuer: &KeyPair, subject: &KeyPair, kind: &str, mut claims: Value) -> String {
    claims["type"] = json!(kind);
    claims["version"] = json!(2);
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let body = json!({
        "jti": subject.public_key(),
        // A day in 2020. Any time in the past will do.
        "iat": 1_600_000_000,
        "iss": issuer.public_key(),
        "sub": subject.public_key(),
        "name": kind,
        "nats": claims,
    });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&body));
    let signature = issuer.sign(signed.as_bytes()).expect("the issuer's key can sign");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// Unlimited limits, with or without JetStream.
fn limits(jetstream: bool) -> Value {
    let mut limits = json!({
        "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
    });
    if jetstream {
        for limit in ["mem_storage", "disk_storage", "streams", "consumer"] {
            limits[limit] = json!(-1);
        }
    }
    limits
}
