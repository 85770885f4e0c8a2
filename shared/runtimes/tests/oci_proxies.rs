//! Proxies and trusted certificates from the environment.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::Ipv4Addr;

use support::held_port::HeldPort;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::oci_routes::{filled, image, put_hosts, with_tls};
use super::oci_support::child::{Tunnel, child_fails, child_pulls};
use super::oci_support::tls::certificates;

#[tokio::test]
async fn ssl_cert_file_is_trusted() {
    let certificates = certificates(|_| {});
    let registry = with_tls(certificates.tls).await;
    let folder = tempfile::tempdir().unwrap();
    put_hosts(folder.path(), &registry, &format!("server = \"{}\"\n", registry.url()));
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, certificates.ca_pem).unwrap();
    let certs = folder.path().to_str().unwrap();
    assert!(child_pulls(&image(&registry), &[("FLEETPULL_TEST_CHILD_CERTS", certs), ("SSL_CERT_FILE", file.to_str().unwrap())]).await);
    assert!(!child_pulls(&image(&registry), &[("FLEETPULL_TEST_CHILD_CERTS", certs)]).await);
}

#[tokio::test]
async fn proxy_is_used_except_for_no_proxy_hosts() {
    // The memory registry accepts absolute addresses in the request line, so it can serve as proxy.
    let proxy = filled().await;
    let variables = [("HTTP_PROXY", proxy.url()), ("FLEETPULL_TEST_CHILD_PLAIN", "1")];
    assert!(child_pulls("registry.test:8080/demo/app:1", &variables).await);
    let asked = proxy.counts().requests;
    assert!(asked > 0);
    assert!(!child_pulls("registry.test:8080/demo/app:1", &[variables[0], variables[1], ("NO_PROXY", "registry.test")]).await);
    assert_eq!(proxy.counts().requests, asked);

    let near = filled().await;
    assert!(child_pulls(&image(&near), &[("HTTP_PROXY", proxy.url())]).await);
    assert_eq!(proxy.counts().requests, asked, "this host is reached without a proxy");
}

#[tokio::test]
async fn https_goes_through_a_tunnel() {
    let certificates = certificates(|_| {});
    let registry = with_tls(certificates.tls).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    std::fs::write(&file, certificates.ca_pem).unwrap();
    let tunnel = Tunnel::to(registry.host()).await;
    let variables = [("HTTPS_PROXY", tunnel.url.as_str()), ("SSL_CERT_FILE", file.to_str().unwrap())];
    assert!(child_pulls("registry.test/demo/app:1", &variables).await);
    assert!(registry.counts().requests > 0);
    assert!(tunnel.asked().iter().all(|host| host == "registry.test:443"), "{:?}", tunnel.asked());
}

#[tokio::test]
async fn dead_proxy_is_named_as_the_endpoint() {
    let port = HeldPort::any();
    let dead = port.address();
    let address = format!("http://user:hunter2@{dead}");
    for variables in [[("HTTP_PROXY", address.as_str()), ("FLEETPULL_TEST_CHILD_PLAIN", "1")], [("HTTPS_PROXY", &address), ("X", "")]] {
        let output = child_fails("registry.test/demo/app:1", &variables).await;
        assert!(output.contains(&format!("RegistryUnavailable: {dead}: this proxy for registry.test:")), "{output}");
        assert!(
            output.contains("connection refused; check the proxy") && output.contains(&format!("endpoint: Some(\"{dead}\")")),
            "{output}"
        );
        assert!(!output.contains("hunter2"), "{output}");
    }
}

#[tokio::test]
async fn proxy_that_wants_a_login_is_a_failure_of_the_node() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let refuse = async {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(client.read_u8().await.unwrap());
        }
        client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
    };
    let url = format!("http://{address}");
    let variables = [("HTTPS_PROXY", url.as_str())];
    let (output, ()) = tokio::join!(child_fails("registry.test/demo/app:1", &variables), refuse);
    assert!(output.contains(&format!("{address}: this proxy does not let us through to registry.test:443: ")), "{output}");
    assert!(output.contains("class: NodeLocal") && !output.contains("RegistryUnavailable"), "{output}");
}
