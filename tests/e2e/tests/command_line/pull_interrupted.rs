//! No byte is fetched twice and no partial file is visible, whichever process is killed and however many processes pull at once.

use std::collections::BTreeMap;
use std::path::Path;

use e2e::{Finished, Registry, Signal, Workplace, until};
use memory_registry::{BodyFault, Fault, MadeImage};

use super::common::{entries, small, sound_blobs};

/// How many processes pull at once.
const PROCESSES: usize = 5;

/// The bytes of each blob that an interrupted pull left, by digest.
fn left_over(store: &Path) -> BTreeMap<String, u64> {
    let Ok(folder) = std::fs::read_dir(store.join(".fleetpull/partial")) else { return BTreeMap::new() };
    let partial = folder.filter_map(|entry| {
        let entry = entry.ok()?;
        let name = entry.file_name().into_string().ok()?;
        Some((name.replacen('-', ":", 1), entry.metadata().ok()?.len()))
    });
    partial.filter(|(name, bytes)| name.starts_with("sha256:") && *bytes > 0).collect()
}

#[test]
fn after_kill_9_the_same_command_goes_on_from_there() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &MadeImage::of_layers([6_000_000, 5_000_000, 4_000]));
    let slow = &added.manifests[0].layers[0];
    let stalled = Fault::body(&slow.digest, BodyFault::StallAfter(4_000_000));
    registry.faults().add(stalled);
    let (image, store) = (registry.image("shop/web:v1"), place.path("store"));
    let arguments = ["pull", "--store", "store", "-o", "json", &image];

    let first = place.start(&arguments);
    let others = added.manifests[0].blobs().count() - 1;
    until("all blobs but one are there, and some of that one", || {
        let some = left_over(&store).get(&slow.digest).is_some_and(|bytes| *bytes > 3_000_000);
        (some && sound_blobs(&store).len() >= others).then_some(())
    });
    first.signal(Signal::Kill);
    let (status, stdout, _) = first.wait();
    assert_eq!((status, stdout.as_str()), (137, ""), "it was killed in the middle");

    let there = sound_blobs(&store);
    assert!(!there.contains_key(&slow.digest), "half a layer is not visible");
    assert!(entries(&store).is_empty(), "nor is the image");
    let left = left_over(&store)[&slow.digest];

    registry.faults().clear();
    registry.reset_counts();
    let row = place.run(&arguments).expect(0).object();
    assert_eq!(row["outcome"], "pulled");
    let served = registry.blob_bytes_served();
    assert_eq!(served, BTreeMap::from([(slow.digest.clone(), slow.size - left)]), "only what was missing is fetched");
    assert_eq!(sound_blobs(&store).len(), others + 2, "config, layers and manifest");
    assert_eq!(entries(&store).keys().collect::<Vec<_>>(), [&image]);
    assert!(left_over(&store).is_empty(), "nothing is left lying about");
}

#[test]
fn ctrl_c_explains_that_the_same_command_continues() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    registry.faults().add(Fault::body("/blobs/", BodyFault::StallAfter(1_000)));
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", "--store", "store", &image];
    let started = place.start(&arguments);
    until("the pull has begun", || (registry.counts().peak_blobs_in_flight > 0).then_some(()));
    started.signal(Signal::Interrupt);
    let done = Finished::of(&arguments, started).expect(130);
    assert!(done.stderr.contains("the same command goes on from there"), "{done}");
    assert!(entries(&place.path("store")).is_empty());
}

#[test]
fn processes_that_pull_the_same_image_at_once_fetch_each_blob_once() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &MadeImage::of_layers([900_000, 700_000, 4_000]));
    // The blobs are slow enough for all processes to pull at the same time.
    registry.faults().add(Fault::body("/blobs/", BodyFault::BytesPerSecond(2_000_000)));
    let (image, store) = (registry.image("shop/web:v1"), place.path("store"));
    let arguments = ["pull", "--store", "store", "-o", "json", &image];
    let started: Vec<_> = (0..PROCESSES).map(|_| place.start(&arguments)).collect();
    for process in started {
        let done = Finished::of(&arguments, process).expect(0);
        assert!(["pulled", "present"].contains(&done.object()["outcome"].as_str().unwrap()), "{done}");
    }
    let served = registry.blobs_served();
    let once: BTreeMap<String, u64> = added.manifests[0].blobs().map(|blob| (blob.digest.clone(), 1)).collect();
    assert_eq!(served, once);
    assert_eq!(entries(&store)[&image].len(), 1, "one entry for one image");
    sound_blobs(&store);
}

#[test]
fn processes_that_pull_different_images_at_once_lose_no_entry() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let images: Vec<String> = (0..PROCESSES).map(|number| format!("shop/app-{number}")).collect();
    for (seed, name) in images.iter().enumerate() {
        registry.add_image(name, "v1", &small().seeded(seed as u64));
    }
    let images: Vec<String> = images.iter().map(|name| registry.image(&format!("{name}:v1"))).collect();
    let started: Vec<_> = images.iter().map(|image| place.start(&["pull", "--store", "store", image])).collect();
    for process in started {
        let _ = Finished::of(&["pull"], process).expect(0);
    }
    assert_eq!(entries(&place.path("store")).into_keys().collect::<Vec<_>>(), images);
    sound_blobs(&place.path("store"));
}
