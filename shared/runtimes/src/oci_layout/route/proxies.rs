//! The proxy for an endpoint.

use std::fmt;

use hyper_util::client::proxy::matcher::Matcher;
use url::Url;

use super::is_loopback;

/// The proxies of `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in either case.
pub(in crate::oci_layout) struct Proxies(Option<Matcher>);

/// A proxy, without its login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::oci_layout) struct Proxy {
    scheme: String,
    /// `host:port`.
    pub(in crate::oci_layout) host: String,
}

impl Proxies {
    /// The proxies of this process, chosen as the HTTP client does.
    pub(in crate::oci_layout) fn of_process() -> Self {
        Self(Some(Matcher::from_system()))
    }

    /// The unknown proxies of another process.
    pub(in crate::oci_layout) fn unseen() -> Self {
        Self(None)
    }

    /// The proxy for an address; none for this host.
    pub(in crate::oci_layout) fn of(&self, url: &Url) -> Option<Proxy> {
        if is_loopback(url.host_str().unwrap_or_default()) {
            return None;
        }
        let intercept = self.0.as_ref()?.intercept(&url.as_str().parse().ok()?)?;
        let uri = intercept.uri();
        let scheme = uri.scheme_str().unwrap_or("http").to_owned();
        let port = uri.port_u16().unwrap_or_else(|| default_port(&scheme));
        Some(Proxy { host: format!("{}:{port}", uri.host()?), scheme })
    }
}

fn default_port(scheme: &str) -> u16 {
    match scheme {
        "https" => 443,
        "socks4" | "socks4a" | "socks5" | "socks5h" => 1080,
        _ => 80,
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}", self.scheme, self.host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_of(address: &str) -> Option<String> {
        let matcher =
            Matcher::builder().http("http://user:word@plain.example:3128").https("https://safe.example").no("near.example").build();
        Proxies(Some(matcher)).of(&Url::parse(address).unwrap()).map(|proxy| proxy.to_string())
    }

    #[test]
    fn proxy_is_named_without_its_login() {
        for (address, expected) in [
            ("http://registry.example/v2", Some("http://plain.example:3128")),
            ("https://registry.example/v2", Some("https://safe.example:443")),
            ("https://near.example/v2", None),
            ("http://localhost:5000/v2", None),
            ("http://127.0.0.1:5000/v2", None),
        ] {
            assert_eq!(proxy_of(address).as_deref(), expected, "{address}");
        }
        assert_eq!(Proxies::unseen().of(&Url::parse("http://registry.example").unwrap()), None);
    }
}
