//! The keys of a cluster's issuer of tokens (RFC 7517).

use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

use crate::{Refusal, base64url};

/// The most keys; a cluster has a few: the current one and earlier ones.
const MAX_KEYS: usize = 64;
/// The bytes of a P-256 coordinate.
const COORDINATE_BYTES: usize = 32;
/// The first byte of a point that has both coordinates.
const UNCOMPRESSED: u8 = 0x04;

/// Why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// The document is not a set of keys.
    #[error("it is no set of keys: {0}")]
    Malformed(String),
    /// No key can check a token.
    #[error("it holds no key for RS256 or ES256")]
    NoKey,
}

/// The keys that check tokens.
#[derive(Clone, Debug)]
pub struct Jwks(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    id: String,
    material: Material,
}

#[derive(Clone, Debug)]
enum Material {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256 { point: Vec<u8> },
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Written>,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Written {
    kty: String,
    kid: String,
    #[serde(rename = "use")]
    usage: String,
    alg: String,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

impl Jwks {
    /// Reads a set; keys of other kinds are left out.
    ///
    /// # Errors
    /// It is no set of keys, or holds none that can be used.
    pub fn read(json: &[u8]) -> Result<Self, JwksError> {
        let document: Document = serde_json::from_slice(json).map_err(|error| JwksError::Malformed(error.to_string()))?;
        let keys: Vec<Key> = document.keys.into_iter().take(MAX_KEYS).filter_map(Key::of).collect();
        if keys.is_empty() { Err(JwksError::NoKey) } else { Ok(Self(keys)) }
    }

    /// Whether a token that names this key can be checked.
    #[must_use]
    pub fn knows(&self, id: &str) -> bool {
        self.0.iter().any(|key| key.id == id)
    }

    /// Checks a signature. The key determines the algorithm, and the token must name the same one.
    pub(crate) fn verify(&self, id: &str, algorithm: &str, signed: &[u8], signature: &[u8]) -> Result<(), Refusal> {
        if !["RS256", "ES256"].contains(&algorithm) {
            return Err(Refusal::Algorithm(algorithm.chars().take(16).collect()));
        }
        let key = self.0.iter().find(|key| key.id == id).ok_or_else(|| Refusal::UnknownKey(id.chars().take(64).collect()))?;
        let good = match (&key.material, algorithm) {
            (Material::Rsa { modulus, exponent }, "RS256") => {
                let key = RsaPublicKeyComponents { n: modulus, e: exponent };
                key.verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, signature).is_ok()
            }
            (Material::P256 { point }, "ES256") => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
            _ => false,
        };
        if good { Ok(()) } else { Err(Refusal::Signature) }
    }
}

impl Key {
    fn of(written: Written) -> Option<Self> {
        let Written { kty, kid, usage, alg, crv, n, e, x, y } = written;
        if !["", "sig"].contains(&usage.as_str()) {
            return None;
        }
        let material = match (kty.as_str(), alg.as_str()) {
            ("RSA", "" | "RS256") => Material::Rsa { modulus: number(&n)?, exponent: number(&e)? },
            ("EC", "" | "ES256") if crv == "P-256" => {
                let (x, y) = (base64url::decode(&x)?, base64url::decode(&y)?);
                if x.len() != COORDINATE_BYTES || y.len() != COORDINATE_BYTES {
                    return None;
                }
                Material::P256 { point: [&[UNCOMPRESSED][..], &x, &y].concat() }
            }
            _ => return None,
        };
        Some(Self { id: kid, material })
    }
}

/// Decodes a number, without leading zeros.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = base64url::decode(text)?;
    let first = bytes.iter().position(|byte| *byte != 0)?;
    bytes.get(first..).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jwks_without_a_usable_key_is_refused() {
        for text in [
            r#"{"keys":[]}"#,
            r#"{"keys":[{"kty":"oct","kid":"a","k":"AAAA"}]}"#,
            r#"{"keys":[{"kty":"RSA","kid":"a","n":"","e":"AQAB"}]}"#,
            r#"{"keys":[{"kty":"RSA","kid":"a","alg":"PS256","n":"AQAB","e":"AQAB"}]}"#,
            r#"{"keys":[{"kty":"RSA","kid":"a","use":"enc","n":"AQAB","e":"AQAB"}]}"#,
            r#"{"keys":[{"kty":"EC","kid":"a","crv":"P-384","x":"AQAB","y":"AQAB"}]}"#,
            r#"{"keys":[{"kty":"EC","kid":"a","crv":"P-256","x":"AQAB","y":"AQAB"}]}"#,
        ] {
            assert_eq!(Jwks::read(text.as_bytes()).unwrap_err(), JwksError::NoKey, "{text}");
        }
        for text in ["", "[]", "{}", "<html>", r#"{"keys":{}}"#] {
            assert!(matches!(Jwks::read(text.as_bytes()), Err(JwksError::Malformed(_))), "{text}");
        }
    }

    #[test]
    fn a_key_is_found_by_its_name_and_used_for_its_own_algorithm() {
        let keys = Jwks::read(br#"{"keys":[{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}]}"#).unwrap();
        assert!(keys.knows("a") && !keys.knows("b"));
        assert_eq!(keys.verify("b", "RS256", b"", b"").unwrap_err(), Refusal::UnknownKey("b".to_owned()));
        for algorithm in ["RS256", "ES256"] {
            assert_eq!(keys.verify("a", algorithm, b"", b"").unwrap_err(), Refusal::Signature);
        }
        for algorithm in ["none", "None", "HS256", "RS512", ""] {
            assert_eq!(keys.verify("a", algorithm, b"", b"").unwrap_err(), Refusal::Algorithm(algorithm.to_owned()));
        }
    }
}
