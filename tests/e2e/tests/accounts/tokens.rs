//! Service-account tokens of a cluster that exists in tests only.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use serde_json::{Value, json};

/// A private key for tests alone; ring cannot create RSA keys.
const RSA: &[u8] = include_bytes!("rsa-of-a-made-up-cluster.pk8");
pub(super) const ISSUER: &str = "https://kubernetes.example";
pub(super) const AUDIENCE: &str = "fleetpull";

/// The keys of a cluster, as its API server publishes them.
pub(super) struct Cluster {
    rsa: RsaKeyPair,
    elliptic: EcdsaKeyPair,
}

impl Cluster {
    pub(super) fn new() -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let elliptic = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap();
        Self { rsa: RsaKeyPair::from_pkcs8(RSA).unwrap(), elliptic }
    }

    /// The key document of the API server.
    pub(super) fn jwks(&self) -> String {
        let rsa: PublicKeyComponents<Vec<u8>> = self.rsa.public().into();
        let point = self.elliptic.public_key().as_ref();
        json!({ "keys": [
            { "use": "sig", "kty": "RSA", "kid": "rsa-1", "alg": "RS256", "n": text(&rsa.n), "e": text(&rsa.e) },
            { "use": "sig", "kty": "EC", "kid": "ec-1", "alg": "ES256", "crv": "P-256", "x": text(&point[1..33]), "y": text(&point[33..]) },
            { "use": "enc", "kty": "oct", "kid": "no-key-of-ours", "k": "AAAA" },
        ] })
        .to_string()
    }

    pub(super) fn rs256(&self, claims: &Value) -> String {
        let signed = signed_part(&json!({ "alg": "RS256", "kid": "rsa-1" }), claims);
        let mut signature = vec![0; self.rsa.public().modulus_len()];
        self.rsa.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature).unwrap();
        format!("{signed}.{}", text(&signature))
    }

    pub(super) fn es256(&self, header: &Value, claims: &Value) -> String {
        let signed = signed_part(header, claims);
        let signature = self.elliptic.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", text(signature.as_ref()))
    }
}

/// The claims of a projected volume's token.
pub(super) fn claims(account: &str, node: Option<&str>, now_s: u64) -> Value {
    let mut private =
        json!({ "namespace": "fleetpull", "serviceaccount": { "name": account, "uid": "1" }, "pod": { "name": "p", "uid": "2" } });
    if let Some(node) = node {
        private["node"] = json!({ "name": node, "uid": "3" });
    }
    json!({
        "iss": ISSUER, "sub": format!("system:serviceaccount:fleetpull:{account}"), "aud": [AUDIENCE],
        "iat": now_s, "nbf": now_s, "exp": now_s + 3_600, "jti": "4", "kubernetes.io": private,
    })
}

pub(super) fn signed_part(header: &Value, claims: &Value) -> String {
    format!("{}.{}", text(header.to_string().as_bytes()), text(claims.to_string().as_bytes()))
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
