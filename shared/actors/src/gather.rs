//! Sends one command to every agent of a fleet and collects the answers.

use std::time::Duration;

use bus::{BusError, MessagingRef};
use clock::Clock;
use contract::subject::Fleet;
use contract::{CallError, Command, Envelope};
use futures::StreamExt as _;

use crate::wire;

/// How long to wait for answers.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The longest wait for the first answer, and in all.
    pub limit: Duration,
    /// The wait ends if no answer comes for this long after the last one.
    pub quiet: Duration,
}

/// For a waiting person: a fleet on the local network answers within milliseconds, a remote one within a few hundred.
pub const PERSON: Patience = Patience { limit: Duration::from_secs(2), quiet: Duration::from_millis(400) };

/// Asks every agent, and collects the answers in the order of arrival.
///
/// # Errors
/// The bus did not take the command. It is no error if no agent answers.
pub async fn gather<C: Command>(
    bus: &MessagingRef,
    fleet: &Fleet,
    envelope: Envelope<C>,
    patience: Patience,
    clock: &Clock,
) -> Result<Vec<C::Reply>, CallError> {
    let bus_failed = |error: BusError| CallError::Bus { reason: error.to_string() };
    let inbox = bus.new_inbox();
    let mut answers = bus.subscribe(&inbox, None).await.map_err(bus_failed)?;
    let mut question = wire::encode_command(fleet.command_to_all(C::SERVICE, C::VERB), &envelope)?;
    question.reply_to = Some(inbox);
    bus.publish(question).await.map_err(bus_failed)?;
    let start = clock.now().monotonic;
    let mut collected = Vec::new();
    loop {
        let left = patience.limit.saturating_sub(clock.now().monotonic.saturating_sub(start));
        let wait = if collected.is_empty() { left } else { patience.quiet.min(left) };
        match tokio::time::timeout(wait, answers.next()).await {
            // If no agent listens, the server answers with an empty message.
            Ok(Some(message)) if message.payload.is_empty() => {}
            Ok(Some(message)) => match wire::decode_reply::<C::Reply>(&message) {
                Ok(reply) => collected.push(reply),
                Err(error) => tracing::warn!(%error, "an answer could not be read"),
            },
            Ok(None) | Err(_) => return Ok(collected),
        }
    }
}
