//! Content digests: `algorithm:hex`.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// Hex digits of a digest in a list, as container tools show them.
const DIGITS_SHOWN: usize = 12;

/// The hash functions that images use, and kubelet accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Algorithm {
    /// SHA-256, used by nearly all images.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// The name before the colon.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// The length of the hash in bytes; the hex text is twice as long.
    #[must_use]
    pub fn hash_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The text with 12 hex digits of each digest, for a person, so that there is room for what else the text says.
#[must_use]
pub fn with_short_digests(text: &str) -> String {
    Algorithm::ALL.into_iter().fold(text.to_owned(), |text, algorithm| {
        let beginning = format!("{algorithm}:");
        let mut parts = text.split(&beginning);
        let mut short = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let digits = part.split_at_checked(2 * algorithm.hash_bytes()).filter(|(digits, _)| digits.bytes().all(is_lower_hex));
            let (shown, rest) = digits.map_or((part, ""), |(digits, rest)| (&digits[..DIGITS_SHOWN], rest));
            short.extend([&beginning, shown, rest]);
        }
        short
    })
}

/// A checked digest: a known algorithm and a hash of its length in lower-case hex. Safe as part of a path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest {
    text: Box<str>,
    algorithm: Algorithm,
}

impl Digest {
    /// Parses `algorithm:hex`, with the checks and error texts of the reference implementation (go-digest 1.0).
    ///
    /// # Errors
    /// The text has another form, the algorithm is unknown, or the hash has the wrong length.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let (name, hash) = text.split_once(':').ok_or(DigestError::InvalidFormat)?;
        if name.is_empty() || hash.is_empty() {
            return Err(DigestError::InvalidFormat);
        }
        let Some(algorithm) = Algorithm::of_name(name) else {
            let well_formed = is_algorithm_name(name) && hash.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"=_-".contains(&byte));
            return Err(if well_formed { DigestError::UnsupportedAlgorithm } else { DigestError::InvalidFormat });
        };
        if hash.len() != 2 * algorithm.hash_bytes() {
            return Err(DigestError::InvalidLength);
        }
        if !hash.bytes().all(is_lower_hex) {
            return Err(DigestError::InvalidFormat);
        }
        Ok(Self { text: text.into(), algorithm })
    }

    /// The digest of a computed hash.
    ///
    /// # Errors
    /// The hash has not the algorithm's length.
    pub fn from_hash(algorithm: Algorithm, hash: &[u8]) -> Result<Self, DigestError> {
        if hash.len() != algorithm.hash_bytes() {
            return Err(DigestError::InvalidLength);
        }
        Ok(Self::written(algorithm, hash))
    }

    /// The digest of a computed SHA-256.
    #[must_use]
    pub fn from_sha256(hash: [u8; 32]) -> Self {
        Self::written(Algorithm::Sha256, &hash)
    }

    fn written(algorithm: Algorithm, hash: &[u8]) -> Self {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = String::with_capacity(algorithm.name().len() + 1 + 2 * hash.len());
        text.push_str(algorithm.name());
        text.push(':');
        for byte in hash {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        Self { text: text.into(), algorithm }
    }

    /// `algorithm:hex`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The hash function.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The hash in lower-case hex, without the algorithm.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.text[self.algorithm.name().len() + 1..]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({})", self.text)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        Self::parse(text)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

/// Why a text is no digest. The texts are kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DigestError {
    /// Not `algorithm:hex`, or not in lower case.
    #[error("invalid checksum digest format")]
    InvalidFormat,
    /// The hash has not the algorithm's length.
    #[error("invalid checksum digest length")]
    InvalidLength,
    /// Well formed, but the algorithm is none of [`Algorithm`].
    #[error("unsupported digest algorithm")]
    UnsupportedAlgorithm,
}

fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// Words of lower-case letters and digits, joined by one of `.+_-`.
fn is_algorithm_name(name: &str) -> bool {
    name.split(['.', '+', '_', '-'])
        .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_algorithms_are_accepted_at_their_exact_lengths() {
        for algorithm in [Algorithm::Sha256, Algorithm::Sha384, Algorithm::Sha512] {
            let hex = "0f".repeat(algorithm.hash_bytes());
            let digest = Digest::parse(&format!("{algorithm}:{hex}")).unwrap();
            assert_eq!((digest.algorithm(), digest.hex()), (algorithm, hex.as_str()));
            let short = &hex[2..];
            assert_eq!(Digest::parse(&format!("{algorithm}:{short}")), Err(DigestError::InvalidLength));
            assert_eq!(Digest::from_hash(algorithm, &vec![0x0f; algorithm.hash_bytes()]), Ok(digest));
            assert_eq!(Digest::from_hash(algorithm, b"short"), Err(DigestError::InvalidLength));
        }
    }

    #[test]
    fn bad_digests_are_refused_with_kubelets_text() {
        use DigestError::{InvalidFormat, InvalidLength, UnsupportedAlgorithm};
        let upper = format!("sha256:{}", "0F".repeat(32));
        let other_character = format!("sha256:{}g", "0".repeat(63));
        let cases = [
            ("", InvalidFormat),
            (":", InvalidFormat),
            ("sha256", InvalidFormat),
            ("sha256:", InvalidFormat),
            (":00", InvalidFormat),
            (&upper, InvalidFormat),
            (&other_character, InvalidFormat),
            ("sha256:00", InvalidLength),
            ("sha256:../../etc", InvalidLength),
            ("md5:d41d8cd98f00b204e9800998ecf8427e", UnsupportedAlgorithm),
            ("sha256+b64:LCa0a2j/xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564=", InvalidFormat),
            ("sha256+b64:LCa0a2j_xo_5m0U8HTBBNBNCLXBkg7-g-YpeiGJm564=", UnsupportedAlgorithm),
            ("SHA256:00", InvalidFormat),
            ("a..b:00", InvalidFormat),
        ];
        for (text, expected) in cases {
            assert_eq!(Digest::parse(text), Err(expected), "{text}");
        }
    }

    #[test]
    fn digests_in_a_text_are_shortened() {
        let hash = "c737df153fc5".to_owned() + &"0123456789ab".repeat(10);
        let (sha256, sha512) = (format!("sha256:{}", &hash[..64]), format!("sha512:{}", &hash[..128]));
        let text = format!("{sha256}, blob {sha512} and {sha256}0");
        assert_eq!(with_short_digests(&text), "sha256:c737df153fc5, blob sha512:c737df153fc5 and sha256:c737df153fc50");
        for unchanged in ["", "no digest", "sha256:", "sha256:, sha256:zz and sha256:\u{e4}", "sha256:0123456789abcdef"] {
            assert_eq!(with_short_digests(unchanged), unchanged);
        }
    }

    #[test]
    fn digest_is_a_string_in_json() {
        let digest = Digest::from_sha256([0xab; 32]);
        let json = serde_json::to_string(&digest).unwrap();
        assert_eq!(json, format!("\"sha256:{}\"", "ab".repeat(32)));
        assert_eq!(serde_json::from_str::<Digest>(&json).unwrap(), digest);
        assert!(serde_json::from_str::<Digest>("\"sha256:ab\"").is_err());
    }
}
