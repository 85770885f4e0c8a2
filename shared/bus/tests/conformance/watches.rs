//! Watching state.

use std::time::Duration;

use bus::{BusRef, Entry, EntryChange, EntryWatch, KeyValue, SUBSCRIPTION_CAPACITY};
use futures::StreamExt;

use super::bench::{Bench, bucket, change, rest};

fn put(key: &str, value: &str, revision: u64) -> EntryChange {
    EntryChange::Put(Entry { key: key.to_owned(), value: value.to_owned().into(), revision })
}

fn gone(key: &str, revision: u64) -> EntryChange {
    EntryChange::Gone { key: key.to_owned(), revision }
}

async fn open(bus: &BusRef) -> std::sync::Arc<dyn KeyValue> {
    bus.bucket(&bucket("state")).await.unwrap()
}

async fn store(state: &dyn KeyValue, key: &str, value: &str) -> u64 {
    state.put(key, value.to_owned().into(), None).await.unwrap()
}

async fn expect(watch: &mut EntryWatch, expected: &[EntryChange]) {
    for expected in expected {
        assert_eq!(&change(watch).await, expected);
    }
}

pub(crate) async fn what_is_there_comes_first_then_current_then_changes(bench: &Bench) {
    let state = open(bench.bus()).await;
    store(&*state, "a", "1").await;
    store(&*state, "b", "2").await;
    store(&*state, "a", "3").await;
    let mut watch = open(bench.other()).await.watch("").await.unwrap();
    expect(&mut watch, &[put("b", "2", 2), put("a", "3", 3), EntryChange::Current]).await;
    store(&*state, "c", "4").await;
    expect(&mut watch, &[put("c", "4", 4)]).await;
    store(&*state, "a", "5").await;
    expect(&mut watch, &[put("a", "5", 5)]).await;
}

pub(crate) async fn an_empty_bucket_is_current_at_once(bench: &Bench) {
    let state = open(bench.bus()).await;
    let mut watch = state.watch("").await.unwrap();
    expect(&mut watch, &[EntryChange::Current]).await;
    assert!(futures::poll!(watch.next()).is_pending());
}

pub(crate) async fn a_prefix_is_of_whole_tokens(bench: &Bench) {
    let state = open(bench.bus()).await;
    for key in ["n1", "n1.a", "n1.a.b", "n10.a", "x.n1.a"] {
        store(&*state, key, "v").await;
    }
    let mut watch = state.watch("n1").await.unwrap();
    let there = [put("n1", "v", 1), put("n1.a", "v", 2), put("n1.a.b", "v", 3), EntryChange::Current];
    expect(&mut watch, &there).await;
    store(&*state, "n10.b", "w").await;
    store(&*state, "n1.c", "w").await;
    expect(&mut watch, &[put("n1.c", "w", 7)]).await;
}

pub(crate) async fn deletions_and_expiries_are_told_with_their_revision(bench: &Bench) {
    let state = open(bench.bus()).await;
    store(&*state, "a", "1").await;
    let mut watch = state.watch("").await.unwrap();
    expect(&mut watch, &[put("a", "1", 1), EntryChange::Current]).await;
    state.delete("a", None).await.unwrap();
    expect(&mut watch, &[gone("a", 2)]).await;
    state.put("a", "2".into(), Some(Duration::from_secs(1))).await.unwrap();
    expect(&mut watch, &[put("a", "2", 3), gone("a", 4)]).await;
}

pub(crate) async fn markers_of_old_are_not_told(bench: &Bench) {
    let state = open(bench.bus()).await;
    store(&*state, "a", "1").await;
    store(&*state, "b", "2").await;
    state.delete("a", None).await.unwrap();
    let mut watch = state.watch("").await.unwrap();
    expect(&mut watch, &[put("b", "2", 2), EntryChange::Current]).await;
    state.delete("b", None).await.unwrap();
    let mut watch = state.watch("").await.unwrap();
    expect(&mut watch, &[EntryChange::Current]).await;
}

pub(crate) async fn changes_of_one_key_may_be_conflated_but_the_last_is_told(bench: &Bench) {
    const CHANGES: u64 = 500;
    let state = open(bench.bus()).await;
    let mut watch = open(bench.other()).await.watch("").await.unwrap();
    for number in 1..=CHANGES {
        store(&*state, "a", &number.to_string()).await;
    }
    let (mut seen, mut last) = (Vec::new(), 0);
    while last < CHANGES {
        match change(&mut watch).await {
            EntryChange::Put(entry) => {
                assert_eq!(entry.value, entry.revision.to_string());
                assert!(entry.revision > last, "revisions only grow");
                last = entry.revision;
                seen.push(last);
            }
            EntryChange::Current => {}
            gone => panic!("{gone:?}"),
        }
    }
    if bench.is_memory() {
        assert_eq!(seen, [CHANGES], "nobody looked before the last");
    }
}

pub(crate) async fn more_changes_than_a_buffer_holds_all_arrive(bench: &Bench) {
    let state = open(bench.bus()).await;
    let mut watch = open(bench.other()).await.watch("").await.unwrap();
    expect(&mut watch, &[EntryChange::Current]).await;
    let keys = SUBSCRIPTION_CAPACITY + 500;
    let numbers: Vec<usize> = (0..keys).collect();
    for some in numbers.chunks(500) {
        let keys: Vec<String> = some.iter().map(|number| format!("k.{number}")).collect();
        futures::future::join_all(keys.iter().map(|key| store(&*state, key, ""))).await;
    }
    let mut missing = keys;
    while missing > 0 {
        assert!(matches!(change(&mut watch).await, EntryChange::Put(_)));
        missing -= 1;
    }
}

pub(crate) async fn a_lost_bucket_is_told_key_by_key_and_watched_on(bench: &Bench) {
    let state = open(bench.bus()).await;
    store(&*state, "a", "1").await;
    store(&*state, "b", "2").await;
    let mut watch = open(bench.other()).await.watch("").await.unwrap();
    expect(&mut watch, &[put("a", "1", 1), put("b", "2", 2), EntryChange::Current]).await;
    bench.lose_bucket("state").await;
    expect(&mut watch, &[gone("a", 0), gone("b", 0)]).await;
    store(&*state, "b", "3").await;
    expect(&mut watch, &[put("b", "3", 1)]).await;
}

pub(crate) async fn draining_ends_watches(bench: &Bench) {
    let state = open(bench.bus()).await;
    let mut watch = state.watch("").await.unwrap();
    expect(&mut watch, &[EntryChange::Current]).await;
    bench.bus().drain().await;
    assert_eq!(rest(watch).await, []);
}
