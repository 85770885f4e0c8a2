//! Callers that wait no more: killed, disconnected, or their request was cancelled.

use std::time::Duration;

use bus::{Asker, BusRef, Message};
use clock::Clock;

/// Requests whose callers wait for less end soon by themselves.
const STANDS_FROM: Duration = Duration::from_secs(30);
/// How often it is asked whether a caller still waits.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How soon it is asked again when a caller is absent.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// After being absent for so long a caller has gone. One that only lost its server connects to another meanwhile: its attempts are half a
/// second apart.
const ABSENT_FOR: Duration = Duration::from_secs(3);
/// A caller that has never said anything is asked so often. Where permissions let a node send five messages to a caller, the answer is
/// among them.
const UNANSWERED_MOST: u32 = 3;

/// Ends when the caller of a request has gone. Whatever is not known for sure, as the bus is slow or lost, counts as waiting.
pub(crate) async fn abandoned(bus: &BusRef, request: &Message, clock: &Clock) {
    if request.deadline().is_some_and(|deadline| deadline < STANDS_FROM) {
        return std::future::pending().await;
    }
    let (mut seen, mut look_after) = (Seen::default(), LOOK_EVERY);
    loop {
        let now = clock.now().monotonic;
        tokio::time::sleep(clock::common_moment(now + look_after).saturating_sub(now)).await;
        let asker = bus.asker(request).await;
        match seen.hear(clock.now().monotonic, asker) {
            Verdict::Gone => return,
            Verdict::LookAfter(pause) => look_after = pause,
            Verdict::CannotBeSeen => return std::future::pending().await,
        }
    }
}

/// What was seen of a caller.
#[derive(Debug, Default)]
struct Seen {
    absent_since: Option<Duration>,
    /// It has answered once.
    answers: bool,
    unanswered: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Gone,
    LookAfter(Duration),
    CannotBeSeen,
}

impl Seen {
    fn hear(&mut self, now: Duration, asker: Asker) -> Verdict {
        match asker {
            Asker::Gone => return Verdict::Gone,
            Asker::Absent => {
                let since = *self.absent_since.get_or_insert(now);
                let gone = now.saturating_sub(since) >= ABSENT_FOR;
                return if gone { Verdict::Gone } else { Verdict::LookAfter(LOOK_AGAIN_AFTER) };
            }
            Asker::Waits => self.answers = true,
            Asker::Unknown => self.unanswered += 1,
        }
        self.absent_since = None;
        if !self.answers && self.unanswered >= UNANSWERED_MOST { Verdict::CannotBeSeen } else { Verdict::LookAfter(LOOK_EVERY) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use Asker::{Absent, Gone, Unknown, Waits};

    #[test]
    fn only_what_is_known_for_sure_makes_a_caller_gone() {
        // One look each second.
        for (looks, gone) in [
            (vec![Gone], true),
            (vec![Waits, Waits, Gone], true),
            (vec![Absent, Absent, Absent], false),
            (vec![Absent, Absent, Absent, Absent], true),
            (vec![Waits, Unknown, Unknown, Unknown, Unknown, Unknown], false),
            // It was connecting again, or the bus is slow meanwhile.
            (vec![Absent, Absent, Absent, Waits, Absent, Absent, Absent], false),
            (vec![Waits, Absent, Absent, Absent, Unknown, Absent, Absent, Absent], false),
        ] {
            let mut seen = Seen::default();
            let heard = looks.iter().zip(0..).map(|(asker, second)| seen.hear(Duration::from_secs(second), *asker)).last();
            assert_eq!(heard == Some(Verdict::Gone), gone, "{looks:?}");
        }
    }

    #[test]
    fn who_has_never_answered_is_asked_three_times_and_who_has_for_ever() {
        let mut seen = Seen::default();
        let heard = [Unknown, Unknown, Unknown].map(|asker| seen.hear(Duration::ZERO, asker));
        assert_eq!(heard, [Verdict::LookAfter(LOOK_EVERY), Verdict::LookAfter(LOOK_EVERY), Verdict::CannotBeSeen]);
        let mut seen = Seen { answers: true, ..Seen::default() };
        assert!((0..100).all(|_| seen.hear(Duration::ZERO, Unknown) == Verdict::LookAfter(LOOK_EVERY)));
    }
}
