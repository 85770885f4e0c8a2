//! The way to a registry in short: what two nodes must have in common to see the same.

use std::fmt::Write;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::proxies::Proxies;
use super::{Endpoint, RouteOptions, endpoints, registry_itself};
use crate::keyring::Audience;
use image::Reference;

/// Bytes of the hash that are told: ways are a handful, and nobody gains by making two alike.
const TOLD_BYTES: usize = 8;

/// The way to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// Of all that makes a difference to what a node sees.
    pub(crate) hash: String,
    /// `host:port` of each endpoint in the order in which they are asked, each once.
    pub(crate) endpoints: Vec<String>,
    /// For whom logins are looked up, in the same order.
    pub(crate) audiences: Vec<Audience>,
}

/// The way to where a reference points; none if it cannot be read.
pub(crate) fn way(reference: &Reference, options: &RouteOptions) -> Option<Way> {
    let proxies = if options.own_proxies { Proxies::of_process() } else { Proxies::unseen() };
    let endpoints: Vec<_> = endpoints(reference, options).ok()?.into_iter().filter(|endpoint| endpoint.resolve || endpoint.pull).collect();
    let mut way = Way { hash: hash(&endpoints, &proxies), endpoints: Vec::new(), audiences: Vec::new() };
    for endpoint in &endpoints {
        let audience = endpoint.audience(reference);
        if !way.endpoints.contains(&endpoint.host) {
            way.endpoints.push(endpoint.host.clone());
        }
        if !way.audiences.contains(&audience) {
            way.audiences.push(audience);
        }
    }
    Some(way)
}

/// `host:port` that answers for a registry unless a file says otherwise.
pub(crate) fn endpoint_by_name(reference: &Reference) -> String {
    let options = RouteOptions { config_path: PathBuf::new(), plain_http: false, tls_verify: true, own_proxies: false };
    registry_itself(reference.registry(), &options).map_or_else(|_| reference.registry().to_owned(), |itself| itself.host)
}

fn hash(endpoints: &[Endpoint], proxies: &Proxies) -> String {
    let mut lines = String::new();
    for endpoint in endpoints {
        let proxy = proxies.of(&endpoint.base).map_or_else(|| "-".to_owned(), |proxy| proxy.to_string());
        // The address holds scheme, host, port and path. Writing into a text cannot fail.
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
    Sha256::digest(lines).iter().take(TOLD_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use url::Url;

    fn options(config_path: &Path) -> RouteOptions {
        RouteOptions { config_path: config_path.to_owned(), plain_http: false, tls_verify: true, own_proxies: false }
    }

    fn way_to(image: &str, hosts: &str) -> Option<Way> {
        let reference = Reference::parse(image).unwrap();
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(reference.registry());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("hosts.toml"), hosts).unwrap();
        way(&reference, &options(root.path()))
    }

    #[test]
    fn the_same_files_give_the_same_way_on_every_node() {
        let hosts = "[host.\"https://b.example\"]\n[host.\"http://a.example:5000\"]\n";
        let one = way_to("registry.example/app:1", hosts).unwrap();
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
        assert_eq!(one.hash.len(), 2 * TOLD_BYTES);
        assert_eq!(Some(one), way_to("registry.example/app:2", hosts), "the tag makes no difference");
    }

    #[test]
    fn what_makes_a_node_see_something_else_makes_another_way() {
        let variants = [
            "",
            "server = \"http://registry.example\"\n",
            "skip_verify = true\n",
            "[host.\"https://a.example\"]\n[host.\"https://b.example\"]\n",
            "[host.\"https://b.example\"]\n[host.\"https://a.example\"]\n",
            "[host.\"https://a.example\"]\ncapabilities = [\"pull\"]\n[host.\"https://b.example\"]\n",
            "[host.\"https://a.example/team\"]\n[host.\"https://b.example\"]\n",
        ];
        let mut hashes: Vec<_> = variants.iter().map(|hosts| way_to("registry.example/app", hosts).unwrap().hash).collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), variants.len());
    }

    #[test]
    fn a_way_that_cannot_be_read_is_none() {
        assert_eq!(way_to("registry.example/app", "not toml"), None);
    }

    #[test]
    fn docker_hub_is_asked_by_its_api_host() {
        let way = way(&Reference::parse("busybox").unwrap(), &options(Path::new("/nonexistent"))).unwrap();
        assert_eq!(way.endpoints, ["registry-1.docker.io:443"]);
        let hub = Url::parse("https://registry-1.docker.io/v2").unwrap();
        assert_eq!(way.audiences, [Audience::endpoint("docker.io/library/busybox", &hub)]);
        for (image, endpoint) in [
            ("busybox", "registry-1.docker.io:443"),
            ("registry.example/app", "registry.example:443"),
            ("registry.example:5000/app", "registry.example:5000"),
            ("localhost/app", "localhost:80"),
        ] {
            assert_eq!(endpoint_by_name(&Reference::parse(image).unwrap()), endpoint);
        }
    }
}
