//! The summary of a route: two nodes with the same hash ask the same endpoints. Headers and certificates of a `hosts.toml` are not in the
//! hash, because they may be secret.

use std::fmt::Write;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::proxies::Proxies;
use super::{Endpoint, RouteOptions, endpoints, registry_itself};
use crate::keyring::Audience;
use image::Reference;

/// How many bytes of the hash are used. There are few routes, and nobody gains from a collision.
const HASH_BYTES: usize = 8;

/// The summary of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RouteSummary {
    /// The hash of the endpoints: their order, addresses and capabilities, whether certificates are checked, and the proxies.
    pub(crate) hash: String,
    /// `host:port` of each endpoint in the order of use, each once.
    pub(crate) endpoints: Vec<String>,
    /// The audiences for logins, in the same order.
    pub(crate) audiences: Vec<Audience>,
}

/// The summary of a reference's route; none if it cannot be read.
pub(crate) fn route_summary(reference: &Reference, options: &RouteOptions) -> Option<RouteSummary> {
    let proxies = if options.own_proxies { Proxies::of_process() } else { Proxies::unseen() };
    let endpoints: Vec<_> = endpoints(reference, options).ok()?.into_iter().filter(|endpoint| endpoint.resolve || endpoint.pull).collect();
    let mut route_summary = RouteSummary { hash: hash(&endpoints, &proxies), endpoints: Vec::new(), audiences: Vec::new() };
    for endpoint in &endpoints {
        let audience = endpoint.audience(reference);
        if !route_summary.endpoints.contains(&endpoint.host) {
            route_summary.endpoints.push(endpoint.host.clone());
        }
        if !route_summary.audiences.contains(&audience) {
            route_summary.audiences.push(audience);
        }
    }
    Some(route_summary)
}

/// `host:port` of a registry's API without any `hosts.toml`.
pub(crate) fn default_endpoint(reference: &Reference) -> String {
    let options = RouteOptions { config_path: PathBuf::new(), plain_http: false, tls_verify: true, own_proxies: false };
    registry_itself(reference, &options).map_or_else(|_| reference.registry().to_owned(), |itself| itself.host)
}

fn hash(endpoints: &[Endpoint], proxies: &Proxies) -> String {
    let mut lines = String::new();
    for endpoint in endpoints {
        let proxy = proxies.of(&endpoint.base).map_or_else(|| "-".to_owned(), |proxy| proxy.to_string());
        // The base has scheme, host, port and path. Writing to a String cannot fail.
        let _ = writeln!(
            lines,
            "{} {} resolve={} pull={} skip_verify={} proxy={proxy}",
            endpoint.base,
            endpoint.stands_for.is_some(),
            endpoint.resolve,
            endpoint.pull,
            endpoint.tls.skip_verify
        );
    }
    Sha256::digest(lines).iter().take(HASH_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use url::Url;

    fn options(config_path: &Path) -> RouteOptions {
        RouteOptions { config_path: config_path.to_owned(), plain_http: false, tls_verify: true, own_proxies: false }
    }

    fn summary_of(image: &str, hosts: &str) -> Option<RouteSummary> {
        let reference = Reference::parse(image).unwrap();
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(reference.registry());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts.toml"), hosts).unwrap();
        route_summary(&reference, &options(root.path()))
    }

    #[test]
    fn equal_files_give_equal_summaries() {
        let hosts = "[host.\"https://b.example\"]\n[host.\"http://a.example:5000\"]\n";
        let one = summary_of("registry.example/app:1", hosts).unwrap();
        assert_eq!(one.endpoints, ["b.example:443", "a.example:5000", "registry.example:443"]);
        let audience = |repository: &str, address: &str| Audience::endpoint(repository, &Url::parse(address).unwrap());
        assert_eq!(
            one.audiences,
            [
                audience("b.example/app", "https://b.example/v2"),
                audience("a.example:5000/app", "http://a.example:5000/v2"),
                audience("registry.example/app", "https://registry.example/v2")
            ]
        );
        assert_eq!(one.hash.len(), 2 * HASH_BYTES);
        assert_eq!(Some(one), summary_of("registry.example/app:2", hosts), "the tag makes no difference");
    }

    #[test]
    fn every_difference_in_the_route_changes_the_hash() {
        let variants = [
            "",
            "server = \"http://registry.example\"\n",
            "skip_verify = true\n",
            "[host.\"https://a.example\"]\n[host.\"https://b.example\"]\n",
            "[host.\"https://b.example\"]\n[host.\"https://a.example\"]\n",
            "[host.\"https://a.example\"]\ncapabilities = [\"pull\"]\n[host.\"https://b.example\"]\n",
            "[host.\"https://a.example/team\"]\n[host.\"https://b.example\"]\n",
        ];
        let mut hashes: Vec<_> = variants.iter().map(|hosts| summary_of("registry.example/app", hosts).unwrap().hash).collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), variants.len());
    }

    #[test]
    fn login_in_an_address_does_not_change_the_hash() {
        let summary = |server: &str| summary_of("registry.example/app", &format!("server = \"{server}\"\n")).unwrap();
        assert_eq!(summary("https://ann:hunter2@mirror.example"), summary("https://mirror.example"));
    }

    #[test]
    fn unreadable_route_has_no_summary() {
        assert_eq!(summary_of("registry.example/app", "not toml"), None);
    }

    #[test]
    fn docker_hub_is_reached_by_its_api_host() {
        let route_summary = route_summary(&Reference::parse("busybox").unwrap(), &options(Path::new("/nonexistent"))).unwrap();
        assert_eq!(route_summary.endpoints, ["registry-1.docker.io:443"]);
        let hub = Url::parse("https://registry-1.docker.io/v2").unwrap();
        assert_eq!(route_summary.audiences, [Audience::endpoint("docker.io/library/busybox", &hub)]);
        for (image, endpoint) in [
            ("busybox", "registry-1.docker.io:443"),
            ("registry.example/app", "registry.example:443"),
            ("registry.example:5000/app", "registry.example:5000"),
            ("localhost/app", "localhost:80"),
        ] {
            assert_eq!(default_endpoint(&Reference::parse(image).unwrap()), endpoint);
        }
    }
}
