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
    /// The runtime's last answer, and its time on the monotonic clock.
    last: Mutex<Option<(Duration, HostsConfig)>>,
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
        // Locked during the question, so that all concurrent callers get the one answer.
        let mut last = self.last.lock().await;
        let now = self.clock.now().monotonic;
        if let Some((_, known)) = last.as_ref().filter(|(at, _)| now < *at + ASK_EVERY) {
            return known.clone();
        }
        match tokio::time::timeout(ANSWER_WITHIN, self.ask()).await {
            Ok(Ok(answer)) => {
                if last.as_ref().is_none_or(|(_, before)| *before != answer) {
                    tracing::debug!(?answer, "where the runtime reads the settings of registries");
                }
                last.insert((now, answer)).1.clone()
            }
            // Its earlier answer is more likely to be true than our settings.
            failed => {
                tracing::debug!(?failed, "the runtime does not report where it reads the settings of registries");
                last.as_ref().map_or(HostsConfig::Unknown, |(_, before)| before.clone())
            }
        }
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
    use super::*;

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
