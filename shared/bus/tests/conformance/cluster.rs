//! The same of state and streams on a cluster of three, where each change is agreed on by two of them and any of them may be asked.

use std::sync::Arc;

use futures::future::{BoxFuture, join_all};
use support::nats::{NatsCluster, NatsConfig, current_program};
use support::requirement::met;

use crate::bench::Bench;

/// What is promised, as a test of it.
pub(crate) type Semantic = fn(Arc<Bench>) -> BoxFuture<'static, ()>;

/// What a cluster does in another way than one server.
const OF_STATE: [&str; 3] = ["key_value", "watches", "streams"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_state_and_streams_holds_on_a_cluster_of_three() {
    if met(current_program()).is_none() {
        return;
    }
    let semantics: Vec<_> = crate::all().into_iter().filter(|(module, ..)| OF_STATE.contains(module)).collect();
    let account = |number| format!("T{number} {{ jetstream: enabled, users: [{{ user: t{number}, password: t{number} }}] }}");
    let accounts: Vec<String> = (0..semantics.len()).map(account).collect();
    let cluster = NatsCluster::start(&NatsConfig::default().with(&format!("accounts {{ {} }}", accounts.join("\n"))));
    let mut running = Vec::new();
    for (number, (_, name, semantic)) in semantics.into_iter().enumerate() {
        let bench = Arc::new(Bench::on_cluster(&cluster, number).await);
        running.push(async move { (name, tokio::spawn(semantic(bench)).await) });
    }
    let failed: Vec<_> = join_all(running).await.into_iter().filter_map(|(name, done)| Some((name, done.err()?))).collect();
    assert!(failed.is_empty(), "{failed:?}; what each said stands above");
}
