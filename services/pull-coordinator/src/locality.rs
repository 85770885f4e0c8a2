//! A node's locality, and the target of an image as the fleet sees it from there.

use std::net::IpAddr;

use contract::{BudgetOwner, Target, View};
use image::{Platform, Reference};
use runtimes::{ImageRuntime, Route};

/// The properties by which a node's view of a registry differs from other nodes' views.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// The group of nodes that reach the same registries (`fleet.scope`).
    pub scope: String,
    /// `node.zone`.
    pub zone: String,
    /// The address from which registries see the node (`fleet.egress`).
    pub egress: String,
    /// The host's boot id: a loopback address names another registry on each host.
    pub boot: String,
}

impl Locality {
    /// The target of an image as seen from this node.
    pub(crate) async fn target(&self, runtime: &dyn ImageRuntime, reference: &Reference, platform: Option<&Platform>) -> Target {
        self.target_for_route(runtime.route(reference, platform).await, reference)
    }

    /// The target of an image by the route to it.
    pub(crate) fn target_for_route(&self, route: Route, reference: &Reference) -> Target {
        let registry = reference.registry();
        let view = View {
            scope: self.scope.clone(),
            registry: registry.to_owned(),
            route: route.hash,
            boot: if is_of_this_host(registry) { self.boot.clone() } else { String::new() },
        };
        let owner = BudgetOwner { view: view.clone(), login: route.scope.clone(), egress: self.egress.clone() };
        let mut endpoints = route.endpoints.into_iter();
        Target {
            endpoint: endpoints.next().unwrap_or_else(|| registry.to_owned()),
            other_endpoints: endpoints.collect(),
            zone: self.zone.clone(),
            repository: reference.repository().to_owned(),
            reference: reference.normalised().to_owned(),
            platform: route.platform,
            budget_owner: owner.to_string(),
            scope: route.scope,
            fingerprint: route.fingerprint,
            policy: route.policy,
            mirrored: route.mirrored,
            shows_blobs: route.shows_blobs,
            view,
        }
    }
}

/// Whether the registry's address is a loopback or link-local one, behind which each host has a registry of its own.
fn is_of_this_host(registry: &str) -> bool {
    let host = match registry.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => registry,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    match host.parse() {
        Ok(IpAddr::V4(address)) => address.is_loopback() || address.is_link_local(),
        Ok(IpAddr::V6(address)) => address.is_loopback() || address.is_unicast_link_local(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(image: &str, route: Route) -> Target {
        let node = Locality { scope: "s".to_owned(), zone: "z".to_owned(), egress: "e".to_owned(), boot: "b".to_owned() };
        node.target_for_route(route, &Reference::parse(image).expect("an image"))
    }

    #[test]
    fn loopback_and_link_local_registries_alone_carry_the_boot_id() {
        for (registry, boot) in [
            ("localhost:5000", "b"),
            ("127.0.0.1:5000", "b"),
            ("127.8.0.1", "b"),
            ("169.254.1.1:5000", "b"),
            ("[::1]:5000", "b"),
            ("registry.localhost:5000", "b"),
            ("10.0.0.1:5000", ""),
            ("registry.example", ""),
            ("localhost.example:5000", ""),
            ("docker.io", ""),
        ] {
            let image = format!("{registry}/a:1");
            assert_eq!(target(&image, Route::default()).view.boot, boot, "{registry}");
        }
    }

    #[test]
    fn target_has_the_route_and_the_budget_owner() {
        let endpoints = ["mirror.example:443", "registry.example"].map(str::to_owned).to_vec();
        let route = Route { hash: "h".to_owned(), endpoints, scope: "anonymous".to_owned(), ..Route::default() };
        let target = target("registry.example/team/a:1", route);
        assert_eq!(
            (target.endpoint.as_str(), target.other_endpoints.as_slice()),
            ("mirror.example:443", ["registry.example".to_owned()].as_slice())
        );
        assert_eq!((target.reference.as_str(), target.zone.as_str()), ("registry.example/team/a:1", "z"));
        assert_eq!(target.budget_owner, "s|registry.example|h||anonymous|e");
        assert_eq!(target.repository, "registry.example/team/a");
    }
}
