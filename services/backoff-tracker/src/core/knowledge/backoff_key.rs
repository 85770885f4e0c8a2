//! Back-off keys: what a failure is about, and when it refuses other nodes.

use std::fmt;
use std::sync::Arc;

use contract::messages::backoff_tracker::{EntryKind, KeyParts};
use contract::{FailureClass, Stage, View};
use sha2::{Digest, Sha256};

/// Distinct nodes that must report a failure before it refuses others, if a node itself may be the cause.
pub(super) const CORROBORATING_NODES: usize = 3;
/// Nodes that must report an image as missing if it has several endpoints, because one endpoint may lag.
const NODES_BEHIND_MIRRORS: usize = 2;
/// Repositories that must fail before the registry counts as failing.
const FAILING_REPOSITORIES: usize = 2;

/// A back-off key without its view: what fails within that view. A [`BackoffKey`] is a view and a key in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyInView {
    /// The registry limits what it counts as one client: an account or an address.
    BudgetOwner(String),
    /// The network path to a host, from the nodes of a zone.
    Endpoint {
        /// Host and port actually contacted.
        endpoint: String,
        /// The zone, whose nodes share the network path.
        zone: String,
    },
    /// The token server that a registry names, as the nodes of a zone see it.
    TokenServer {
        /// The registry's endpoint; the token server's own address is in the failure's message.
        endpoint: String,
        /// The zone, whose nodes share the network path.
        zone: String,
    },
    /// The blobs of a registry with the hosts that it redirects to, as the nodes of a zone see them.
    Blobs {
        /// The registry's endpoint; a host that it redirects to is in the failure's message.
        endpoint: String,
        /// The zone, whose nodes share the network path.
        zone: String,
    },
    /// The registry itself answers that it is unavailable, in several repositories.
    Registry,
    /// The registry itself answers that it is unavailable, in this repository.
    Repository(String),
    /// The image is not there for this login.
    Reference {
        /// The normalised reference.
        reference: String,
        /// The credential scope: some registries answer "not found" if access is denied.
        scope: String,
        /// Whether the image has several endpoints, one of which may lag behind the others.
        mirrored: bool,
    },
    /// The registry refuses this login.
    Login {
        /// The image's repository.
        repository: String,
        /// The credential's fingerprint, made with the fleet key.
        fingerprint: String,
        /// No credential is used, so repeated requests cannot lock an account.
        anonymous: bool,
    },
    /// The image has nothing for this platform.
    Platform {
        /// The normalised reference.
        reference: String,
        /// For example `linux/arm64`.
        platform: String,
    },
    /// The content is not what was requested.
    Content {
        /// The normalised reference.
        reference: String,
        /// The endpoint that sent it.
        endpoint: String,
    },
    /// The signature policy refuses the image.
    Signature {
        /// The normalised reference.
        reference: String,
        /// Hash of the node's policy.
        policy: String,
    },
}

/// When reports on a back-off key refuse nodes other than their reporters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// At once, but only briefly while one node alone reports it.
    AtOnce,
    /// When this many distinct nodes report it, or all nodes that are alive if there are fewer.
    Nodes(usize),
    /// When this many distinct repositories fail.
    Repositories(usize),
}

/// The stable id of a back-off key, the same on every node and in every version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BackoffKeyId(pub u128);

impl BackoffKeyId {
    /// Reads an id as it is displayed; none if the text is not 32 hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        u128::from_str_radix(text, 16).ok().filter(|_| is_id).map(Self)
    }
}

impl fmt::Display for BackoffKeyId {
    /// 32 hexadecimal digits, as in answers, events and stored clears.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

/// The key of reports and of a back-off entry: a view, and the key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackoffKey {
    view: Arc<NamedView>,
    in_view: KeyInView,
    id: BackoffKeyId,
}

/// A view and its id, shared by the back-off keys of one image.
#[derive(Debug, PartialEq, Eq)]
struct NamedView {
    view: View,
    id: u128,
}

impl BackoffKey {
    /// Computes the id.
    #[must_use]
    pub fn new(view: View, in_view: KeyInView) -> Self {
        let id = hash128(&[&view.scope, &view.registry, &view.route, &view.boot]);
        Self::within(Arc::new(NamedView { view, id }), in_view)
    }

    /// Another back-off key in the same view.
    #[must_use]
    pub fn in_same_view(&self, in_view: KeyInView) -> Self {
        Self::within(Arc::clone(&self.view), in_view)
    }

    fn within(view: Arc<NamedView>, in_view: KeyInView) -> Self {
        let id = BackoffKeyId(hash128(&words(&view.view, &in_view)));
        Self { view, in_view, id }
    }

    /// The view.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view.view
    }

    /// The view's id, as stable as the back-off key's.
    #[must_use]
    pub fn view_id(&self) -> u128 {
        self.view.id
    }

    /// The key in its view: what fails there.
    #[must_use]
    pub fn in_view(&self) -> &KeyInView {
        &self.in_view
    }

    /// The id.
    #[must_use]
    pub fn id(&self) -> BackoffKeyId {
        self.id
    }

    /// The parts of the key, as lists and events show them.
    #[must_use]
    pub fn parts(&self) -> KeyParts {
        let of = |kind| KeyParts::of(kind, &self.view().registry);
        let endpoint_of = |kind, endpoint: &String, zone: &String| KeyParts { endpoint: endpoint.clone(), zone: zone.clone(), ..of(kind) };
        let image_of = |kind, reference: &String| KeyParts { image: reference.clone(), ..of(kind) };
        match &self.in_view {
            KeyInView::BudgetOwner(owner) => KeyParts { owner: owner.clone(), ..of(EntryKind::Budget) },
            KeyInView::Endpoint { endpoint, zone } => endpoint_of(EntryKind::Registry, endpoint, zone),
            KeyInView::TokenServer { endpoint, zone } => endpoint_of(EntryKind::TokenServer, endpoint, zone),
            KeyInView::Blobs { endpoint, zone } => endpoint_of(EntryKind::Blobs, endpoint, zone),
            KeyInView::Registry => of(EntryKind::Registry),
            KeyInView::Repository(repository) => KeyParts { repository: repository.clone(), ..of(EntryKind::Repository) },
            KeyInView::Reference { reference, .. } => image_of(EntryKind::Image, reference),
            KeyInView::Login { repository, anonymous, .. } => {
                KeyParts { repository: repository.clone(), anonymous: *anonymous, ..of(EntryKind::Login) }
            }
            KeyInView::Platform { reference, platform } => {
                KeyParts { platform: platform.clone(), ..image_of(EntryKind::Platform, reference) }
            }
            KeyInView::Content { reference, endpoint } => {
                KeyParts { endpoint: endpoint.clone(), ..image_of(EntryKind::Content, reference) }
            }
            KeyInView::Signature { reference, .. } => image_of(EntryKind::Signature, reference),
        }
    }

    /// The key as text: `image registry.example/a:1`, `registry registry.example:443 from zone a`.
    #[must_use]
    pub fn in_words(&self) -> String {
        self.parts().to_string()
    }

    /// The class of failure that this back-off key is for.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        self.in_view.class()
    }
}

impl KeyInView {
    /// The class of the failures on this key.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        match self {
            Self::BudgetOwner(_) => FailureClass::RateLimited,
            Self::Endpoint { .. } | Self::TokenServer { .. } | Self::Blobs { .. } | Self::Registry | Self::Repository(_) => {
                FailureClass::RegistryUnavailable
            }
            Self::Reference { .. } => FailureClass::NotFound,
            Self::Login { .. } => FailureClass::Denied,
            Self::Platform { .. } | Self::Content { .. } => FailureClass::ContentInvalid,
            Self::Signature { .. } => FailureClass::SignatureInvalid,
        }
    }

    /// The image it is about, if it is about one.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        match self {
            Self::Reference { reference, .. }
            | Self::Platform { reference, .. }
            | Self::Content { reference, .. }
            | Self::Signature { reference, .. } => Some(reference),
            _ => None,
        }
    }

    /// The zone, if it concerns one zone only.
    #[must_use]
    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Endpoint { zone, .. } | Self::TokenServer { zone, .. } | Self::Blobs { zone, .. } => Some(zone),
            _ => None,
        }
    }

    /// The stage whose answer shows that this works.
    #[must_use]
    pub fn stage(&self) -> Stage {
        match self {
            Self::TokenServer { .. } => Stage::Token,
            // A manifest list is read before its entry for the platform is chosen.
            Self::Blobs { .. } | Self::Platform { .. } => Stage::Blob,
            Self::Content { .. } | Self::Signature { .. } => Stage::Whole,
            _ => Stage::Manifest,
        }
    }

    /// When a failure refuses other nodes. It follows from the key, so that no reporter can claim a wider reach.
    #[must_use]
    pub fn reach(&self) -> Reach {
        match self {
            Self::Endpoint { .. } | Self::TokenServer { .. } | Self::Blobs { .. } | Self::Content { .. } | Self::Signature { .. } => {
                Reach::Nodes(CORROBORATING_NODES)
            }
            Self::Reference { mirrored: true, .. } => Reach::Nodes(NODES_BEHIND_MIRRORS),
            Self::Registry => Reach::Repositories(FAILING_REPOSITORIES),
            _ => Reach::AtOnce,
        }
    }
}

/// Whether failures of this class may mean that the registry is overloaded rather than down.
pub(super) fn may_be_overload(class: FailureClass) -> bool {
    matches!(class, FailureClass::RateLimited | FailureClass::RegistryUnavailable)
}

fn words<'a>(view: &'a View, in_view: &'a KeyInView) -> Vec<&'a str> {
    let mut words = vec![view.scope.as_str(), &view.registry, &view.route, &view.boot, in_view.class().as_str()];
    match in_view {
        KeyInView::BudgetOwner(owner) => words.extend(["owner", owner]),
        KeyInView::Endpoint { endpoint, zone } => words.extend(["endpoint", endpoint, zone]),
        KeyInView::TokenServer { endpoint, zone } => words.extend(["token", endpoint, zone]),
        KeyInView::Blobs { endpoint, zone } => words.extend(["blobs", endpoint, zone]),
        KeyInView::Registry => words.push("registry"),
        KeyInView::Repository(repository) => words.extend(["repository", repository]),
        KeyInView::Reference { reference, scope, mirrored } => {
            words.extend([if *mirrored { "mirrored" } else { "reference" }, reference, scope]);
        }
        KeyInView::Login { repository, fingerprint, anonymous } => {
            words.extend([if *anonymous { "anonymous" } else { "login" }, repository, fingerprint]);
        }
        KeyInView::Platform { reference, platform } => words.extend(["platform", reference, platform]),
        KeyInView::Content { reference, endpoint } => words.extend(["content", reference, endpoint]),
        KeyInView::Signature { reference, policy } => words.extend(["signature", reference, policy]),
    }
    words
}

/// 128 bits of SHA-256 over length-prefixed words, so that different lists of words give different input.
#[must_use]
pub fn hash128(words: &[&str]) -> u128 {
    let mut hasher = Sha256::new();
    for word in words {
        hasher.update((word.len() as u64).to_be_bytes());
        hasher.update(word.as_bytes());
    }
    hasher.finalize().iter().take(16).fold(0, |hash, byte| (hash << 8) | u128::from(*byte))
}

/// A hash as a number, uniform in `[0, 1)`. A number has 53 bits, so the lowest 11 bits of the hash do not count.
pub(super) fn fraction(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View { scope: "default".to_owned(), registry: "registry.example".to_owned(), route: "r".to_owned(), boot: String::new() }
    }

    #[test]
    fn an_id_never_changes_between_versions() {
        let in_view = KeyInView::Reference { reference: "registry.example/a:1".to_owned(), scope: "anonymous".to_owned(), mirrored: false };
        assert_eq!(BackoffKey::new(view(), in_view).id().to_string(), "316e2d029ab1c464307b9b74a4007f6a");
    }

    #[test]
    fn only_32_hex_digits_are_an_id() {
        let id = BackoffKey::new(view(), KeyInView::Registry).id();
        assert_eq!(BackoffKeyId::parse(&id.to_string()), Some(id));
        assert_eq!(BackoffKeyId::parse(&id.to_string().to_uppercase()), Some(id), "an operator may type it so");
        assert_eq!(BackoffKeyId::parse(&"0".repeat(32)), Some(BackoffKeyId(0)));
        let digits = |count: usize| "1".repeat(count);
        let others = [digits(0), digits(1), digits(31), digits(33), format!("+{}", digits(31)), digits(31) + "g", "é".repeat(16)];
        for text in others {
            assert_eq!(BackoffKeyId::parse(&text), None, "{text:?}");
        }
    }

    #[test]
    fn different_fields_give_different_ids() {
        let of = |view: View, repository: &str| BackoffKey::new(view, KeyInView::Repository(repository.to_owned())).id();
        let base = of(view(), "a");
        assert_ne!(base, of(view(), "b"));
        assert_ne!(base, of(View { scope: "edge".to_owned(), ..view() }, "a"));
        assert_ne!(base, of(View { route: "mirror".to_owned(), ..view() }, "a"));
        assert_ne!(base, of(View { boot: "b1".to_owned(), ..view() }, "a"), "localhost is another registry on each host");
        let (one, two) = (hash128(&["ab", "c"]), hash128(&["a", "bc"]));
        assert_ne!(one, two);
    }

    #[test]
    fn a_key_made_in_the_view_of_another_equals_one_made_alone() {
        let in_view = KeyInView::Repository("a".to_owned());
        assert_eq!(BackoffKey::new(view(), KeyInView::Registry).in_same_view(in_view.clone()), BackoffKey::new(view(), in_view));
    }
}
