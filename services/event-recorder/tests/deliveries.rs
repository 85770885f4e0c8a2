//! What a recorder does when an append or a load fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use clock::{Now, Random};
use contract::{EventReason, EventSequence, MessageId, PullEvent, TraceContext};
use event_recorder::core::{Effect, Identity, Input, Recorder, RecorderPolicy, Recovered, Slot, StreamMark, StreamRead, Token};

/// A recorder whose stream has been read, and the effects of that.
fn delivering(slots: Vec<Slot>, now: Now) -> (Recorder, Vec<Effect>) {
    let identity = Identity { node: "n1".parse().unwrap(), incarnation: "first".to_owned() };
    let policy = RecorderPolicy { max_bytes: 1 << 30, has_stream: true };
    let mark = StreamMark { created: "today".to_owned(), sequence: 0 };
    let recovered = Recovered { next_number: slots.len() as u64 + 1, slots, mark: mark.clone(), ..Recovered::default() };
    let mut recorder = Recorder::new(identity, policy, recovered, now, Random::seeded(1));
    assert_eq!(recorder.step(now, Input::Tick), [Effect::OpenStream]);
    assert_eq!(recorder.step(now, Input::Opened(Ok(mark))), [Effect::ReadStream { after: 0 }]);
    let effects = recorder.step(now, Input::Read(Ok(StreamRead::default())));
    (recorder, effects)
}

fn event(number: u64) -> PullEvent {
    let mut random = Random::seeded(number);
    let (id, trace) = (MessageId::random(&mut random), TraceContext::root(&mut random));
    let sequence = Some(EventSequence { incarnation: "first".to_owned(), number });
    PullEvent { sequence, ..PullEvent::new(id, 1, "n1".parse().unwrap(), EventReason::Pulling, String::new(), trace) }
}

#[test]
fn stream_that_fails_is_asked_for_ever_more_rarely_until_it_takes_an_event_or_the_bus_is_connected_again() {
    let mark = StreamMark { created: "today".to_owned(), sequence: 0 };
    let mut firsts = Vec::new();
    for seed in 1..=2 {
        let identity = Identity { node: "n1".parse().unwrap(), incarnation: "first".to_owned() };
        let policy = RecorderPolicy { max_bytes: 1 << 30, has_stream: true };
        let mut now = Now::default();
        let mut recorder = Recorder::new(identity, policy, Recovered::default(), now, Random::seeded(seed));
        recorder.step(now, Input::Tick);
        // Lets the stream fail, and waits until it is asked for again; checks how long that takes.
        let fail = |recorder: &mut Recorder, now: &mut Now, most: u64| {
            recorder.step(*now, Input::Opened(Err("no stream".to_owned())));
            let pause = recorder.next_due().unwrap() - now.monotonic;
            let most = Duration::from_secs(most);
            assert!(most / 2 < pause && pause <= most, "{pause:?} of {most:?}");
            *now = now.after(pause);
            assert!(recorder.step(*now, Input::Tick).contains(&Effect::OpenStream));
            pause
        };
        firsts.push(fail(&mut recorder, &mut now, 1));
        for most in [2, 4, 8, 16, 16] {
            fail(&mut recorder, &mut now, most);
        }
        // The bus is connected during a pause.
        recorder.step(now, Input::Opened(Err("no stream".to_owned())));
        recorder.step(now, Input::Connected);
        let due = recorder.next_due().unwrap();
        assert!(due <= now.monotonic + Duration::from_secs(1), "{due:?}");
        now = now.after(due - now.monotonic);
        assert!(recorder.step(now, Input::Tick).contains(&Effect::OpenStream));
        fail(&mut recorder, &mut now, 2);
        // The bus is connected while the stream is being asked for.
        recorder.step(now, Input::Connected);
        fail(&mut recorder, &mut now, 1);
        fail(&mut recorder, &mut now, 2);
        recorder.step(now, Input::Record { token: Token(1), event: Box::new(event(1)) });
        recorder.step(now, Input::Written(Ok(())));
        recorder.step(now, Input::Opened(Ok(mark.clone())));
        let effects = recorder.step(now, Input::Read(Ok(StreamRead::default())));
        assert!(matches!(effects[..], [Effect::Append(_)]), "{effects:?}");
        recorder.step(now, Input::Appended { number: 1, result: Ok(1) });
        recorder.step(now, Input::Record { token: Token(2), event: Box::new(event(2)) });
        recorder.step(now, Input::Written(Ok(())));
        recorder.step(now, Input::Appended { number: 2, result: Err("no stream".to_owned()) });
        let due = recorder.next_due().unwrap();
        assert!(due <= now.monotonic + Duration::from_secs(1), "{due:?}");
    }
    assert_ne!(firsts[0], firsts[1], "nodes do not ask together");
}

#[test]
fn failed_load_closes_the_stream_after_the_appends_under_way_have_ended() {
    let now = Now::default();
    let slots = (1..=1_025).map(|number| Slot { number, bytes: 600, time_ms: 1, is_refusal: false }).collect();
    let (mut recorder, effects) = delivering(slots, now);
    assert_eq!(effects, [Effect::Load { after: 0, limit: 1_024 }]);
    let mut effects = recorder.step(now, Input::Loaded(Ok((1..=1_024).map(|number| Arc::new(event(number))).collect())));
    for number in 1..=768 {
        effects = recorder.step(now, Input::Appended { number, result: Ok(number) });
    }
    assert!(effects.contains(&Effect::Load { after: 1_024, limit: 1_024 }), "{effects:?}");
    recorder.step(now, Input::Loaded(Err("the disk fails".to_owned())));
    let now = now.after(Duration::from_secs(2));
    assert!(!recorder.step(now, Input::Tick).contains(&Effect::OpenStream), "256 appends are under way");
    for number in 769..=1_024 {
        recorder.step(now, Input::Appended { number, result: Ok(number) });
    }
    assert!(recorder.step(now.after(Duration::from_secs(1)), Input::Tick).contains(&Effect::OpenStream));
    assert_eq!(recorder.counts().appended_total, 1_024);
}

#[test]
fn load_that_fails_while_the_stream_is_opened_opens_it_no_second_time() {
    let now = Now::default();
    let (mut recorder, effects) = delivering(vec![Slot { number: 1, bytes: 600, time_ms: 1, is_refusal: false }], now);
    assert_eq!(effects, [Effect::Load { after: 0, limit: 1_024 }]);
    recorder.step(now, Input::Record { token: Token(1), event: Box::new(event(2)) });
    recorder.step(now, Input::Written(Err("disk full".to_owned())));
    let now = now.after(Duration::from_secs(1));
    recorder.step(now, Input::Tick);
    // The event was published meanwhile, so the stream is read again.
    assert!(recorder.step(now, Input::Written(Ok(()))).contains(&Effect::OpenStream));
    recorder.step(now, Input::Loaded(Err("the disk fails".to_owned())));
    assert!(!recorder.step(now.after(Duration::from_secs(2)), Input::Tick).contains(&Effect::OpenStream), "it is being opened");
}

#[test]
fn event_that_no_server_takes_is_dropped_and_the_others_are_delivered() {
    let now = Now::default();
    let (mut recorder, _) = delivering(Vec::new(), now);
    let offered = |recorder: &mut Recorder, number: u64| {
        recorder.step(now, Input::Record { token: Token(number), event: Box::new(event(number)) });
        let effects = recorder.step(now, Input::Written(Ok(())));
        effects.into_iter().any(|effect| matches!(effect, Effect::Append(event) if event.sequence.as_ref().unwrap().number == number))
    };
    assert!(offered(&mut recorder, 1));
    recorder.step(now, Input::Refused { number: 1 });
    let counts = recorder.counts();
    assert_eq!((counts.waiting, counts.dropped_total, counts.is_delivering), (0, 1, true));
    assert!(offered(&mut recorder, 2));
    recorder.step(now, Input::Appended { number: 2, result: Ok(1) });
    let effects = recorder.step(now.after(Duration::from_millis(50)), Input::Tick);
    let written = effects.iter().filter_map(|effect| if let Effect::Write(batch) = effect { Some(&batch.put) } else { None }).flatten();
    let reports: Vec<&str> = written.map(|event| event.message.as_str()).collect();
    assert!(reports.len() == 1 && reports[0].starts_with("1 events of this node were dropped"), "{reports:?}");
}
