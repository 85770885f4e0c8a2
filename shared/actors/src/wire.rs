//! Encodes commands and replies as bus messages: MessagePack with named fields, so that fields can be added.

use bus::{Headers, Message};
use clock::Random;
use contract::subject::is_from;
use contract::{CallError, Carried, Command, Envelope, MessageId, Meta, TraceContext, VERSION, VERSION_TEXT, headers};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The deepest nesting of a message that is read. Real ones have fewer than ten levels; a forged one must not exhaust the stack.
const MAX_DEPTH: usize = 32;
/// The longest text of a refusal, in bytes; it is sent as a header.
const MAX_REASON_BYTES: usize = 4 * 1024;
/// The error code of a refusal, as in HTTP.
const REFUSED_CODE: &str = "400";
/// The text of each [`CallError::Refused`] begins with this.
const REFUSED: &str = "refused: ";

/// A command as a bus message for `subject`.
pub(crate) fn encode_command<C: Command>(subject: String, envelope: &Envelope<C>) -> Result<Message, CallError> {
    let mut message = Message::new(subject, pack(&envelope.body)?);
    message.headers = meta_headers(&envelope.meta);
    Ok(message)
}

/// The command in a bus message.
pub(crate) fn decode_command<C: Command>(message: &Message, random: &mut Random) -> Result<Envelope<C>, CallError> {
    check_version(&message.headers)?;
    let body = unpack(&message.payload)?;
    check_sender(&message.subject, &body)?;
    let header = |name| message.headers.get(name);
    let meta = Meta {
        message_id: header(headers::MESSAGE_ID)
            .and_then(|id| MessageId::try_from(id.to_owned()).ok())
            .unwrap_or_else(|| MessageId::random(random)),
        trace: header(headers::TRACEPARENT).and_then(TraceContext::parse).unwrap_or_else(|| TraceContext::fresh(random)),
        carried: Carried::of(header(headers::TRACESTATE), header(headers::BAGGAGE)),
    };
    Ok(Envelope { meta, body })
}

/// A service's answer as a bus message for `subject`.
pub(crate) fn encode_reply<R: Serialize>(subject: String, meta: Option<&Meta>, reply: Result<R, CallError>) -> Message {
    let packed = reply.and_then(|reply| pack(&reply));
    let mut headers = meta.map(meta_headers).unwrap_or_else(version_headers);
    match packed {
        Ok(payload) => Message::new(subject, payload).with_headers(headers),
        Err(error) => {
            headers.set(headers::SERVICE_ERROR, one_line(&error.to_string()));
            headers.set(headers::SERVICE_ERROR_CODE, REFUSED_CODE);
            Message::new(subject, Vec::new()).with_headers(headers)
        }
    }
}

/// The reply in a bus message.
pub(crate) fn decode_reply<R: DeserializeOwned>(message: &Message) -> Result<R, CallError> {
    if let Some(error) = message.headers.get(headers::SERVICE_ERROR) {
        // The header holds the text of the error. The text of a refusal gets its beginning again when this one is shown.
        return Err(CallError::Refused { reason: error.strip_prefix(REFUSED).unwrap_or(error).to_owned() });
    }
    check_version(&message.headers)?;
    unpack(&message.payload)
}

fn version_headers() -> Headers {
    let mut headers = Headers::new();
    headers.set(headers::CONTENT_TYPE, headers::MESSAGE_PACK);
    headers.set(headers::VERSION, VERSION_TEXT);
    headers
}

fn meta_headers(meta: &Meta) -> Headers {
    let mut headers = version_headers();
    if meta.trace.has_span() {
        headers.set(headers::TRACEPARENT, meta.trace.traceparent());
    }
    for (name, value) in
        meta.carried.iter().flat_map(|carried| [(headers::TRACESTATE, &carried.tracestate), (headers::BAGGAGE, &carried.baggage)])
    {
        if !value.is_empty() {
            headers.set(name, value.clone());
        }
    }
    headers.set(headers::MESSAGE_ID, meta.message_id.to_string());
    headers
}

/// Refuses another major version. A message without a version counts as ours, so that a plain client can send one.
fn check_version(message_headers: &Headers) -> Result<(), CallError> {
    match message_headers.get(headers::VERSION) {
        None => Ok(()),
        Some(VERSION_TEXT) => Ok(()),
        Some(version) => {
            let shown: String = version.chars().take(16).collect();
            Err(CallError::Refused {
                reason: format!("this agent reads messages of version {VERSION}, not {shown:?}: use a client of the same major version"),
            })
        }
    }
}

/// Refuses a payload that names another sender than the subject. The server's permissions let a node use only subjects with its own token.
fn check_sender<C: Command>(subject: &str, body: &C) -> Result<(), CallError> {
    let Some(claimed) = C::SENDER.map(|sender| sender(body)).filter(|claimed| !is_from(subject, claimed)) else { return Ok(()) };
    Err(CallError::Refused {
        reason: format!(
            "the message names node {claimed} as its sender, but its subject does not: send it on a subject that ends with that node's token"
        ),
    })
}

fn pack<T: Serialize>(value: &T) -> Result<Vec<u8>, CallError> {
    rmp_serde::to_vec_named(value).map_err(|error| CallError::Refused { reason: format!("the message cannot be encoded: {error}") })
}

fn unpack<T: DeserializeOwned>(payload: &[u8]) -> Result<T, CallError> {
    let mut deserializer = rmp_serde::Deserializer::from_read_ref(payload);
    deserializer.set_max_depth(MAX_DEPTH);
    T::deserialize(&mut deserializer).map_err(|error| CallError::Refused { reason: format!("the message cannot be decoded: {error}") })
}

/// Makes a text safe for a header: no line breaks, and a bounded length.
fn one_line(text: &str) -> String {
    let end = (0..=text.len().min(MAX_REASON_BYTES)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use contract::messages::throttler::{AcquirePermit, GrantBudget, KnownLimits, PermitAnswer};
    use contract::{PermitId, messages::backoff_tracker::CountBackoffs};

    use super::*;

    fn acquire() -> Envelope<AcquirePermit> {
        let mut random = Random::seeded(1);
        let trace = TraceContext::root(&mut random);
        let carried = Carried::of(Some("vendor=1"), Some("team=a"));
        let meta = Meta { carried, ..Meta::within(trace, &mut random) };
        Envelope {
            meta,
            body: AcquirePermit { permit: PermitId::random(&mut random), image: "busybox".to_owned(), patience_ms: 10, budget: None },
        }
    }

    #[test]
    fn command_is_decoded_as_encoded() {
        let sent = acquire();
        assert_eq!(VERSION_TEXT, VERSION.to_string());
        let message = encode_command("a.b".to_owned(), &sent).expect("encodes");
        assert_eq!(message.headers.get("traceparent"), Some(sent.meta.trace.traceparent().as_str()));
        assert_eq!(decode_command::<AcquirePermit>(&message, &mut Random::seeded(2)).expect("decodes"), sent);
    }

    #[test]
    fn missing_span_sends_no_traceparent_and_a_malformed_one_is_ignored() {
        let meta = Meta::root(&mut Random::seeded(1));
        let mut message = encode_command("a.b".to_owned(), &Envelope { meta, ..acquire() }).expect("encodes");
        assert_eq!(message.headers.get("traceparent"), None);
        let zeros = format!("00-{}-{}-01", "0".repeat(32), "0".repeat(16));
        for nonsense in ["".to_owned(), "nonsense".to_owned(), zeros, "0".repeat(2 << 20)] {
            message.headers.set("traceparent", nonsense.clone());
            message.headers.set("tracestate", "x".repeat(1 << 20));
            message.headers.set("baggage", "x".repeat(1 << 20));
            let decoded = decode_command::<AcquirePermit>(&message, &mut Random::seeded(2)).expect("decodes");
            assert_eq!((decoded.meta.trace.has_span(), decoded.meta.carried), (false, None), "{nonsense:.40}");
        }
    }

    #[test]
    fn command_is_accepted_only_from_the_sender_in_its_subject() {
        let permit = PermitId::random(&mut Random::seeded(1));
        let sender = "n.2".parse().expect("a name");
        let body = GrantBudget {
            owner: "owner".to_owned(),
            node: sender,
            permit,
            known: KnownLimits::default(),
            caps: contract::policy::Caps::NONE,
        };
        let envelope = Envelope { meta: Meta::root(&mut Random::seeded(1)), body };
        let own = "fleetpull.v1.cmd.n1.throttler.grant-budget";
        for (subject, taken) in [("n_2e2", true), ("n1", false), ("n.2", false), ("*", false), ("", false)] {
            let message = encode_command(format!("{own}.{subject}"), &envelope).expect("encodes");
            let decoded = decode_command::<GrantBudget>(&message, &mut Random::seeded(2));
            assert_eq!(decoded.is_ok(), taken, "{subject}: {decoded:?}");
            assert!(taken || decoded.is_err_and(|error| error.to_string().contains("n.2")));
        }
    }

    #[test]
    fn error_of_another_kind_is_decoded_as_a_refusal_with_its_words() {
        let ended = CallError::Ended { service: "throttler" };
        let message = encode_reply::<PermitAnswer>("r".to_owned(), None, Err(ended.clone()));
        assert_eq!(decode_reply::<PermitAnswer>(&message), Err(CallError::Refused { reason: ended.to_string() }));
    }

    #[test]
    fn reply_and_refusal_are_decoded_as_encoded() {
        let answer = PermitAnswer::Granted { lease_ms: 5 };
        let message = encode_reply("r".to_owned(), None, Ok(answer.clone()));
        assert_eq!(decode_reply::<PermitAnswer>(&message), Ok(answer));
        let refusal = encode_reply::<PermitAnswer>("r".to_owned(), None, Err(CallError::Refused { reason: "too\nmany".to_owned() }));
        assert_eq!(decode_reply::<PermitAnswer>(&refusal), Err(CallError::Refused { reason: "too many".to_owned() }));
    }

    #[test]
    fn foreign_version_and_garbage_are_refused_and_unknown_fields_are_accepted() {
        let mut message = encode_command("a.b".to_owned(), &acquire()).expect("encodes");
        message.headers.set(headers::VERSION, "2");
        let refused = decode_command::<AcquirePermit>(&message, &mut Random::seeded(2)).expect_err("another version");
        assert!(refused.to_string().contains("not \"2\""), "{refused}");
        for rubbish in [&b""[..], b"\xff\xff", b"{\"permit\":1}", &[0x91; 100_000]] {
            assert!(decode_command::<AcquirePermit>(&Message::new("a.b", rubbish.to_vec()), &mut Random::seeded(2)).is_err());
        }
        #[derive(Serialize)]
        struct Grown {
            news: u32,
        }
        let grown = Message::new("a.b", rmp_serde::to_vec_named(&Grown { news: 1 }).expect("encodes"));
        assert!(decode_command::<CountBackoffs>(&grown, &mut Random::seeded(2)).is_ok());
    }
}
