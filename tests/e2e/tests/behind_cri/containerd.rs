//! Three agents on the socket of one real containerd: an image that one agent pulls is present for all.
//!
//! The test limits pulls, not requests: containerd repeats a request that is answered with 429, five times at once.

use e2e::{Registry, Workplace};
use memory_registry::MadeImage;
use support::containerd::{Containerd, ContainerdConfig, available};
use support::nats::current_program;
use support::requirement::met;

use super::case::Case;
use super::fleet::{Fleet, all_at_once, outage};

const NODES: usize = 3;

#[test]
fn three_agents_on_a_real_containerd_ask_as_little_as_embedded_ones() {
    if met(current_program().and_then(|_| available())).is_none() {
        return;
    }
    all_at_once(&[Case::NotFound, Case::Unavailable, Case::RateLimited].map(|case| ("3 agents on containerd", case, run_case as fn(Case))));
}

fn run_case(case: Case) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let containerd = runtime.block_on(Containerd::start(ContainerdConfig::default()));
    let (place, registry) = (Workplace::new(), Registry::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([4_000]));
    registry.faults().add(case.fault());
    let failing = || usize::try_from(registry.counts().failing).unwrap();

    // How many requests one failing pull of this containerd makes.
    let alone = ["pull", "--runtime", "cri", "--runtime-endpoint", &containerd.endpoint(), &registry.image("shop/web:v1")];
    let _ = place.run(&alone).expect(1);
    let of_one_pull = failing();
    eprintln!("{case:?}: a failing pull by containerd is {of_one_pull} requests");
    assert!(of_one_pull >= 1);
    registry.reset_counts();

    let fleet = Fleet::on(&place, &vec![containerd.endpoint(); NODES]);
    let failed = || failing().div_ceil(of_one_pull);
    outage(&fleet, case, &registry.image("shop/web:v1"), failed, || registry.faults().clear(), &["pulled", "present"]);
}
