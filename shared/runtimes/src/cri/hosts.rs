//! Where the runtime reads its `<host>/hosts.toml` files, as it says itself.
//!
//! k3s and RKE2 have them elsewhere than containerd's packages do. containerd 1.x tells its settings to whoever asks for its status in
//! full; containerd 2.x leaves out those of registries, and then ours count.

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

/// For how long an answer counts: containerd reads its settings when it starts, and may start anew any time.
const ASK_EVERY: Duration = Duration::from_secs(60);
/// The longest wait for an answer. A pull waits for it, and a runtime that lives answers in milliseconds.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Under which name containerd tells its settings.
const CONFIG: &str = "config";

/// Where the files lie.
pub(super) struct Hosts {
    channel: Channel,
    /// By our settings.
    set: PathBuf,
    clock: Clock,
    /// What the runtime said, and when, since the clock's origin.
    told: Mutex<Option<(Duration, Told)>>,
}

/// What a runtime says of its registries.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    /// It reads these folders; empty: none.
    ConfigPath(PathBuf),
    /// It has mirrors in its own settings, which only its administrator can read in full.
    Inline,
    Nothing,
}

impl Hosts {
    pub(super) fn new(channel: Channel, set: PathBuf, clock: Clock) -> Self {
        Self { channel, set, clock, told: Mutex::default() }
    }

    /// How containerd reads its files; none if its mirrors are not in files. Its proxies are its own.
    pub(super) async fn route(&self) -> Option<RouteOptions> {
        let config_path = match self.told().await {
            Told::ConfigPath(path) => path,
            Told::Nothing => self.set.clone(),
            Told::Inline => return None,
        };
        Some(RouteOptions { config_path, plain_http: false, tls_verify: true, own_proxies: false })
    }

    /// As it said last; asked again after a while, and at the next pull if nobody answers now.
    async fn told(&self) -> Told {
        // Held while it is asked: all who want to know meanwhile get the one answer.
        let mut told = self.told.lock().await;
        let now = self.clock.now().monotonic;
        if let Some((_, known)) = told.as_ref().filter(|(at, _)| now < *at + ASK_EVERY) {
            return known.clone();
        }
        match tokio::time::timeout(ANSWER_WITHIN, self.ask()).await {
            Ok(Ok(answer)) => {
                if told.as_ref().is_none_or(|(_, before)| *before != answer) {
                    tracing::debug!(?answer, "where the runtime reads the settings of registries");
                }
                told.insert((now, answer)).1.clone()
            }
            // What it said before is likelier to hold than what is set here.
            failed => {
                tracing::debug!(?failed, "the runtime does not say where it reads the settings of registries");
                told.as_ref().map_or(Told::Nothing, |(_, before)| before.clone())
            }
        }
    }

    async fn ask(&self) -> Result<Told, tonic::Code> {
        let answer = RuntimeServiceClient::new(self.channel.clone()).status(StatusRequest { verbose: true }).await;
        let info = answer.map_err(|status| status.code())?.into_inner().info;
        Ok(info.get(CONFIG).map_or(Told::Nothing, |config| read(config)))
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

fn read(config: &str) -> Told {
    let Ok(Config { registry: Some(registry) }) = serde_json::from_str(config) else { return Told::Nothing };
    match registry {
        Registry { config_path: Some(path), .. } if !path.is_empty() => {
            // One that is not absolute is relative to a folder that only containerd knows.
            let known = std::env::split_paths(&path).all(|path| path.is_absolute());
            if known { Told::ConfigPath(path.into()) } else { Told::Inline }
        }
        Registry { mirrors: Some(mirrors), .. } if !mirrors.is_empty() => Told::Inline,
        Registry { config_path: Some(_), .. } => Told::ConfigPath(Path::new("").to_owned()),
        Registry { config_path: None, .. } => Told::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerds_settings_say_where_its_hosts_are() {
        let folder = |path: &str| Told::ConfigPath(PathBuf::from(path));
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
            (r#"{"registry":{"configPath":"","mirrors":{"docker.io":{"endpoint":["https://m.example"]}}}}"#, Told::Inline),
            (r#"{"registry":{"configPath":"certs.d"}}"#, Told::Inline),
            (r#"{"registry":{}}"#, Told::Nothing),
            (r#"{"containerd":{}}"#, Told::Nothing),
            ("no JSON", Told::Nothing),
            (r#"{"registry":{"configPath":5}}"#, Told::Nothing),
        ] {
            assert_eq!(read(config), expected, "{config}");
        }
    }
}
