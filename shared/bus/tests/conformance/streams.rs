//! Durable append.

use std::time::Duration;

use bus::{Appended, BusError, BusRef, Message, StreamPage, StreamQuery, StreamSpec, StreamStart, SubjectTransform};

use super::bench::{Bench, next, publish, text, within};

async fn open(bus: &BusRef, duplicate_window: Duration) {
    let spec = StreamSpec {
        name: "events".to_owned(),
        subjects: vec!["evt.>".to_owned()],
        max_age: Some(Duration::from_secs(3_600)),
        max_bytes: Some(10_000_000),
        duplicate_window,
        transform: None,
    };
    bus.stream(&spec).await.unwrap();
}

async fn append(bus: &BusRef, subject: &str, id: &str) -> Result<Appended, BusError> {
    bus.append(Message::new(subject, format!("about {id}")), id).await
}

fn stored(sequence: u64) -> Result<Appended, BusError> {
    Ok(Appended { sequence, duplicate: false })
}

pub(crate) async fn a_message_id_is_stored_once_within_the_window(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    open(bench.other(), Duration::from_secs(60)).await;
    assert_eq!(append(bench.bus(), "evt.a", "one").await, stored(1));
    assert_eq!(append(bench.bus(), "evt.b", "two").await, stored(2));
    let again = append(bench.other(), "evt.a", "one").await;
    assert_eq!(again, Ok(Appended { sequence: 1, duplicate: true }));
    assert_eq!(append(bench.bus(), "evt.a", "three").await, stored(3));
}

pub(crate) async fn a_message_id_is_stored_again_after_the_window(bench: &Bench) {
    open(bench.bus(), Duration::from_millis(200)).await;
    assert_eq!(append(bench.bus(), "evt.a", "one").await, stored(1));
    let again = within(async {
        loop {
            let again = append(bench.bus(), "evt.a", "one").await.unwrap();
            if !again.duplicate {
                return again;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert_eq!(again.await.sequence, 2);
}

pub(crate) async fn appending_where_nothing_stores_has_no_responders(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    let appended = append(bench.bus(), "elsewhere", "one").await;
    assert_eq!(appended, Err(BusError::NoResponders { subject: "elsewhere".to_owned() }));
}

pub(crate) async fn appending_where_only_subscribers_listen_has_no_responders(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    let mut subscription = bench.other_receives("elsewhere").await;
    let appended = append(bench.bus(), "elsewhere", "one").await;
    assert_eq!(appended, Err(BusError::NoResponders { subject: "elsewhere".to_owned() }));
    assert_eq!(text(&next(&mut subscription).await), "about one");
    // The next message received is the next one published, so nothing came twice.
    publish(bench.bus(), "elsewhere", "the next").await;
    assert_eq!(text(&next(&mut subscription).await), "the next");
}

pub(crate) async fn subscribers_see_what_is_appended(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    let mut subscription = bench.other_receives("evt.*").await;
    for _ in 0..2 {
        append(bench.bus(), "evt.a", "one").await.unwrap();
        let message = next(&mut subscription).await;
        assert_eq!((message.subject.as_str(), text(&message)), ("evt.a", "about one"));
        assert_eq!(message.headers.get("Nats-Msg-Id"), Some("one"), "a subscriber can tell a repeat");
    }
}

pub(crate) async fn plain_messages_are_stored_too(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    // Nobody answers a plain message: a server of a cluster that does not know of the stream yet drops it.
    let is_stored = async || {
        publish(bench.bus(), "evt.a", "plain").await;
        !read(bench.bus(), "evt.a", StreamStart::Sequence(1), 1).await.unwrap().messages.is_empty()
    };
    within(async { while !is_stored().await {} }).await;
    let appended = append(bench.bus(), "evt.a", "one").await.unwrap();
    assert!(!appended.duplicate && appended.sequence > 1, "{appended:?}");
}

pub(crate) async fn a_stream_takes_more_subjects(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    let more = StreamSpec {
        name: "events".to_owned(),
        subjects: vec!["more.>".to_owned()],
        max_age: None,
        max_bytes: None,
        duplicate_window: Duration::from_secs(60),
        transform: None,
    };
    bench.other().stream(&more).await.unwrap();
    assert_eq!(append(bench.bus(), "evt.a", "one").await, stored(1));
    assert_eq!(append(bench.bus(), "more.a", "two").await, stored(2));
}

pub(crate) async fn invalid_streams_are_refused(bench: &Bench) {
    for (name, subject, bad) in [("a.b", "evt.>", "a.b"), ("", "evt.>", ""), ("events", "evt..a", "evt..a")] {
        let spec = StreamSpec {
            name: name.to_owned(),
            subjects: vec![subject.to_owned()],
            max_age: None,
            max_bytes: None,
            duplicate_window: Duration::from_secs(60),
            transform: None,
        };
        let error = BusError::BadSubject { subject: bad.to_owned() };
        assert_eq!(bench.bus().stream(&spec).await, Err(error));
    }
}

async fn read(bus: &BusRef, subject: &str, from: StreamStart, limit: usize) -> Result<StreamPage, BusError> {
    bus.read(&StreamQuery { stream: "events".to_owned(), subjects: vec![subject.to_owned()], from, limit }).await
}

fn texts(page: &StreamPage) -> Vec<(u64, &str)> {
    page.messages.iter().map(|stored| (stored.sequence, text(&stored.message))).collect()
}

pub(crate) async fn a_stream_is_read_in_pages_from_a_sequence_on(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    let beginning = StreamStart::Sequence(1);
    assert_eq!(read(bench.other(), ">", beginning, 10).await, Ok(StreamPage::default()));
    let own = Message::new("evt.b", "headed").with_headers([("content-type", "text")].into_iter().collect());
    append(bench.bus(), "evt.a", "one").await.unwrap();
    bench.bus().append(own, "two").await.unwrap();
    append(bench.bus(), "evt.a", "three").await.unwrap();
    append(bench.bus(), "evt.b.c", "four").await.unwrap();
    let page = read(bench.other(), "evt.>", beginning, 2).await.unwrap();
    assert_eq!((texts(&page), page.next), (vec![(1, "about one"), (2, "headed")], Some(3)));
    let second = &page.messages[1];
    assert_eq!((second.message.subject.as_str(), second.message.headers.get("content-type")), ("evt.b", Some("text")));
    assert_eq!((second.message.headers.get("Nats-Msg-Id"), second.message.headers.get("Nats-Sequence")), (Some("two"), None));
    let page = read(bench.other(), "evt.>", StreamStart::Sequence(3), 2).await.unwrap();
    assert_eq!((texts(&page), page.next), (vec![(3, "about three"), (4, "about four")], None));
    let page = read(bench.other(), "evt.a", beginning, 1).await.unwrap();
    assert_eq!((texts(&page), page.next), (vec![(1, "about one")], Some(2)));
    let page = read(bench.other(), "evt.a", StreamStart::Sequence(2), 10).await.unwrap();
    assert_eq!((texts(&page), page.next), (vec![(3, "about three")], None));
    assert_eq!(read(bench.other(), "evt.x", beginning, 10).await, Ok(StreamPage::default()));
}

pub(crate) async fn a_stream_is_read_from_a_time_on(bench: &Bench) {
    open(bench.bus(), Duration::from_secs(60)).await;
    append(bench.bus(), "evt.a", "one").await.unwrap();
    // The stream's clock distinguishes times that are milliseconds apart.
    tokio::time::sleep(Duration::from_millis(20)).await;
    append(bench.bus(), "evt.a", "two").await.unwrap();
    let all = read(bench.other(), ">", StreamStart::Time(Duration::ZERO), 10).await.unwrap();
    let second = all.messages[1].stored_at;
    assert!(second > all.messages[0].stored_at);
    let page = read(bench.other(), ">", StreamStart::Time(second), 10).await.unwrap();
    assert_eq!(texts(&page), [(2, "about two")]);
    let later = read(bench.other(), ">", StreamStart::Time(second + Duration::from_secs(3_600)), 10).await;
    assert_eq!(later, Ok(StreamPage::default()));
}

pub(crate) async fn reading_a_missing_stream_is_an_error(bench: &Bench) {
    let missing = read(bench.bus(), ">", StreamStart::Sequence(1), 10).await;
    assert!(matches!(missing, Err(BusError::NoResponders { .. })), "{missing:?}");
}

pub(crate) async fn a_stream_reports_its_identity_and_last_sequence(bench: &Bench) {
    let spec = StreamSpec {
        name: "events".to_owned(),
        subjects: vec!["evt.>".to_owned()],
        max_age: None,
        max_bytes: None,
        duplicate_window: Duration::from_secs(60),
        transform: None,
    };
    let made = bench.bus().stream(&spec).await.unwrap();
    assert_eq!(made.last_sequence, 0);
    append(bench.bus(), "evt.a", "one").await.unwrap();
    let again = bench.other().stream(&spec).await.unwrap();
    assert_eq!((again.created, again.last_sequence), (made.created, 1));
}

/// The server chooses the partition, and our computation must give the same one.
pub(crate) async fn a_stream_stores_under_other_subjects_and_subscribers_receive_as_published(bench: &Bench) {
    // First without a transform, like a stream of an older version.
    open(bench.bus(), Duration::from_secs(60)).await;
    append(bench.bus(), "evt.Failed.n1", "zero").await.unwrap();
    let spec = StreamSpec {
        name: "events".to_owned(),
        subjects: vec!["evt.>".to_owned()],
        max_age: None,
        max_bytes: None,
        duplicate_window: Duration::from_secs(60),
        transform: Some(SubjectTransform {
            source: "evt.*.*".to_owned(),
            destination: "evt.{{wildcard(1)}}.{{partition(512,2)}}".to_owned(),
        }),
    };
    bench.bus().stream(&spec).await.unwrap();
    bench.other().stream(&spec).await.unwrap();
    let mut received = bench.other_receives("evt.*.n1").await;
    assert_eq!(append(bench.bus(), "evt.Failed.n1", "one").await, stored(2));
    assert_eq!(next(&mut received).await.subject, "evt.Failed.n1");
    assert_eq!(append(bench.other(), "evt.Failed.n1", "one").await, Ok(Appended { sequence: 2, duplicate: true }));
    assert_eq!(append(bench.bus(), "evt.Pulled.node-2_2eexample", "two").await, stored(3));
    assert_eq!(append(bench.bus(), "evt.Pulled", "three").await, stored(4), "what does not fit is stored as published");
    let all = read(bench.other(), "evt.>", StreamStart::Sequence(1), 10).await.unwrap();
    let subjects: Vec<&str> = all.messages.iter().map(|stored| stored.message.subject.as_str()).collect();
    assert_eq!(subjects, ["evt.Failed.n1", "evt.Failed.0", "evt.Pulled.20", "evt.Pulled"]);
    let subjects = ["evt.*.n1", "evt.*.0"].map(str::to_owned).to_vec();
    let query = StreamQuery { stream: "events".to_owned(), subjects, from: StreamStart::Sequence(1), limit: 10 };
    let own = bench.other().read(&query).await.unwrap();
    assert_eq!((texts(&own), own.next), (vec![(1, "about zero"), (2, "about one")], None), "before and after");
}
