//! Links to traces: `traces.link` with the id of a trace filled in.

use std::sync::OnceLock;

/// The placeholder for the id in the setting.
const PLACE: &str = "{trace_id}";

static LINK: OnceLock<Option<String>> = OnceLock::new();

/// Sets the link of this process. Only the first call has an effect.
pub fn set(link: Option<String>) {
    let _ = LINK.set(link);
}

/// The link to a trace. None if no link is set or the id is empty.
#[must_use]
pub fn of(trace_id: &str) -> Option<String> {
    fill(LINK.get()?.as_deref()?, trace_id)
}

fn fill(link: &str, trace_id: &str) -> Option<String> {
    (!trace_id.is_empty()).then(|| link.replace(PLACE, trace_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_put_in() {
        assert_eq!(fill("http://jaeger:16686/trace/{trace_id}", "4bf9").as_deref(), Some("http://jaeger:16686/trace/4bf9"));
        assert_eq!(fill("http://jaeger:16686/trace/{trace_id}", ""), None);
    }
}
