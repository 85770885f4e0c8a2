//! The parts of an entry's key in JSON. The names and their meaning are an interface.

use contract::messages::backoff_tracker::KeyParts;
use serde::Serialize;

use crate::output::given;

/// The parts of an entry's key. Fields that its kind does not have are null.
#[derive(Serialize)]
pub struct JsonKeyParts<'a> {
    kind: Option<&'a str>,
    registry: Option<&'a str>,
    endpoint: Option<&'a str>,
    zone: Option<&'a str>,
    owner: Option<&'a str>,
    repository: Option<&'a str>,
    image: Option<&'a str>,
    platform: Option<&'a str>,
    /// For a login: true if none was sent.
    anonymous: bool,
    pod: Option<String>,
}

impl<'a> JsonKeyParts<'a> {
    /// The parts as JSON.
    #[must_use]
    pub fn of(key_parts: &'a KeyParts) -> Self {
        let KeyParts { kind, registry, endpoint, zone, owner, repository, image, platform, anonymous, pod } = key_parts;
        Self {
            kind: given(kind.as_str()),
            registry: given(registry),
            endpoint: given(endpoint),
            zone: given(zone),
            owner: given(owner),
            repository: given(repository),
            image: given(image),
            platform: given(platform),
            anonymous: *anonymous,
            pod: pod.as_ref().map(ToString::to_string),
        }
    }
}
