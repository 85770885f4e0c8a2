//! Liveness and readiness of the agent, in the form that Kubernetes asks for.

use actix::{Handler, Message, MessageResult};

use super::actor::Agent;

/// The problem of each part of an agent. None if the part has no problem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// With a runtime problem nothing can be pulled: the agent is not ready.
    pub(super) runtime: Option<String>,
    /// With a bus problem the node goes on alone: it is degraded, but ready.
    pub(super) bus: Option<String>,
    /// Whether no bus is configured.
    pub(super) is_bus_unset: bool,
    /// While events cannot be stored, the node is degraded, but ready.
    pub(super) events: Option<String>,
}

/// Asks the agent of this process for its health.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Health")]
pub(super) struct ReadHealth;

impl Handler<ReadHealth> for Agent {
    type Result = MessageResult<ReadHealth>;

    fn handle(&mut self, _: ReadHealth, _: &mut Self::Context) -> Self::Result {
        MessageResult(self.condition.health())
    }
}

impl Health {
    /// True if the agent can pull images.
    pub(super) fn is_ready(&self) -> bool {
        self.runtime.is_none()
    }

    /// The body of `/readyz`: every part, as Kubernetes writes it, if `verbose` or if a part fails.
    pub(super) fn readyz(&self, verbose: bool) -> String {
        let degraded = [("bus", &self.bus), ("events", &self.events)];
        if !verbose && self.is_ready() {
            // The problem of the events names them.
            let bus = self.bus.as_ref().map(|problem| format!("bus: {problem}"));
            let problems = bus.into_iter().chain(self.events.clone()).collect::<Vec<_>>().join("; ");
            return if problems.is_empty() { "ok\n".to_owned() } else { format!("ok, degraded: {problems}\n") };
        }
        let runtime = self.runtime.as_ref().map_or_else(|| "[+]runtime ok".to_owned(), |problem| format!("[-]runtime failed: {problem}"));
        let lines = degraded.map(|(part, problem)| match problem {
            None if part == "bus" && self.is_bus_unset => format!("[+]{part} ok: none is configured\n"),
            None => format!("[+]{part} ok\n"),
            Some(problem) => format!("[!]{part} degraded: {problem}\n"),
        });
        let verdict = match (self.is_ready(), &self.bus, &self.events) {
            (false, ..) => "readyz check failed",
            (true, None, None) => "readyz check passed",
            (true, Some(_), _) => "readyz check passed, degraded: this node goes on without the bus",
            (true, None, Some(_)) => "readyz check passed, degraded: this node goes on without storing its events",
        };
        format!("[+]agent ok\n{runtime}\n{}{verdict}\n", lines.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_does_not_depend_on_the_bus_and_lists_what_is_degraded() {
        let problem = |text: &str| Some(text.to_owned());
        let well = Health::default();
        assert_eq!((well.is_ready(), well.readyz(false).as_str()), (true, "ok\n"));
        assert_eq!(well.readyz(true), "[+]agent ok\n[+]runtime ok\n[+]bus ok\n[+]events ok\nreadyz check passed\n");
        let unset = Health { is_bus_unset: true, ..Health::default() };
        assert_eq!((unset.is_ready(), unset.readyz(false).as_str()), (true, "ok\n"));
        assert!(
            unset.readyz(true).contains("[+]bus ok: none is configured\n[+]events ok\nreadyz check passed\n"),
            "{}",
            unset.readyz(true)
        );
        let full = Health { events: problem("events cannot be stored: disk full"), ..Health::default() };
        assert_eq!((full.is_ready(), full.readyz(false).as_str()), (true, "ok, degraded: events cannot be stored: disk full\n"));
        let lines = "[!]events degraded: events cannot be stored: disk full\nreadyz check passed, degraded";
        assert!(full.readyz(true).contains(lines), "{}", full.readyz(true));
        let alone = Health { bus: problem("no bus since 12:00"), ..Health::default() };
        assert_eq!((alone.is_ready(), alone.readyz(false).as_str()), (true, "ok, degraded: bus: no bus since 12:00\n"));
        assert!(
            alone.readyz(true).contains("[!]bus degraded: no bus since 12:00\n[+]events ok\nreadyz check passed, degraded"),
            "{}",
            alone.readyz(true)
        );
        let broken = Health { runtime: problem("containerd: no answer"), ..alone };
        assert!(!broken.is_ready());
        for verbose in [false, true] {
            let text = broken.readyz(verbose);
            assert!(text.contains("[-]runtime failed: containerd: no answer\n") && text.ends_with("readyz check failed\n"), "{text}");
        }
    }
}
