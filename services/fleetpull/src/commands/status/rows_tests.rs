use contract::messages::backoff_tracker::{BackoffEntry, KeyParts};
use contract::messages::throttler::{BudgetState, KnownLimits};

use super::super::model::Answers;
use super::super::samples::{OWNER, Sample, budget, limited, missing, of_registry, own, shared, unavailable};
use super::*;

fn rows_of(sample: Sample) -> Vec<Row> {
    let answers = sample.answers();
    rows(&answers.known, &answers.budgets, &answers.waits)
}

/// The subject of each row, and how many nodes and images wait.
fn shown(rows: &[Row]) -> Vec<(&str, u64, u64)> {
    assert!(rows.iter().all(|row| row.key.len() == 32 && !row.id.is_empty()));
    let names = rows.iter().map(|row| match &row.what {
        What::Registry(name) | What::Image(name) => name.as_str(),
    });
    names.zip(rows).map(|(name, row)| (name, row.waiting.nodes, row.waiting.images)).collect()
}

#[test]
fn rows_are_sorted_by_waiting_nodes_and_registries_precede_images() {
    let sample = Sample::of(5)
        .knowing(&unavailable())
        .knowing(&missing("0be1", "registry.example/team/app:v9"))
        .knowing(&BackoffEntry { view: other_registry(), ..missing("0be2", "other.example/a:1") })
        .waiting(2, "registry.example/team/app:v9", 1_000)
        .waiting(4, "other.example/a:1", 1_000)
        .waiting(1, "third.example/a:1", 1_000);
    let rows = rows_of(sample);
    assert_eq!(
        shown(&rows),
        [("other.example/a:1", 4, 1), ("registry.example", 2, 1), ("registry.example/team/app:v9", 2, 1)],
        "an image waits for its registry and for itself, and what nothing holds for no row"
    );
    let quiet = rows_of(Sample::of(2).knowing(&missing("0be1", "registry.example/team/app:v9")).knowing(&unavailable()));
    assert_eq!(shown(&quiet), [("registry.example", 0, 0), ("registry.example/team/app:v9", 0, 0)]);
}

fn other_registry() -> Option<contract::View> {
    Some(contract::View { registry: "other.example".to_owned(), ..contract::View::default() })
}

#[test]
fn entry_blocks_only_nodes_that_have_it() {
    let sample = Sample::of(3).alone(1, unavailable()).alone(2, unavailable()).waiting(3, "registry.example/a:1", 1_000);
    let rows = rows_of(sample);
    assert_eq!((shown(&rows), rows[0].node_count), (vec![("registry.example", 2, 1)], 2));
}

#[test]
fn entry_that_binds_its_reporters_alone_blocks_only_these() {
    let (image, reporters) = ("registry.example/team/app:v9", vec!["n3".to_owned(), "n1".to_owned()]);
    let registry = BackoffEntry { binds: "reporters".to_owned(), reporters, reporter_count: 2, ..unavailable() };
    let repository = KeyParts { repository: "registry.example/team/app".to_owned(), ..of_registry(EntryKind::Repository) };
    let repository = || shared("0be1", repository.clone(), FailureClass::RegistryUnavailable, "503 Service Unavailable");
    let rows = |nodes| rows_of(Sample::of(nodes).knowing(&registry).knowing(&repository()).waiting(nodes, image, 1_000));
    let expected =
        |of_repository: u64, of_registry: u64| [("registry.example/team/app", of_repository, 1), ("registry.example", of_registry, 1)];
    assert_eq!(shown(&rows(3)), expected(3, 2));
    assert_eq!(shown(&rows(1)), expected(1, 1), "the row that holds all nodes comes first");
    let unnamed = BackoffEntry { reporter_count: 12, ..registry.clone() };
    let unnamed = |nodes| rows_of(Sample::of(nodes).knowing(&unnamed).waiting(nodes, image, 1_000));
    assert_eq!(shown(&unnamed(3)), [("registry.example", 3, 1)], "each may be one of the reporters that are not named");
    assert_eq!(shown(&unnamed(20)), [("registry.example", 12, 1)], "and no more than the reporters are held");
    let own_of_n2 = Sample::of(3).knowing(&registry).alone(2, own(image)).waiting(3, image, 1_000);
    assert_eq!(shown(&rows_of(own_of_n2)), [("registry.example", 2, 1), (image, 1, 1)], "n2 is held by its own back-off");
}

#[test]
fn used_up_quota_blocks_all_nodes_although_its_entry_binds_its_reporters_alone() {
    let of_n1 = BackoffEntry { binds: "reporters".to_owned(), ..limited() };
    let sample = || Sample::of(3).knowing(&of_n1).waiting(3, "registry.example/a:1", 1_000);
    assert_eq!(shown(&rows_of(sample())), [("registry.example", 1, 1)]);
    for reset_ms in [Some(8_040_000), None] {
        let mut spent = budget(OWNER, 0);
        spent.known.limits.iter_mut().for_each(|limit| limit.reset_ms = reset_ms);
        assert_eq!(shown(&rows_of(sample().led(spent))), [("registry.example", 3, 1)], "{reset_ms:?}");
    }
}

#[test]
fn row_that_holds_all_nodes_precedes_a_budget_unless_its_quota_is_used_up() {
    let states = |of_budget: BudgetState| {
        let rows = rows_of(Sample::of(2).knowing(&missing("0be1", "registry.example/a:1")).led(of_budget));
        rows.iter().map(|row| row.state).collect::<Vec<_>>()
    };
    let owner = "default|other.example|h||anonymous|e";
    let slowed = BudgetState { rate_cause: "overload".to_owned(), per_second_in_force: 4.5, ..budget(owner, 31) };
    assert_eq!(states(slowed), ["not_found", "slowed"]);
    assert_eq!(states(budget(owner, 0)), ["quota_spent", "not_found"]);
}

#[test]
fn own_back_offs_have_a_row_for_each_image_without_a_shared_entry() {
    let sample = Sample::of(4)
        .alone(1, own("third.example/a"))
        .alone(3, own("shop/web-0 third.example/a:latest"))
        .alone(3, own("third.example/a"))
        .alone(1, missing("0be1", "registry.example/a:1"))
        .alone(1, own("registry.example/a:1"))
        .alone(2, own("registry.example/a:1"))
        .waiting(4, "third.example/a", 5_000)
        .waiting(4, "registry.example/a:1", 5_000);
    let rows = rows_of(sample);
    let named = |row: &Row| (row.scope.clone(), row.cause.clone());
    assert_eq!(
        shown(&rows),
        [("third.example/a:latest", 2, 1), ("registry.example/a:1", 1, 1), ("registry.example/a:1", 1, 1)],
        "n1 knows the shared entry, and n2 has its own alone"
    );
    assert_eq!(named(&rows[0]), ("2 nodes".to_owned(), "no space left on device (n1 +1)".to_owned()), "n3 counts once");
    let scopes: Vec<&str> = rows[1..].iter().map(|row| row.scope.as_str()).collect();
    assert!(scopes.contains(&"image") && scopes.contains(&"n2"), "{scopes:?}");
}

#[test]
fn node_that_only_observes_waits_for_its_own_back_off() {
    let image = "registry.example/team/app:v9";
    // n2 has failed itself.
    let rows = |observers: usize| {
        let own_of_n2 = BackoffEntry { next_attempt_ms: 160_000, ..own(image) };
        let observe = |answers: &mut Answers| {
            answers.nodes.iter_mut().rev().take(observers).for_each(|described| described.share = "observe".to_owned());
        };
        rows_of(Sample::of(2).knowing(&unavailable()).alone(2, own_of_n2).waiting(2, image, 1_000).with(observe))
    };
    assert_eq!(shown(&rows(0)), [("registry.example", 2, 1)]);
    let mixed = rows(1);
    assert_eq!(shown(&mixed), [("registry.example", 1, 1), (image, 1, 1)]);
    assert_eq!((mixed[0].holds_all, mixed[1].next_attempt_ms), (true, Some(160_000)));
    let observed = rows(2);
    assert_eq!(shown(&observed), [(image, 1, 1), ("registry.example", 0, 0)]);
    assert!(!observed[1].holds_all, "the entry refuses nothing on any node");
}

#[test]
fn row_that_holds_no_node_is_the_last() {
    let (over, held) = (|| BackoffEntry { next_attempt_ms: 999, ..own("third.example/a") }, "third.example/b");
    let sample = |second| Sample::of(3).alone(1, over()).alone(2, second).alone(3, own(held));
    let names = |sample: Sample| rows_of(sample).iter().map(|row| (row.what.clone(), row.is_over)).collect::<Vec<_>>();
    let [a, b] = ["third.example/a:latest", "third.example/b:latest"].map(|image| What::Image(image.to_owned()));
    assert_eq!(names(sample(over())), [(b.clone(), false), (a.clone(), true)]);
    assert_eq!(names(sample(over()).waiting(1, "third.example/a", 1_000)), [(a.clone(), false), (b.clone(), false)], "n1 waits");
    assert_eq!(names(sample(own("third.example/a"))), [(a, false), (b, false)], "n2 is held, and more nodes have it");
}

#[test]
fn nodes_with_another_cause_have_not_found_that_of_the_row() {
    let other = BackoffEntry { cause: "ErrImagePull: read-only file system".to_owned(), last_ms_ago: 9_000, ..own("third.example/a") };
    let rows = rows_of(Sample::of(2).alone(1, own("third.example/a")).alone(2, other));
    assert_eq!((rows[0].scope.as_str(), rows[0].cause.as_str()), ("2 nodes", "no space left on device (n1)"));
}

#[test]
fn a_budget_and_the_back_off_of_its_owner_are_one_row() {
    let spent = || budget(OWNER, 0);
    let sample = |known: bool| if known { Sample::of(2).knowing(&limited()) } else { Sample::of(2) };
    let one = rows_of(sample(true).led(spent()).waiting(2, "registry.example/a:1", 1));
    assert_eq!(shown(&one), [("registry.example", 2, 1)]);
    let Row { state, scope, state_in_words, cause, since_ms, next_attempt_ms, figures, .. } = &one[0];
    assert_eq!((*state, scope.as_str(), state_in_words.as_str(), cause.as_str()), ("quota_spent", "quota", "0/100 left", "429 (n1)"));
    assert_eq!((*since_ms, *next_attempt_ms), (Some(252_000), Some(8_040_000)), "the quota's time is later");
    assert_eq!(figures.as_ref().and_then(|figures| figures.cap), Some(200.0));
    let alone = rows_of(sample(false).led(spent()).waiting(2, "registry.example/a:1", 1));
    assert_eq!((shown(&alone), alone[0].state), (vec![("registry.example", 2, 1)], "quota_spent"));
    let other = BudgetState { owner: format!("{OWNER}2"), ..spent() };
    assert_eq!(rows_of(sample(true).led(other)).len(), 2, "another owner's");
}

#[test]
fn outage_and_the_rate_that_it_lowers_are_one_row() {
    let slowed = |cause: &str| BudgetState {
        rate_cause: cause.to_owned(),
        per_second_in_force: 4.5,
        known: KnownLimits::default(),
        ..budget(OWNER, 0)
    };
    for (rows, expected) in [
        (rows_of(Sample::of(2).knowing(&unavailable()).led(slowed("overload"))), vec!["registry_unavailable"]),
        (rows_of(Sample::of(2).knowing(&unavailable()).led(slowed("silent_nodes"))), vec!["registry_unavailable", "slowed"]),
        (rows_of(Sample::of(2).knowing(&unavailable()).led(budget(OWNER, 0))), vec!["registry_unavailable", "quota_spent"]),
        (rows_of(Sample::of(2).led(slowed("overload"))), vec!["slowed"]),
    ] {
        let states: BTreeSet<&str> = rows.iter().map(|row| row.state).collect();
        assert_eq!((rows.len(), states), (expected.len(), expected.into_iter().collect()));
    }
    let outage = rows_of(Sample::of(2).knowing(&unavailable()).led(slowed("overload")));
    assert_eq!(
        (outage[0].state_in_words.as_str(), outage[0].figures.as_ref().and_then(|figures| figures.rate)),
        ("unavailable", Some(4.5))
    );
}

#[test]
fn blocked_pull_is_not_counted_as_queued() {
    let queued = BudgetState { waiting_count: 2, known: KnownLimits::default(), ..budget(OWNER, 0) };
    let (held, free) = ("registry.example/team/app:v9", "registry.example/a:1");
    let sample = Sample::of(3).knowing(&missing("0be1", held)).led(queued).waiting(3, held, 1).waiting(2, free, 1);
    let rows = rows_of(sample);
    assert_eq!((shown(&rows), rows[1].state), (vec![(held, 3, 1), ("registry.example", 2, 1)], "queued"));
}

#[test]
fn status_sent_by_a_proxy_is_shown_as_the_proxys() {
    let cause = "RegistryUnavailable: r: 503 Service Unavailable (with a web page: this is no registry's answer) for manifest v1";
    let rows = rows_of(Sample::of(1).knowing(&BackoffEntry { cause: cause.to_owned(), ..unavailable() }));
    assert_eq!(rows[0].cause, "503 from a proxy (n1)");
}

#[test]
fn ids_distinguish_rows() {
    let repository = KeyParts { repository: "registry.example/a".to_owned(), ..of_registry(EntryKind::Repository) };
    let sample = Sample::of(1)
        .knowing(&shared("7f3a1", of_registry(EntryKind::Registry), FailureClass::RegistryUnavailable, "x"))
        .knowing(&shared("7f3a2", repository, FailureClass::RegistryUnavailable, "x"));
    let rows = rows_of(sample);
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!(ids, ["7f3a1", "7f3a2"]);
}
