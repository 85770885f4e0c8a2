//! Whether a command still reaches the nodes whose state it shows.

use std::time::Duration;

use bus::BusHealth;

use super::silent::milliseconds;
use super::units;

/// How long a restored contact is shown.
const FOUND_SHOWN: Duration = Duration::from_secs(10);

/// The contact of a command with the nodes that it asks. Times count from the start of the command.
#[derive(Debug, Default)]
pub struct Contact {
    /// When the contact was lost. None if it is not.
    lost: Option<Duration>,
    /// When the contact was restored, and how long it was lost.
    found: Option<(Duration, Duration)>,
}

impl Contact {
    /// Takes the current health of the bus.
    pub fn see(&mut self, health: &BusHealth, now: Duration) {
        match health {
            BusHealth::Disconnected { .. } => self.lost = self.lost.or(Some(now)),
            BusHealth::Connected | BusHealth::Degraded { .. } => {
                if let Some(lost) = self.lost.take() {
                    self.found = Some((now, now.saturating_sub(lost)));
                }
            }
        }
    }

    /// The line about the contact, if there is something to say. `with` names the other side.
    #[must_use]
    pub fn line(&self, with: &str, now: Duration) -> Option<String> {
        if let Some(lost) = self.lost {
            return Some(format!("contact with {with} lost {} ago: the lines below date from then", lasting(now, lost)));
        }
        let (found, lasted) = self.found.filter(|(found, _)| now.saturating_sub(*found) < FOUND_SHOWN)?;
        Some(format!("contact with {with} found again {} ago, after {}", lasting(now, found), units::age(milliseconds(lasted))))
    }
}

fn lasting(now: Duration, since: Duration) -> String {
    match now.saturating_sub(since) {
        short if short < Duration::from_secs(120) => format!("{} s", short.as_secs()),
        long => units::age(milliseconds(long)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn lost_contact_is_shown_until_it_is_restored() {
        let lost = || BusHealth::Disconnected { reason: "connection refused".to_owned() };
        let mut contact = Contact::default();
        contact.see(&BusHealth::Connected, seconds(0));
        assert_eq!(contact.line("NATS", seconds(1)), None);
        contact.see(&lost(), seconds(5));
        contact.see(&lost(), seconds(9));
        let line = |contact: &Contact, now| contact.line("NATS", seconds(now)).unwrap_or_default();
        assert!(line(&contact, 23).starts_with("contact with NATS lost 18 s ago: "), "{}", line(&contact, 23));
        assert!(line(&contact, 305).starts_with("contact with NATS lost 5m ago: "), "{}", line(&contact, 305));
        assert!(line(&contact, 1).starts_with("contact with NATS lost 0 s ago: "), "a clock that goes back");
        contact.see(&BusHealth::Connected, seconds(47));
        assert_eq!(line(&contact, 50), "contact with NATS found again 3 s ago, after 42s");
        assert_eq!(contact.line("NATS", seconds(57)), None, "it is old");
        contact.see(&lost(), seconds(60));
        assert!(line(&contact, 61).starts_with("contact with NATS lost 1 s ago: "));
    }
}
