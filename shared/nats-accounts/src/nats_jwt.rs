//! NATS's tokens: JSON web tokens signed by an nkey.

use nkeys::KeyPair;
use ring::digest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::base64url;

/// The only algorithm of NATS.
const ALGORITHM: &str = "ed25519-nkey";
/// The longest token; a request holds at most a certificate chain.
const MAX_BYTES: usize = 256 * 1024;

/// Why a token was not signed.
#[derive(Debug, thiserror::Error)]
#[error("the key cannot sign")]
pub(crate) struct CannotSign;

/// Signs claims with this key; sets their issuer and id.
pub(crate) fn sign(key: &KeyPair, mut claims: Value) -> Result<String, CannotSign> {
    claims["iss"] = Value::String(key.public_key());
    let hash = digest::digest(&digest::SHA256, claims.to_string().as_bytes());
    claims["jti"] = Value::String(base64url::encode(hash));
    let header = base64url::encode(json!({ "typ": "JWT", "alg": ALGORITHM }).to_string());
    let signed = format!("{header}.{}", base64url::encode(claims.to_string()));
    let signature = key.sign(signed.as_bytes()).map_err(|_| CannotSign)?;
    Ok(format!("{signed}.{}", base64url::encode(signature)))
}

/// The claims and the issuer of a token that its own issuer has signed.
pub(crate) fn verified<T: DeserializeOwned>(token: &[u8]) -> Result<(T, String), &'static str> {
    let token = std::str::from_utf8(token).ok().filter(|token| token.len() <= MAX_BYTES).ok_or("it is no text, or too long")?;
    let (signed, signature) = token.rsplit_once('.').ok_or("it has not three parts")?;
    let (header, claims) = signed.split_once('.').ok_or("it has not three parts")?;
    let header: Value = part(header)?;
    if header["alg"] != ALGORITHM {
        return Err("it is not signed by an nkey");
    }
    let signature = base64url::decode(signature).ok_or("its signature is not base64url")?;
    let value: Value = part(claims)?;
    let issuer = value["iss"].as_str().ok_or("it names no issuer")?.to_owned();
    let key = KeyPair::from_public_key(&issuer).map_err(|_| "its issuer is no nkey")?;
    key.verify(signed.as_bytes(), &signature).map_err(|_| "its signature is wrong")?;
    let claims = serde_json::from_value(value).map_err(|_| "its claims are not those of a request")?;
    Ok((claims, issuer))
}

fn part(text: &str) -> Result<Value, &'static str> {
    let bytes = base64url::decode(text).ok_or("it is not base64url")?;
    serde_json::from_slice(&bytes).map_err(|_| "it is not JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_signed_and_not_otherwise() {
        let key = KeyPair::new_server();
        let token = sign(&key, json!({ "sub": "x", "n": 1 })).unwrap();
        let (claims, issuer) = verified::<Value>(token.as_bytes()).unwrap();
        assert_eq!((claims["n"].as_i64(), issuer), (Some(1), key.public_key()));

        let parts: Vec<&str> = token.split('.').collect();
        let other = sign(&key, json!({ "sub": "y", "n": 1 })).unwrap();
        let forged = format!("{}.{}.{}", parts[0], other.split('.').nth(1).unwrap(), parts[2]);
        assert_eq!(verified::<Value>(forged.as_bytes()).unwrap_err(), "its signature is wrong");
        let none = base64url::encode(r#"{"typ":"JWT","alg":"none"}"#);
        assert!(verified::<Value>(format!("{none}.{}.", parts[1]).as_bytes()).is_err());
        for nonsense in [&b""[..], b"a.b", b"\xff\xfe", b"...", b"a.b.c"] {
            assert!(verified::<Value>(nonsense).is_err());
        }
    }
}
