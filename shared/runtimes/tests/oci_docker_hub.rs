//! Docker Hub's login is sent to Docker Hub's own hosts alone, although kubelet's rule finds it for more.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::ErrorKind;
use std::time::Duration;

use contract::FailureClass;
use memory_registry::{Auth, Fault, MadeImage, MemoryRegistry, Options, TokenAuth};
use runtimes::keyring::{Audience, FLEET_KEY_BYTES, FleetKey};
use runtimes::oci_layout::OciLayout;
use runtimes::{ImageRuntime as _, Route};
use support::requirement::met;

use super::oci_support::child::{Tunnel, child, child_fails};
use super::oci_support::tls::certificates;
use super::oci_support::{LIMIT, Node, keyring, options};

const LOGINS: &str = r#"{"auths":{"https://index.docker.io/v1/":{"username":"hubuser","password":"hub-password"}}}"#;

async fn basic() -> MemoryRegistry {
    let auth = Auth::Basic { user: "hubuser".to_owned(), password: "hub-password".to_owned() };
    let registry = MemoryRegistry::start(Options { auth, ..Options::default() }).await.unwrap();
    registry.add_image("library/busybox", "latest", &MadeImage::of_layers([5_000]));
    registry.add_image("team/app", "1", &MadeImage::of_layers([5_000]));
    registry
}

/// A registry on port 80, which needs root. Waits if another run of this test has the port.
async fn on_port_80(options: Options) -> Result<MemoryRegistry, String> {
    let starting = async {
        loop {
            match MemoryRegistry::start(options.clone()).await {
                Err(error) if error.kind() == ErrorKind::AddrInUse => tokio::time::sleep(Duration::from_millis(50)).await,
                started => return started,
            }
        }
    };
    let started = tokio::time::timeout(LIMIT, starting).await.unwrap_or_else(|_| Err(ErrorKind::AddrInUse.into()));
    started.map_err(|error| format!("port 80 of 127.0.0.1 cannot be had: {error}"))
}

fn assert_no_login_came(registry: &MemoryRegistry) {
    let requests = registry.requests();
    assert!(!requests.is_empty());
    assert!(requests.iter().all(|request| request.authorization.is_none()), "{requests:?}");
}

/// The registry serves as HTTP proxy for all hosts without TLS, because it accepts absolute addresses in the request line.
#[tokio::test]
async fn mirror_without_a_dot_gets_no_docker_hub_login() {
    let mirror = basic().await;
    let certs = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(certs.path().join("docker.io")).unwrap();
    std::fs::write(certs.path().join("docker.io/hosts.toml"), "server = \"http://elsewhere\"\n[host.\"http://mirror\"]\n").unwrap();
    let certs = certs.path().to_str().unwrap();
    let variables = [("HTTP_PROXY", mirror.url()), ("FLEETPULL_TEST_CHILD_LOGINS", LOGINS), ("FLEETPULL_TEST_CHILD_CERTS", certs)];
    let output = child_fails("busybox", &variables).await;
    assert_no_login_came(&mirror);
    assert!(output.contains("is sent to Docker Hub's own hosts alone, over TLS"), "{output}");
    assert!(!output.contains("hub-password") && !output.contains("hubuser"), "{output}");
}

#[tokio::test]
async fn docker_hub_login_is_not_sent_unencrypted() {
    let hub = basic().await;
    let variables = [("HTTP_PROXY", hub.url()), ("FLEETPULL_TEST_CHILD_LOGINS", LOGINS), ("FLEETPULL_TEST_CHILD_PLAIN", "1")];
    let output = child_fails("busybox", &variables).await;
    assert_no_login_came(&hub);
    assert!(output.contains("over TLS"), "{output}");
}

#[tokio::test]
async fn docker_hub_login_goes_to_no_foreign_token_server() {
    for (realm, goes) in [
        ("https://auth.docker.io/token", true),
        ("https://registry-1.docker.io/token", true),
        ("https://auth.docker.io.example/token", false),
        ("https://auth.example/token", false),
    ] {
        let names = ["registry-1.docker.io", "auth.docker.io", "auth.docker.io.example", "auth.example"];
        let certificates = certificates(|params| {
            params.subject_alt_names = names.map(|name| rcgen::SanType::DnsName(name.try_into().unwrap())).to_vec();
        });
        let (user, password, identity_token) = ("hubuser".to_owned(), "hub-password".to_owned(), String::new());
        let auth = Auth::Token(TokenAuth { user, password, identity_token, anonymous: false, expires_in: "300".to_owned() });
        let hub = MemoryRegistry::start(Options { auth, tls: Some(certificates.tls), ..Options::default() }).await.unwrap();
        hub.add_image("library/busybox", "latest", &MadeImage::of_layers([5_000]));
        let challenge = format!("Bearer realm=\"{realm}\",service=\"registry.docker.io\",scope=\"repository:library/busybox:pull\"");
        hub.faults().add(Fault::answer("/manifests/", 401, &[("www-authenticate", &challenge)], "").times(1));
        let tunnel = Tunnel::to(hub.host()).await;
        let folder = tempfile::tempdir().unwrap();
        let (ca, certs) = (folder.path().join("ca.pem"), folder.path().join("certs.d"));
        std::fs::write(&ca, certificates.ca_pem).unwrap();
        let variables = [
            ("HTTPS_PROXY", tunnel.url.as_str()),
            ("SSL_CERT_FILE", ca.to_str().unwrap()),
            ("FLEETPULL_TEST_CHILD_LOGINS", LOGINS),
            ("FLEETPULL_TEST_CHILD_CERTS", certs.to_str().unwrap()),
        ];
        let output = child("busybox", &variables).await;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.success(), goes, "{realm}: {text}");
        let shown = hub.requests().into_iter().filter(|request| request.authorization.as_deref() == Some("Basic")).count();
        assert_eq!(shown, usize::from(goes), "{realm}");
        if !goes {
            let named = format!("names the token server {}:443 that is not Docker Hub's", realm.split('/').nth(2).unwrap());
            assert!(text.contains(&named), "{text}");
            assert_eq!(tunnel.asked(), ["registry-1.docker.io:443"]);
        }
    }
}

/// The identity comes from the login that would be sent, not from the one that kubelet's rule finds.
#[tokio::test]
async fn identity_at_localhost_is_anonymous_with_a_docker_hub_login_alone() {
    let folder = tempfile::tempdir().unwrap();
    let key = FleetKey::new();
    key.fill(&[7; FLEET_KEY_BYTES]);
    let mut options = options(folder.path());
    options.keyring = keyring(folder.path(), Some(LOGINS)).shared_under(key, "");
    let kept = options.keyring.clone();
    let runtime = OciLayout::open(options).unwrap();
    let route = async |image: &str| -> Route { runtime.route(&image::Reference::parse(image).unwrap(), None).await };
    assert_eq!(route("localhost/team/app:1").await.scope, "anonymous");
    assert_ne!(route("busybox").await.scope, "anonymous");
    // A container runtime still gets the login by kubelet's rule.
    assert_eq!(kept.lookup(&Audience::runtime("localhost/team/app")).await.unwrap().len(), 1);
}

/// The logins in `explain`.
#[tokio::test]
async fn explanation_of_logins_has_no_user_name() {
    let folder = tempfile::tempdir().unwrap();
    let logins = r#"{"auths":{"https://index.docker.io/v1/":{"username":"hubuser","password":"hub-password"},
        "registry.example/team":{"username":"deploy","password":"p"},"registry.example":{"identitytoken":"t"}}}"#;
    let mut options = options(folder.path());
    options.keyring = keyring(folder.path(), Some(logins));
    let file = folder.path().join("logins/config.json").display().to_string();
    for (registry, hosts) in [
        ("registry.example", "[host.\"https://mirror.example\"]\n"),
        ("docker.io", "[host.\"http://mirror\"]\n"),
        ("other.example", "[host.\"https://registry.example\"]\n"),
    ] {
        std::fs::create_dir_all(options.config_path.join(registry)).unwrap();
        std::fs::write(options.config_path.join(registry).join("hosts.toml"), hosts).unwrap();
    }
    let none = |name: &str| format!("none for {name} in {file} (--authfile)");
    let hub_alone = format!("the login for index.docker.io in {file} is sent to Docker Hub's own hosts alone, over TLS");
    let of_team = format!("login for registry.example/team in {file}, identity token for registry.example in {file}");
    for (image, expected) in [
        ("busybox", vec![("mirror:80", hub_alone.clone()), ("registry-1.docker.io:443", format!("login for index.docker.io in {file}"))]),
        ("localhost/team/app", vec![("localhost:80", hub_alone)]),
        ("registry.example/team/app", vec![("mirror.example:443", none("mirror.example")), ("registry.example:443", of_team.clone())]),
        // A mirror gets the login under its own name.
        ("other.example/team/app", vec![("registry.example:443", of_team), ("other.example:443", none("other.example"))]),
    ] {
        let logins = options.logins(&image::Reference::parse(image).unwrap()).await.unwrap();
        let logins: Vec<_> =
            logins.iter().map(|one| (one.endpoint.as_str(), one.none_because.clone().unwrap_or_else(|| one.logins.join(", ")))).collect();
        assert_eq!(logins, expected, "{image}");
        for hidden in ["hubuser", "deploy", "hub-password"] {
            assert!(!format!("{logins:?}").contains(hidden), "{logins:?}");
        }
    }
    assert!(!options.store.exists(), "no store is made");
}

/// The registry of `localhost/...` is on port 80; kubelet's rule counts this name as Docker Hub's.
#[tokio::test]
async fn registry_on_port_80_of_this_host_gets_no_docker_hub_login() {
    let auth = Auth::Basic { user: "hubuser".to_owned(), password: "hub-password".to_owned() };
    let Some(registry) = met(on_port_80(Options { auth, port: 80, ..Options::default() }).await) else { return };
    let node = Node::with(|options| options.keyring = keyring(options.store.parent().unwrap(), Some(LOGINS)));
    let failure = node.pull("localhost/team/app:1").await.unwrap_err();
    assert_eq!((failure.class, failure.auth.as_str()), (FailureClass::Denied, "anonymous"));
    assert_no_login_came(&registry);
}
