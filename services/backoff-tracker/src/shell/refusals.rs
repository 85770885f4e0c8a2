//! Refused reports of other nodes, logged by writer at a bounded rate.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::subject::name_of;

/// Each writer is logged this often at most.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// Writers remembered. More are not logged, so that a fleet of bad writers does not fill the log.
const WRITERS: usize = 64;
/// The most characters of a writer's name: a name may have 253.
const NAME_CHARACTERS: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Refusals {
    writers: BTreeMap<String, Refused>,
}

#[derive(Debug)]
struct Refused {
    logged_at: Duration,
    since: u64,
}

impl Refusals {
    /// Counts a refused report. Returns the writer and how many reports were refused since the last log line, if a log line is due.
    pub(crate) fn count(&mut self, now: Duration, key: &str) -> Option<(String, u64)> {
        let token = key.split('.').next().unwrap_or_default();
        let name = name_of(token).unwrap_or_else(|| token.to_owned());
        let writer: String = name.chars().take(NAME_CHARACTERS).filter(|character| !character.is_control()).collect();
        if let Some(refused) = self.writers.get_mut(&writer) {
            refused.since += 1;
            if now < refused.logged_at + LOGGED_EVERY {
                return None;
            }
            refused.logged_at = now;
            return Some((writer, std::mem::take(&mut refused.since)));
        }
        if self.writers.len() >= WRITERS {
            self.writers.retain(|_, refused| now < refused.logged_at + LOGGED_EVERY);
        }
        if self.writers.len() >= WRITERS {
            return None;
        }
        self.writers.insert(writer.clone(), Refused { logged_at: now, since: 0 });
        Some((writer, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_writer_is_logged_once_a_minute_with_the_number_of_its_reports() {
        let (mut refusals, at) = (Refusals::default(), Duration::from_secs);
        assert_eq!(refusals.count(at(1), "n1.not_found.abc"), Some(("n1".to_owned(), 1)));
        assert_eq!((refusals.count(at(2), "n1.x.y"), refusals.count(at(60), "n1.x.y")), (None, None));
        assert_eq!(refusals.count(at(2), "n_2e2.x.y"), Some(("n.2".to_owned(), 1)), "a token is read as the name that it stands for");
        assert_eq!(refusals.count(at(61), "n1.x.y"), Some(("n1".to_owned(), 3)));
        assert_eq!(refusals.count(at(62), "n1.x.y"), None);
    }

    #[test]
    fn neither_many_writers_nor_long_names_nor_control_characters_fill_a_log() {
        let mut refusals = Refusals::default();
        let logged = (0..1_000).filter(|number| refusals.count(Duration::ZERO, &format!("n{number}.x.y")).is_some()).count();
        assert_eq!((logged, refusals.writers.len()), (WRITERS, WRITERS));
        let later = refusals.count(LOGGED_EVERY, &format!("{}.x", "_0a".repeat(40_000))).map(|(writer, _)| writer);
        assert_eq!(later.as_deref(), Some(""), "after a minute there is room again");
        assert_eq!(refusals.count(LOGGED_EVERY, &"z".repeat(100_000)).map(|(writer, _)| writer.len()), Some(NAME_CHARACTERS));
        assert_eq!(refusals.count(LOGGED_EVERY, ""), None);
    }
}
