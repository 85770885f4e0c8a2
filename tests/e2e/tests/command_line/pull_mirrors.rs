//! Routes as on real hosts: mirrors of a `hosts.toml` that are dead, hang or lack the image, TLS, plain HTTP.

use std::net::TcpListener;

use e2e::{Registry, Workplace};
use memory_registry::{Fault, Options, Tls};
use support::nats::Authority;

use super::common::{NOBODY, check_row, small};

/// A folder of `hosts.toml` for `registry` with these mirrors before it.
fn hosts(place: &Workplace, registry: &str, mirrors: &[&str]) -> String {
    let mut text = format!("server = \"http://{registry}\"\n");
    for mirror in mirrors {
        text.push_str(&format!("[host.\"http://{mirror}\"]\ncapabilities = [\"pull\", \"resolve\"]\n"));
    }
    place.write(&format!("certs.d/{registry}/hosts.toml"), text);
    place.text_path("certs.d")
}

/// A server that accepts connections and sends nothing.
fn black_hole() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn a_dead_and_a_hanging_mirror_are_passed_over() {
    let (registry, empty, place) = (Registry::new(), Registry::new(), Workplace::new());
    let hole = black_hole();
    let silent = hole.local_addr().unwrap().to_string();
    registry.add_image("shop/web", "v1", &small());
    let folder = hosts(&place, registry.host(), &[NOBODY, &silent, empty.host()]);
    let place = place.with("FLEETPULL_REGISTRY_CONFIG_PATH", folder).with("FLEETPULL_REGISTRY_FIRST_BYTE_TIMEOUT", "300ms");
    let row = place.run(&["pull", "-o", "json", "--store", "store", &registry.image("shop/web:v1")]).expect(0).object();
    assert_eq!(row["outcome"], "pulled");
    assert!(empty.counts().failing > 0, "the mirror that has nothing was asked");
}

#[test]
fn when_no_mirror_has_it_the_error_names_each_with_its_answer() {
    let (registry, broken, place) = (Registry::new(), Registry::new(), Workplace::new());
    broken.faults().add(Fault::answer("/", 500, &[], "<html>oops</html>"));
    let hole = black_hole();
    let silent = hole.local_addr().unwrap().to_string();
    let folder = hosts(&place, registry.host(), &[NOBODY, &silent, broken.host()]);
    let place = place.with("FLEETPULL_REGISTRY_CONFIG_PATH", folder).with("FLEETPULL_REGISTRY_FIRST_BYTE_TIMEOUT", "300ms");
    let row = place.run(&["pull", "-o", "json", "--store", "store", &registry.image("shop/web:v9")]).expect(1).object();
    check_row(&row);
    let message = row["message"].as_str().unwrap();
    for endpoint in [NOBODY, &silent, broken.host(), registry.host()] {
        assert!(message.contains(endpoint), "{endpoint}: {row}");
    }
    for cause in ["connection refused", "300ms", "500", "404"] {
        assert!(message.contains(cause), "{cause}: {row}");
    }
}

#[test]
fn a_hosts_file_that_cannot_be_read_is_named() {
    let (registry, place) = (Registry::new(), Workplace::new());
    place.write(&format!("certs.d/{}/hosts.toml", registry.host()), "server = [unclosed");
    let folder = place.text_path("certs.d");
    let place = place.with("FLEETPULL_REGISTRY_CONFIG_PATH", folder);
    let row = place.run(&["pull", "-o", "json", "--store", "store", &registry.image("shop/web:v1")]).expect(1).object();
    assert_eq!(row["class"], "node_local", "{row}");
    assert!(row["message"].as_str().unwrap().contains("hosts.toml"), "{row}");
    assert_eq!(registry.counts().requests, 0);
}

#[test]
fn certificates_are_checked_against_the_systems_roots_unless_configured_otherwise() {
    let authority = Authority::new("test authority");
    let (certificate, key) = authority.issue("127.0.0.1");
    let pem = |path| std::fs::read_to_string(path).unwrap();
    let tls = Some(Tls { certificate_pem: pem(certificate), key_pem: pem(key), client_ca_pem: None });
    let registry = Registry::with(Options { tls, ..Options::default() });
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    // The program uses plain HTTP for a registry on loopback unless a hosts.toml sets another scheme.
    let place = || {
        let place = Workplace::new();
        place.write(&format!("certs.d/{}/hosts.toml", registry.host()), format!("server = \"{}\"\n", registry.url()));
        let folder = place.text_path("certs.d");
        place.with("FLEETPULL_REGISTRY_CONFIG_PATH", folder)
    };
    let refused = place().run(&["pull", "-o", "json", "--store", "store", &image]).expect(1).object();
    assert_eq!(refused["class"], "node_local", "{refused}");
    assert!(refused["message"].as_str().unwrap().to_lowercase().contains("certificate"), "{refused}");
    let _ = place().run(&["pull", "-q", "--store", "store", "--tls-verify=false", &image]).expect(0);
    let trusting = place().with("SSL_CERT_FILE", authority.certificate().display().to_string());
    let _ = trusting.run(&["pull", "-q", "--store", "store", &image]).expect(0);
}

/// The memory registry acts as a proxy: this host cannot resolve the registry's name.
#[test]
fn plain_http_and_a_proxy_reach_a_registry_of_any_name() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    let place = place.with("http_proxy", registry.url());
    let image = "registry.example:5000/shop/web:v1";
    let row = place.run(&["pull", "-o", "json", "--store", "store", "--plain-http", image]).expect(0).object();
    assert_eq!(row["outcome"], "pulled");
    let direct = place.with("no_proxy", "registry.example");
    let row = direct.run(&["pull", "-o", "json", "--store", "other", "--plain-http", image]).expect(1).object();
    assert_eq!(row["class"], "registry_unavailable", "{row}");
}
