//! `embedded-pull`: `fleetpull pull` of an image from docker-registry on loopback, compared with `skopeo copy` into an image layout.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clock::Clock;
use tempfile::TempDir;

use crate::alternate::median;
use crate::figure::{Bar, Figure, Unit};
use crate::process::{self, Cost};
use crate::program;
use crate::registry::DockerRegistry;
use crate::report::remark;

const MB: u64 = 1_000_000;
const LAYERS: usize = 8;
/// The size of the image whose pulls are timed, and of the others, whose pulls should need no more memory.
const TIMED_BYTES: u64 = 1_000 * MB;
const OTHER_BYTES: [u64; 2] = [250 * MB, 2_000 * MB];
/// Each round pulls three times: without fsync, by skopeo, with fsync.
const ROUNDS: usize = 5;
/// The seed of the random bytes in the layers.
const SEED: u64 = 7;
/// The bars.
const MOST_WITHOUT_FSYNC: f64 = 0.45;
const MOST_WITH_FSYNC: f64 = 0.60;
const MOST_MEBIBYTES: f64 = 32.0;

/// The program that pulls.
struct Puller {
    fleetpull: PathBuf,
    skopeo: PathBuf,
    folder: TempDir,
    clock: Clock,
}

pub(crate) async fn measure() -> Result<Vec<Figure>> {
    let folder = TempDir::with_prefix("bench-pull-")?;
    let puller = Puller { fleetpull: program::fleetpull()?, skopeo: program::installed("skopeo")?, folder, clock: Clock::host() };
    let registry = DockerRegistry::start().await?;
    remark("making the images");
    let image = registry.put("bench/timed", [TIMED_BYTES / LAYERS as u64; LAYERS], SEED).await?;
    let timed = puller.rounds(&image).await?;
    let mut figures = timed.figures();
    for (number, bytes) in OTHER_BYTES.into_iter().enumerate() {
        let image = registry.put(&format!("bench/other{number}"), [bytes / LAYERS as u64; LAYERS], SEED + 1 + number as u64).await?;
        let (ours, theirs) = (puller.fleetpull(&image, true).await?, puller.skopeo(&image).await?);
        figures.push(peak(bytes, ours.peak_bytes, theirs.peak_bytes));
    }
    Ok(figures)
}

/// The costs of every pull.
#[derive(Default)]
struct Timed {
    without_fsync: Vec<Cost>,
    with_fsync: Vec<Cost>,
    skopeo: Vec<Cost>,
}

impl Timed {
    fn figures(&self) -> Vec<Figure> {
        let seconds = |costs: &[Cost]| median(&costs.iter().map(|cost| cost.wall).collect::<Vec<_>>()).as_secs_f64();
        let most = |costs: &[Cost]| costs.iter().map(|cost| cost.peak_bytes).max().unwrap_or_default();
        let time = |what: &str, costs: &[Cost], bar| {
            let figure = Figure::new(format!("{} MB, {what}", TIMED_BYTES / MB), Unit::Seconds, seconds(costs));
            figure.compared_with("skopeo copy", seconds(&self.skopeo)).with_bar(Bar::Ratio(bar))
        };
        vec![
            time("fsync off", &self.without_fsync, MOST_WITHOUT_FSYNC),
            time("fsync on", &self.with_fsync, MOST_WITH_FSYNC),
            peak(TIMED_BYTES, most(&self.with_fsync).max(most(&self.without_fsync)), most(&self.skopeo)),
        ]
    }
}

fn peak(image_bytes: u64, ours: u64, theirs: u64) -> Figure {
    let figure = Figure::new(format!("{} MB, peak memory", image_bytes / MB), Unit::Mebibytes, process::mebibytes(ours));
    figure.compared_with("skopeo copy", process::mebibytes(theirs)).with_bar(Bar::Value(MOST_MEBIBYTES))
}

impl Puller {
    async fn rounds(&self, image: &str) -> Result<Timed> {
        let mut timed = Timed::default();
        for round in 0..=ROUNDS {
            let (without, skopeo, with) =
                (self.fleetpull(image, false).await?, self.skopeo(image).await?, self.fleetpull(image, true).await?);
            remark(&format!(
                "{}: {:.2} s without fsync, {:.2} s with, skopeo {:.2} s",
                if round == 0 { "warm-up".to_owned() } else { format!("round {round}") },
                without.wall.as_secs_f64(),
                with.wall.as_secs_f64(),
                skopeo.wall.as_secs_f64(),
            ));
            if round > 0 {
                timed.without_fsync.push(without);
                timed.skopeo.push(skopeo);
                timed.with_fsync.push(with);
            }
        }
        Ok(timed)
    }

    async fn fleetpull(&self, image: &str, fsync: bool) -> Result<Cost> {
        let store = self.empty_store()?;
        let mut command = program::isolated(&self.fleetpull, self.folder.path());
        command.args(["pull", image, "--output", "json", "--store"]).arg(store.path());
        command.env("FLEETPULL_STORE_FSYNC", fsync.to_string());
        process::run(&mut command, &self.clock).await
    }

    async fn skopeo(&self, image: &str) -> Result<Cost> {
        let store = self.empty_store()?;
        let mut command = program::isolated(&self.skopeo, self.folder.path());
        command.args(["--insecure-policy", "copy", "--quiet", "--src-tls-verify=false"]);
        command.arg(format!("docker://{image}")).arg(layout_of(store.path()));
        process::run(&mut command, &self.clock).await
    }

    /// An empty store, deleted when dropped.
    fn empty_store(&self) -> Result<TempDir> {
        Ok(TempDir::with_prefix_in("store-", self.folder.path())?)
    }
}

fn layout_of(store: &Path) -> String {
    format!("oci:{}:v1", store.display())
}
