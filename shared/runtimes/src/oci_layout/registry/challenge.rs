//! Parses a registry's `WWW-Authenticate` challenge.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

use super::Session;

/// The most repositories whose challenge is cached. If there are more, all are dropped, which costs each one request.
const CHALLENGES_MAX: usize = 256;

/// The longest challenge that is read, in bytes; a real one has less than 1 KiB. Each cached token and challenge has its texts.
const CHALLENGE_MAX_BYTES: usize = 16 * 1024;

/// A challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Wants name and password with each request.
    Basic,
    /// Wants a token of the server at `realm`.
    Bearer { realm: String, service: String, scope: String },
}

impl Challenge {
    /// The challenge of an answer; `Bearer` if both are offered.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut found = None;
        for value in headers.get_all(WWW_AUTHENTICATE) {
            let text = value.to_str().ok().filter(|text| text.len() <= CHALLENGE_MAX_BYTES);
            let Some(challenges) = text.and_then(|text| http_auth::parse_challenges(text).ok()) else { continue };
            for challenge in challenges {
                match Self::read(&challenge) {
                    Some(bearer @ Self::Bearer { .. }) => return Some(bearer),
                    Some(basic) => found = Some(basic),
                    None => {}
                }
            }
        }
        found
    }

    fn read(challenge: &http_auth::ChallengeRef<'_>) -> Option<Self> {
        if challenge.scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        let field =
            |name: &str| challenge.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_unescaped());
        let realm = field("realm")?;
        let bearer = challenge.scheme.eq_ignore_ascii_case("bearer");
        bearer.then(|| Self::Bearer { realm, service: field("service").unwrap_or_default(), scope: field("scope").unwrap_or_default() })
    }
}

/// The last challenges, by endpoint and repository.
#[derive(Default)]
pub(super) struct Challenges(Mutex<BTreeMap<(String, String), Challenge>>);

impl Challenges {
    pub(super) fn get(&self, session: &Session) -> Option<Challenge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&session.repository()).cloned()
    }

    pub(super) fn remember(&self, session: &Session, challenge: &Challenge) {
        let mut challenges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if challenges.len() >= CHALLENGES_MAX {
            challenges.clear();
        }
        challenges.insert(session.repository(), challenge.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn challenges_are_parsed_and_bearer_is_preferred() {
        let bearer = |scope: &str| {
            Some(Challenge::Bearer {
                realm: "https://auth.example/token".to_owned(),
                service: "registry.example".to_owned(),
                scope: scope.to_owned(),
            })
        };
        let plain = r#"Bearer realm="https://auth.example/token",service="registry.example""#;
        let long = format!(r#"{plain},scope="{}""#, "x".repeat(CHALLENGE_MAX_BYTES));
        for (values, expected) in [
            (vec![plain], bearer("")),
            (vec![r#"Basic realm="x""#, plain], bearer("")),
            (
                vec![r#"bearer scope="repository:a/b:pull,push",service="registry.example",realm="https://auth.example/token""#],
                bearer("repository:a/b:pull,push"),
            ),
            (vec![r#"Basic realm="x""#], Some(Challenge::Basic)),
            (vec![r#"Bearer service="x""#], None),
            (vec![long.as_str()], None),
            (vec!["Negotiate"], None),
            (vec!["\"broken"], None),
            (vec![], None),
        ] {
            let headers: HeaderMap = values.iter().map(|value| (WWW_AUTHENTICATE, HeaderValue::from_str(value).unwrap())).collect();
            assert_eq!(Challenge::of(&headers), expected, "{values:?}");
        }
    }
}
