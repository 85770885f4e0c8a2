//! `images`, `rm` and `prune` on the embedded store; `images` on a container runtime and on nodes.

use e2e::{Agent, Registry, Workplace};
use memory_registry::MadeImage;
use serde_json::{Value, json};
use support::containerd::{self, Containerd, ContainerdConfig};
use support::requirement::met;

use super::common::{small, sound_blobs};
use super::three_agents::Fleet;

/// A workplace with `store`, which has two images that share a layer.
struct Stored {
    place: Workplace,
    _registry: Registry,
    images: [String; 2],
    digest: String,
}

impl Stored {
    fn new() -> Self {
        let (registry, place) = (Registry::new(), Workplace::new());
        let added = registry.add_image("shop/web", "v1", &MadeImage::of_layers([40_000, 20_000]));
        registry.add_image("shop/web", "v2", &MadeImage::of_layers([40_000, 30_000]));
        let images = ["v1", "v2"].map(|tag| registry.image(&format!("shop/web:{tag}")));
        // `docker://` is skopeo's prefix for an image of a registry.
        let _ = place.run(&["pull", "-q", "--store", "store", &images[0], &format!("docker://{}", images[1])]).expect(0);
        Self { place, _registry: registry, images, digest: added.digest }
    }

    fn run(&self, command: &str, more: &[&str]) -> e2e::Finished {
        self.place.run(&[&[command, "--store", "store"], more].concat())
    }

    fn listed(&self) -> Vec<Value> {
        self.run("images", &["-o", "json"]).expect(0).objects()
    }
}

#[test]
fn images_lists_what_the_store_holds() {
    let stored = Stored::new();
    let text = stored.run("images", &[]).expect(0);
    let lines: Vec<Vec<&str>> =
        text.stdout.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(lines[0], ["IMAGE", "DIGEST", "PLATFORM", "SIZE", "PULLED"], "{text}");
    assert_eq!((lines.len(), lines[1][0], lines[2][0]), (3, stored.images[0].as_str(), stored.images[1].as_str()), "{text}");
    assert_eq!(lines[1][1], &stored.digest[..19], "{text}");
    assert!(lines[1][3].ends_with(" KiB") && lines[1][4].ends_with('s'), "{text}");
    let row = stored.listed().remove(0);
    assert_eq!((&row["image"], &row["digest"]), (&json!(stored.images[0]), &json!(stored.digest)), "{row}");
    assert!(row["pulled_at"].is_string() && row["size_bytes"].as_u64() > Some(60_000) && row["platform"].is_string(), "{row}");
    let empty = Workplace::new();
    let done = empty.run(&["images", "--store", "nothing"]).expect(0);
    assert!(done.stdout.is_empty() && done.stderr.contains("there is no image store at ") && done.stderr.contains("/nothing"), "{done}");
    assert!(!empty.path("nothing").exists(), "asking makes no store");
    assert!(empty.run(&["images", "-o", "json", "--store", "nothing"]).expect(0).output().trim().is_empty());
}

#[test]
fn removed_images_leave_blobs_that_prune_frees() {
    let stored = Stored::new();
    let [first, second] = stored.images.clone();
    let blobs = || std::fs::read_dir(stored.place.path("store/blobs/sha256")).unwrap().count();
    let before = blobs();
    let dry = stored.run("rm", &["--dry-run", &first]).expect(0);
    assert!(dry.stdout.starts_with(&format!("would remove {first} (sha256:")) && dry.stderr.contains("would then free "), "{dry}");
    assert_eq!(stored.listed().len(), 2);
    let removed = stored.run("rm", &[&format!("docker://{first}")]).expect(0);
    let freed = removed.stderr.split_once("`fleetpull prune` would free ").unwrap().1.trim().to_owned();
    assert!(removed.stdout.starts_with(&format!("removed {first} (sha256:")) && dry.stderr.contains(&freed), "{removed}");
    assert!(freed.ends_with(" in 3 blobs"), "manifest, config and its own layer: {freed}");
    assert_eq!((stored.listed().len(), blobs()), (1, before));
    assert_eq!(stored.run("prune", &["--dry-run"]).expect(0).stdout.trim(), format!("would free {freed}"));
    assert_eq!(stored.run("prune", &[]).expect(0).stdout.trim(), format!("freed {freed}"));
    assert_eq!(blobs(), before - 3);
    sound_blobs(&stored.place.path("store"));
    let again = stored.run("prune", &["-o", "json"]).expect(0).object();
    assert_eq!(again, json!({"kind": "summary", "removed": 0, "blobs": 0, "freed_bytes": 0, "dry_run": false}));
    let never = ["pull", "-q", "--store", "store", "--policy", "Never", &second];
    let _ = stored.place.run(&never).expect(0);
}

#[test]
fn image_that_is_not_there_is_named_with_what_is() {
    let stored = Stored::new();
    let (repository, _) = stored.images[0].rsplit_once(':').unwrap();
    let done = stored.run("rm", &[repository, &stored.images[0]]).expect(1);
    for text in [repository, "with the tag latest, which is meant without a tag", "of this repository there is ", &stored.images[1]] {
        assert!(done.stderr.contains(text), "{text}: {done}");
    }
    assert!(done.stdout.starts_with("removed "), "the other goes all the same: {done}");
    let rows = stored.run("rm", &["-o", "json", "busybox"]).expect(1).objects();
    assert_eq!((&rows[0]["removed"], &rows[1]["removed"]), (&json!(false), &json!(0)), "{rows:?}");
    assert!(rows[0]["error"].as_str().unwrap().contains("`fleetpull images` lists what is there"), "{rows:?}");
    assert!(stored.run("rm", &["Shop/Web"]).expect(2).stderr.contains("must be lowercase"));
    let elsewhere = stored.place.run(&["rm", "--store", "nothing", "busybox"]).expect(1);
    assert!(elsewhere.stderr.contains("there is no image store at "), "{elsewhere}");
}

#[test]
fn prune_removes_old_images_but_those_that_are_kept() {
    let stored = Stored::new();
    let [first, second] = &stored.images;
    assert!(stored.run("prune", &["--keep", first]).expect(2).stderr.contains("--older-than"));
    assert_eq!(stored.run("prune", &["--older-than", "1d"]).expect(0).stdout.trim(), "freed 0 B in 0 blobs");
    let entry_of_old = || {
        let index = stored.place.path("store/index.json");
        let mut content: Value = serde_json::from_slice(&std::fs::read(&index).unwrap()).unwrap();
        for entry in content["manifests"].as_array_mut().unwrap() {
            entry["annotations"]["io.fleetpull.pulled-at"] = json!("2026-01-31T12:00:00Z");
        }
        std::fs::write(&index, content.to_string()).unwrap();
    };
    entry_of_old();
    let options = ["--older-than", "1d", "--keep", "*:v2", "-o", "json"];
    let planned = stored.run("prune", &[options.as_slice(), &["--dry-run"]].concat()).expect(0).objects();
    assert_eq!(
        (&planned[0]["image"], &planned[0]["removed"], &planned[1]["blobs"]),
        (&json!(first), &json!(false), &json!(3)),
        "{planned:?}"
    );
    let done = stored.run("prune", &options).expect(0).objects();
    assert_eq!((&done[0]["removed"], &done[1]["freed_bytes"]), (&json!(true), &planned[1]["freed_bytes"]), "{done:?}");
    assert_eq!(stored.listed().iter().map(|row| row["image"].as_str().unwrap()).collect::<Vec<_>>(), [second]);
}

#[test]
fn a_container_runtime_removes_its_own_images() {
    let place = Workplace::new().with("FLEETPULL_RUNTIME_KIND", "cri");
    for command in [["rm", "busybox"].as_slice(), &["prune"]] {
        let done = place.run(command).expect(2);
        assert!(done.stderr.contains("crictl rmi IMAGE") && done.stderr.contains("--store DIR"), "{done}");
    }
    let done = place.run(&["images", "--runtime-endpoint", "unix:///nonexistent/x.sock"]).expect(1);
    assert!(done.stderr.contains("nothing answers on /nonexistent/x.sock: "), "{done}");
    let named = place.run(&["images", "--store", "nothing"]).expect(0);
    assert!(named.stderr.contains("there is no image store at "), "a store that is named is asked: {named}");
}

#[test]
fn images_of_containerd_are_listed() {
    if met(containerd::available()).is_none() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let containerd = runtime.block_on(Containerd::start(ContainerdConfig::default()));
    let (registry, place) = (Registry::new(), Workplace::new().with("FLEETPULL_RUNTIME_ENDPOINT", containerd.endpoint()));
    let added = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let _ = place.run(&["pull", "-q", "--runtime", "cri", &image]).expect(0);
    let row = place.run(&["images", "-o", "json", "--runtime", "cri"]).expect(0).object();
    assert_eq!((&row["image"], &row["digest"], &row["pulled_at"]), (&json!(image), &json!(added.digest), &Value::Null), "{row}");
}

#[test]
fn an_agent_lists_its_images_through_its_socket() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let agent = Agent::start(&place, "n1", &[]).ready();
    let none = agent.asked(&["images"]).expect(0);
    assert!(none.stdout.is_empty() && none.stderr.contains("no images on these nodes"), "{none}");
    let _ = agent.asked(&["pull", "-q", &image]).expect(0);
    let row = agent.asked(&["images", "-o", "json"]).expect(0).object();
    assert_eq!((&row["node"], &row["image"], &row["digest"]), (&json!("n1"), &json!(image), &json!(added.digest)), "{row}");
    assert!(row["pulled_at"].is_string(), "{row}");
    // An image that an operator removes from the store is absent for the agent at once.
    let _ = place.run(&["rm", "--store", "store-of-n1", &image]).expect(0);
    let _ = place.run(&["prune", "--store", "store-of-n1"]).expect(0);
    assert!(agent.asked(&["images", "-o", "json"]).expect(0).objects().is_empty());
    assert_eq!(agent.asked(&["pull", "-q", "-o", "json", &image]).expect(0).object()["outcome"], "pulled");
    sound_blobs(&place.path("store-of-n1"));
    let usage = agent.asked(&["images", "--store", "store-of-n1"]).expect(2);
    assert!(usage.stderr.contains("are for this machine"), "{usage}");
}

#[test]
fn nodes_with_the_same_image_share_a_row() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let _ = fleet.run(&["pull", "-q", &image, "--node", "n1", "--node", "n3"]).expect(0);
    let text = fleet.run(&["images", "--all-nodes"]).expect(0);
    let rows: Vec<&str> = text.stdout.lines().collect();
    assert!(rows.len() == 2 && rows[0].starts_with("IMAGE ") && rows[0].ends_with("  NODES"), "{text}");
    assert!(rows[1].starts_with(&image) && rows[1].ends_with("  2: n1, n3"), "{text}");
    let nodes: Vec<Value> = fleet.rows(&["images", "-l", "zone=b"], 0).into_iter().map(|mut row| row["node"].take()).collect();
    assert_eq!(nodes, [json!("n3")]);
    let usage = fleet.run(&["images", "--nats", &fleet.nats.url()]).expect(2);
    assert!(usage.stderr.contains("--all-nodes"), "{usage}");
}
