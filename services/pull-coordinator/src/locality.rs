//! A node's locality, and the target of an image as the fleet sees it from there.

use std::net::IpAddr;

use contract::{Target, View};
use image::{Platform, Reference};
use runtimes::{ImageRuntime, Route};

/// The login scope that runtimes report for a pull without a login.
const ANONYMOUS: &str = "anonymous";
/// How many bytes of a hash are shown.
const HASH_SHOWN: usize = 8;

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

    fn target_for_route(&self, route: Route, reference: &Reference) -> Target {
        let registry = reference.registry();
        let view = View {
            scope: self.scope.clone(),
            registry: registry.to_owned(),
            route: route.hash,
            boot: if is_of_this_host(registry) { self.boot.clone() } else { String::new() },
        };
        let mut endpoints = route.endpoints.into_iter();
        Target {
            endpoint: endpoints.next().unwrap_or_else(|| registry.to_owned()),
            other_endpoints: endpoints.collect(),
            zone: self.zone.clone(),
            repository: reference.repository().to_owned(),
            reference: reference.normalised().to_owned(),
            platform: route.platform,
            budget_owner: budget_owner(&view, &route.scope, &self.egress),
            scope: route.scope,
            fingerprint: route.fingerprint,
            policy: route.policy,
            mirrored: route.mirrored,
            shows_blobs: route.shows_blobs,
            view,
        }
    }
}

/// The owner of a budget: what a registry counts as one client, by login and address.
fn budget_owner(view: &View, scope: &str, egress: &str) -> String {
    let View { scope: fleet_scope, registry, route, boot } = view;
    [fleet_scope, registry, route, boot, scope, egress].map(|part| part.replace('%', "%25").replace('|', "%7C")).join("|")
}

/// The registry of a budget, as images name it.
#[must_use]
pub fn registry_of_budget(owner: &str) -> String {
    owner.split('|').nth(1).unwrap_or(owner).replace("%7C", "|").replace("%25", "%")
}

/// A budget's owner for people: registry, login, address, and route and host if the owner has them. An owner of another form is
/// returned unchanged.
#[must_use]
pub fn budget_in_words(owner: &str) -> String {
    let parts: Vec<String> = owner.split('|').map(|part| part.replace("%7C", "|").replace("%25", "%")).collect();
    let [_, registry, route, boot, login, egress] = parts.as_slice() else { return owner.to_owned() };
    let login = if login == ANONYMOUS { "without login".to_owned() } else { format!("login {}", short(login)) };
    let mut words = format!("{registry} {login} from {egress}");
    if !route.is_empty() {
        words.push_str(&format!(" by route {}", short(route)));
    }
    if !boot.is_empty() {
        words.push_str(&format!(" on host {}", short(boot)));
    }
    words
}

fn short(hash: &str) -> &str {
    &hash[..hash.floor_char_boundary(HASH_SHOWN)]
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
        assert_eq!(registry_of_budget(&target.budget_owner), "registry.example");
        assert_eq!(registry_of_budget("s|[::1%25x%7C]:5000|h||anonymous|e"), "[::1%x|]:5000");
        for (owner, words) in [
            ("s|registry.example|||anonymous|eu-1", "registry.example without login from eu-1"),
            ("s|registry.example|0123456789ab||anonymous|eu-1", "registry.example without login from eu-1 by route 01234567"),
            ("s|localhost:5000||fedcba9876543210|00112233445566|e%7C1", "localhost:5000 login 00112233 from e|1 on host fedcba98"),
            ("hub", "hub"),
        ] {
            assert_eq!(budget_in_words(owner), words);
        }
        assert_eq!(target.repository, "registry.example/team/a");
    }
}
