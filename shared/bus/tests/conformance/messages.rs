//! Publish and subscribe.

use bus::{BusError, BusHealth, MAX_PAYLOAD_BYTES, Message, SUBSCRIPTION_CAPACITY};
use futures::StreamExt;

use super::bench::{Bench, next, publish, rest, settle, text, within};

pub(crate) async fn wildcards_stand_for_one_token_or_all_that_follow(bench: &Bench) {
    let bus = bench.bus();
    let sent = ["t.a", "t.a.b", "t.a.b.c", "t.a.b.c.d", "t.b.b.c", "t.A.b"];
    for (pattern, expected) in [
        ("t.a.b", vec!["t.a.b"]),
        ("t.a.*", vec!["t.a.b"]),
        ("t.a.*.c", vec!["t.a.b.c"]),
        ("t.*.b.*", vec!["t.a.b.c", "t.b.b.c"]),
        ("t.a.>", vec!["t.a.b", "t.a.b.c", "t.a.b.c.d"]),
        ("*.*.*.*.>", vec!["t.a.b.c.d"]),
    ] {
        let mut subscription = bus.subscribe(pattern, None).await.unwrap();
        for subject in sent {
            publish(bus, subject, "").await;
        }
        for expected in expected {
            assert_eq!(next(&mut subscription).await.subject, expected, "{pattern}");
        }
        settle(bus).await;
        assert!(futures::poll!(subscription.next()).is_pending(), "{pattern} gets more than it should");
    }
}

pub(crate) async fn a_queue_group_gets_each_message_once(bench: &Bench) {
    const MESSAGES: usize = 300;
    let bus = bench.bus();
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(bus.subscribe("work", Some("workers")).await.unwrap());
    }
    let alone = bus.subscribe("work", None).await.unwrap();
    let group = bus.subscribe("*", Some("others")).await.unwrap();
    for number in 0..MESSAGES {
        publish(bus, "work", &number.to_string()).await;
    }
    bus.drain().await;
    let mut numbers = Vec::new();
    for member in members {
        let got = rest(member).await;
        assert!(!got.is_empty(), "work is spread over the group");
        numbers.extend(got.iter().map(|message| text(message).parse::<usize>().unwrap()));
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(rest(alone).await.len(), MESSAGES);
    assert_eq!(rest(group).await.len(), MESSAGES);
}

pub(crate) async fn messages_of_one_sender_arrive_in_order_and_once(bench: &Bench) {
    let mut subscription = bench.bus().subscribe("numbers", None).await.unwrap();
    for number in 0..1_000 {
        publish(bench.other(), "numbers", &number.to_string()).await;
    }
    for number in 0..1_000 {
        assert_eq!(text(&next(&mut subscription).await), number.to_string());
    }
}

pub(crate) async fn what_is_published_before_subscribing_never_arrives(bench: &Bench) {
    publish(bench.bus(), "news", "old").await;
    settle(bench.bus()).await;
    let mut subscription = bench.other().subscribe("news", None).await.unwrap();
    publish(bench.bus(), "news", "new").await;
    assert_eq!(text(&next(&mut subscription).await), "new");
}

pub(crate) async fn header_names_are_case_sensitive(bench: &Bench) {
    let mut subscription = bench.bus().subscribe("headers", None).await.unwrap();
    let headers = [("traceparent", "00-1"), ("X-Words", "upper"), ("x-words", "a, b: c")];
    let message = Message::new("headers", "body").with_headers(headers.into_iter().collect());
    bench.other().publish(message.clone()).await.unwrap();
    let received = next(&mut subscription).await;
    assert_eq!(received, message);
    assert_eq!(received.headers.get("X-WORDS"), None);
}

pub(crate) async fn a_message_of_one_mebibyte_passes_and_one_byte_more_does_not(bench: &Bench) {
    let bus = bench.bus();
    let mut subscription = bus.subscribe("big", None).await.unwrap();
    let message = Message::new("big", vec![7; MAX_PAYLOAD_BYTES]);
    let (subject, limit) = ("big".to_owned(), MAX_PAYLOAD_BYTES);
    let too_large = Message::new("big", vec![7; MAX_PAYLOAD_BYTES + 1]);
    let error = BusError::TooLarge { subject: subject.clone(), bytes: MAX_PAYLOAD_BYTES + 1, limit };
    assert_eq!(bus.publish(too_large).await, Err(error));
    let headed = message.clone().with_headers([("a", "b")].into_iter().collect());
    let error = BusError::TooLarge { subject, bytes: headed.wire_bytes(), limit };
    assert_eq!(bus.publish(headed).await, Err(error), "headers count");
    bus.publish(message.clone()).await.unwrap();
    assert_eq!(next(&mut subscription).await, message);
}

pub(crate) async fn invalid_subjects_are_refused(bench: &Bench) {
    let bus = bench.bus();
    let bad = |subject: &str| BusError::BadSubject { subject: subject.to_owned() };
    for subject in ["", "a..b", ".a", "a.", "a b", "a\r\nPUB b 0", "a.*", "a.>", "ä"] {
        let message = Message::new(subject, "");
        assert_eq!(bus.publish(message.clone()).await, Err(bad(subject)));
        let asked = bus.request(message, std::time::Duration::from_secs(1)).await;
        assert_eq!(asked, Err(bad(subject)));
    }
    for subject in ["", "a..b", "a.>.b", "a*", "a b"] {
        assert_eq!(bus.subscribe(subject, None).await.err(), Some(bad(subject)));
    }
    assert_eq!(bus.subscribe("a", Some("two words")).await.err(), Some(bad("two words")));
}

pub(crate) async fn invalid_headers_are_refused(bench: &Bench) {
    // nats-server 2.11 rewrites every spelling of `traceparent` to lower case, so other spellings are refused.
    for (name, value) in [("a", "b\r\nc: d"), ("", "b"), ("a b", "c"), ("Traceparent", "00-1")] {
        let message = Message::new("a", "").with_headers([(name, value)].into_iter().collect());
        let error = BusError::BadHeader { name: name.to_owned() };
        assert_eq!(bench.bus().publish(message).await, Err(error));
    }
}

pub(crate) async fn a_full_subscription_drops_the_newest_and_counts(bench: &Bench) {
    const TOO_MANY: usize = 100;
    let bus = bench.bus();
    let mut subscription = bus.subscribe("flood", None).await.unwrap();
    for number in 0..SUBSCRIPTION_CAPACITY + TOO_MANY {
        publish(bus, "flood", &number.to_string()).await;
    }
    settle(bus).await;
    for number in 0..SUBSCRIPTION_CAPACITY {
        assert_eq!(text(&next(&mut subscription).await), number.to_string());
    }
    assert!(futures::poll!(subscription.next()).is_pending(), "the newest are gone");
    publish(bus, "flood", "after").await;
    assert_eq!(text(&next(&mut subscription).await), "after");
    if bench.is_memory() {
        assert_eq!(bus.dropped(), TOO_MANY as u64);
    } else {
        assert!((1..=TOO_MANY as u64).contains(&bus.dropped()), "{}", bus.dropped());
    }
}

pub(crate) async fn a_dropped_subscription_receives_nothing(bench: &Bench) {
    let bus = bench.bus();
    drop(bus.subscribe("gone", None).await.unwrap());
    let asked = bus.request(Message::new("gone", ""), std::time::Duration::from_secs(20)).await;
    assert_eq!(asked, Err(BusError::NoResponders { subject: "gone".to_owned() }));
}

pub(crate) async fn draining_ends_subscriptions_after_what_has_arrived(bench: &Bench) {
    let bus = bench.bus();
    let subscription = bus.subscribe("last.*", None).await.unwrap();
    let mut elsewhere = bench.other().subscribe("last.*", None).await.unwrap();
    for number in 0..100 {
        publish(bus, "last.words", &number.to_string()).await;
    }
    bus.drain().await;
    assert_eq!(rest(subscription).await.len(), 100);
    for number in 0..100 {
        assert_eq!(text(&next(&mut elsewhere).await), number.to_string(), "what was published is sent");
    }
    assert_eq!(bus.publish(Message::new("a", "")).await, Err(BusError::Closed));
    assert_eq!(bus.subscribe("a", None).await.err(), Some(BusError::Closed));
    let asked = bus.request(Message::new("a", ""), std::time::Duration::from_secs(1)).await;
    assert_eq!(asked, Err(BusError::Closed));
    within(bus.drain()).await;
}

pub(crate) async fn draining_one_connection_leaves_the_others(bench: &Bench) {
    let mut subscription = bench.other().subscribe("a", None).await.unwrap();
    bench.bus().drain().await;
    publish(bench.other(), "a", "still here").await;
    assert_eq!(text(&next(&mut subscription).await), "still here");
}

pub(crate) async fn health_changes_begin_with_the_current_health(bench: &Bench) {
    assert_eq!(bench.bus().health(), BusHealth::Connected);
    let mut changes = bench.bus().health_changes();
    assert_eq!(within(changes.next()).await, Some(BusHealth::Connected));
    assert!(futures::poll!(changes.next()).is_pending());
}
