//! Enums in messages and stored values that later versions extend: an unknown word is read as unknown, with its text, and never fails the
//! message.

mod answer;
mod text;

pub(crate) use answer::{OpenAnswer, open_answer, read};
pub use text::UnknownText;
pub(crate) use text::open_text;
