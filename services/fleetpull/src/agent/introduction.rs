//! The log lines that an agent writes at its start.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use contract::NodeName;
use runtimes::{RuntimeDescription, RuntimeRef};
use settings::{RuntimeKind, Settings};
use tracing::{info, warn};

use super::actor::name_and_version;
use super::identity::VERSION;
use crate::node::{Sharing, shown_bus};

/// How long the start waits for the runtime to describe itself.
const DESCRIBE_WITHIN: Duration = Duration::from_secs(1);

/// The runtime's description, or one from the settings if the runtime takes too long.
pub(super) async fn describe(runtime: &RuntimeRef, settings: &Settings) -> RuntimeDescription {
    let unanswered = RuntimeDescription {
        name: match settings.runtime.kind {
            RuntimeKind::OciLayout => "oci-layout".to_owned(),
            RuntimeKind::Cri => "cri".to_owned(),
        },
        place: settings.runtime.endpoint_on(Path::exists).unwrap_or_default(),
        credential_sources: vec!["not known yet".to_owned()],
        ..RuntimeDescription::default()
    };
    described(runtime.describe(), DESCRIBE_WITHIN, unanswered).await
}

/// A runtime's description. If it takes too long, `unanswered` with that as the problem.
pub(super) async fn described(
    describing: impl Future<Output = RuntimeDescription>,
    limit: Duration,
    unanswered: RuntimeDescription,
) -> RuntimeDescription {
    match tokio::time::timeout(limit, describing).await {
        Ok(description) => description,
        Err(_) => {
            let problem = format!("no answer within {limit:?}: check that it does not hang");
            RuntimeDescription { problem: Some(problem), ..unanswered }
        }
    }
}

/// The addresses of the agent on this machine.
pub(super) struct Reached<'a> {
    pub(super) socket: &'a Path,
    /// None if no address is configured.
    pub(super) http: Option<SocketAddr>,
}

/// Logs what has started and what the node shares.
pub(super) fn introduce(settings: &Settings, sharing: Option<&Sharing>, node: &NodeName, seen: &RuntimeDescription, reached: &Reached<'_>) {
    let runtime = name_and_version(seen);
    let bus = shown_bus(settings);
    let registry_logins = if seen.credential_sources.is_empty() { "none".to_owned() } else { seen.credential_sources.join(", ") };
    let (place, socket) = (&seen.place, reached.socket.display());
    let metrics = reached.http.map(|address| format!("http://{address}/metrics"));
    match settings.runtime.kind {
        RuntimeKind::OciLayout => {
            info!(version = VERSION, %node, runtime, store = place, bus, registry_logins, %socket, metrics, "the agent has started")
        }
        RuntimeKind::Cri => {
            let runtime_endpoint = place;
            info!(version = VERSION, %node, runtime, runtime_endpoint, bus, registry_logins, %socket, metrics, "the agent has started")
        }
    }
    match sharing {
        Some(sharing) => {
            let (share, scope, egress, zone) = (sharing.share.as_str(), &sharing.scope, &sharing.egress, &sharing.zone);
            info!(share, scope, egress, zone, fleet = settings.fleet.name, "what is learned is shared with the fleet");
        }
        None if settings.nats.is_wanted() => info!(share = settings.fleet.share.as_str(), "nothing is shared: each node learns for itself"),
        // The bus line above already says that there is no fleet.
        None => {}
    }
    if let Some(problem) = &seen.problem {
        warn!(problem, "the runtime cannot be used yet");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn runtime_that_hangs_has_a_problem_and_keeps_its_name() {
        let named = RuntimeDescription { name: "oci-layout".to_owned(), ..RuntimeDescription::default() };
        let limit = Duration::from_secs(10);
        let seen = described(std::future::pending(), limit, named.clone()).await;
        assert_eq!(
            (seen.name.as_str(), seen.problem.as_deref()),
            ("oci-layout", Some("no answer within 10s: check that it does not hang"))
        );
        let seen = described(std::future::ready(named), limit, RuntimeDescription::default()).await;
        assert_eq!((seen.name.as_str(), seen.problem), ("oci-layout", None));
    }
}
