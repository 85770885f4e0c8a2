//! `fleetpull nats-auth`: answers the auth callout requests of nats-servers.

mod fetch;
mod keys;

use std::path::Path;

use anyhow::{Context as _, Result};
use bus::nats::NatsBus;
use bus::{Message, Messaging as _};
use clock::Clock;
use contract::subject::Fleet;
use futures::StreamExt as _;
use nats_accounts::{AUTHORIZATION_REQUESTS, Answer, Callout, RoleMap, Signer, TokenRules, inbox_prefix, unverified_key_id};
use settings::Settings;
use tokio::signal::unix::{SignalKind, signal};

use self::keys::Keys;
use crate::cli::NatsAuthArgs;
use crate::configuration::Configuration;
use crate::exit::{Exit, UsageError};
use crate::node::connect_nats;

/// The queue group: each request goes to one process of the group.
const QUEUE_GROUP: &str = "fleetpull-nats-auth";
/// Requests that are answered at the same time. Some wait for a fetch of keys, and must not stop the others.
const AT_ONCE: usize = 64;

/// Answers requests until a signal stops it.
pub(super) fn carry_out(args: &NatsAuthArgs) -> Result<Exit> {
    if args.roles.is_empty() && args.certificate_roles.is_empty() {
        return Err(UsageError("no client could log in: give --role with --jwks and --issuer, or --certificate-role".to_owned()).into());
    }
    let configuration = Configuration::load(&args.settings, args.flags())?;
    configuration.start_log("info");
    let fleet = Fleet::named(&configuration.settings().fleet.name).context("fleet.name is not valid")?;
    let callout = Callout { fleet, signer: signer(&args.signing_key)?, tokens: rules(args), roles: roles(args, configuration.settings()) };
    actix::System::new().block_on(async {
        let clock = Clock::host();
        let keys = match &args.jwks {
            Some(source) => Some(Keys::open(source, args.jwks_ca.as_deref(), args.jwks_token_file.clone(), clock.clone()).await?),
            None => None,
        };
        let bus = connect_nats(configuration.settings()).await?;
        let requests = bus
            .subscribe(AUTHORIZATION_REQUESTS, Some(QUEUE_GROUP))
            .await
            .context("cannot subscribe to the servers' authorization requests")?;
        tracing::info!(
            issuer = callout.signer.public_key(),
            service_accounts = args.roles.len(),
            organizations = args.certificate_roles.len(),
            "the auth callout answers"
        );
        let answering = requests.for_each_concurrent(AT_ONCE, |request| answer(&callout, keys.as_ref(), &bus, &clock, request));
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            () = answering => anyhow::bail!("the connection to NATS is closed: check the server and this login, and start this again"),
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        bus.drain().await;
        tracing::info!("the auth callout has ended");
        Ok(Exit::Success)
    })
}

fn signer(path: &Path) -> Result<Signer> {
    let text = std::fs::read_to_string(path).with_context(|| format!("the signing key {} cannot be read", path.display()))?;
    Signer::from_seed_file(&text).with_context(|| format!("the signing key {} cannot be used", path.display()))
}

fn rules(args: &NatsAuthArgs) -> Option<TokenRules> {
    args.issuer.clone().map(|issuer| TokenRules { issuer, audience: args.audience.clone() })
}

fn roles(args: &NatsAuthArgs, settings: &Settings) -> RoleMap {
    RoleMap { service_accounts: args.roles.clone(), certificates: args.certificate_roles.clone(), cluster: settings.fleet.cluster.clone() }
}

/// Answers one request, and logs the result. A client without an answer is not let in.
async fn answer(callout: &Callout, keys: Option<&Keys>, bus: &NatsBus, clock: &Clock, request: Message) {
    let Some(reply_to) = &request.reply_to else { return };
    let asked = match callout.read(&request.payload) {
        Ok(asked) => asked,
        Err(error) => return tracing::warn!(%error, "a login request was not read and gets no answer"),
    };
    let keys = match (keys, asked.token().and_then(unverified_key_id)) {
        (Some(keys), Some(id)) => Some(keys.with(&id).await),
        (Some(keys), None) => Some(keys.current()),
        (None, _) => None,
    };
    let now_s = clock.now().wall_ms() / 1_000;
    match callout.answer(asked, keys.as_deref(), now_s) {
        Ok(Answer { payload, outcome, client_host, client_name }) => {
            if let Err(error) = bus.publish(Message::new(reply_to.clone(), payload)).await {
                tracing::warn!(%error, "the answer to a login request was not sent");
            }
            let (host, client) = (plain(&client_host), plain(&client_name));
            match outcome {
                Ok(identity) => tracing::info!(
                    role = %identity.role, name = %identity.name, by = plain(&identity.known_by), host, client,
                    inbox_prefix = inbox_prefix(&identity.name), "a client is let in"
                ),
                Err(refusal) => tracing::warn!(reason = plain(&refusal.to_string()), host, client, "a client is refused"),
            }
        }
        Err(error) => tracing::warn!(%error, "a login request gets no answer"),
    }
}

/// Text of a client for a log: without control characters, and with at most `MAX_CHARS` characters.
fn plain(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    crate::output::one_line(text).chars().take(MAX_CHARS).collect()
}
