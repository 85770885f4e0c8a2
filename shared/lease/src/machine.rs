//! The state of one lease in a process that wants it.

use std::time::Duration;

/// How long a lease lasts, and when its holder renews it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long it lasts without a renewal.
    pub term: Duration,
    /// How often it is renewed, from request to request. Well below the term, so that some renewals may fail.
    pub renew_every: Duration,
    /// The pause before it is renewed again after a renewal without an answer.
    pub renew_again: Duration,
    /// A request without an answer for this long counts as unanswered.
    pub answer_within: Duration,
}

/// An input of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The process wants the lease. No effect while it is held or requested.
    Acquire,
    /// The answer to [`Effect::Take`] or [`Effect::Renew`], or to a look at the holder.
    Answered {
        /// When the request was made, on the process's clock.
        asked: Duration,
        /// The answer.
        answer: Answer,
    },
    /// The process no longer wants the lease.
    Release,
    /// Time has passed: see [`Lease::next_due`].
    Tick,
}

/// The bucket's answer about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The process holds it, in this epoch. A renewal keeps the epoch; a new taking gives a higher one than all before.
    Held {
        /// The epoch.
        epoch: u64,
    },
    /// Another process holds it, or none does.
    Taken,
    /// Unknown: the bus failed.
    Unknown,
}

/// What the process must do, or a change of the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Take the lease if no process holds it, and feed the answer back.
    Take,
    /// Renew the lease of this epoch, and feed the answer back.
    Renew {
        /// The epoch.
        epoch: u64,
    },
    /// Release the lease of this epoch, so that the next holder need not wait for its end. No answer is awaited.
    Release {
        /// The epoch.
        epoch: u64,
    },
    /// From now on the process acts for all.
    Won {
        /// The epoch.
        epoch: u64,
    },
    /// From now on it does not act for all.
    Lost {
        /// The epoch.
        epoch: u64,
    },
}

/// The state of one lease. Two processes whose clocks run evenly never hold it at the same time, whatever is lost or late. The exception is
/// a bucket that loses the key: it may give the lease to a second process before the first one's term is over, and then epochs distinguish
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    terms: Terms,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Free,
    Asked {
        at: Duration,
    },
    Held {
        epoch: u64,
        /// When the newest request was made that was granted.
        asked: Duration,
        renew_at: Duration,
    },
}

impl Lease {
    /// Neither held nor wanted.
    #[must_use]
    pub fn new(terms: Terms) -> Self {
        debug_assert!(terms.renew_every < terms.term, "a lease is renewed before it ends");
        Self { terms, state: State::Free }
    }

    /// Takes one input and returns its effects.
    pub fn step(&mut self, now: Duration, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Acquire => self.acquire(now, &mut effects),
            Input::Answered { asked, answer: Answer::Held { epoch } } if asked + self.terms.term <= now => {
                self.answered_after_the_term(now, asked, epoch, &mut effects);
            }
            Input::Answered { asked, answer: Answer::Held { epoch } } => self.hold(asked, epoch, &mut effects),
            Input::Answered { asked, answer: Answer::Taken } => self.taken_by_another(asked, &mut effects),
            Input::Answered { asked, answer: Answer::Unknown } => self.unanswered(now, asked),
            Input::Release => self.release(&mut effects),
            Input::Tick => {}
        }
        self.apply_time(now, &mut effects);
        self.assert_invariants(now);
        effects
    }

    /// The epoch if the process may act for all at this time; else none.
    #[must_use]
    pub fn epoch(&self, now: Duration) -> Option<u64> {
        match self.state {
            State::Held { epoch, .. } if self.until().is_some_and(|until| now < until) => Some(epoch),
            _ => None,
        }
    }

    /// When the lease ends without a further renewal; none while it is not held.
    #[must_use]
    pub fn until(&self) -> Option<Duration> {
        match self.state {
            State::Held { asked, .. } => Some(asked + self.terms.term),
            _ => None,
        }
    }

    /// When the answer to [`Effect::Take`] is due; none if nothing was requested.
    #[must_use]
    pub fn answer_due(&self) -> Option<Duration> {
        match self.state {
            State::Asked { at } => Some(at + self.terms.answer_within),
            _ => None,
        }
    }

    /// When the next tick has something to do.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        match self.state {
            State::Held { renew_at, .. } => self.until().map(|until| until.min(renew_at)),
            _ => None,
        }
    }

    fn acquire(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let is_free = matches!(self.state, State::Free | State::Asked { .. });
        if is_free && self.answer_due().is_none_or(|due| due <= now) {
            self.state = State::Asked { at: now };
            effects.push(Effect::Take);
        }
    }

    fn hold(&mut self, asked: Duration, epoch: u64, effects: &mut Vec<Effect>) {
        match self.state {
            // It came too late: the lease is no longer wanted.
            State::Free => return effects.push(Effect::Release { epoch }),
            State::Held { epoch: held, asked: before, renew_at } if held == epoch => {
                self.state = State::Held { epoch, asked: before.max(asked), renew_at };
                return;
            }
            // A late answer for an earlier epoch.
            State::Held { epoch: held, .. } if held > epoch => return,
            State::Held { epoch: held, .. } => effects.push(Effect::Lost { epoch: held }),
            // The answer to an earlier request: that lease may have been released since. If it was not, the later answer shows it.
            State::Asked { at } if asked < at => return,
            State::Asked { .. } => {}
        }
        self.state = State::Held { epoch, asked, renew_at: asked + self.terms.renew_every };
        effects.push(Effect::Won { epoch });
    }

    /// The process was suspended until the term was over. A lease that it does not hold is released, because its key may have no end.
    fn answered_after_the_term(&mut self, now: Duration, asked: Duration, epoch: u64, effects: &mut Vec<Effect>) {
        if !matches!(self.state, State::Held { epoch: held, .. } if held == epoch) {
            effects.push(Effect::Release { epoch });
        }
        self.unanswered(now, asked);
    }

    fn taken_by_another(&mut self, asked: Duration, effects: &mut Vec<Effect>) {
        match self.state {
            // The answer to a later request is newer.
            State::Held { asked: later, .. } if asked < later => {}
            State::Held { epoch, .. } => {
                self.state = State::Free;
                effects.push(Effect::Lost { epoch });
            }
            State::Asked { at } if asked < at => {}
            State::Asked { .. } | State::Free => self.state = State::Free,
        }
    }

    fn unanswered(&mut self, now: Duration, asked: Duration) {
        match &mut self.state {
            State::Held { renew_at, .. } => *renew_at = (*renew_at).min(now + self.terms.renew_again),
            State::Asked { at } if asked < *at => {}
            State::Asked { .. } | State::Free => self.state = State::Free,
        }
    }

    fn release(&mut self, effects: &mut Vec<Effect>) {
        if let State::Held { epoch, .. } = self.state {
            effects.extend([Effect::Lost { epoch }, Effect::Release { epoch }]);
        }
        self.state = State::Free;
    }

    fn apply_time(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let until = self.until();
        let State::Held { epoch, renew_at, .. } = &mut self.state else { return };
        let epoch = *epoch;
        if until.is_some_and(|until| until <= now) {
            self.state = State::Free;
            effects.push(Effect::Lost { epoch });
        } else if *renew_at <= now {
            *renew_at = now + self.terms.renew_every;
            effects.push(Effect::Renew { epoch });
        }
    }

    /// A held lease has not ended, and is renewed in time.
    fn assert_invariants(&self, now: Duration) {
        if let State::Held { asked, renew_at, .. } = self.state {
            debug_assert!(now < asked + self.terms.term, "an ended lease is not held");
            debug_assert!(now < renew_at && renew_at <= now.max(asked) + self.terms.renew_every, "a held lease is renewed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms { term: s(10), renew_every: s(3), renew_again: s(1), answer_within: s(2) };

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn held(asked: u64, epoch: u64) -> Input {
        Input::Answered { asked: s(asked), answer: Answer::Held { epoch } }
    }

    const fn taken(asked: u64) -> Input {
        Input::Answered { asked: s(asked), answer: Answer::Taken }
    }

    const fn unknown(asked: u64) -> Input {
        Input::Answered { asked: s(asked), answer: Answer::Unknown }
    }

    /// A sequence of inputs with times in seconds, and their effects.
    fn play(story: &[(u64, Input, &[Effect])]) -> Lease {
        let mut lease = Lease::new(TERMS);
        for (at, input, effects) in story {
            assert_eq!(lease.step(s(*at), *input), *effects, "{input:?} at {at} s");
        }
        lease
    }

    #[test]
    fn lease_is_won_renewed_and_given_back() {
        let lease = play(&[
            (0, Input::Acquire, &[Effect::Take]),
            (0, Input::Acquire, &[]),
            (1, held(0, 7), &[Effect::Won { epoch: 7 }]),
            (1, Input::Acquire, &[]),
            (3, Input::Tick, &[Effect::Renew { epoch: 7 }]),
            (4, held(3, 7), &[]),
            (6, Input::Tick, &[Effect::Renew { epoch: 7 }]),
            (7, Input::Release, &[Effect::Lost { epoch: 7 }, Effect::Release { epoch: 7 }]),
            // The renewal had succeeded.
            (8, held(6, 7), &[Effect::Release { epoch: 7 }]),
        ]);
        assert_eq!((lease.epoch(s(8)), lease.next_due()), (None, None));
    }

    #[test]
    fn a_term_is_counted_from_the_question_and_ends_without_a_renewal() {
        let mut lease = play(&[
            (5, Input::Acquire, &[Effect::Take]),
            (7, held(5, 1), &[Effect::Won { epoch: 1 }]),
            (8, Input::Tick, &[Effect::Renew { epoch: 1 }]),
            (10, unknown(8), &[]),
            (11, Input::Tick, &[Effect::Renew { epoch: 1 }]),
            (14, Input::Tick, &[Effect::Renew { epoch: 1 }]),
        ]);
        assert_eq!((lease.epoch(s(14)), lease.next_due()), (Some(1), Some(s(15))));
        assert_eq!(lease.epoch(s(15)), None, "also before its time is looked at");
        assert_eq!(lease.step(s(15), Input::Tick), [Effect::Lost { epoch: 1 }]);
        assert_eq!(lease.step(s(16), held(14, 1)), [Effect::Release { epoch: 1 }], "too late");
    }

    #[test]
    fn a_question_without_an_answer_is_asked_again_when_that_is_overdue() {
        play(&[
            (0, Input::Acquire, &[Effect::Take]),
            (1, Input::Acquire, &[]),
            (2, Input::Acquire, &[Effect::Take]),
            // The answer to the first request; the second is still open.
            (3, unknown(0), &[]),
            (3, Input::Acquire, &[]),
            (3, unknown(2), &[]),
            (3, Input::Acquire, &[Effect::Take]),
            (4, taken(3), &[]),
            (4, Input::Acquire, &[Effect::Take]),
        ]);
    }

    #[test]
    fn late_answer_brings_back_no_term_that_was_given_back() {
        play(&[
            (0, Input::Acquire, &[Effect::Take]),
            (0, held(0, 5), &[Effect::Won { epoch: 5 }]),
            (3, Input::Tick, &[Effect::Renew { epoch: 5 }]),
            (4, Input::Release, &[Effect::Lost { epoch: 5 }, Effect::Release { epoch: 5 }]),
            (5, Input::Acquire, &[Effect::Take]),
            (6, held(3, 5), &[]),
            (6, held(5, 8), &[Effect::Won { epoch: 8 }]),
        ]);
    }

    #[test]
    fn term_that_is_over_when_its_answer_comes_was_never_won() {
        play(&[
            (0, Input::Acquire, &[Effect::Take]),
            (10, held(0, 5), &[Effect::Release { epoch: 5 }]),
            (10, Input::Acquire, &[Effect::Take]),
            (11, held(10, 9), &[Effect::Won { epoch: 9 }]),
        ]);
    }

    #[test]
    fn lease_of_another_is_lost_unless_the_answer_is_older_than_the_last_renewal() {
        play(&[
            (0, Input::Acquire, &[Effect::Take]),
            (0, held(0, 4), &[Effect::Won { epoch: 4 }]),
            (3, Input::Tick, &[Effect::Renew { epoch: 4 }]),
            (4, held(3, 4), &[]),
            (4, taken(2), &[]),
            (5, taken(5), &[Effect::Lost { epoch: 4 }]),
            (5, Input::Acquire, &[Effect::Take]),
            (5, held(5, 6), &[Effect::Won { epoch: 6 }]),
            // Taken anew, with a new epoch. Late answers for the earlier one change nothing.
            (6, held(6, 9), &[Effect::Lost { epoch: 6 }, Effect::Won { epoch: 9 }]),
            (6, held(5, 6), &[]),
        ]);
    }
}
