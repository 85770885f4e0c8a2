//! A child process that pulls with its own environment, from which proxies and trusted certificates are read.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::{Node, keyring};

/// The variable with the child's image.
const CHILD: &str = "FLEETPULL_TEST_CHILD_IMAGE";

/// Not a test: the code of a child process, run by other tests with another environment.
#[tokio::test]
async fn pull_in_child_process() {
    let Ok(image) = std::env::var(CHILD) else { return };
    let plain_http = std::env::var("FLEETPULL_TEST_CHILD_PLAIN").is_ok();
    let node = Node::with(|options| {
        options.plain_http = plain_http;
        if let Ok(path) = std::env::var("FLEETPULL_TEST_CHILD_CERTS") {
            options.config_path = path.into();
        }
        if let Ok(logins) = std::env::var("FLEETPULL_TEST_CHILD_LOGINS") {
            options.keyring = keyring(options.store.parent().unwrap(), Some(&logins));
        }
    });
    node.pull(&image).await.unwrap();
}

/// Whether a child with these variables can pull.
pub async fn child_pulls(image: &str, variables: &[(&str, &str)]) -> bool {
    child(image, variables).await.status.success()
}

/// The output of a child with these variables whose pull fails.
pub async fn child_fails(image: &str, variables: &[(&str, &str)]) -> String {
    let output = child(image, variables).await;
    assert!(!output.status.success());
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

pub async fn child(image: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "oci_support::child::pull_in_child_process"]).env(CHILD, image);
    for name in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"] {
        child.env_remove(name);
    }
    child.envs(variables.iter().copied());
    tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap()
}

/// A proxy that connects every `CONNECT`, for any host, to the same server.
pub struct Tunnel {
    /// The value for `HTTPS_PROXY`.
    pub url: String,
    asked: Arc<Mutex<Vec<String>>>,
    serving: JoinHandle<()>,
}

impl Tunnel {
    pub async fn to(target: &str) -> Self {
        let (target, asked) = (target.to_owned(), Arc::new(Mutex::new(Vec::new())));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let hosts = Arc::clone(&asked);
        let serving = tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(connect(client, target.clone(), Arc::clone(&hosts)));
            }
        });
        Self { url, asked, serving }
    }

    /// `host:port` of each `CONNECT`.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn connect(mut client: TcpStream, target: String, hosts: Arc<Mutex<Vec<String>>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = client.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).unwrap();
    hosts.lock().unwrap().push(head.strip_prefix("CONNECT ").unwrap().split(' ').next().unwrap().to_owned());
    let mut server = TcpStream::connect(target).await.unwrap();
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}
