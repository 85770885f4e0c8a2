//! An agent is killed in the middle of a pull: its standing pull goes on, and the fetched bytes are not fetched again.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use e2e::{Agent, Registry, Workplace, until};
use memory_registry::{BodyFault, Fault, MadeImage};
use sha2::{Digest as _, Sha256};

/// The byte at which the body of the slow layer stops, and the bytes that the store has at least when the agent is killed.
const STOPS_AT: u64 = 4_000_000;
const KEPT: u64 = 3_000_000;

/// The visible blobs; asserts that each hashes to its name.
fn sound_blobs(store: &Path) -> BTreeSet<String> {
    let Ok(folder) = fs::read_dir(store.join("blobs/sha256")) else { return BTreeSet::new() };
    let sound = folder.map(|entry| {
        let path = entry.unwrap().path();
        let hash: String = Sha256::digest(fs::read(&path).unwrap()).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), hash, "a visible blob hashes to its name");
        format!("sha256:{hash}")
    });
    sound.collect()
}

#[test]
fn after_kill_9_in_the_middle_of_a_pull_the_agent_goes_on_from_there() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &MadeImage::of_layers([6_000_000, 5_000_000, 4_000]));
    let slow = &added.manifests[0].layers[0];
    registry.faults().add(Fault::body(&slow.digest, BodyFault::StallAfter(STOPS_AT)));
    let (image, store) = (registry.image("shop/web:v1"), place.path("store-of-n1"));
    let is_entered = || fs::read_to_string(store.join("index.json")).is_ok_and(|index| index.contains("shop/web:v1"));

    let agent = Agent::start(&place, "n1", &[]).ready();
    let _ = agent.asked(&["pull", &image, "--wait", "10m", "--detach", "-q"]).expect(0);
    let partial = store.join(".fleetpull/partial").join(slow.digest.replacen(':', "-", 1));
    let others = added.manifests[0].blobs().count() - 1;
    until("all blobs but one are there, and some of that one", || {
        let some = fs::metadata(&partial).is_ok_and(|entry| entry.len() > KEPT);
        (some && sound_blobs(&store).len() == others).then_some(())
    });
    assert!(!is_entered() && !sound_blobs(&store).contains(&slow.digest), "nothing half-fetched is visible");
    // Requests that are being served stay stopped.
    registry.faults().clear();
    registry.reset_counts();

    let agent = agent.kill_and_start_again().ready();
    until("the standing pull goes on by itself", || is_entered().then_some(()));
    let served = registry.blob_bytes_served();
    assert_eq!(served.keys().collect::<Vec<_>>(), [&slow.digest], "a complete blob is not fetched again");
    assert!(served[&slow.digest] < slow.size - KEPT, "the part of the other blob that was there is not fetched again: {served:?}");
    assert_eq!(sound_blobs(&store).len(), others + 2, "config, layers and manifest");
    until("the standing pull is fulfilled", || agent.asked(&["pulls", "-o", "json"]).expect(0).stdout.is_empty().then_some(()));
    let present = agent.asked(&["pull", &image, "-o", "json"]).expect(0).object();
    assert_eq!(present["outcome"], "present");
}
