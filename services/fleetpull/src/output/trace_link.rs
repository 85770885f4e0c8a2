//! Where a trace can be looked at: `traces.link` with a trace's id put in.

use std::sync::OnceLock;

/// What stands for the id in the setting.
const PLACE: &str = "{trace_id}";

static LINK: OnceLock<Option<String>> = OnceLock::new();

/// As set for this process. Only the first call counts.
pub fn set(link: Option<String>) {
    let _ = LINK.set(link);
}

/// Where the trace can be looked at; none if that is not set or there is no id.
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
