//! Derives the failure of a connection from the types of its errors.

use std::error::Error;
use std::io;
use std::time::Duration;

use contract::FailureClass;
use rustix::io::Errno;
use rustls::CertificateError;

use crate::oci_layout::failure::{StepFailure, quotable};
use crate::oci_layout::route::Proxy;

/// The longest quoted text of an error, in bytes.
const TEXT_MAX_BYTES: usize = 200;

/// The text for an answer whose head is longer than the HTTP client reads: 408 KiB, or 100 headers.
const HEADERS_TOO_LARGE: &str = "its answer has more headers than are read: 100, or 400 KiB of them";
/// The advice if the server speaks TLS and the request was plain HTTP.
pub(super) const SPEAK_TLS: &str = "if it speaks TLS, give it server = \"https://...\" in a hosts.toml, or leave out --plain-http";
/// The advice if a server ends the connection without an answer to plain HTTP. Some servers that speak TLS do so.
const MAY_SPEAK_TLS: &str =
    "check that the registry is up; if it speaks TLS, give it server = \"https://...\" in a hosts.toml, or leave out --plain-http";
/// As `MAY_SPEAK_TLS`, for a host without a `hosts.toml`: one that a registry names or redirects to.
const MAY_SPEAK_TLS_ELSEWHERE: &str = "check that the server is up, and that it speaks plain HTTP";
/// The advice about an untrusted authority.
const TRUST_CA: &str = "add its CA to the system's or to ca in a hosts.toml, or use --tls-verify=false if you pull with --store";
/// As `TRUST_CA`, for a host without a `hosts.toml`: one that a registry names or redirects to.
const TRUST_CA_ELSEWHERE: &str = "add its CA to the system's, or use --tls-verify=false if you pull with --store";
/// The advice about an authority's own certificate.
const SIGN_BY_CA: &str =
    "use a certificate that a CA has signed and add that CA to ca in a hosts.toml, or use --tls-verify=false if you pull with --store";
/// As `SIGN_BY_CA`, for a host without a `hosts.toml`.
const SIGN_BY_CA_ELSEWHERE: &str =
    "use a certificate that a CA has signed and add that CA to the system's, or use --tls-verify=false if you pull with --store";

/// The beginning of the standard library's error for a name without an address.
const NO_ADDRESS: &str = "failed to lookup address information";
/// The advice for it. The registry may well be up.
const CHECK_NAME: &str = "check the registry's name, and that this node's name service knows it";

/// Errors of a connection whose cause is this node. `ADDRNOTAVAIL` is none of them: if a registry has addresses of both families and its
/// IPv4 address refuses, the HTTP client reports the error of the IPv6 address, which is this one on some nodes without IPv6.
const OWN_SIDE: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::PERM, Errno::ACCESS];
/// The advice for them.
const CHECK_NODE: &str = "check this node's limits of open files and its firewall";

/// The end of the HTTP client's error if a proxy answers CONNECT with 407. The error's type is not public.
const LOGIN_WANTED: &str = "proxy authorization required";

/// The text of the last error of a chain, which is the cause.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    quotable(&cause.to_string(), TEXT_MAX_BYTES)
}

/// The failure of a request without an answer. `proxy` is the proxy that was used.
pub(super) fn failure(host: &str, scheme: &str, proxy: Option<&Proxy>, connect: Duration, error: &reqwest::Error) -> StepFailure {
    if let Some(tls) = cause::<rustls::Error>(error) {
        return of_tls(host, tls);
    }
    let io = cause::<io::Error>(error);
    if io.and_then(Errno::from_io_error).is_some_and(|errno| OWN_SIDE.contains(&errno)) {
        let what = format!("cannot connect: {}", root_cause(error));
        return StepFailure::at(host, FailureClass::NodeLocal, what).advising(CHECK_NODE);
    }
    if let Some(proxy) = proxy.filter(|_| error.is_connect()) {
        return of_proxy(host, proxy, connect, error);
    }
    if error.is_connect() && error.is_timeout() {
        return StepFailure::connection(host, format!("no connection within {connect:?}"));
    }
    if cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse_too_large) {
        return StepFailure::at(host, FailureClass::Unknown, HEADERS_TOO_LARGE).advising("ask who runs the registry");
    }
    if cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
        return not_http(host, scheme);
    }
    let root = root_cause(error);
    let is_plain = scheme == "http" && !error.is_connect();
    let answer = if is_plain { "an answer over plain HTTP" } else { "an answer" };
    let what = match io.map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => format!("connection reset before {answer}"),
        _ if error.is_connect() => format!("cannot connect: {root}"),
        _ => format!("connection broke before {answer}: {root}"),
    };
    let failure = StepFailure::connection(host, what);
    if is_plain {
        failure.advising(MAY_SPEAK_TLS)
    } else if root.starts_with(NO_ADDRESS) {
        failure.advising(CHECK_NAME)
    } else {
        failure
    }
}

/// The failure with the advice for a host that is neither the registry nor a mirror: `ca`, `skip_verify` and `server` of a `hosts.toml` do
/// not apply to it.
pub(super) fn without_hosts_file(failure: StepFailure) -> StepFailure {
    match failure.advice {
        TRUST_CA => failure.advising(TRUST_CA_ELSEWHERE),
        SIGN_BY_CA => failure.advising(SIGN_BY_CA_ELSEWHERE),
        MAY_SPEAK_TLS => failure.advising(MAY_SPEAK_TLS_ELSEWHERE),
        _ => failure,
    }
}

/// The failure of a proxy, which counts as the endpoint that failed. If it wants a login, the cause is this node's own.
fn of_proxy(host: &str, proxy: &Proxy, connect: Duration, error: &reqwest::Error) -> StepFailure {
    let root = root_cause(error);
    let what = match cause::<io::Error>(error) {
        _ if error.is_timeout() => format!("this proxy for {host} takes no connection within {connect:?}"),
        Some(io) if io.kind() == io::ErrorKind::ConnectionRefused => {
            format!("this proxy for {host} cannot be reached: connection refused")
        }
        Some(_) => format!("this proxy for {host} cannot be reached: {root}"),
        None => format!("this proxy does not let us through to {host}: {root}"),
    };
    let failure = StepFailure::connection(&proxy.host, what)
        .advising("check the proxy and HTTP_PROXY and HTTPS_PROXY, or name the registry in NO_PROXY");
    if root.ends_with(LOGIN_WANTED) { failure.of_class(FailureClass::NodeLocal) } else { failure }
}

fn not_http(host: &str, scheme: &str) -> StepFailure {
    if scheme == "http" {
        let failure = StepFailure::at(host, FailureClass::NodeLocal, "the server does not speak plain HTTP");
        return failure.advising(SPEAK_TLS);
    }
    StepFailure::at(host, FailureClass::Unknown, "the server does not speak HTTP")
}

fn of_tls(host: &str, error: &rustls::Error) -> StepFailure {
    let (class, what, advice) = match error {
        rustls::Error::InvalidCertificate(certificate) => of_certificate(certificate),
        rustls::Error::InvalidMessage(_) => (
            FailureClass::NodeLocal,
            "the server speaks no TLS, probably plain HTTP".to_owned(),
            "give it server = \"http://...\" in a hosts.toml, or use --plain-http if you pull with --store",
        ),
        rustls::Error::AlertReceived(alert) => (
            FailureClass::NodeLocal,
            format!("TLS was refused by the other side ({alert:?})"),
            "check the client certificate that hosts.toml names",
        ),
        other => (
            FailureClass::Unknown,
            format!("TLS failed: {}", quotable(&other.to_string(), TEXT_MAX_BYTES)),
            "check the network and proxies between this node and the registry",
        ),
    };
    StepFailure::at(host, class, what).advising(advice)
}

/// Class, text and advice of a certificate that is not trusted. The class is always the node's own.
fn of_certificate(error: &CertificateError) -> (FailureClass, String, &'static str) {
    let (what, advice) = match error {
        CertificateError::UnknownIssuer => ("the certificate is signed by an unknown authority".to_owned(), TRUST_CA),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("the certificate is not valid yet".to_owned(), "check this node's clock")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("the certificate has expired".to_owned(), "renew it on the registry, or check this node's clock")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("the certificate is not good: {}", quotable(&error.to_string(), TEXT_MAX_BYTES)),
            "give the registry a certificate for this name",
        ),
        // The certificate checker has a type for this error that is only recognisable by its name.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            ("the certificate is self-signed, and is that of a CA instead of a server".to_owned(), SIGN_BY_CA)
        }
        other => (format!("the certificate is not trusted: {}", quotable(&other.to_string(), TEXT_MAX_BYTES)), TRUST_CA),
    };
    (FailureClass::NodeLocal, what, advice)
}

/// The first error of a type in the chain. `source()` of an `io::Error` skips its inner error, so that is checked too.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<E>() {
            return Some(found);
        }
        let carried = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        if let Some(found) = carried.and_then(|inner| cause::<E>(inner)) {
            return Some(found);
        }
        next = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use contract::FailureClass::{NodeLocal, RegistryUnavailable};
    use reqwest::dns::{Addrs, Name, Resolve, Resolving};

    use super::*;
    use crate::oci_layout::install_cryptography;

    /// Stands for a connection that fails with this error.
    struct Failing(Errno);

    impl Resolve for Failing {
        fn resolve(&self, _: Name) -> Resolving {
            let failed: Result<Addrs, Box<dyn Error + Send + Sync>> = Err(io::Error::from(self.0).into());
            Box::pin(std::future::ready(failed))
        }
    }

    #[tokio::test]
    async fn failure_to_connect_is_the_nodes_own_if_its_cause_is() {
        install_cryptography();
        for (errno, class) in [
            (Errno::MFILE, NodeLocal),
            (Errno::PERM, NodeLocal),
            (Errno::ADDRNOTAVAIL, RegistryUnavailable),
            (Errno::CONNREFUSED, RegistryUnavailable),
            (Errno::HOSTUNREACH, RegistryUnavailable),
        ] {
            let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).dns_resolver(Failing(errno)).build().unwrap();
            let error = client.get("http://r.example/v2/").send().await.unwrap_err();
            let failed = failure("r.example:80", "http", None, Duration::from_secs(5), &error);
            assert_eq!((failed.class, failed.endpoint.as_deref()), (class, Some("r.example:80")), "{errno:?}: {failed}");
        }
    }
}
