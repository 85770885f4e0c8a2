//! Request and reply.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]

use std::time::Duration;

use bus::{BusError, BusRef, CallerState, DEADLINE_HEADER, Message};
use futures::StreamExt;
use futures::future::join_all;

use super::bench::{Bench, next, publish, settle, text, within};

const PATIENT: Duration = Duration::from_secs(10);

/// Answers every request on a subject with `word` and its payload.
async fn echo(bus: &BusRef, subject: &str, queue: Option<&str>, word: &'static str) -> Echo {
    let mut requests = bus.subscribe(subject, queue).await.unwrap();
    let bus = bus.clone();
    Echo(tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            let answer = format!("{word} {}", text(&request));
            let headers = [("x-echo", word)].into_iter().collect();
            let answer = Message::new(request.reply_to.unwrap(), answer).with_headers(headers);
            bus.publish(answer).await.unwrap();
        }
    }))
}

struct Echo(tokio::task::JoinHandle<()>);

impl Drop for Echo {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) async fn an_answer_comes_back_with_its_headers(bench: &Bench) {
    let _echo = echo(bench.bus(), "ask.*", None, "you said").await;
    let answer = bench.other().request(Message::new("ask.me", "hello"), PATIENT).await.unwrap();
    assert_eq!(text(&answer), "you said hello");
    assert_eq!(answer.headers.get("x-echo"), Some("you said"));
    assert_eq!(answer.reply_to, None);
}

pub(crate) async fn request_without_responders_fails_at_once(bench: &Bench) {
    let longer_than_the_test = Duration::from_secs(3_600);
    let asked = within(bench.bus().request(Message::new("nobody", ""), longer_than_the_test)).await;
    assert_eq!(asked, Err(BusError::NoResponders { subject: "nobody".to_owned() }));
}

pub(crate) async fn no_answer_is_a_time_out(bench: &Bench) {
    let timeout = Duration::from_millis(50);
    let mut silent = bench.bus().subscribe("silent", None).await.unwrap();
    let asked = bench.other().request(Message::new("silent", "anybody?"), timeout).await;
    assert_eq!(asked, Err(BusError::TimedOut { subject: "silent".to_owned(), timeout }));
    assert_eq!(text(&next(&mut silent).await), "anybody?");
}

pub(crate) async fn a_late_answer_reaches_nobody(bench: &Bench) {
    let (bus, caller) = (bench.bus(), bench.other());
    let mut requests = bus.subscribe("slow", None).await.unwrap();
    let gave_up = caller.request(Message::new("slow", "first"), Duration::from_millis(50)).await;
    assert!(matches!(gave_up, Err(BusError::TimedOut { .. })), "{gave_up:?}");
    let first = next(&mut requests).await;
    let second = async {
        let second = next(&mut requests).await;
        publish(bus, first.reply_to.as_ref().unwrap(), "too late").await;
        publish(bus, second.reply_to.as_ref().unwrap(), "in time").await;
    };
    let (answer, ()) = tokio::join!(caller.request(Message::new("slow", "second"), PATIENT), second);
    assert_eq!(text(&answer.unwrap()), "in time");
}

pub(crate) async fn the_first_of_several_answers_counts(bench: &Bench) {
    let (bus, caller) = (bench.bus(), bench.other());
    let mut requests = bus.subscribe("vote", None).await.unwrap();
    let answering = async {
        let request = next(&mut requests).await;
        for answer in ["first", "second", "third"] {
            publish(bus, request.reply_to.as_ref().unwrap(), answer).await;
        }
        settle(bus).await;
    };
    let (answer, ()) = tokio::join!(caller.request(Message::new("vote", ""), PATIENT), answering);
    assert_eq!(text(&answer.unwrap()), "first");
    let _echo = echo(bus, "other", None, "other").await;
    let answer = caller.request(Message::new("other", "question"), PATIENT).await.unwrap();
    assert_eq!(text(&answer), "other question");
}

pub(crate) async fn a_question_to_many_is_answered_by_each(bench: &Bench) {
    let _one = echo(bench.bus(), "all", None, "one").await;
    let _two = echo(bench.other(), "all", None, "two").await;
    let inbox = bench.bus().new_inbox();
    assert_ne!(inbox, bench.bus().new_inbox());
    let mut answers = bench.bus().subscribe(&inbox, None).await.unwrap();
    let mut question = Message::new("all", "of you");
    question.reply_to = Some(inbox);
    bench.bus().publish(question.clone()).await.unwrap();
    let mut received = [next(&mut answers).await, next(&mut answers).await].map(|answer| text(&answer).to_owned());
    received.sort();
    assert_eq!(received, ["one of you", "two of you"]);
    question.reply_to = Some("in box".to_owned());
    assert_eq!(bench.bus().publish(question).await, Err(BusError::BadSubject { subject: "in box".to_owned() }));
}

pub(crate) async fn a_queue_group_answers_each_request_once(bench: &Bench) {
    let _one = echo(bench.bus(), "shared", Some("group"), "one").await;
    let _two = echo(bench.other(), "shared", Some("group"), "two").await;
    let mut answers = std::collections::BTreeMap::new();
    for _ in 0..100 {
        let answer = bench.bus().request(Message::new("shared", "x"), PATIENT).await.unwrap();
        *answers.entry(text(&answer).to_owned()).or_insert(0) += 1;
    }
    assert_eq!(answers.values().sum::<i32>(), 100);
    assert!(answers.contains_key("one x") && answers.contains_key("two x"), "{answers:?}");
}

pub(crate) async fn a_request_carries_its_deadline(bench: &Bench) {
    let mut requests = bench.bus().subscribe("hurry", None).await.unwrap();
    let timeout = Duration::from_millis(70);
    let _ = bench.other().request(Message::new("hurry", ""), timeout).await;
    let request = next(&mut requests).await;
    assert_eq!(request.headers.get(DEADLINE_HEADER), Some("70"));
    assert_eq!(request.deadline(), Some(timeout));
    publish(bench.bus(), "hurry", "").await;
    assert_eq!(next(&mut requests).await.deadline(), None);
}

pub(crate) async fn many_requests_at_once_get_their_own_answers(bench: &Bench) {
    let _echo = echo(bench.bus(), "many", None, "re").await;
    let asking = (0..500).map(|number| async move {
        let answer = bench.other().request(Message::new("many", number.to_string()), PATIENT).await;
        assert_eq!(text(&answer.unwrap()), format!("re {number}"));
    });
    join_all(asking).await;
}

pub(crate) async fn an_answer_of_one_mebibyte_passes(bench: &Bench) {
    let (bus, caller) = (bench.bus(), bench.other());
    let mut requests = bus.subscribe("large", None).await.unwrap();
    let answering = async {
        let request = next(&mut requests).await;
        let answer = Message::new(request.reply_to.unwrap(), vec![1; bus::MAX_PAYLOAD_BYTES]);
        bus.publish(answer).await.unwrap();
    };
    let (answer, ()) = tokio::join!(caller.request(Message::new("large", ""), PATIENT), answering);
    assert_eq!(answer.unwrap().payload.len(), bus::MAX_PAYLOAD_BYTES);
}

pub(crate) async fn the_state_of_a_caller_is_known(bench: &Bench) {
    let (bus, caller) = (bench.bus(), bench.other());
    let mut requests = bus.subscribe("long", None).await.unwrap();
    let mut asking = Box::pin(caller.request(Message::new("long", "first"), PATIENT));
    let first = tokio::select! {
        _ = &mut asking => panic!("nobody has answered"),
        first = next(&mut requests) => first,
    };
    let seen = tokio::select! {
        answered = &mut asking => panic!("a probe is no answer: {answered:?}"),
        seen = bus.caller_state(&first) => seen,
    };
    assert_eq!(seen, CallerState::Waiting);
    let answering = async {
        publish(bus, first.reply_to.as_ref().unwrap(), "the answer").await;
        std::future::pending::<()>().await;
    };
    let answer = tokio::select! {
        answer = &mut asking => answer,
        () = answering => unreachable!(),
    };
    assert_eq!(text(&answer.unwrap()), "the answer");
    assert_eq!(within(bus.caller_state(&first)).await, CallerState::Abandoned, "the caller has its answer and waits no more");
    let mut given_up = Box::pin(caller.request(Message::new("long", "second"), PATIENT));
    let second = tokio::select! {
        _ = &mut given_up => panic!("nobody has answered"),
        second = next(&mut requests) => second,
    };
    drop(given_up);
    assert_eq!(within(bus.caller_state(&second)).await, CallerState::Abandoned, "a cancelled request");
}

pub(crate) async fn a_caller_that_cannot_be_probed_counts_as_waiting(bench: &Bench) {
    let (bus, caller) = (bench.bus(), bench.other());
    let mut requests = bus.subscribe("plain", None).await.unwrap();
    let inbox = caller.new_inbox();
    let mut answers = caller.subscribe(&inbox, None).await.unwrap();
    let mut question = Message::new("plain", "question");
    question.reply_to = Some(inbox);
    caller.publish(question).await.unwrap();
    let question = next(&mut requests).await;
    let seen = within(bus.caller_state(&question)).await;
    assert!(matches!(seen, CallerState::Waiting | CallerState::Unknown), "{seen:?}");
    publish(bus, question.reply_to.as_ref().unwrap(), "answer").await;
    assert_eq!(text(&next(&mut answers).await), "answer", "the first message there is the answer");
}
