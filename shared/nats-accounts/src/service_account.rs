//! Projected service-account tokens of Kubernetes (RFC 7519, with the private claims of Kubernetes).

use serde::{Deserialize, Deserializer};

use crate::{Identity, Jwks, Refusal, RoleMap, base64url};

/// The longest token; a projected one has 1 to 2 KiB.
const MAX_BYTES: usize = 16 * 1024;
/// The tolerated difference between two clocks.
const LEEWAY_S: u64 = 30;

/// The required claims of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRules {
    /// `iss`: the cluster's issuer.
    pub issuer: String,
    /// One of `aud`: it makes a token useless for any other server, and tokens for other servers useless here.
    pub audience: String,
}

/// The claims of a verified token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
    /// The node of its pod.
    pub node: Option<String>,
    /// When it expires, in seconds since 1970.
    pub expires_s: u64,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: String,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    #[serde(deserialize_with = "one_or_many")]
    aud: Vec<String>,
    exp: Option<u64>,
    #[serde(default)]
    nbf: u64,
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: Kubernetes,
}

#[derive(Default, Deserialize)]
struct Kubernetes {
    node: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Audience {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Audience::deserialize(deserializer)? {
        Audience::One(audience) => vec![audience],
        Audience::Many(audiences) => audiences,
    })
}

/// The key that a token names, before the token is verified: to decide whether the keys must be fetched again.
#[must_use]
pub fn unverified_key_id(token: &str) -> Option<String> {
    Parts::of(token).ok().map(|parts| parts.header.kid)
}

/// The parts of a token.
struct Parts<'a> {
    header: Header,
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, Refusal> {
        if token.len() > MAX_BYTES {
            return Err(Refusal::Malformed("it is too long"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(Refusal::Malformed("it has not three parts"))?;
        let (header, claims) = signed.split_once('.').ok_or(Refusal::Malformed("it has not three parts"))?;
        let header = decoded(header).ok_or(Refusal::Malformed("its header cannot be read"))?;
        let signature = base64url::decode(signature).ok_or(Refusal::Malformed("its signature cannot be read"))?;
        Ok(Self { header, signed, claims, signature })
    }
}

fn decoded<T: for<'de> Deserialize<'de>>(part: &str) -> Option<T> {
    serde_json::from_slice(&base64url::decode(part)?).ok()
}

impl TokenRules {
    /// Checks a token: its signature first, then its claims.
    ///
    /// # Errors
    /// The refusal.
    pub fn verify(&self, token: &str, keys: &Jwks, now_s: u64) -> Result<VerifiedToken, Refusal> {
        let parts = Parts::of(token)?;
        keys.verify(&parts.header.kid, &parts.header.alg, parts.signed.as_bytes(), &parts.signature)?;
        let claims: Claims = decoded(parts.claims).ok_or(Refusal::Malformed("its claims are not those of a service account"))?;
        if claims.iss != self.issuer {
            return Err(Refusal::Issuer(claims.iss));
        }
        if !claims.aud.contains(&self.audience) {
            return Err(Refusal::Audience(claims.aud));
        }
        let expires_s = claims.exp.ok_or(Refusal::Endless)?;
        if now_s >= expires_s.saturating_add(LEEWAY_S) {
            return Err(Refusal::Expired(now_s - expires_s));
        }
        if claims.nbf > now_s.saturating_add(LEEWAY_S) {
            return Err(Refusal::NotYet(claims.nbf - now_s));
        }
        Ok(VerifiedToken { subject: claims.sub, node: claims.kubernetes.node.map(|node| node.name), expires_s })
    }

    pub(crate) fn identify(&self, token: &str, keys: &Jwks, roles: &RoleMap, now_s: u64) -> Result<Identity, Refusal> {
        let token = self.verify(token, keys, now_s)?;
        roles.of_service_account(&token.subject, token.node.as_deref(), token.expires_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_token_is_refused() {
        let keys = Jwks::read(br#"{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}"#).unwrap();
        let rules = TokenRules { issuer: "i".to_owned(), audience: "a".to_owned() };
        for token in [
            "",
            ".",
            "..",
            "a.b.c",
            "e30.e30.",
            "\u{e9}.\u{e9}.\u{e9}",
            &"x".repeat(MAX_BYTES + 1),
            &format!("{}.a.b", "eyJ".repeat(5_000)),
        ] {
            assert!(matches!(rules.verify(token, &keys, 0), Err(Refusal::Malformed(_))), "{token}");
            assert_eq!(unverified_key_id(token), None);
        }
        let header = base64url::encode(r#"{"alg":"RS256","kid":"a"}"#);
        assert_eq!(unverified_key_id(&format!("{header}.e30.")).as_deref(), Some("a"));
    }
}
