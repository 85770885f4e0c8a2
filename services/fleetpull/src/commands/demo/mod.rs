//! `fleetpull demo`: shows the main features without an installation.
//!
//! A memory registry and three nodes run in this process: the real services on the memory bus, the real embedded runtime, real HTTP on
//! loopback. Every fact of a scene says whether it is measured, simulated or shortened.

mod outage;
mod report;
mod scene;
mod storm;

use std::time::Duration;

use anyhow::{Result, ensure};
use clock::Clock;
use contract::messages::pull_coordinator::{OutcomeKind, PullOutcome, PullPolicy};
use futures::future::join_all;
use serde_json::json;

use self::report::{Printer, StepResult};
use self::scene::{APP, MISSING, NODES, Scene};
use super::pull::quoted;
use crate::cli::DemoArgs;
use crate::exit::Exit;
use crate::output::units;

/// Callers that ask for one image at the same time.
const ASKERS: usize = 10;
/// Requests for the missing tag.
const ATTEMPTS: usize = 20;
/// The longest run. The demo takes a few seconds; after this time something is stuck.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the demo.
pub(super) fn carry_out(args: &DemoArgs) -> Result<Exit> {
    telemetry::log_to_stderr("error", false);
    actix::System::new().block_on(async {
        let scene = Scene::set(Printer::new(args.output)).await?;
        let results = tokio::select! {
            biased;
            played = tokio::time::timeout(LIMIT, play(&scene)) => played,
            _ = tokio::signal::ctrl_c() => return Ok(Exit::Failure),
        };
        let results = results.map_err(|_| anyhow::anyhow!("the demo did not end within {LIMIT:?}: please report this"))??;
        finish(args, scene, &results).await?;
        Ok(Exit::Success)
    })
}

async fn play(scene: &Scene) -> Result<Vec<StepResult>> {
    let printer = &scene.printer;
    printer.line("Each line says whether it is measured, simulated or shortened.");
    let (registry, stores) = (scene.registry.host(), scene.folder().display().to_string());
    printer.measured(
        "place",
        json!({ "registry": registry, "nodes": NODES, "stores": stores }),
        &format!("A registry on {registry} and three nodes, n1 n2 n3, in this process; stores below {stores}."),
    );
    let (layers, size) = (scene.image.layers.len(), scene.image.size());
    printer.measured(
        "image",
        json!({ "image": APP, "layers": layers, "size_bytes": size }),
        &format!("It holds {APP}: {layers} layers, {}.", units::bytes(size)),
    );
    let mut results =
        vec![first_pull(scene).await?, again(scene).await?, at_once(scene).await?, missing(scene).await?, check_blobs(scene).await?];
    let storm = tasks::blocking("storm", simulate_storm);
    results.extend(outage::play(scene).await?);
    let (failing, took) = storm.await;
    show_storm(printer, failing, took)?;
    Ok(results)
}

/// Runs on simulated time, so that half an hour of 1000 nodes takes seconds, and on its own thread while scene 6, which mostly waits, runs.
fn simulate_storm() -> (storm::Failing, Duration) {
    let clock = Clock::host();
    let began = clock.now().monotonic;
    let failing = storm::run();
    (failing, clock.now().monotonic.saturating_sub(began))
}

fn show_storm(printer: &Printer, failing: storm::Failing, took: Duration) -> Result<()> {
    let (nodes, minutes) = (storm::NODES, storm::LASTS.as_secs() / 60);
    printer.scene(7, &format!("{nodes} nodes want a tag that is not there, for {minutes} minutes (simulated)"));
    let storm = |rule: &str, failing: u64| json!({ "rule": rule, "nodes": nodes, "lasts_ms": minutes * 60_000, "failing": failing });
    let (kubelet, shared) = (failing.kubelet, failing.fleetpull);
    printer.simulated("storm", storm("kubelet", kubelet), &format!("kubelet's rule: {kubelet:>6} failing requests"));
    let by_the_cores = format!("shared:         {shared:>6} failing requests, by the cores that agents run");
    printer.simulated("storm", storm("shared", shared), &by_the_cores);
    let fewer = kubelet / shared.max(1);
    let figures = json!({ "times_fewer": fewer, "took_ms": milliseconds(took) });
    printer.simulated("spared", figures, &format!("{fewer} times fewer, in {:.1} s while scene 6 ran", took.as_secs_f64()));
    ensure!(failing.fleetpull * 10 < failing.kubelet, "sharing has spared too little: {failing:?}");
    Ok(())
}

async fn first_pull(scene: &Scene) -> Result<StepResult> {
    scene.printer.scene(1, "n1 pulls (measured)");
    let step = scene.step("n1");
    let outcome = scene.pull("n1", APP, PullPolicy::IfNotPresent).await?;
    let counts = step.show().await;
    ensure!(outcome.outcome == OutcomeKind::Pulled, "the pull failed: {}", outcome.message);
    Ok(StepResult::new(&scene.printer, "n1", "pull", report::ending(&outcome), counts))
}

async fn again(scene: &Scene) -> Result<StepResult> {
    scene.printer.scene(2, "n1 pulls it again (measured)");
    let step = scene.step("n1");
    let outcome = scene.pull("n1", APP, PullPolicy::IfNotPresent).await?;
    let counts = step.show().await;
    ensure!(counts.requests == 0, "a present image was asked for: {} requests", counts.requests);
    Ok(StepResult::new(&scene.printer, "n1", "pull again", report::ending(&outcome), counts))
}

async fn at_once(scene: &Scene) -> Result<StepResult> {
    scene.printer.scene(3, &format!("{ASKERS} ask for it on n2 at the same moment (measured)"));
    let step = scene.step("n2");
    let before = scene.registry.blobs_served();
    let outcomes: Vec<PullOutcome> =
        join_all((0..ASKERS).map(|_| scene.pull("n2", APP, PullPolicy::IfNotPresent))).await.into_iter().collect::<Result<_>>()?;
    let counts = step.show_last().await;
    let served = scene.registry.blobs_served();
    let times = |digest: &String| served.get(digest).copied().unwrap_or_default() - before.get(digest).copied().unwrap_or_default();
    let often: Vec<u64> = scene.image.blobs().map(|blob| times(&blob.digest)).collect();
    let (answered, blobs, most) = (outcomes.len(), often.len(), often.iter().max().copied().unwrap_or_default());
    let times = if most == 1 { "once".to_owned() } else { format!("{most} times") };
    scene.printer.measured(
        "askers",
        json!({ "asked": ASKERS, "answered": answered, "blobs": blobs, "served_at_most": most }),
        &format!("{answered} of {ASKERS} answered; each of {blobs} blobs was served {times}"),
    );
    ensure!(often.iter().all(|times| *times == 1), "a blob was served more than once: {often:?}");
    ensure!(outcomes.iter().all(|outcome| outcome.outcome == OutcomeKind::Pulled), "not everybody was answered");
    Ok(StepResult::new(&scene.printer, "n2", &format!("{ASKERS} at once"), report::ending(&outcomes[0]), counts))
}

async fn missing(scene: &Scene) -> Result<StepResult> {
    scene.printer.scene(4, &format!("n3 is asked {ATTEMPTS} times for a tag that is not there (measured)"));
    let step = scene.step("n3");
    let mut last = scene.pull("n3", MISSING, PullPolicy::IfNotPresent).await?;
    scene.printer.measured("answer", report::answer(1, &last), &format!("answer  1: {}", report::outcome(&last)));
    for _ in 1..ATTEMPTS {
        last = scene.pull("n3", MISSING, PullPolicy::IfNotPresent).await?;
    }
    scene.printer.measured("answer", report::answer(ATTEMPTS, &last), &format!("answer {ATTEMPTS}: {}", report::outcome(&last)));
    let counts = step.show_last().await;
    ensure!(counts.failing == 1, "a missing tag cost {} failing requests", counts.failing);
    ensure!(last.outcome == OutcomeKind::Backoff && last.next_attempt_ms.is_some(), "the last answer was no back-off");
    Ok(StepResult::new(&scene.printer, "n3", &format!("missing, {ATTEMPTS} times"), report::ending(&last), counts))
}

async fn check_blobs(scene: &Scene) -> Result<StepResult> {
    scene.printer.scene(5, "every blob in the three stores, hashed again (measured)");
    let step = scene.step("n1");
    let (blobs, bytes) = scene.hash_every_blob()?;
    let text = format!("{blobs} blobs, {}: all right", units::bytes(bytes));
    scene.printer.measured("blobs", json!({ "blobs": blobs, "bytes": bytes }), &text);
    Ok(StepResult::new(&scene.printer, "all", "hash", "all right", step.counts()))
}

async fn finish(args: &DemoArgs, scene: Scene, results: &[StepResult]) -> Result<()> {
    let printer = scene.printer.clone();
    printer.steps(results);
    if args.keep {
        let image = format!("{}/{APP}", scene.registry.host());
        let stores = scene.keep().await;
        let command = format!("skopeo inspect {}", quoted(&format!("oci:{}:{image}", stores.join("n1").display())));
        printer.kept(&stores.display().to_string(), &command);
    } else {
        scene.strike().await;
        printer.hint("");
    }
    printer.hint("Try next:");
    printer.hint("  fleetpull pull busybox --store ./images        a real image into a folder, with nothing installed");
    printer.hint("  fleetpull run --nats nats://HOST:4222          this machine as a node of a fleet");
    printer.hint("  fleetpull events --follow --nats nats://HOST:4222");
    Ok(())
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
