//! Routes of the embedded runtime: mirrors, TLS, proxies.
//!
//! Checks the order of `hosts.toml`, the cost of a dead or hanging mirror, and the trusted certificates.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::time::Duration;

use super::oci_support::tls::certificates;
use super::oci_support::{Node, keyring, registry};
use contract::FailureClass;
use memory_registry::{Auth, Fault, FaultAction, MadeImage, MemoryRegistry, Options, Tls, TokenAuth};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use support::held_port::HeldPort;

pub(super) fn image(registry: &MemoryRegistry) -> String {
    format!("{}/demo/app:1", registry.host())
}

fn made() -> MadeImage {
    MadeImage::of_layers([50_000, 60_000])
}

pub(super) async fn filled() -> MemoryRegistry {
    let registry = registry().await;
    registry.add_image("demo/app", "1", &made());
    registry
}

/// A node with this `hosts.toml` for `registry`.
fn node_with(registry: &MemoryRegistry, hosts: &str) -> Node {
    Node::with(|options| {
        options.timeouts.first_byte = Duration::from_millis(500);
        put_hosts(&options.config_path, registry, hosts);
    })
}

pub(super) fn put_hosts(config_path: &Path, registry: &MemoryRegistry, hosts: &str) {
    let folder = config_path.join(registry.host());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hosts.toml"), hosts).unwrap();
}

fn host(registry: &MemoryRegistry) -> String {
    format!("[host.\"{}\"]\n", registry.url())
}

#[tokio::test]
async fn mirror_is_asked_first_with_the_registrys_name() {
    let (mirror, origin) = (filled().await, filled().await);
    let node = node_with(&origin, &host(&mirror));
    node.pull(&image(&origin)).await.unwrap();
    assert_eq!(origin.counts().requests, 0);
    assert!(mirror.requests().iter().all(|request| request.query == format!("ns={}", origin.host().replace(':', "%3A"))));
}

#[tokio::test]
async fn mirror_without_resolve_serves_content_alone() {
    let (mirror, origin) = (filled().await, filled().await);
    let node = node_with(&origin, &format!("{}capabilities = [\"pull\"]\n", host(&mirror)));
    node.pull(&image(&origin)).await.unwrap();
    assert_eq!(origin.counts().requests, 1, "the tag");
    assert_eq!(mirror.counts().requests, 3, "config and layers");
}

#[tokio::test]
async fn failed_mirror_is_asked_once_per_pull() {
    let port = HeldPort::any();
    let dead = port.address();
    let (hanging, failing, origin) = (filled().await, filled().await, filled().await);
    hanging.faults().add(Fault::new("/", FaultAction::Hang));
    failing.faults().add(Fault::answer("/", 502, &[], "<html>"));
    let node = node_with(&origin, &format!("[host.\"http://{dead}\"]\n{}{}", host(&hanging), host(&failing)));
    node.pull(&image(&origin)).await.unwrap();
    assert_eq!((hanging.counts().requests, failing.counts().requests), (1, 1), "not once for each blob");

    origin.faults().add(Fault::answer("/manifests/", 404, &[("docker-distribution-api-version", "registry/2.0")], ""));
    let failure = node.pull(&image(&origin)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NotFound, "the registry itself decides");
    assert_eq!(failure.endpoint.as_deref(), Some(origin.host()));
    for part in
        [format!("{dead}: connection refused"), format!("{}: no answer within 500ms", hanging.host()), format!("{}: 502", failing.host())]
    {
        assert!(failure.text.contains(&part), "{part} in {failure}");
    }
}

#[tokio::test]
async fn mirror_without_the_image_is_skipped() {
    let (mirror, origin) = (registry().await, filled().await);
    let node = node_with(&origin, &host(&mirror));
    node.pull(&image(&origin)).await.unwrap();
    assert_eq!(mirror.counts().requests, 1, "it answered that it has no such image, and is not asked for each blob of it");
}

#[tokio::test]
async fn failed_attempt_costs_each_endpoint_one_request() {
    let (mirror, origin) = (registry().await, registry().await);
    let node = node_with(&origin, &host(&mirror));
    let failure = node.pull(&image(&origin)).await.unwrap_err();
    assert_eq!((failure.class, failure.authoritative), (FailureClass::NotFound, true));
    assert_eq!((mirror.counts().requests, origin.counts().requests), (1, 1));
}

#[tokio::test]
async fn mirror_with_wrong_content_is_skipped_for_that_blob() {
    let (mirror, origin) = (filled().await, filled().await);
    mirror.faults().add(Fault::body("/blobs/", memory_registry::BodyFault::CorruptAt(10)));
    let node = node_with(&origin, &host(&mirror));
    node.pull(&image(&origin)).await.unwrap();
    assert_eq!(origin.counts().requests, 3);
}

#[tokio::test]
async fn each_endpoint_gets_its_own_login() {
    let guarded =
        |password: &str| Options { auth: Auth::Basic { user: "u".to_owned(), password: password.to_owned() }, ..Options::default() };
    let (mirror, origin) =
        (MemoryRegistry::start(guarded("of-mirror")).await.unwrap(), MemoryRegistry::start(guarded("of-origin")).await.unwrap());
    origin.add_image("demo/app", "1", &made());
    let logins = format!(
        r#"{{"auths":{{"{}":{{"username":"u","password":"of-mirror"}},"{}":{{"username":"u","password":"of-origin"}}}}}}"#,
        mirror.host(),
        origin.host()
    );
    let node = Node::with(|options| {
        options.keyring = keyring(options.store.parent().unwrap(), Some(&logins));
        put_hosts(&options.config_path, &origin, &host(&mirror));
    });
    node.pull(&image(&origin)).await.unwrap();
    let statuses: Vec<_> = mirror.requests().iter().filter_map(|request| request.status).collect();
    assert_eq!(statuses[..2], [401, 404], "the login was good, the image is not there");
}

#[tokio::test]
async fn headers_of_hosts_toml_are_sent() {
    let (mirror, origin) = (filled().await, filled().await);
    let node = node_with(&origin, &format!("{}[host.\"{}\".header]\nx-tenant = \"a\"\n", host(&mirror), mirror.url()));
    node.pull(&image(&origin)).await.unwrap();
    assert!(mirror.requests().iter().all(|request| request.headers["x-tenant"] == "a"));
}

#[tokio::test]
async fn unreadable_hosts_toml_is_named() {
    let origin = filled().await;
    let node = node_with(&origin, "[host.\"ftp://mirror\"]");
    let failure = node.pull(&image(&origin)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.contains("hosts.toml") && failure.text.contains("ftp"), "{failure}");
    assert_eq!(origin.counts().requests, 0);
}

pub(super) async fn with_tls(tls: Tls) -> MemoryRegistry {
    let registry = MemoryRegistry::start(Options { tls: Some(tls), ..Options::default() }).await.unwrap();
    registry.add_image("demo/app", "1", &made());
    registry
}

#[tokio::test]
async fn certificates_of_hosts_toml_are_trusted() {
    let certificates = certificates(|_| {});
    let registry = with_tls(certificates.tls).await;
    let server = format!("server = \"{}\"\n", registry.url());
    let node = node_with(&registry, &format!("{server}ca = \"ca.pem\"\n"));
    std::fs::write(node.folder.path().join("certs.d").join(registry.host()).join("ca.pem"), &certificates.ca_pem).unwrap();
    node.pull(&image(&registry)).await.unwrap();

    let failure = node_with(&registry, &server).pull(&image(&registry)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.contains("signed by an unknown authority") && failure.text.contains("hosts.toml"), "{failure}");

    node_with(&registry, &format!("{server}skip_verify = true\n")).pull(&image(&registry)).await.unwrap();
    let unchecked = Node::with(|options| {
        options.tls_verify = false;
        put_hosts(&options.config_path, &registry, &server);
    });
    unchecked.pull(&image(&registry)).await.unwrap();
}

#[tokio::test]
async fn skip_verify_applies_to_its_host_alone() {
    let auth = |anonymous| {
        let (user, password, identity_token) = ("u".to_owned(), "secret-word".to_owned(), String::new());
        Auth::Token(TokenAuth { user, password, identity_token, anonymous, expires_in: String::new() })
    };
    let elsewhere = MemoryRegistry::start(Options { tls: Some(certificates(|_| {}).tls), auth: auth(true), ..Options::default() });
    let (registry, elsewhere) = (with_tls(certificates(|_| {}).tls).await, elsewhere.await.unwrap());
    let realm = format!("Bearer realm=\"{}/token\"", elsewhere.url());
    let location = format!("{}/v2/demo/app/manifests/1", elsewhere.url());
    for (what, fault) in [
        ("a token server", Fault::answer("/manifests/", 401, &[("www-authenticate", &realm)], "").times(1)),
        ("a redirect's target", Fault::answer("/manifests/", 307, &[("location", &location)], "").times(1)),
    ] {
        let node = |tls_verify| {
            Node::with(|options| {
                options.tls_verify = tls_verify;
                put_hosts(&options.config_path, &registry, &format!("server = \"{}\"\nskip_verify = true\n", registry.url()));
            })
        };
        registry.faults().clear();
        registry.faults().add(fault.clone());
        let failure = node(true).pull(&image(&registry)).await.expect_err(what);
        assert_eq!((failure.class, failure.endpoint.as_deref()), (FailureClass::NodeLocal, Some(elsewhere.host())), "{what}: {failure}");
        assert!(failure.text.contains("signed by an unknown authority; add its CA to the system's"), "{what}: {failure}");
        assert!(!failure.text.contains("hosts.toml"), "{what} has no such file: {failure}");
        assert_eq!(elsewhere.counts().requests, 0, "{what}");

        // The flag of one pull applies to all hosts.
        registry.faults().clear();
        registry.faults().add(fault);
        let _ = node(false).pull(&image(&registry)).await;
        assert_eq!(elsewhere.counts().requests, 1, "{what}");
        elsewhere.reset_counts();
    }
    node_with(&registry, &format!("server = \"{}\"\nskip_verify = true\n", registry.url())).pull(&image(&registry)).await.unwrap();
}

#[tokio::test]
async fn skip_verify_applies_to_a_token_server_on_the_same_host_and_port() {
    let (user, password, identity_token) = ("u".to_owned(), "secret-word".to_owned(), String::new());
    let auth = Auth::Token(TokenAuth { user, password, identity_token, anonymous: true, expires_in: String::new() });
    let registry = MemoryRegistry::start(Options { tls: Some(certificates(|_| {}).tls), auth, ..Options::default() }).await.unwrap();
    registry.add_image("demo/app", "1", &made());
    node_with(&registry, &format!("server = \"{}\"\nskip_verify = true\n", registry.url())).pull(&image(&registry)).await.unwrap();
}

#[tokio::test]
async fn tls_is_never_downgraded_to_plain_http() {
    let certificates = certificates(|_| {});
    let (registry, elsewhere) = (with_tls(certificates.tls).await, filled().await);
    let logins = format!(r#"{{"auths":{{"{}":{{"username":"u","password":"secret-word"}}}}}}"#, registry.host());
    let node = Node::with(|options| {
        options.keyring = keyring(options.store.parent().unwrap(), Some(&logins));
        put_hosts(&options.config_path, &registry, &format!("server = \"{}\"\nskip_verify = true\n", registry.url()));
    });
    let realm = format!("Bearer realm=\"{}/token\"", elsewhere.url());
    let location = format!("{}/v2/demo/app/manifests/1", elsewhere.url());
    for (fault, expected) in [
        (Fault::answer("/manifests/", 401, &[("www-authenticate", &realm)], ""), "token server without TLS"),
        (Fault::answer("/manifests/", 307, &[("location", &location)], ""), "redirects from https to plain http"),
    ] {
        registry.faults().clear();
        registry.faults().add(fault);
        let failure = node.pull(&image(&registry)).await.unwrap_err();
        assert!(failure.text.contains(expected), "{failure}");
        assert_eq!(elsewhere.counts().requests, 0);
    }
}

#[tokio::test]
async fn client_certificate_is_sent() {
    let mut certificates = certificates(|_| {});
    certificates.tls.client_ca_pem = Some(certificates.ca_pem.clone());
    let registry = with_tls(certificates.tls).await;
    let server = format!("server = \"{}\"\nca = \"ca.pem\"\n", registry.url());
    let put = |node: &Node| {
        let folder = node.folder.path().join("certs.d").join(registry.host());
        std::fs::write(folder.join("ca.pem"), &certificates.ca_pem).unwrap();
        std::fs::write(folder.join("client.pem"), &certificates.client_pem).unwrap();
    };
    let node = node_with(&registry, &format!("{server}client = \"client.pem\"\n"));
    put(&node);
    node.pull(&image(&registry)).await.unwrap();

    let without = node_with(&registry, &server);
    put(&without);
    let failure = without.pull(&image(&registry)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal, "{failure}");
    assert!(failure.text.contains("client certificate"), "{failure}");
}

#[tokio::test]
async fn certificate_of_the_future_points_to_this_nodes_clock() {
    let certificates = certificates(|params| params.not_before = rcgen::date_time_ymd(2100, 1, 1));
    let registry = with_tls(certificates.tls).await;
    let node = node_with(&registry, &format!("server = \"{}\"\nca = \"ca.pem\"\n", registry.url()));
    std::fs::write(node.folder.path().join("certs.d").join(registry.host()).join("ca.pem"), &certificates.ca_pem).unwrap();
    let failure = node.pull(&image(&registry)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.contains("not valid yet"), "{failure}");
}

#[tokio::test]
async fn tls_and_plain_http_mismatch_is_reported() {
    let plain = filled().await;
    let node = node_with(&plain, &format!("server = \"https://{}\"\nskip_verify = true\n", plain.host()));
    let failure = node.pull(&image(&plain)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.contains("speaks no TLS") && failure.text.contains("--plain-http"), "{failure}");

    let secure = with_tls(certificates(|_| {}).tls).await;
    let failure = Node::new().pull(&image(&secure)).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::NodeLocal);
    assert!(failure.text.contains("does not speak plain HTTP"), "{failure}");
}

/// Resets all connections: their requests are not read.
async fn reset_all(listener: &tokio::net::TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.peek(&mut [0]).await.unwrap();
    }
}

/// A server that speaks TLS may also end the connection without an answer.
#[tokio::test]
async fn connection_reset_over_plain_http_says_how_to_use_tls() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let image = format!("{}/demo/app:1", listener.local_addr().unwrap());
    let node = Node::new();
    let failure = tokio::select! {
        failure = node.pull(&image) => failure.unwrap_err(),
        () = reset_all(&listener) => panic!("the server never ends"),
    };
    assert_eq!(failure.class, FailureClass::RegistryUnavailable, "{failure}");
    let expected = ["before an answer over plain HTTP", "check that the registry is up", "server = \"https://...\" in a hosts.toml"];
    assert!(expected.iter().all(|part| failure.text.contains(part)), "{failure}");
}

/// Go's and nginx's servers answer plain HTTP requests on their TLS port, in plain HTTP.
#[tokio::test]
async fn server_that_demands_tls_is_recognised() {
    let nginx = "<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>";
    for (body, class, expected) in [
        ("Client sent an HTTP request to an HTTPS server.\n", FailureClass::NodeLocal, "speaks TLS"),
        (nginx, FailureClass::NodeLocal, "speaks TLS"),
        ("", FailureClass::Unknown, "400 Bad Request"),
    ] {
        let registry = filled().await;
        registry.faults().add(Fault::answer("/manifests/", 400, &[], body));
        let failure = Node::new().pull(&image(&registry)).await.unwrap_err();
        assert_eq!((failure.class, failure.authoritative), (class, false), "{failure}");
        assert!(failure.text.contains(expected) && failure.text.contains("leave out --plain-http"), "{failure}");
    }
}

#[tokio::test]
async fn untrusted_certificate_is_classed_as_node_local() {
    let of = |params: CertificateParams| {
        let key = KeyPair::generate().unwrap();
        Tls { certificate_pem: params.self_signed(&key).unwrap().pem(), key_pem: key.serialize_pem(), client_ca_pem: None }
    };
    let names = || CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let mut authority = names();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let mut expired = names();
    expired.not_after = rcgen::date_time_ymd(2000, 1, 1);
    let elsewhere = CertificateParams::new(vec!["elsewhere.test".to_owned()]).unwrap();
    for (params, trusted, expected) in [
        (names(), false, "unknown authority"),
        (authority.clone(), false, "that of a CA instead of a server"),
        (authority, true, "self-signed"),
        (expired, true, "has expired"),
        (elsewhere, true, "not good"),
    ] {
        let tls = of(params);
        let ca_pem = tls.certificate_pem.clone();
        let registry = with_tls(tls).await;
        let ca = if trusted { "ca = \"ca.pem\"\n" } else { "" };
        let node = node_with(&registry, &format!("server = \"{}\"\n{ca}", registry.url()));
        std::fs::write(node.folder.path().join("certs.d").join(registry.host()).join("ca.pem"), ca_pem).unwrap();
        let failure = node.pull(&image(&registry)).await.unwrap_err();
        assert_eq!((failure.class, failure.authoritative), (FailureClass::NodeLocal, false), "{failure}");
        assert!(failure.text.contains(expected), "{expected}: {failure}");
    }
}
