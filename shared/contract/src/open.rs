//! Enums that travel or are stored, and grow: what a newer version wrote is read as unknown, with its text, and never fails the message.

mod answer;
mod text;

pub(crate) use answer::{OpenAnswer, open_answer, read};
pub use text::UnknownText;
pub(crate) use text::open_text;
