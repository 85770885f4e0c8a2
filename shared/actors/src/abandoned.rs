//! Detects abandoned requests: the caller was killed or disconnected, or has cancelled.

use std::time::Duration;

use bus::{CallerState, Message, MessagingRef};
use clock::Clock;

/// Shorter requests are not checked, because they end soon by themselves.
const CHECKED_FROM: Duration = Duration::from_secs(30);
/// How often the bus is asked whether a caller still waits.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The pause before the next question after a caller was absent.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// A caller that is absent for this long counts as abandoned. A caller that only lost its server is back in this time, because it tries to
/// reconnect every 0.5 s.
const ABSENT_FOR: Duration = Duration::from_secs(3);
/// How often a caller that has never answered is asked. Permissions may let a node send only five messages to a caller, including the
/// answer.
const UNANSWERED_MOST: u32 = 3;

/// Ends when the caller of a request has abandoned it. While this is not certain, because the bus is slow or lost, the caller counts as
/// waiting.
pub(crate) async fn abandoned(bus: &MessagingRef, request: &Message, clock: &Clock) {
    if request.deadline().is_some_and(|deadline| deadline < CHECKED_FROM) {
        return std::future::pending().await;
    }
    let (mut seen, mut look_after) = (Seen::default(), LOOK_EVERY);
    loop {
        let now = clock.now().monotonic;
        tokio::time::sleep(clock::common_moment(now + look_after).saturating_sub(now)).await;
        let caller = bus.caller_state(request).await;
        match seen.see(clock.now().monotonic, caller) {
            Verdict::Abandoned => return,
            Verdict::LookAfter(pause) => look_after = pause,
            Verdict::CannotBeSeen => return std::future::pending().await,
        }
    }
}

/// What the answers of a caller have shown.
#[derive(Debug, Default)]
struct Seen {
    absent_since: Option<Duration>,
    /// It has answered at least once.
    answers: bool,
    unanswered: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Abandoned,
    LookAfter(Duration),
    CannotBeSeen,
}

impl Seen {
    fn see(&mut self, now: Duration, caller: CallerState) -> Verdict {
        match caller {
            CallerState::Abandoned => return Verdict::Abandoned,
            CallerState::Absent => {
                let since = *self.absent_since.get_or_insert(now);
                let is_abandoned = now.saturating_sub(since) >= ABSENT_FOR;
                return if is_abandoned { Verdict::Abandoned } else { Verdict::LookAfter(LOOK_AGAIN_AFTER) };
            }
            CallerState::Waiting => self.answers = true,
            CallerState::Unknown => self.unanswered += 1,
        }
        self.absent_since = None;
        if !self.answers && self.unanswered >= UNANSWERED_MOST { Verdict::CannotBeSeen } else { Verdict::LookAfter(LOOK_EVERY) }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests {
    use super::*;
    use CallerState::{Abandoned, Absent, Unknown, Waiting};

    #[test]
    fn caller_is_abandoned_only_after_3_s_of_certain_absence() {
        // One question per second.
        for (looks, abandoned) in [
            (vec![Abandoned], true),
            (vec![Waiting, Waiting, Abandoned], true),
            (vec![Absent, Absent, Absent], false),
            (vec![Absent, Absent, Absent, Absent], true),
            (vec![Waiting, Unknown, Unknown, Unknown, Unknown, Unknown], false),
            // The caller reconnects, or the bus is slow.
            (vec![Absent, Absent, Absent, Waiting, Absent, Absent, Absent], false),
            (vec![Waiting, Absent, Absent, Absent, Unknown, Absent, Absent, Absent], false),
        ] {
            let mut seen = Seen::default();
            let verdict = looks.iter().zip(0..).map(|(caller, second)| seen.see(Duration::from_secs(second), *caller)).last();
            assert_eq!(verdict == Some(Verdict::Abandoned), abandoned, "{looks:?}");
        }
    }

    #[test]
    fn caller_that_never_answered_is_asked_three_times_and_others_without_limit() {
        let mut seen = Seen::default();
        let verdict = [Unknown, Unknown, Unknown].map(|caller| seen.see(Duration::ZERO, caller));
        assert_eq!(verdict, [Verdict::LookAfter(LOOK_EVERY), Verdict::LookAfter(LOOK_EVERY), Verdict::CannotBeSeen]);
        let mut seen = Seen { answers: true, ..Seen::default() };
        assert!((0..100).all(|_| seen.see(Duration::ZERO, Unknown) == Verdict::LookAfter(LOOK_EVERY)));
    }
}
