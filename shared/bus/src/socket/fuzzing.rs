//! Entry points for fuzzing the parsers. A failure is a panic.

use super::frame::{ToClient, ToServer, decode, encode};

/// Frames of both directions: a frame that can be read is written and read again with the same result.
pub fn frames(data: &[u8]) {
    if let Ok(frame) = decode::<ToServer>(data) {
        let written = encode(&frame).ok();
        let again = written.as_ref().and_then(|bytes| decode::<ToServer>(bytes).ok());
        assert_eq!(again.and_then(|frame| encode(&frame).ok()), written, "a frame is not read as it is written");
    }
    if let Ok(frame) = decode::<ToClient>(data) {
        let written = encode(&frame).ok();
        let again = written.as_ref().and_then(|bytes| decode::<ToClient>(bytes).ok());
        assert_eq!(again.and_then(|frame| encode(&frame).ok()), written, "a frame is not read as it is written");
    }
}
