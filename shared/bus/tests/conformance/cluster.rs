//! The semantics of state and streams on a cluster of three servers, in which two agree on each change and any may be asked.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use support::nats::{NatsCluster, NatsConfig, current_program};
use support::requirement::met;

use super::bench::Bench;

/// A semantic as a test.
pub(crate) type Semantic = fn(Arc<Bench>) -> BoxFuture<'static, ()>;

/// Watches are not included: on a cluster, a change that was stored just before may be reported after the current values.
const OF_STATE: [&str; 2] = ["key_value", "streams"];

/// How many are tested at the same time: most of them wait, but each change is the work of three servers.
const AT_ONCE: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semantics_of_state_and_streams_hold_on_a_cluster_of_three() {
    if met(current_program()).is_none() {
        return;
    }
    let semantics: Vec<_> = super::all().into_iter().filter(|(module, ..)| OF_STATE.contains(module)).collect();
    let account = |number| format!("T{number} {{ jetstream: enabled, users: [{{ user: t{number}, password: t{number} }}] }}");
    let accounts: Vec<String> = (0..semantics.len()).map(account).collect();
    let cluster = NatsCluster::start(&NatsConfig::default().with(&format!("accounts {{ {} }}", accounts.join("\n"))));
    let tried = futures::stream::iter(semantics.into_iter().enumerate()).map(|(number, (_, name, semantic))| {
        let cluster = &cluster;
        async move {
            let bench = Arc::new(Bench::on_cluster(cluster, number).await);
            tokio::spawn(semantic(bench)).await.err().map(|error| (name, error))
        }
    });
    let failed: Vec<_> = tried.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    assert!(failed.is_empty(), "{failed:?}; the panic messages stand above");
}
