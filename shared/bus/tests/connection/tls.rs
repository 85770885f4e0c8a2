//! TLS with a private authority and client certificates.

use bus::nats::{NatsBus, NatsOptions};
use support::nats::{Authority, NatsConfig};

use super::{reported_reason, server, urls, works};

fn tls(authority: &Authority, more: &str) -> NatsConfig {
    let (certificate, key) = authority.issue("127.0.0.1");
    NatsConfig::default().with(&format!("tls {{ cert_file: {certificate:?}, key_file: {key:?}, {more} }}"))
}

fn mutual(authority: &Authority) -> NatsConfig {
    tls(authority, &format!("ca_file: {:?}, verify: true", authority.certificate()))
}

#[tokio::test]
async fn an_own_authority_is_trusted_when_it_is_named() {
    let authority = Authority::new("test authority");
    let server = server!(tls(&authority, ""));
    let ca = Some(authority.certificate());
    works(NatsOptions { ca: ca.clone(), ..urls(server.url()) }).await;
    works(NatsOptions { ca, ..urls(format!("tls://{}", server.address())) }).await;
}

#[tokio::test]
async fn an_unknown_authority_is_not_trusted() {
    let authority = Authority::new("test authority");
    let server = server!(tls(&authority, ""));
    let other = Authority::new("another authority");
    for options in [urls(server.url()), NatsOptions { ca: Some(other.certificate()), ..urls(server.url()) }] {
        let bus = NatsBus::connect(options).await.unwrap();
        reported_reason(&bus, &[&server.url(), "UnknownIssuer", "--nats-ca"]).await;
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_not_taken() {
    let authority = Authority::new("test authority");
    let (certificate, key) = authority.issue("nats.example");
    let text = format!("tls {{ cert_file: {certificate:?}, key_file: {key:?} }}");
    let server = server!(NatsConfig::default().with(&text));
    let options = NatsOptions { ca: Some(authority.certificate()), ..urls(server.url()) };
    let bus = NatsBus::connect(options).await.unwrap();
    reported_reason(&bus, &["certificate", "is for another name"]).await;
}

#[tokio::test]
async fn a_client_certificate_is_shown_when_it_is_wanted() {
    let authority = Authority::new("test authority");
    let server = server!(mutual(&authority));
    let (cert, key) = authority.issue("agent");
    works(NatsOptions { ca: Some(authority.certificate()), cert: Some(cert), key: Some(key), ..urls(server.url()) }).await;
}

#[tokio::test]
async fn a_missing_client_certificate_is_reported() {
    let authority = Authority::new("test authority");
    let server = server!(mutual(&authority));
    let options = NatsOptions { ca: Some(authority.certificate()), ..urls(server.url()) };
    let bus = NatsBus::connect(options).await.unwrap();
    reported_reason(&bus, &["client certificate", "--nats-cert"]).await;
}

#[tokio::test]
async fn a_client_certificate_of_another_authority_is_refused() {
    let authority = Authority::new("test authority");
    let server = server!(mutual(&authority));
    let other = Authority::new("another authority");
    let (cert, key) = other.issue("agent");
    let options = NatsOptions { ca: Some(authority.certificate()), cert: Some(cert), key: Some(key), ..urls(server.url()) };
    let bus = NatsBus::connect(options).await.unwrap();
    reported_reason(&bus, &["refuses our certificate", "--nats-cert"]).await;
}

#[tokio::test]
async fn tls_wanted_of_a_server_without_it_is_reported() {
    let server = server!(NatsConfig::default());
    let authority = Authority::new("test authority");
    let options = NatsOptions { ca: Some(authority.certificate()), ..urls(server.url()) };
    let bus = NatsBus::connect(options).await.unwrap();
    reported_reason(&bus, &["does not speak TLS", "--nats-ca"]).await;
}
