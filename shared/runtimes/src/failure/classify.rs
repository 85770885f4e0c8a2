//! placeholder
use contract::FailureClass;
use super::GrpcCode;
/// placeholder
#[must_use]
pub fn classify_text(_text: &str, _code: Option<GrpcCode>) -> FailureClass { FailureClass::Unknown }
