//! Three nodes, each with a scripted CRI service that answers as containerd does.

use e2e::{Registry, Workplace};
use memory_registry::MadeImage;
use support::nats::current_program;
use support::requirement::met;
use support::scripted_cri::{PresentImage, PullAnswer, Script, ScriptedCri, VersionAnswer};

use super::case::Case;
use super::fleet::{Fleet, all_at_once, outage};

const NODES: usize = 3;
/// The services' id of the image.
const ID: &str = "sha256:scripted";

/// The services, and their threads.
pub(crate) struct Services {
    pub(crate) each: Vec<ScriptedCri>,
    _threads: tokio::runtime::Runtime,
}

impl Services {
    /// Starts services that identify themselves as containerd and answer pulls like this; an image is present once it was pulled.
    pub(crate) fn start(count: usize, answers: &PullAnswer) -> Self {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let _inside = threads.enter();
        let each = (0..count).map(|_| ScriptedCri::start(script(answers))).collect();
        Self { each, _threads: threads }
    }

    pub(crate) fn endpoints(&self) -> Vec<String> {
        self.each.iter().map(ScriptedCri::endpoint).collect()
    }

    /// The number of pulls at all services.
    pub(crate) fn pulls(&self) -> usize {
        self.each.iter().flat_map(ScriptedCri::calls).filter(|call| call.method == "PullImage").count()
    }
}

pub(crate) fn pulled() -> PullAnswer {
    PullAnswer::Pulled { image_ref: ID.to_owned() }
}

fn script(answers: &PullAnswer) -> Script {
    Script {
        version: vec![VersionAnswer::Named { name: "containerd".to_owned(), version: "1.6.20".to_owned() }],
        pull_image: vec![answers.clone()],
        once_pulled: Some(PresentImage { id: ID.to_owned(), size: 4_000, ..PresentImage::default() }),
        ..Script::default()
    }
}

#[test]
fn three_nodes_behind_cri_ask_as_little_as_embedded_ones() {
    if met(current_program()).is_none() {
        return;
    }
    all_at_once(
        &[Case::NotFound, Case::Unavailable, Case::RateLimited].map(|case| ("3 agents on scripted services", case, run_case as fn(Case))),
    );
}

fn run_case(case: Case) {
    let (place, registry) = (Workplace::new(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    registry.faults().add(case.fault());
    let image = registry.image("shop/web:v1");
    let services = Services::start(NODES, &case.words(&image));
    let fleet = Fleet::on(&place, &services.endpoints());
    // The agents' own requests to the registry count together with the pulls of the services.
    let failed = || services.pulls() + usize::try_from(registry.counts().failing).unwrap();
    let heal = || {
        registry.faults().clear();
        services.each.iter().for_each(|service| service.turn_to(script(&pulled())));
    };
    outage(&fleet, case, &image, failed, heal, &["pulled"]);
    let each = services.each.iter().map(|service| service.calls().iter().filter(|call| call.method == "PullImage").count());
    assert!(each.clone().all(|pulls| pulls >= 1), "every node has pulled by its own service: {:?}", each.collect::<Vec<_>>());
}
