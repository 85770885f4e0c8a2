//! Asks the runtime where it reads its `<host>/hosts.toml` files.
//!
//! k3s and RKE2 have them elsewhere than containerd's packages. containerd 1.x states its settings in its verbose status; containerd 2.x
//! leaves out those of registries, and then `registry.config_path` of our settings counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clock::Clock;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Mutex;
use tonic::transport::Channel;

use super::proto::runtime::StatusRequest;
use super::proto::runtime::runtime_service_client::RuntimeServiceClient;
use crate::oci_layout::RouteOptions;

/// How long an answer counts. containerd reads its settings at its start, and may be restarted any time.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// How long the runtime may take to answer; a live one takes milliseconds, and a pull waits for it.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The key of containerd's settings in its status.
const CONFIG: &str = "config";

/// The folder of `hosts.toml` files of one runtime.
pub(super) struct Hosts {
    channel: Channel,
    /// The folder by our settings.
    configured: PathBuf,
    clock: Clock,
    last: Mutex<Last>,
}

/// What the last questions gave. Times are on the monotonic clock.
#[derive(Default)]
struct Last {
    /// The last answer, and its time.
    answer: Option<(Duration, HostsConfig)>,
    /// When the last question without an answer ended.
    failed_at: Option<Duration>,
}

/// A runtime's statement about its mirrors.
#[derive(Clone, Debug, PartialEq, Eq)]
enum HostsConfig {
    /// It reads these folders; empty: none.
    ConfigPath(PathBuf),
    /// It has mirrors in its own settings file, which cannot be read from here.
    Inline,
    Unknown,
}

impl Hosts {
    pub(super) fn new(channel: Channel, configured: PathBuf, clock: Clock) -> Self {
        Self { channel, configured, clock, last: Mutex::default() }
    }

    /// The route options that containerd uses; none if its mirrors are not in files. Its proxies are unknown.
    pub(super) async fn route(&self) -> Option<RouteOptions> {
        let config_path = match self.config().await {
            HostsConfig::ConfigPath(path) => path,
            HostsConfig::Unknown => self.configured.clone(),
            HostsConfig::Inline => return None,
        };
        Some(RouteOptions { config_path, plain_http: false, tls_verify: true, own_proxies: false })
    }

    /// The last answer; asks again after `ASK_EVERY`, and at the next pull if there is no answer now.
    async fn config(&self) -> HostsConfig {
        let called = self.clock.now().monotonic;
        // Locked during the question, so that all concurrent callers share its answer or failure.
        let mut last = self.last.lock().await;
        let now = self.clock.now().monotonic;
        let is_known = last.answer.as_ref().is_some_and(|(at, _)| now < *at + ASK_EVERY);
        let has_failed = last.failed_at.is_some_and(|at| called < at);
        if !is_known && !has_failed {
            match tokio::time::timeout(ANSWER_WITHIN, self.ask()).await {
                Ok(Ok(answer)) => {
                    if last.answer.as_ref().is_none_or(|(_, before)| *before != answer) {
                        tracing::debug!(?answer, "where the runtime reads the settings of registries");
                    }
                    last.answer = Some((now, answer));
                }
                failed => {
                    tracing::debug!(?failed, "the runtime does not report where it reads the settings of registries");
                    last.failed_at = Some(self.clock.now().monotonic);
                }
            }
        }
        // After a failure, its earlier answer is more likely to be true than our settings.
        last.answer.as_ref().map_or(HostsConfig::Unknown, |(_, answer)| answer.clone())
    }

    async fn ask(&self) -> Result<HostsConfig, tonic::Code> {
        let answer = RuntimeServiceClient::new(self.channel.clone()).status(StatusRequest { verbose: true }).await;
        let info = answer.map_err(|status| status.code())?.into_inner().info;
        Ok(info.get(CONFIG).map_or(HostsConfig::Unknown, |config| read(config)))
    }
}

#[derive(Deserialize)]
struct Config {
    registry: Option<Registry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Registry {
    config_path: Option<String>,
    /// Deprecated; excludes `config_path`.
    mirrors: Option<BTreeMap<String, Value>>,
}

fn read(config: &str) -> HostsConfig {
    let Ok(Config { registry: Some(registry) }) = serde_json::from_str(config) else { return HostsConfig::Unknown };
    match registry {
        Registry { config_path: Some(path), .. } if !path.is_empty() => {
            // A relative path starts at a folder that only containerd knows.
            let known = std::env::split_paths(&path).all(|path| path.is_absolute());
            if known { HostsConfig::ConfigPath(path.into()) } else { HostsConfig::Inline }
        }
        Registry { mirrors: Some(mirrors), .. } if !mirrors.is_empty() => HostsConfig::Inline,
        Registry { config_path: Some(_), .. } => HostsConfig::ConfigPath(Path::new("").to_owned()),
        Registry { config_path: None, .. } => HostsConfig::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use hyper_util::rt::TokioIo;
    use tokio::net::UnixStream;
    use tonic::transport::Endpoint;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn callers_of_a_runtime_that_does_not_answer_wait_once_together() {
        let hanging = tower::service_fn(|_: http::Uri| std::future::pending::<std::io::Result<TokioIo<UnixStream>>>());
        let channel = Endpoint::from_static("http://localhost").connect_with_connector_lazy(hanging);
        let clock = Clock::host();
        let hosts = Hosts::new(channel, PathBuf::new(), clock.clone());
        let began = clock.now().monotonic;
        tokio::join!(hosts.config(), hosts.config(), hosts.config());
        assert!(clock.now().monotonic - began < ANSWER_WITHIN * 2);
        // A later caller asks anew.
        let began = clock.now().monotonic;
        assert_eq!(hosts.config().await, HostsConfig::Unknown);
        assert!(clock.now().monotonic - began >= ANSWER_WITHIN);
    }

    #[test]
    fn hosts_folder_is_read_from_containerds_settings() {
        let folder = |path: &str| HostsConfig::ConfigPath(PathBuf::from(path));
        for (config, expected) in [
            (
                r#"{"registry":{"configPath":"/var/lib/rancher/k3s/agent/etc/containerd/certs.d","mirrors":null}}"#,
                folder("/var/lib/rancher/k3s/agent/etc/containerd/certs.d"),
            ),
            (
                r#"{"registry":{"configPath":"/etc/containerd/certs.d:/etc/docker/certs.d"}}"#,
                folder("/etc/containerd/certs.d:/etc/docker/certs.d"),
            ),
            (r#"{"registry":{"configPath":"","mirrors":{}}}"#, folder("")),
            (r#"{"registry":{"configPath":"","mirrors":{"docker.io":{"endpoint":["https://m.example"]}}}}"#, HostsConfig::Inline),
            (r#"{"registry":{"configPath":"certs.d"}}"#, HostsConfig::Inline),
            (r#"{"registry":{}}"#, HostsConfig::Unknown),
            (r#"{"containerd":{}}"#, HostsConfig::Unknown),
            ("no JSON", HostsConfig::Unknown),
            (r#"{"registry":{"configPath":5}}"#, HostsConfig::Unknown),
        ] {
            assert_eq!(read(config), expected, "{config}");
        }
    }
}
