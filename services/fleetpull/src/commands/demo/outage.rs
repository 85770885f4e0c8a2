//! Two equal registries fail at the same time: three nodes that share pull from one, three nodes that follow kubelet's rule from the other.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clock::{Clock, Random};
use contract::PodRef;
use contract::messages::pull_coordinator::{EnsureImage, OutcomeKind, PullOutcome, PullPolicy};
use futures::StreamExt as _;
use futures::future::LocalBoxFuture;
use futures::stream::FuturesUnordered;
use memory_registry::{Fault, MadeImage, MemoryRegistry, Options};
use serde_json::json;

use super::milliseconds;
use super::report::{Printer, StepCounts, StepResult};
use super::scene::{Crew, NODES, Scene};
use crate::node::Node;
use crate::output::outcome::Row;
use crate::output::units;

/// The nodes that follow kubelet's rule.
const KUBELETS: [&str; 3] = ["k1", "k2", "k3"];
/// The images that each node pulls: the services of a small shop.
const SERVICES: [&str; 8] = ["api", "cart", "login", "mail", "offers", "pay", "search", "stock"];
/// The layers of each image in bytes. They are small, because the scene is about requests.
const LAYERS: [u64; 2] = [60_000, 4_000];
/// How long the registries fail. A longer outage would only repeat the pattern.
const OUTAGE: Duration = Duration::from_secs(12);
/// How often both counters are shown.
const SHOWN_EVERY: Duration = Duration::from_secs(2);
/// When one refusal is shown: after the first probe, so that there is time left before the next.
const REFUSAL_SHOWN_AT: Duration = Duration::from_secs(3);
/// How long after the recovery the nodes that share may wait: the longest step between two probes, its jitter, and room for a busy machine.
const RESUMED_WITHIN: Duration = Duration::from_secs(14);
/// The deadline of a standing pull.
const WAIT: Duration = Duration::from_secs(60);
/// The first requests spread over this time, like those of pods in a rollout.
const ASKED_WITHIN: Duration = Duration::from_millis(500);
/// Kubelet syncs a pod again after this time multiplied by a number in `[1, 1.5)`.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// A registry and the nodes that pull from it.
struct Side<'a> {
    registry: MemoryRegistry,
    /// The pulls that go on.
    asking: FuturesUnordered<LocalBoxFuture<'a, ()>>,
    board: Board,
}

/// The state of each pull.
type Board = Rc<RefCell<BTreeMap<(&'static str, &'static str), Standing>>>;

/// The last outcome of one pull.
struct Standing {
    outcome: PullOutcome,
    /// When the outcome arrived.
    at: Duration,
}

impl Side<'_> {
    async fn new() -> Result<Self> {
        let registry = MemoryRegistry::start(Options::default()).await.context("no port on loopback can be had for a registry")?;
        for (seed, service) in SERVICES.iter().enumerate() {
            registry.add_image(&format!("shop/{service}"), "v1", &MadeImage::of_layers(LAYERS).seeded(seed as u64));
        }
        // The body that a registry's front end sends if its storage is down.
        let body = r#"{"errors":[{"code":"UNAVAILABLE","message":"the store of this registry is down"}]}"#;
        registry.faults().add(Fault::answer("/v2/", 503, &[("content-type", "application/json")], body));
        Ok(Self { registry, asking: FuturesUnordered::new(), board: Board::default() })
    }

    fn image(&self, service: &str) -> String {
        format!("{}/shop/{service}:v1", self.registry.host())
    }

    fn failing(&self) -> u64 {
        self.registry.counts().failing
    }

    fn there(&self) -> usize {
        let there = |kind| matches!(kind, OutcomeKind::Pulled | OutcomeKind::Present);
        self.board.borrow().values().filter(|standing| there(standing.outcome.outcome)).count()
    }
}

/// Plays the scene.
pub(super) async fn play(scene: &Scene) -> Result<Vec<StepResult>> {
    scene.printer.scene(6, "two equal registries break together (measured; shortened)");
    let crew = Crew::start(KUBELETS, &scene.folder().join("by-kubelets-rule"), None).await?;
    let result = contrast(scene, &crew).await;
    crew.stop().await;
    result
}

async fn contrast(scene: &Scene, crew: &Crew) -> Result<Vec<StepResult>> {
    let (ours, theirs) = (Side::new().await?, Side::new().await?);
    announce(&scene.printer, ours.registry.host(), theirs.registry.host());
    let clock = Clock::host();
    let mut random = Random::from_system();
    for service in SERVICES {
        for (node, kubelet) in NODES.into_iter().zip(KUBELETS) {
            let (image, delay) = (ours.image(service), ASKED_WITHIN.mul_f64(random.fraction()));
            ours.asking.push(Box::pin(standing_pull(
                scene.node(node)?,
                (node, service),
                image,
                delay,
                Rc::clone(&ours.board),
                clock.clone(),
            )));
            let looks = Looks { delay: ASKED_WITHIN.mul_f64(random.fraction()), random: Random::seeded(random.word()) };
            let (image, board) = (theirs.image(service), Rc::clone(&theirs.board));
            theirs.asking.push(Box::pin(look_again_and_again(crew.node(kubelet)?, (kubelet, service), image, looks, board, clock.clone())));
        }
    }
    watch(scene, ours, theirs, &clock).await
}

fn announce(printer: &Printer, ours: &str, theirs: &str) {
    let side = |rule: &str, nodes: [&str; 3], registry: &str| json!({ "rule": rule, "nodes": nodes, "registry": registry });
    let text = format!("n1 n2 n3 share what they learn and ask {ours} with standing pulls.");
    printer.measured("side", side("shared", NODES, ours), &text);
    let text = format!("k1 k2 k3, the same actors with sharing off, ask {theirs} as kubelet does.");
    printer.measured("side", side("kubelet", KUBELETS, theirs), &text);
    let images = SERVICES.len();
    let figures = json!({ "images": images, "within_ms": milliseconds(ASKED_WITHIN) });
    printer.measured("wanted", figures, &format!("Each node wants {images} images within half a second."));
    let text = format!("The outage lasts {OUTAGE:?} instead of minutes; nothing else is shortened.");
    printer.shortened("outage", json!({ "lasts_ms": milliseconds(OUTAGE) }), &text);
}

/// A standing pull: one request, answered when the image is there.
async fn standing_pull(node: &Node, place: (&'static str, &'static str), image: String, delay: Duration, board: Board, clock: Clock) {
    tokio::time::sleep(delay).await;
    let wait_ms = u64::try_from(WAIT.as_millis()).ok();
    let ask = EnsureImage { image, policy: Some(PullPolicy::IfNotPresent), wait_ms, ..EnsureImage::default() };
    if let Ok(outcome) = node.pull(ask).await {
        board.borrow_mut().insert(place, Standing { outcome, at: clock.now().monotonic });
    }
}

/// When kubelet syncs a pod.
struct Looks {
    /// The delay before the first sync.
    delay: Duration,
    random: Random,
}

/// Kubelet's pod worker: it asks, and asks again some seconds later until the image is there.
async fn look_again_and_again(
    node: &Node,
    place: (&'static str, &'static str),
    image: String,
    mut looks: Looks,
    board: Board,
    clock: Clock,
) {
    let mut wait = looks.delay;
    loop {
        tokio::time::sleep(wait).await;
        let ask = EnsureImage { image: image.clone(), policy: Some(PullPolicy::IfNotPresent), ..EnsureImage::default() };
        let Ok(outcome) = node.pull(ask).await else { return };
        let is_over = matches!(outcome.outcome, OutcomeKind::Pulled | OutcomeKind::Present);
        board.borrow_mut().insert(place, Standing { outcome, at: clock.now().monotonic });
        if is_over {
            return;
        }
        wait = LOOK_AGAIN.mul_f64(1.0 + looks.random.fraction() / 2.0);
    }
}

async fn watch<'a>(scene: &Scene, mut ours: Side<'a>, mut theirs: Side<'a>, clock: &Clock) -> Result<Vec<StepResult>> {
    let (printer, began) = (&scene.printer, clock.now().monotonic);
    let wanted = NODES.len() * SERVICES.len();
    let mut shown = tokio::time::interval(SHOWN_EVERY);
    shown.tick().await;
    let heal = tokio::time::sleep(OUTAGE);
    let mut heal = std::pin::pin!(heal);
    let mut healed: Option<Duration> = None;
    let mut refused = false;
    loop {
        let since = || clock.now().monotonic.saturating_sub(began);
        tokio::select! {
            biased;
            Some(()) = ours.asking.next(), if !ours.asking.is_empty() => {
                if ours.asking.is_empty() {
                    break;
                }
            }
            Some(()) = theirs.asking.next(), if !theirs.asking.is_empty() => {}
            () = &mut heal, if healed.is_none() => {
                for side in [&ours, &theirs] {
                    side.registry.faults().clear();
                }
                healed = Some(since());
                let after = milliseconds(since());
                printer.shortened("healed", json!({ "after_ms": after }), &format!("{:>6}  both are healed", units::age(after)));
            }
            _ = shown.tick() => {
                show_counters(printer, since(), &ours, &theirs);
                if !refused && since() >= REFUSAL_SHOWN_AT {
                    refused = show_refusal(scene, &ours, clock).await?;
                }
            }
        }
        ensure!(since() < OUTAGE + RESUMED_WITHIN, "not everybody has resumed {RESUMED_WITHIN:?} after healing");
    }
    let took = clock.now().monotonic.saturating_sub(began + healed.unwrap_or(OUTAGE));
    ensure!(ours.there() == wanted, "{} of {wanted} images came", ours.there());
    show_end(printer, &ours, &theirs, took, clock);
    ensure!(ours.failing() < theirs.failing(), "sharing has spared nothing: {} and {}", ours.failing(), theirs.failing());
    let result = |node: &str, what: &str, side: &Side<'_>| {
        let counts = StepCounts { requests: side.registry.counts().requests, failing: side.failing() };
        let outcome = format!("{} of {wanted} there", side.there());
        StepResult::new(printer, node, what, &outcome, counts)
    };
    Ok(vec![result("n1-n3", "outage, shared", &ours), result("k1-k3", "outage, kubelet's rule", &theirs)])
}

fn show_counters(printer: &Printer, since: Duration, ours: &Side<'_>, theirs: &Side<'_>) {
    let (after, shared, kubelet) = (milliseconds(since), ours.failing(), theirs.failing());
    printer.measured(
        "failing",
        json!({ "after_ms": after, "shared": shared, "kubelet": kubelet }),
        &format!("{:>6}  failing requests: {shared:>3} by n1 n2 n3, {kubelet:>3} by kubelet's rule", units::age(after)),
    );
}

/// Asks each node without a standing pull, until one refuses because of another node's report.
async fn show_refusal(scene: &Scene, ours: &Side<'_>, clock: &Clock) -> Result<bool> {
    let Some(service) = SERVICES.first() else { return Ok(false) };
    for name in NODES.into_iter().rev() {
        let image = ours.image(service);
        let pod = Some(PodRef { namespace: "shop".to_owned(), name: (*service).to_owned(), uid: String::new() });
        let outcome = scene.node(name)?.pull(EnsureImage { image: image.clone(), pod, ..EnsureImage::default() }).await?;
        let row = Row { image, node: name.parse()?, outcome, at_ms: clock.now().wall_ms(), under_way: None, not_begun: false };
        if let Some(sentence) = row.refusal() {
            let PullOutcome { class, learned_by, learned_ms_ago, learned_trace_id, next_attempt_ms, .. } = &row.outcome;
            let learned_at = learned_ms_ago.map(|ago| units::rfc_3339(row.at_ms.saturating_sub(ago)));
            let figures = json!({
                "node": name,
                "class": class.map(|class| class.as_str()),
                "learned_by": learned_by,
                "learned_at": learned_at,
                "learned_trace_id": learned_trace_id,
                "next_attempt_ms": next_attempt_ms,
            });
            scene.printer.measured("refusal", figures, &format!("        {sentence}"));
            return Ok(true);
        }
    }
    Ok(false)
}

fn show_end(printer: &Printer, ours: &Side<'_>, theirs: &Side<'_>, took: Duration, clock: &Clock) {
    let (wanted, took) = (NODES.len() * SERVICES.len(), milliseconds(took));
    printer.measured(
        "served",
        json!({ "rule": "shared", "there": ours.there(), "wanted": wanted, "after_healing_ms": took, "longest_wait_ms": 0 }),
        &format!("n1 n2 n3: all {wanted} images are there {} after healing", units::milliseconds(took / 100 * 100)),
    );
    let now = clock.now().monotonic;
    let left = |standing: &Standing| {
        let next = Duration::from_millis(standing.outcome.next_attempt_ms?);
        Some((standing.at + next).saturating_sub(now))
    };
    let waits: Vec<Duration> = theirs.board.borrow().values().filter_map(left).collect();
    let longest = milliseconds(waits.into_iter().max().unwrap_or_default());
    let there = theirs.there();
    printer.measured(
        "served",
        json!({ "rule": "kubelet", "there": there, "wanted": wanted, "after_healing_ms": took, "longest_wait_ms": longest }),
        &format!("k1 k2 k3: {there} of {wanted} by then, the last may not ask before another {}", units::age(longest)),
    );
    let (shared, kubelet) = (ours.failing(), theirs.failing());
    let text = format!("failing requests in all: {shared} and {kubelet}");
    printer.measured("failing_in_all", json!({ "shared": shared, "kubelet": kubelet }), &text);
}
