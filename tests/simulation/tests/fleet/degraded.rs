//! A registry that does a part of what is asked: it serves some pulls in each second, it limits the nodes of one address, or its answers
//! take seconds. In some runs a node restarts meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use backoff_tracker::core::knowledge::PlantedBug;
use contract::DEADLINES;
use throttler::core::budget::PlantedBug as BudgetBug;

use super::floor;
use super::latency::SLOW_ANSWER;
use super::node::Planted;
use super::plan::{Act, IMAGES, Plan};
use super::registry::{Behaviour, PullRecord, RETRY_AFTER_OF_ADDRESS};
use super::story::Story;
use super::world;

/// A seed of a fleet without a quota, which limits no pulls at once.
const SEED: u64 = 4;
/// The same, and the fleet policy sets the budget.
const SEED_WITH_POLICY: u64 = 2;
/// From now on the registry is degraded.
const FROM: Duration = Duration::from_secs(100);
/// When all nodes want the images. Node [`LEADER`] has pulled another image before, so it leads the budget.
const WANTED_AT: Duration = Duration::from_secs(101);
const LEADER: usize = 0;
const FIRST: &str = "r.example/team/first:1";
/// The runs of each test: the seed, and the node that crashes: none, the leader of the budget, or another, whose address may be limited.
const RUNS: [(u64, Option<usize>); 3] = [(SEED_WITH_POLICY, None), (SEED_WITH_POLICY, Some(LEADER)), (SEED, Some(11))];
const CRASHES_AT: Duration = Duration::from_secs(109);
/// The share of its cap at which a budget grants permits.
const GRANTED_SHARE: f64 = 0.9;

/// The pulls that an overloaded registry serves in each second.
const SERVES_PER_SECOND: u32 = 5;
/// In a fleet with a limited address, one of this many nodes has it.
const LIMITED_EACH: usize = 5;
const LIMITED_UNTIL: Duration = Duration::from_secs(230);
/// When all nodes want one more image: shortly before [`CRASHES_AT`].
const ONE_MORE_WANTED_AT: Duration = Duration::from_millis(108_500);
/// The budget of the fleet with a slow registry, and how long its answers take.
const SLOW_PER_SECOND: f64 = 10.0;
const SLOW: Duration = Duration::from_secs(3);

/// All nodes want these images at [`WANTED_AT`]; a node may restart.
fn plan(seed: u64, nodes: usize, images: &[&'static str], restarts: Option<usize>) -> Plan {
    let mut acts: Vec<(Duration, Act)> = (0..nodes).map(|node| (Duration::from_secs(1), Act::Start(node))).collect();
    acts.push((FROM.saturating_sub(Duration::from_secs(5)), Act::Want(LEADER, FIRST)));
    acts.extend(images.iter().flat_map(|image| (0..nodes).map(|node| (WANTED_AT, Act::Want(node, image)))));
    let ends = WANTED_AT + Duration::from_secs(90);
    let plan = Plan { fails_at: FROM, app: images[0], ends, ..Plan::of_acts(seed, nodes, acts) };
    restarts.into_iter().fold(plan, |plan, node| plan.restarting(node, CRASHES_AT))
}

/// If the leader of a budget is lost, no pull begins for the rest of its term and while the next leader learns.
fn lost_leader(restarts: Option<usize>) -> Duration {
    if restarts == Some(LEADER) { DEADLINES.leader_lease + DEADLINES.budget_permit_lease } else { Duration::ZERO }
}

fn failing(story: &Story) -> usize {
    story.asked.iter().filter(|one| one.got != Behaviour::Serves).count()
}

/// The findings of each run.
fn each_run(broken: impl Fn(u64, Option<usize>) -> Vec<String>) -> Vec<String> {
    let found = RUNS.into_iter().flat_map(|(seed, restarts)| {
        broken(seed, restarts).into_iter().map(move |what| format!("seed {seed}, restart of {restarts:?}: {what}"))
    });
    found.collect()
}

/// Kubelet's rule holds in each of these runs.
fn too_soon(story: &Story) -> Option<String> {
    let too_soon = floor::too_soon(story);
    (!too_soon.is_empty()).then(|| format!("sooner than kubelet: {too_soon:?}"))
}

fn in_overload(condition: Behaviour, seed: u64, restarts: Option<usize>, planted: Planted) -> Vec<String> {
    const NODES: usize = 20;
    let mut plan = plan(seed, NODES, &IMAGES, restarts);
    plan.acts.push((FROM, Act::Registry("r.example", condition)));
    let story = world::run(plan, planted);
    let own_time = Duration::from_secs((NODES * IMAGES.len()) as u64 / u64::from(SERVES_PER_SECOND));
    let (times, at_most) = if matches!(condition, Behaviour::Overloaded(_)) { (1.3, 30) } else { (1.5, 40) };
    let within = own_time.mul_f64(times) + lost_leader(restarts);
    let (failing, served) = (failing(&story), story.all_served_at(&IMAGES).map(|last| last.saturating_sub(WANTED_AT)));
    eprintln!("{condition:?}, seed {seed}, restart of {restarts:?}: {failing} failing, all served after {served:?}");
    let late = served.is_none_or(|served| served > within).then(|| format!("{condition:?}: all served after {served:?} of {within:?}"));
    let idle = served.is_some_and(|served| served < own_time / 2).then(|| format!("{condition:?}: no overload, {served:?}"));
    let many = (failing > at_most).then(|| format!("{condition:?}: {failing} failing of {at_most}"));
    [late, idle, many, too_soon(&story)].into_iter().flatten().collect()
}

#[test]
fn overloaded_registry_is_asked_about_as_much_as_it_can_do() {
    let conditions = [Behaviour::Overloaded(SERVES_PER_SECOND), Behaviour::OverloadedProxy(SERVES_PER_SECOND)];
    let broken = conditions.map(|condition| each_run(|seed, restarts| in_overload(condition, seed, restarts, Planted::default())));
    assert!(broken.iter().all(Vec::is_empty), "{broken:#?}");
}

/// Nodes of one address get 429 with Retry-After.
fn with_a_limited_address(seed: u64, restarts: Option<usize>, planted: Planted) -> Vec<String> {
    const NODES: usize = 50;
    let (images, one_more) = (&IMAGES[..2], IMAGES[2]);
    let is_limited = |node: usize| node % LIMITED_EACH == 1;
    let mut plan = plan(seed, NODES, images, restarts);
    plan.acts.push((FROM, Act::LimitAddress((0..NODES).filter(|node| is_limited(*node)).collect())));
    plan.acts.push((LIMITED_UNTIL, Act::LimitAddress(vec![])));
    plan.acts.extend((0..NODES).map(|node| (ONE_MORE_WANTED_AT, Act::Want(node, one_more))));
    plan.ends = LIMITED_UNTIL + RETRY_AFTER_OF_ADDRESS + Duration::from_secs(20);
    let story = world::run(plan, planted);

    // The rate starts low.
    let release = Duration::from_secs_f64(2.0 + (NODES * images.len()) as f64 / (story.budget.per_second * GRANTED_SHARE));
    let within = release + Duration::from_secs(1);
    let waits = story.wanted.iter().filter(|((node, image), _)| !is_limited(*node) && *image != FIRST);
    let waits = waits.map(|((node, image), wanted)| {
        let waited = story.served_at(*node, image).map_or(Duration::MAX, |at| at.saturating_sub(*wanted));
        (waited.saturating_sub(if *image == one_more { lost_leader(restarts) } else { Duration::ZERO }), *node, *image)
    });
    let (longest, node, image) = waits.max().unwrap_or_default();
    let delayed = (longest > within).then(|| format!("n{node} waited {longest:?} of {within:?} for {image}"));

    // A restarted node has forgotten the Retry-After.
    let restarted =
        |node: usize, from: Duration, to: Duration| story.restarts.iter().any(|(of, at)| *of == node && from <= *at && *at <= to);
    let limited = || story.asked.iter().filter(|one| one.got == Behaviour::AddressLimited);
    let after = |one: &PullRecord, other: &PullRecord| {
        let answered = one.over.unwrap_or(one.at);
        one.node == other.node
            && (answered..answered + RETRY_AFTER_OF_ADDRESS).contains(&other.at)
            && !restarted(one.node, answered, other.at)
    };
    let early = limited().find_map(|one| limited().find(|other| after(one, other)).map(|other| (one, other)));
    let early = early
        .map(|(one, other)| format!("n{} asked for {} at {:?}, and for {} at {:?}", one.node, one.image, one.at, other.image, other.at));

    let last = story.all_served_at(&IMAGES[..3]).map(|last| last.saturating_sub(LIMITED_UNTIL));
    // Retry-After with its jitter.
    let stuck =
        last.is_none_or(|last| last > RETRY_AFTER_OF_ADDRESS.mul_f64(1.1)).then(|| format!("limited nodes served {last:?} after it"));
    let (failing, waited) = (failing(&story), longest);
    eprintln!(
        "limited address, seed {seed}, restart of {restarts:?}: {failing} failing, others waited {waited:?}, the limited until {last:?}"
    );
    [delayed, early, stuck, too_soon(&story)].into_iter().flatten().collect()
}

#[test]
fn limit_of_one_address_delays_no_node_of_another() {
    let broken = each_run(|seed, restarts| with_a_limited_address(seed, restarts, Planted::default()));
    assert!(broken.is_empty(), "{broken:#?}");
}

fn with_slow_answers(seed: u64, restarts: Option<usize>, planted: Planted) -> Vec<String> {
    const NODES: usize = 20;
    let mut plan = plan(seed, NODES, &IMAGES, restarts);
    plan.acts.push((FROM, Act::Answer(SLOW_ANSWER)));
    let story = world::run(Plan { per_second: SLOW_PER_SECOND, ..plan }, planted);

    let is_running = |one: &PullRecord, at: Duration| one.at <= at && one.answered.or(one.over).is_none_or(|answered| at < answered);
    let at_once = |at: Duration| story.asked.iter().filter(|one| is_running(one, at)).count();
    let most_at_once = story.asked.iter().map(|one| at_once(one.at)).max().unwrap_or_default();
    let cap = (SLOW_PER_SECOND * GRANTED_SHARE) as usize;
    let in_a_second = |from: Duration| story.asked.iter().filter(|one| (from..from + Duration::from_secs(1)).contains(&one.at)).count();
    let most_in_a_second = story.asked.iter().map(|one| in_a_second(one.at)).max().unwrap_or_default();
    let gated = (most_at_once < cap * SLOW.as_secs() as usize).then(|| format!("at most {most_at_once} pulls without an answer"));
    let rate = (!(cap..=SLOW_PER_SECOND as usize).contains(&most_in_a_second)).then(|| format!("{most_in_a_second} pulls in a second"));

    let mut asked: BTreeMap<(usize, &str), usize> = BTreeMap::new();
    for one in &story.asked {
        *asked.entry((one.node, &one.image)).or_default() += 1;
    }
    let twice = asked.into_iter().find(|((node, _), times)| *times > if restarts == Some(*node) { 2 } else { 1 });
    let twice = twice.map(|((node, image), times)| format!("n{node} asked {times} times for {image}"));

    // The manifest and the first blob of the first pulls; then the rate starts low. A new leader of the budget begins anew.
    let (start, release) = (SLOW * 2, Duration::from_secs_f64(2.4 + (NODES * IMAGES.len()) as f64 / (SLOW_PER_SECOND * GRANTED_SHARE)));
    let anew = if restarts == Some(LEADER) { lost_leader(restarts) + start } else { Duration::ZERO };
    let (within, served) = (start + release + anew, story.all_served_at(&IMAGES).map(|last| last.saturating_sub(WANTED_AT)));
    let late = served.is_none_or(|served| served > within).then(|| format!("all served after {served:?} of {within:?}"));
    let failed = (failing(&story) > 0).then(|| format!("{} failing", failing(&story)));
    eprintln!(
        "slow, seed {seed}, restart of {restarts:?}: {most_at_once} at once, {most_in_a_second} in a second, all served after {served:?}"
    );
    [gated, rate, twice, late, failed, too_soon(&story)].into_iter().flatten().collect()
}

#[test]
fn slow_registry_is_asked_at_the_cap_and_for_nothing_twice() {
    let broken = each_run(|seed, restarts| with_slow_answers(seed, restarts, Planted::default()));
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn planted_bugs_show_at_a_degraded_registry() {
    let knows = |bug| Planted { knowledge: Some(bug), ..Planted::default() };
    let unpaced = Planted { budget: Some(BudgetBug::Unpaced), ..Planted::default() };
    let found = |broken: Vec<String>, what: &str| assert!(broken.iter().any(|broken| broken.contains(what)), "{what}: {broken:#?}");
    found(in_overload(Behaviour::Overloaded(SERVES_PER_SECOND), SEED, None, unpaced), "failing of");
    found(with_a_limited_address(SEED, None, knows(PlantedBug::TrustsEveryReporter)), "waited");
    found(with_slow_answers(SEED, None, knows(PlantedBug::SuccessIgnored)), "without an answer");
    found(with_slow_answers(SEED, None, unpaced), "pulls in a second");
}
