//! The frames of the socket.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio_util::codec::LengthDelimitedCodec;

use crate::error::BusError;
use crate::message::{MAX_PAYLOAD_BYTES, Message};

/// The room for everything in a frame except headers and payload: subjects, which are bounded, and names of fields.
const FRAME_OVERHEAD_BYTES: usize = 64 * 1024;

/// The most bytes of one frame; a longer one ends the connection.
pub const MAX_FRAME_BYTES: usize = MAX_PAYLOAD_BYTES + FRAME_OVERHEAD_BYTES;

/// From the client. Every frame but `End` is answered by one with the same id.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToServer {
    /// Ask, and wait for one answer: `Reply` or `Failed`.
    Request { id: u64, timeout: Duration, message: WireMessage },
    /// Publish: `Done` or `Failed`.
    Publish { id: u64, message: WireMessage },
    /// Subscribe: `Done` or `Failed`, then `Delivered` for each message.
    Subscribe { id: u64, subject: String, queue: Option<String> },
    /// Ends the request or subscription of this id.
    End { id: u64 },
}

/// From the server.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToClient {
    Reply {
        id: u64,
        message: WireMessage,
    },
    Done {
        id: u64,
    },
    Failed {
        id: u64,
        #[serde(with = "WireError")]
        error: BusError,
    },
    Delivered {
        id: u64,
        message: WireMessage,
    },
    /// The connection is about to be closed, for this reason.
    Refused {
        reason: String,
    },
}

/// A message in a frame.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireMessage {
    subject: String,
    #[serde(default)]
    reply_to: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    payload: Bytes,
}

/// The encoded form of the port's errors.
#[derive(Serialize, Deserialize)]
#[serde(remote = "BusError")]
enum WireError {
    NoResponders { subject: String },
    TimedOut { subject: String, timeout: Duration },
    Forbidden { subject: String },
    TooLarge { subject: String, bytes: usize, limit: usize },
    BadSubject { subject: String },
    BadHeader { name: String },
    Disconnected { reason: String },
    Closed,
    Unsupported { reason: String },
    Other { reason: String },
}

impl From<Message> for WireMessage {
    fn from(message: Message) -> Self {
        let headers = message.headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { subject: message.subject, reply_to: message.reply_to, headers, payload: message.payload }
    }
}

impl From<WireMessage> for Message {
    fn from(message: WireMessage) -> Self {
        let headers = message.headers.into_iter().collect();
        Self { subject: message.subject, reply_to: message.reply_to, headers, payload: message.payload }
    }
}

/// The codec that separates frames.
pub(super) fn codec() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_FRAME_BYTES).new_codec()
}

pub(super) fn encode<F: Serialize>(frame: &F) -> io::Result<Bytes> {
    rmp_serde::to_vec_named(frame).map(Bytes::from).map_err(io::Error::other)
}

pub(super) fn decode<F: DeserializeOwned>(bytes: &[u8]) -> io::Result<F> {
    rmp_serde::from_slice(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
