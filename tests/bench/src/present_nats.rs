//! `present-nats`: the same pull with every message of the node over a real nats-server, compared with as many bare round trips.
#![allow(clippy::disallowed_methods, reason = "tasks of a measurement")]

use std::sync::Arc;
use std::time::Duration;

use actors::Delivery;
use anyhow::{Context as _, Result, anyhow, ensure};
use async_nats::Client;
use bus::BusRef;
use bus::nats::{NatsBus, NatsOptions};
use clock::Clock;
use futures::{FutureExt as _, StreamExt as _};
use support::nats::{NatsConfig, NatsServer, current_program};

use crate::alternate::Rounds;
use crate::figure::{Bar, Figure, Unit};
use crate::node::{AskedNode, IMAGE, runtime_in_memory};

const ROUNDS: Rounds = Rounds { rounds: 20, calls: 500, pause: Duration::ZERO };
/// How many pulls are made to count their messages.
const COUNTED_PULLS: usize = 100;
/// The size of bare requests and answers, in bytes: about that of the commands of a pull.
const BODY_BYTES: usize = 256;
/// The subject of the bare requests.
const ECHO: &str = "bench.echo";
/// A limit that no connection to a server on this machine reaches.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// The bar.
const MOST: f64 = 2.0;

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let program = current_program().map_err(|why| anyhow!(why))?;
    let server = NatsServer::start(NatsConfig::default().with_program(program));
    let clock = Clock::host();
    let node = AskedNode::start(runtime_in_memory(), connected(&server).await?, clock.clone(), Delivery::Bus).await?;
    let bare = async_nats::connect(server.url()).await.context("the server cannot be reached")?;
    let mut pull = async || node.pull_present(IMAGE).await;
    let round_trips = count_requests(&bare, &mut pull).await?;
    let echo = actix::spawn(echo(bare.clone(), bare.subscribe(ECHO).await?));
    let body = vec![b'x'; BODY_BYTES];
    let sides = ROUNDS
        .measure(&clock, pull, async || {
            for _ in 0..round_trips {
                bare.request(ECHO, body.clone().into()).await.context("a bare request was not answered")?;
            }
            Ok(())
        })
        .await?;
    echo.abort();
    let figure = Figure::new("median of a pull", Unit::Microseconds, sides.ours_us());
    Ok(vec![figure.compared_with(format!("{round_trips} bare round trips"), sides.reference_us()).with_bar(Bar::Ratio(MOST))])
}

async fn connected(server: &NatsServer) -> Result<BusRef> {
    let bus = NatsBus::connect(NatsOptions { urls: Some(server.url()), ..NatsOptions::default() }).await?;
    bus.wait_connected(CONNECT_LIMIT).await?;
    Ok(Arc::new(bus))
}

/// How many requests one pull makes, counted by another client of the server.
async fn count_requests(onlooker: &Client, pull: &mut impl AsyncFnMut() -> Result<()>) -> Result<usize> {
    let mut requests = onlooker.subscribe("fleetpull.v1.cmd.>").await?;
    // After a round trip the server has the subscription.
    let _ = onlooker.request("bench.nobody", "".into()).await;
    for _ in 0..COUNTED_PULLS {
        pull().await?;
    }
    // After another round trip all messages of the pulls have arrived.
    let _ = onlooker.request("bench.nobody", "".into()).await;
    let mut seen = 0;
    // Unconstrained, because otherwise tokio lets a task take only a few waiting messages before other tasks get a turn.
    while tokio::task::unconstrained(requests.next()).now_or_never().flatten().is_some() {
        seen += 1;
    }
    ensure!(seen > 0 && seen % COUNTED_PULLS == 0, "{COUNTED_PULLS} pulls made {seen} requests, which is no whole number for each");
    Ok(seen / COUNTED_PULLS)
}

async fn echo(client: Client, mut requests: async_nats::Subscriber) {
    while let Some(request) = requests.next().await {
        if let Some(reply) = request.reply {
            // If this fails, the caller notices that no answer comes.
            let _ = client.publish(reply, request.payload).await;
        }
    }
}
