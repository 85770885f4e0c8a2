//! Messages of version 1, byte for byte.
//!
//! `golden/v1/messages.jsonl` has an example of every command and of every form of every reply, as JSON and as encoded bytes;
//! `golden/v1/events.jsonl` has an event of every reason with its CloudEvent. Checked here:
//! - the bytes are read as that JSON, and the JSON is written as those bytes;
//! - every command and every reason has its example, and an example shows every field;
//! - a message of a version with more fields and words is read: new fields are ignored, new words become unknown with their text.
//!
//! After an intended change of a message: `BLESS=1 cargo test -p contract messages` writes the bytes anew from the JSON; new fields must be
//! filled in by hand.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use contract::messages::{agent, backoff_tracker, event_recorder, pull_coordinator, registrar, throttler};
use contract::{Command, EventReason, PullEvent, cloud_event};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

/// Maps with keys of their own, to which a newer version adds no fields.
const FREE_KEYS: [&str; 5] = ["labels", "counters", "last_seen_ms_ago", "alive", "settings"];
/// Replies that are enums: the only key of the outermost object is the variant.
const ENUM_REPLIES: [&str; 4] = ["backoff-tracker.check", "backoff-tracker.clearance", "throttler.acquire", "throttler.grant-budget"];

/// The codec of one type of example.
struct Codec {
    /// Encodes JSON.
    write: fn(&Value) -> Result<Vec<u8>, String>,
    /// Decodes bytes.
    read: fn(&[u8]) -> Result<Value, String>,
}

fn codec<T: Serialize + DeserializeOwned>() -> Codec {
    Codec {
        write: |json| {
            let value = serde_json::from_value::<T>(json.clone()).map_err(|error| error.to_string())?;
            rmp_serde::to_vec_named(&value).map_err(|error| error.to_string())
        },
        read: |bytes| {
            let value = rmp_serde::from_slice::<T>(bytes).map_err(|error| error.to_string())?;
            serde_json::to_value(value).map_err(|error| error.to_string())
        },
    }
}

/// A command's name as its subject ends, and the codecs of its request and reply.
struct Known {
    name: String,
    request: Codec,
    reply: Codec,
}

fn known<C: Command>() -> Known {
    Known { name: format!("{}.{}", C::SERVICE.name(), C::VERB), request: codec::<C>(), reply: codec::<C::Reply>() }
}

fn commands() -> Vec<Known> {
    vec![
        known::<agent::DescribeNode>(),
        known::<agent::CountAll>(),
        known::<agent::ReadMetrics>(),
        known::<agent::ReadSetup>(),
        known::<backoff_tracker::CheckBackoff>(),
        known::<backoff_tracker::RequestClearance>(),
        known::<backoff_tracker::BeginAttempt>(),
        known::<backoff_tracker::ResolveAttempt>(),
        known::<backoff_tracker::WithdrawClearance>(),
        known::<backoff_tracker::ReportAttempt>(),
        known::<backoff_tracker::CountBackoffs>(),
        known::<backoff_tracker::SeeFleet>(),
        known::<backoff_tracker::ListBackoffs>(),
        known::<backoff_tracker::ClearBackoff>(),
        known::<backoff_tracker::PauseSharing>(),
        known::<event_recorder::RecordEvent>(),
        known::<event_recorder::ListEvents>(),
        known::<event_recorder::CountEvents>(),
        known::<pull_coordinator::EnsureImage>(),
        known::<pull_coordinator::ListPulls>(),
        known::<pull_coordinator::ListStandingPulls>(),
        known::<pull_coordinator::ListImages>(),
        known::<pull_coordinator::CancelStandingPull>(),
        known::<pull_coordinator::ExplainImage>(),
        known::<registrar::ReportAlive>(),
        known::<registrar::ListNodes>(),
        known::<throttler::AcquirePermit>(),
        known::<throttler::ReleasePermit>(),
        known::<throttler::CountPermits>(),
        known::<throttler::ReportLimits>(),
        known::<throttler::SeeFleet>(),
        known::<throttler::GrantBudget>(),
        known::<throttler::RenewBudget>(),
        known::<throttler::ReturnBudget>(),
        known::<throttler::BudgetTurn>(),
        known::<throttler::ListBudgets>(),
        known::<throttler::ForgetQuota>(),
    ]
}

/// One line of `messages.jsonl`.
struct Example {
    message: String,
    is_request: bool,
    json: Value,
    bytes: Vec<u8>,
}

impl Example {
    fn codec<'a>(&self, commands: &'a [Known]) -> &'a Codec {
        let command = commands.iter().find(|known| known.name == self.message);
        let command = command.unwrap_or_else(|| panic!("{} is an example of no command", self.message));
        if self.is_request { &command.request } else { &command.reply }
    }

    fn describe(&self) -> String {
        format!("{} {}", self.message, if self.is_request { "request" } else { "reply" })
    }
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(name)
}

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(golden(name)).expect("the golden file is there");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}"))).collect()
}

fn examples() -> Vec<Example> {
    let read = |line: Value| Example {
        message: line["message"].as_str().expect("a name").to_owned(),
        is_request: match line["kind"].as_str() {
            Some("request") => true,
            Some("reply") => false,
            other => panic!("{other:?} is neither request nor reply"),
        },
        json: line["json"].clone(),
        bytes: bytes_of(line["bytes"].as_str().unwrap_or_default()),
    };
    lines("messages.jsonl").into_iter().map(read).collect()
}

fn bytes_of(hex: &str) -> Vec<u8> {
    hex.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).expect("hex digits")).collect()
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

fn bless(commands: &[Known], examples: &[Example]) {
    let mut text = String::new();
    for example in examples {
        let bytes = (example.codec(commands).write)(&example.json).unwrap_or_else(|error| panic!("{}: {error}", example.describe()));
        let json = (example.codec(commands).read)(&bytes).unwrap_or_else(|error| panic!("{}: {error}", example.describe()));
        let kind = if example.is_request { "request" } else { "reply" };
        let line = json!({ "message": example.message, "kind": kind, "json": json, "bytes": hex_of(&bytes) });
        text.push_str(&format!("{line}\n"));
    }
    std::fs::write(golden("messages.jsonl"), text).expect("the golden file can be written");
}

#[test]
fn messages_are_written_and_read_byte_for_byte() {
    let (commands, examples) = (commands(), examples());
    if std::env::var_os("BLESS").is_some() {
        bless(&commands, &examples);
    }
    for example in if std::env::var_os("BLESS").is_some() { self::examples() } else { examples } {
        let codec = example.codec(&commands);
        let written = (codec.write)(&example.json).map(|bytes| hex_of(&bytes));
        assert_eq!(written, Ok(hex_of(&example.bytes)), "{} is written otherwise than before", example.describe());
        assert_eq!((codec.read)(&example.bytes), Ok(example.json.clone()), "{} is read otherwise than before", example.describe());
        assert_eq!(empty_field(&example.json), None, "{} does not show a value of every field", example.describe());
    }
}

/// The first field without a value.
fn empty_field(json: &Value) -> Option<String> {
    match json {
        Value::Null => Some(String::new()),
        Value::Object(fields) => fields.iter().find_map(|(name, value)| Some(format!("/{name}{}", empty_field(value)?))),
        Value::Array(items) => items.iter().find_map(empty_field),
        _ => None,
    }
}

/// How many commands the sources below a folder declare.
fn declared_in(folder: &Path) -> usize {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let declared = |source: String| source.matches("\nimpl Command for ").count();
    paths.map(|path| if path.is_dir() { declared_in(&path) } else { declared(std::fs::read_to_string(path).unwrap()) }).sum()
}

#[test]
fn every_command_has_an_example_of_its_request_and_of_every_form_of_its_reply() {
    let (commands, examples) = (commands(), examples());
    let declared = declared_in(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/messages"));
    assert_eq!(commands.len(), declared, "a command is missing in `commands()`");
    for command in &commands {
        for is_request in [true, false] {
            let found = examples.iter().any(|example| example.message == command.name && example.is_request == is_request);
            assert!(found, "{} has no example (request: {is_request})", command.name);
        }
    }
    for (message, variants) in [
        ("backoff-tracker.check", &["allowed", "refused"][..]),
        ("backoff-tracker.clearance", &["granted", "refused", "waiting", "abandoned"]),
        ("throttler.acquire", &["granted", "queued", "refused"]),
        ("throttler.grant-budget", &["granted", "queued", "refused", "not_leading"]),
    ] {
        let replies = examples.iter().filter(|example| example.message == message && !example.is_request);
        let shown: BTreeSet<&str> = replies.map(|example| variant(&example.json)).collect();
        assert_eq!(shown, variants.iter().copied().collect(), "{message}");
    }
}

fn variant(reply: &Value) -> &str {
    reply.as_str().or_else(|| reply.as_object()?.keys().next().map(String::as_str)).expect("an enum")
}

/// The message as a newer version would write it: every object has one more field.
fn of_a_newer_version(json: &Value, is_tag: bool) -> Value {
    match json {
        Value::Object(fields) => {
            let newer = |(name, value): (&String, &Value)| {
                let value = if FREE_KEYS.contains(&name.as_str()) { value.clone() } else { of_a_newer_version(value, false) };
                (name.clone(), value)
            };
            let mut fields: Map<String, Value> = fields.iter().map(newer).collect();
            if !is_tag {
                fields.insert("added_later".to_owned(), json!({ "list": [1, "two", null], "flag": true }));
            }
            Value::Object(fields)
        }
        Value::Array(items) => items.iter().map(|item| of_a_newer_version(item, false)).collect(),
        other => other.clone(),
    }
}

#[test]
fn messages_of_a_version_with_more_fields_are_read_as_ours() {
    let commands = commands();
    for example in examples() {
        let is_tag = !example.is_request && ENUM_REPLIES.contains(&example.message.as_str());
        let newer = of_a_newer_version(&example.json, is_tag);
        assert!(newer != example.json || !example.json.is_object() || is_tag, "{} was not changed", example.describe());
        let bytes = rmp_serde::to_vec_named(&newer).unwrap();
        assert_eq!((example.codec(&commands).read)(&bytes), Ok(example.json.clone()), "{}", example.describe());
    }
}

/// Words that a newer version may extend: the message, the path to the word, and how ours shows an unknown word.
const WORDS: [(&str, &str, &str); 9] = [
    ("pull-coordinator.ensure", "/outcome", "new_word"),
    ("pull-coordinator.ensure", "/reason", "new_word"),
    ("pull-coordinator.ensure", "/class", "unknown"),
    ("pull-coordinator.list", "/pulls/0/state", "new_word"),
    ("pull-coordinator.standing-pulls", "/standing_pulls/0/state", "waiting"),
    ("backoff-tracker.list", "/entries/0/class", "unknown"),
    ("backoff-tracker.list", "/entries/0/key_parts/kind", "new_word"),
    ("event-recorder.list", "/events/0/reason", "new_word"),
    ("event-recorder.list", "/events/0/class", "unknown"),
];

#[test]
fn word_of_a_newer_version_keeps_the_message_readable() {
    let (commands, examples) = (commands(), examples());
    for (message, path, shown) in WORDS {
        let example = examples.iter().find(|example| example.message == message && !example.is_request).expect("an example");
        let mut newer = example.json.clone();
        *newer.pointer_mut(path).unwrap_or_else(|| panic!("{message} has no {path}")) = json!("new_word");
        let read = (example.codec(&commands).read)(&rmp_serde::to_vec_named(&newer).unwrap());
        let read = read.unwrap_or_else(|error| panic!("{message} {path}: {error}"));
        assert_eq!(read.pointer(path), Some(&json!(shown)), "{message} {path}");
    }
    for message in ENUM_REPLIES {
        let codec = &commands.iter().find(|known| known.name == message).expect("a command").reply;
        for newer in [json!("new_word"), json!({ "new_word": { "why": "because", "list": [1, 2] } })] {
            let read = (codec.read)(&rmp_serde::to_vec_named(&newer).unwrap());
            // It is read, but agents never write it.
            assert!(read.as_ref().is_err_and(|error| error.contains("Unknown")), "{message}: {read:?}");
        }
    }
}

#[test]
fn an_event_of_every_reason_is_written_as_its_cloud_event() {
    let mut lines = lines("events.jsonl");
    let write = |line: &Value| {
        let event: PullEvent = serde_json::from_value(line["event"].clone()).expect("an event");
        serde_json::from_slice::<Value>(&cloud_event::to_json(&event).unwrap()).unwrap()
    };
    if std::env::var_os("BLESS").is_some() {
        for line in &mut lines {
            line["cloud_event"] = write(line);
        }
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(golden("events.jsonl"), text).expect("the golden file can be written");
    }
    let shown: BTreeSet<&str> = lines.iter().filter_map(|line| line["event"]["reason"].as_str()).collect();
    assert_eq!(shown, EventReason::ALL.iter().map(EventReason::as_str).collect());
    for line in &lines {
        assert_eq!(write(line), line["cloud_event"]);
    }
}
