//! A pull's target, and the back-off keys that it and its failures concern.

use std::sync::Arc;

use contract::messages::backoff_tracker::AttemptFailure;
use contract::{FailureClass, Stage, Target};

use super::backoff_key::{BackoffKey, BackoffKeyId, KeyInView};

/// A target with the ids of the back-off keys that can refuse it, computed once. The keys themselves are made only for reports, because a
/// node may have 1,000 targets.
#[derive(Clone, Debug)]
pub(super) struct TargetKeys {
    pub(super) target: Target,
    /// The key of the budget.
    pub(super) owner: BackoffKeyId,
    pub(super) endpoint: BackoffKeyId,
    pub(super) blobs: BackoffKeyId,
    pub(super) content: BackoffKeyId,
    /// The key of the image. A success on it is what "resolved lately" means.
    pub(super) image: BackoffKeyId,
    /// All keys, each once, broadest first.
    pub(super) ids: Vec<BackoffKeyId>,
}

impl TargetKeys {
    pub(super) fn new(target: Target) -> Self {
        let keys = NamedKeys::of(&target);
        let (owner, endpoint, blobs, image, content) =
            (keys.owner.id(), keys.endpoint.id(), keys.blobs.id(), keys.image.id(), keys.content.id());
        let mut ids: Vec<BackoffKeyId> = Vec::new();
        for id in keys.broadest_first().iter().map(BackoffKey::id) {
            // A mirror may be listed twice.
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Self { target, owner, endpoint, blobs, content, image, ids }
    }

    pub(super) fn touches(&self, backoff_key: BackoffKeyId) -> bool {
        self.ids.contains(&backoff_key)
    }

    /// The back-off keys that can refuse it, broadest first.
    pub(super) fn backoff_keys(&self) -> Vec<Arc<BackoffKey>> {
        NamedKeys::of(&self.target).broadest_first().into_iter().map(Arc::new).collect()
    }

    /// The key that reports on a stage of the registry are about; for [`Stage::Whole`] that of the blobs.
    pub(super) fn stage_backoff_key(&self, stage: Stage) -> Arc<BackoffKey> {
        Arc::new(BackoffKey::new(self.target.view.clone(), at_stage(&self.target, stage)))
    }

    /// The back-off keys to report a failure on; none if it concerns this node or this attempt alone.
    pub(super) fn backoff_keys_of(&self, failure: &AttemptFailure) -> Vec<Arc<BackoffKey>> {
        let (target, authoritative) = (&self.target, failure.authoritative);
        let endpoint = failure.endpoint.as_ref().unwrap_or(&target.endpoint);
        let keys_in_view = match failure.class {
            FailureClass::RateLimited => vec![KeyInView::BudgetOwner(target.budget_owner.clone())],
            // The registry serves manifests, so this failure shows nothing about its repositories.
            FailureClass::RegistryUnavailable if failure.stage != Stage::Manifest => vec![at_stage(target, failure.stage)],
            // A manifest names a blob that is missing or denied, for every node that pulls this image.
            FailureClass::NotFound | FailureClass::Denied if failure.stage > Stage::Manifest => vec![content(target, &target.endpoint)],
            FailureClass::RegistryUnavailable if authoritative => {
                vec![KeyInView::Repository(target.repository.clone()), KeyInView::Registry]
            }
            FailureClass::RegistryUnavailable => vec![at_endpoint(target, endpoint)],
            FailureClass::NotFound if authoritative || target.mirrored => vec![image(target)],
            FailureClass::Denied if authoritative => vec![login(target)],
            FailureClass::ContentInvalid if failure.no_such_platform => vec![for_platform(target)],
            // Blobs may come from any host that the registry redirects to. One key covers all blobs of an image.
            FailureClass::ContentInvalid if failure.stage > Stage::Manifest => vec![content(target, &target.endpoint)],
            FailureClass::ContentInvalid => vec![content(target, endpoint)],
            FailureClass::SignatureInvalid => signature(target).into_iter().collect(),
            // A 404 or 401 page of a proxy is not reported; the other classes concern this node alone.
            _ => vec![],
        };
        keys_in_view.into_iter().map(|in_view| Arc::new(BackoffKey::new(target.view.clone(), in_view))).collect()
    }
}

/// Whether the stage that failed was reached. A server that refuses is reachable too.
pub(super) fn shows_reachable(failure: &AttemptFailure) -> bool {
    (failure.authoritative && (failure.stage == Stage::Manifest || failure.class != FailureClass::RegistryUnavailable))
        || matches!(failure.class, FailureClass::RateLimited | FailureClass::ContentInvalid | FailureClass::SignatureInvalid)
}

/// The back-off keys that can refuse a target.
struct NamedKeys {
    owner: BackoffKey,
    endpoint: BackoffKey,
    token_server: BackoffKey,
    blobs: BackoffKey,
    registry: BackoffKey,
    repository: BackoffKey,
    login: BackoffKey,
    image: BackoffKey,
    platform: BackoffKey,
    content: BackoffKey,
    /// Those of the target's other endpoints, and that of its signature.
    others: Vec<BackoffKey>,
}

impl NamedKeys {
    fn of(target: &Target) -> Self {
        let owner = BackoffKey::new(target.view.clone(), KeyInView::BudgetOwner(target.budget_owner.clone()));
        let key = |in_view: KeyInView| owner.in_same_view(in_view);
        let of_other = |endpoint: &String| [at_endpoint(target, endpoint), content(target, endpoint)];
        let others = target.other_endpoints.iter().flat_map(of_other).chain(signature(target));
        Self {
            endpoint: key(at_endpoint(target, &target.endpoint)),
            token_server: key(at_stage(target, Stage::Token)),
            blobs: key(at_stage(target, Stage::Blob)),
            registry: key(KeyInView::Registry),
            repository: key(KeyInView::Repository(target.repository.clone())),
            login: key(login(target)),
            image: key(image(target)),
            platform: key(for_platform(target)),
            content: key(content(target, &target.endpoint)),
            others: others.map(key).collect(),
            owner,
        }
    }

    fn broadest_first(self) -> Vec<BackoffKey> {
        let Self { owner, endpoint, token_server, blobs, registry, repository, login, image, platform, content, others } = self;
        let named = [owner, endpoint, token_server, blobs, registry, repository, login, image, platform, content];
        named.into_iter().chain(others).collect()
    }
}

fn at_endpoint(target: &Target, endpoint: &str) -> KeyInView {
    KeyInView::Endpoint { endpoint: endpoint.to_owned(), zone: target.zone.clone() }
}

fn at_stage(target: &Target, stage: Stage) -> KeyInView {
    let (endpoint, zone) = (target.endpoint.clone(), target.zone.clone());
    match stage {
        Stage::Token => KeyInView::TokenServer { endpoint, zone },
        Stage::Manifest => KeyInView::Endpoint { endpoint, zone },
        Stage::Blob | Stage::Whole => KeyInView::Blobs { endpoint, zone },
    }
}

fn image(target: &Target) -> KeyInView {
    KeyInView::Reference { reference: target.reference.clone(), scope: target.scope.clone(), mirrored: target.mirrored }
}

fn login(target: &Target) -> KeyInView {
    let anonymous = target.fingerprint.is_empty();
    let fingerprint = if anonymous { &target.scope } else { &target.fingerprint };
    KeyInView::Login { repository: target.repository.clone(), fingerprint: fingerprint.clone(), anonymous }
}

fn for_platform(target: &Target) -> KeyInView {
    KeyInView::Platform { reference: target.reference.clone(), platform: target.platform.clone() }
}

fn content(target: &Target, endpoint: &str) -> KeyInView {
    KeyInView::Content { reference: target.reference.clone(), endpoint: endpoint.to_owned() }
}

fn signature(target: &Target) -> Option<KeyInView> {
    (!target.policy.is_empty()).then(|| KeyInView::Signature { reference: target.reference.clone(), policy: target.policy.clone() })
}

#[cfg(test)]
mod tests {
    use contract::View;

    use super::*;
    use FailureClass::{ContentInvalid, Denied, NodeLocal, NotFound, RateLimited, RegistryUnavailable, SignatureInvalid, Unknown};

    fn target() -> Target {
        Target {
            view: View { registry: "r".to_owned(), ..View::default() },
            endpoint: "r:443".to_owned(),
            other_endpoints: vec!["token:443".to_owned()],
            zone: "z".to_owned(),
            repository: "a".to_owned(),
            reference: "r/a:1".to_owned(),
            platform: "linux/amd64".to_owned(),
            scope: "s".to_owned(),
            fingerprint: "f".to_owned(),
            budget_owner: "o".to_owned(),
            policy: "p".to_owned(),
            mirrored: false,
            shows_blobs: true,
        }
    }

    type Change = fn(&mut AttemptFailure);

    fn keys_in_view(class: FailureClass, change: Change) -> Vec<KeyInView> {
        let mut failure = AttemptFailure { class, ..AttemptFailure::default() };
        change(&mut failure);
        TargetKeys::new(target()).backoff_keys_of(&failure).iter().map(|backoff_key| backoff_key.in_view().clone()).collect()
    }

    #[test]
    fn each_class_has_the_back_off_keys_of_the_table() {
        let endpoint = |endpoint: &str| KeyInView::Endpoint { endpoint: endpoint.to_owned(), zone: "z".to_owned() };
        let image = KeyInView::Reference { reference: "r/a:1".to_owned(), scope: "s".to_owned(), mirrored: false };
        let login = KeyInView::Login { repository: "a".to_owned(), fingerprint: "f".to_owned(), anonymous: false };
        let platform = KeyInView::Platform { reference: "r/a:1".to_owned(), platform: "linux/amd64".to_owned() };
        let content = KeyInView::Content { reference: "r/a:1".to_owned(), endpoint: "r:443".to_owned() };
        let signature = KeyInView::Signature { reference: "r/a:1".to_owned(), policy: "p".to_owned() };
        let authoritative: Change = |failure| failure.authoritative = true;
        let (endpoint_name, zone) = ("r:443".to_owned(), "z".to_owned());
        let token = KeyInView::TokenServer { endpoint: endpoint_name.clone(), zone: zone.clone() };
        let blobs = KeyInView::Blobs { endpoint: endpoint_name, zone };
        let of_blobs: Change = |failure| (failure.stage, failure.authoritative) = (Stage::Blob, true);
        let table: [(FailureClass, Change, Vec<KeyInView>); 19] = [
            (RegistryUnavailable, |failure| failure.stage = Stage::Token, vec![token]),
            (RegistryUnavailable, |failure| failure.stage = Stage::Blob, vec![blobs.clone()]),
            (RegistryUnavailable, of_blobs, vec![blobs]),
            (NotFound, of_blobs, vec![content.clone()]),
            (Denied, of_blobs, vec![content.clone()]),
            (ContentInvalid, of_blobs, vec![content.clone()]),
            (RateLimited, authoritative, vec![KeyInView::BudgetOwner("o".to_owned())]),
            (RegistryUnavailable, |_| (), vec![endpoint("r:443")]),
            (RegistryUnavailable, |failure| failure.endpoint = Some("token:443".to_owned()), vec![endpoint("token:443")]),
            (RegistryUnavailable, authoritative, vec![KeyInView::Repository("a".to_owned()), KeyInView::Registry]),
            (NotFound, authoritative, vec![image]),
            (NotFound, |_| (), vec![]),
            (Denied, authoritative, vec![login]),
            (Denied, |_| (), vec![]),
            (ContentInvalid, |failure| failure.no_such_platform = true, vec![platform]),
            (ContentInvalid, |_| (), vec![content]),
            (SignatureInvalid, |_| (), vec![signature]),
            (NodeLocal, authoritative, vec![]),
            (Unknown, authoritative, vec![]),
        ];
        for (class, change, expected) in table {
            assert_eq!(keys_in_view(class, change), expected, "{class}");
        }
    }

    #[test]
    fn a_target_names_its_backoff_keys() {
        let target_keys = TargetKeys::new(target());
        assert_eq!(target_keys.ids, target_keys.backoff_keys().iter().map(|backoff_key| backoff_key.id()).collect::<Vec<_>>());
        let of = |in_view| BackoffKey::new(target().view, in_view).id();
        assert_eq!(target_keys.endpoint, of(at_endpoint(&target(), "r:443")));
        let listed_twice = Target { other_endpoints: vec!["token:443".to_owned(), "r:443".to_owned(), "token:443".to_owned()], ..target() };
        assert_eq!(TargetKeys::new(listed_twice).ids, target_keys.ids);
        assert_eq!((target_keys.stage_backoff_key(Stage::Manifest).id(), target_keys.image), (target_keys.endpoint, of(image(&target()))));
        assert_eq!(
            (target_keys.stage_backoff_key(Stage::Blob).id(), target_keys.content),
            (target_keys.blobs, of(content(&target(), "r:443")))
        );
    }

    #[test]
    fn the_keys_that_a_failure_is_reported_on_can_refuse_its_target() {
        let target_keys = TargetKeys::new(target());
        let token_server =
            AttemptFailure { class: RegistryUnavailable, endpoint: Some("token:443".to_owned()), ..AttemptFailure::default() };
        assert!(target_keys.touches(target_keys.backoff_keys_of(&token_server)[0].id()));
        for class in FailureClass::ALL {
            for no_such_platform in [false, true] {
                let failure = AttemptFailure { class, authoritative: true, no_such_platform, ..AttemptFailure::default() };
                assert!(target_keys.backoff_keys_of(&failure).iter().all(|backoff_key| target_keys.touches(backoff_key.id())), "{class}");
            }
        }
    }
}
