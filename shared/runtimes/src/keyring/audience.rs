//! The receiver of a login. A login is sent to fewer hosts than kubelet's rule finds it for.

use url::Url;

use super::matching;

/// The repository that logins are looked up for, and the receiver of the logins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience {
    repository: String,
    endpoint: Option<Url>,
}

impl Audience {
    /// A container runtime that gets logins with a pull of this repository (registry and path, completed, without tag), as from kubelet.
    /// The runtime decides which host it sends them to.
    #[must_use]
    pub fn runtime(repository: &str) -> Self {
        Self { repository: repository.to_owned(), endpoint: None }
    }

    /// The registry or mirror at this address.
    #[must_use]
    pub fn endpoint(repository: &str, address: &Url) -> Self {
        Self { repository: repository.to_owned(), endpoint: Some(address.clone()) }
    }

    /// The name that entries of login files are matched with.
    pub(super) fn repository(&self) -> &str {
        &self.repository
    }

    /// The registry's or mirror's name in login files.
    pub(super) fn registry(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }

    /// Whether this audience may get a login that is stored under `server`.
    pub(super) fn may_see(&self, server: &str) -> bool {
        self.endpoint.as_ref().is_none_or(|address| may_be_sent(server, address))
    }
}

/// Whether a login that is stored under `server` may be sent to `address`. Docker Hub's login goes to Docker Hub's own hosts alone, over
/// TLS; kubelet's rule also finds it for `localhost` and for hosts without a dot in their name.
pub(super) fn may_be_sent(server: &str, address: &Url) -> bool {
    !matching::is_docker_hub(server) || (address.scheme() == "https" && address.host_str().is_some_and(matching::is_docker_hub))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn docker_hub_login_goes_to_docker_hub_alone() {
        for server in ["https://index.docker.io/v1/", "index.docker.io", "docker.io", "docker.io/library", "*.docker.io", "Docker.IO"] {
            for (address, expected) in [
                ("https://registry-1.docker.io/v2", true),
                ("https://index.docker.io/v2", true),
                ("https://docker.io/v2", true),
                ("https://auth.docker.io/token", true),
                ("http://registry-1.docker.io/v2", false),
                ("http://auth.docker.io/token", false),
                ("https://docker.io.example/token", false),
                ("https://notdocker.io/token", false),
                ("http://localhost/v2", false),
                ("http://mirror/v2", false),
                ("https://mirror.example/v2", false),
                ("https://127.0.0.1:5000/v2", false),
            ] {
                assert_eq!(may_be_sent(server, &Url::parse(address).unwrap()), expected, "{server} to {address}");
            }
        }
    }

    #[test]
    fn other_logins_go_to_the_audience_they_were_found_for() {
        for server in ["registry.example", "localhost", "*.example", "", "notdocker.io", "docker.io.example"] {
            assert!(may_be_sent(server, &Url::parse("http://localhost/v2").unwrap()), "{server}");
        }
        assert!(Audience::runtime("localhost/app").may_see("index.docker.io"), "as kubelet does");
    }
}
