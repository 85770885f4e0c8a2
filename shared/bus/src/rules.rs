//! What both adapters refuse before anything is sent: subjects, headers, sizes, keys and times to live that NATS does not accept.

use std::time::Duration;

use crate::error::BusError;
use crate::message::{MAX_PAYLOAD_BYTES, Message};
use crate::messaging::DEADLINE_HEADER;
use crate::shared_state::{BucketSpec, KeyValueError};

/// The longest subject. nats-server closes a connection whose control line is over 4,096 bytes; the line holds the subject, the reply
/// subject and sizes.
const MAX_SUBJECT_BYTES: usize = 1024;

/// The one header name that a server may change.
const TRACEPARENT: &str = "traceparent";

/// Checks a message that is to be published.
pub(crate) fn check_message(message: &Message, limit: usize) -> Result<(), BusError> {
    check_subject(&message.subject)?;
    message.reply_to.as_deref().map_or(Ok(()), check_subject)?;
    for (name, value) in message.headers.iter() {
        if !is_header(name, value) {
            return Err(BusError::BadHeader { name: name.to_owned() });
        }
    }
    let bytes = message.wire_bytes();
    if bytes > limit {
        return Err(BusError::TooLarge { subject: message.subject.clone(), bytes, limit });
    }
    Ok(())
}

/// Adds the header that says how long the caller waits.
pub(crate) fn with_deadline(mut message: Message, timeout: Duration) -> Message {
    message.headers.set(DEADLINE_HEADER, timeout.as_millis().to_string());
    message
}

/// Checks a subject to publish to: tokens of printable ASCII, no wildcards.
pub(crate) fn check_subject(subject: &str) -> Result<(), BusError> {
    let at_an_end = subject.is_empty() || subject.starts_with('.') || subject.ends_with('.');
    let empty = at_an_end || any(subject.as_bytes().windows(2), |pair| pair == b"..");
    let odd = any(subject.as_bytes(), |byte| !is_of_token(*byte));
    if subject.len() > MAX_SUBJECT_BYTES || empty || odd { Err(BusError::BadSubject { subject: subject.to_owned() }) } else { Ok(()) }
}

/// Checks a subject to subscribe to: `*` stands for one token, `>` for all that follow and only at the end.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), BusError> {
    let fixed = match pattern.rsplit_once('.') {
        _ if pattern == ">" => "*",
        Some((before, ">")) => before,
        _ => pattern,
    };
    let valid = pattern.len() <= MAX_SUBJECT_BYTES && fixed.split('.').all(|token| token == "*" || is_token(token));
    if valid { Ok(()) } else { Err(BusError::BadSubject { subject: pattern.to_owned() }) }
}

/// Checks the name of a queue group.
pub(crate) fn check_queue(queue: &str) -> Result<(), BusError> {
    if is_token(queue) { Ok(()) } else { Err(BusError::BadSubject { subject: queue.to_owned() }) }
}

/// Checks the name of a bucket or a stream.
pub(crate) fn check_name(name: &str) -> Result<(), BusError> {
    let valid = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if valid { Ok(()) } else { Err(BusError::BadSubject { subject: name.to_owned() }) }
}

/// Checks a bucket that is to be opened.
pub(crate) fn check_bucket(spec: &BucketSpec) -> Result<(), BusError> {
    check_name(&spec.name)?;
    if let Some(target) = &spec.republish_to {
        check_subject(target)?;
    }
    match spec.marker_ttl {
        Some(ttl) if !is_whole_seconds(ttl) => {
            Err(BusError::Other { reason: format!("bucket {}: markers are kept for whole seconds, at least 1 s, not {ttl:?}", spec.name) })
        }
        _ => Ok(()),
    }
}

/// Checks a key, or a prefix of keys.
pub(crate) fn check_key(key: &str) -> Result<(), KeyValueError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-/_=".contains(&byte);
    let valid = key.len() <= MAX_SUBJECT_BYTES && key.split('.').all(|token| !token.is_empty() && token.bytes().all(allowed));
    if valid { Ok(()) } else { Err(KeyValueError::BadKey { key: key.to_owned() }) }
}

/// Checks a time to live.
pub(crate) fn check_ttl(spec: &BucketSpec, ttl: Option<Duration>) -> Result<(), KeyValueError> {
    match ttl {
        Some(ttl) if spec.marker_ttl.is_none() || !is_whole_seconds(ttl) => Err(KeyValueError::BadTtl { ttl }),
        _ => Ok(()),
    }
}

/// Checks a value.
pub(crate) fn check_value(key: &str, value: &[u8]) -> Result<(), KeyValueError> {
    if value.len() > MAX_PAYLOAD_BYTES {
        let (subject, bytes, limit) = (key.to_owned(), value.len(), MAX_PAYLOAD_BYTES);
        return Err(KeyValueError::Bus(BusError::TooLarge { subject, bytes, limit }));
    }
    Ok(())
}

fn is_whole_seconds(ttl: Duration) -> bool {
    ttl.as_secs() >= 1 && ttl.subsec_nanos() == 0
}

fn is_token(token: &str) -> bool {
    !token.is_empty() && token.bytes().all(|byte| byte != b'.' && is_of_token(byte))
}

fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'*' && byte != b'>'
}

fn is_header(name: &str, value: &str) -> bool {
    let odd = any(name.as_bytes(), |byte| !byte.is_ascii_graphic() || *byte == b':');
    // nats-server 2.11 rewrites every other spelling of this name to lower case.
    let rewritten = name.eq_ignore_ascii_case(TRACEPARENT) && name != TRACEPARENT;
    !name.is_empty() && !odd && !rewritten && !any(value.as_bytes(), |byte| *byte == b'\r' || *byte == b'\n')
}

/// Checks all bytes without stopping at the first match, so that many bytes are checked at once; nearly every message is valid.
fn any<T>(all: impl IntoIterator<Item = T>, is: impl Fn(T) -> bool) -> bool {
    all.into_iter().fold(false, |any, one| any | is(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_to_publish_on_has_no_wildcards_and_no_empty_tokens() {
        for subject in ["a", "a.b", "fleetpull.v1.cmd.n-1.throttler.ask", "$KV.b.k=/_", "_INBOX.x", "A.~!"] {
            assert_eq!(check_subject(subject), Ok(()), "{subject}");
        }
        let long = "a".repeat(MAX_SUBJECT_BYTES + 1);
        for subject in ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nb", "a.*", "a.>", "a*b", "ä", "a\0", long.as_str()] {
            assert_eq!(check_subject(subject), Err(BusError::BadSubject { subject: subject.to_owned() }), "{subject:?}");
        }
    }

    #[test]
    fn a_pattern_has_wildcards_as_whole_tokens_and_the_rest_only_last() {
        for pattern in ["a", "*", ">", "a.*", "*.a.*", "a.>", "*.>", "$SRV.*.name"] {
            assert_eq!(check_pattern(pattern), Ok(()), "{pattern}");
        }
        for pattern in ["", ".>", "a.>.b", ">.a", "a*", "a.b>", "*.", "a..>", "a >"] {
            assert_eq!(check_pattern(pattern), Err(BusError::BadSubject { subject: pattern.to_owned() }), "{pattern:?}");
        }
    }

    #[test]
    fn a_key_is_made_of_tokens_of_few_characters() {
        for key in ["a", "a.b", "A-1/_=.z", "sha256-00"] {
            assert_eq!(check_key(key), Ok(()), "{key}");
        }
        for key in ["", ".", "a.", ".a", "a..b", "sha256:00", "a@b", "a b", "ä", "a*", "a.>"] {
            assert_eq!(check_key(key), Err(KeyValueError::BadKey { key: key.to_owned() }), "{key:?}");
        }
    }

    #[test]
    fn a_time_to_live_is_in_whole_seconds_in_a_bucket_made_for_it() {
        let mut spec = BucketSpec {
            name: "b".to_owned(),
            marker_ttl: Some(Duration::from_secs(1)),
            max_bytes: None,
            forgets_oldest: false,
            republish_to: None,
        };
        for (ms, valid) in [(1_000, true), (60_000, true), (0, false), (999, false), (1_500, false)] {
            let ttl = Duration::from_millis(ms);
            let expected = if valid { Ok(()) } else { Err(KeyValueError::BadTtl { ttl }) };
            assert_eq!(check_ttl(&spec, Some(ttl)), expected, "{ms} ms");
        }
        spec.marker_ttl = None;
        let ttl = Duration::from_secs(5);
        assert_eq!(check_ttl(&spec, Some(ttl)), Err(KeyValueError::BadTtl { ttl }));
        assert_eq!(check_ttl(&spec, None), Ok(()));
    }

    #[test]
    fn a_header_is_one_line() {
        for (name, value, valid) in [
            ("a", "b", true),
            ("A-b", "", true),
            ("traceparent", "b", true),
            ("Traceparents", "b", true),
            ("", "b", false),
            ("a:", "b", false),
            ("a b", "b", false),
            ("a", "b\nc", false),
            ("TraceParent", "b", false),
        ] {
            let message = Message::new("s", "").with_headers([(name, value)].into_iter().collect());
            let expected = if valid { Ok(()) } else { Err(BusError::BadHeader { name: name.to_owned() }) };
            assert_eq!(check_message(&message, MAX_PAYLOAD_BYTES), expected, "{name:?}: {value:?}");
        }
    }
}
