//! The result of `pull`: an OCI image layout that other programs read, and a last line with its path and how to read it.

use std::process::Command;

use e2e::{Registry, Workplace, skopeo};
use memory_registry::{Fault, Flavour, MadeImage};
use serde_json::Value;
use support::docker_registry::{self, DockerRegistry};
use support::requirement::met;

use super::common::{entries, small, sound_blobs};

/// The command in the last line of the output.
fn advised(stderr: &str) -> &str {
    let is_command = |line: &&str| line.starts_with("skopeo ") || line.starts_with("cat ");
    stderr.lines().map(str::trim).find(is_command).unwrap_or_else(|| panic!("a command is advised: {stderr}"))
}

#[test]
fn the_command_that_is_advised_reads_the_image() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    let by_digest = format!("shop/web@{}", added.digest);
    for name in ["shop/web:v1", &by_digest] {
        let done = place.run(&["pull", "--store", "store", &registry.image(name)]).expect(0);
        assert!(done.stderr.contains(&place.text_path("store")), "the path is printed in full: {done}");
        // Run it in another folder, because a user copies it into another terminal.
        let read = Command::new("sh").arg("-c").arg(advised(&done.stderr)).current_dir("/").output().unwrap();
        assert!(read.status.success(), "{}: {}", advised(&done.stderr), String::from_utf8_lossy(&read.stderr));
        let inspected: Value = serde_json::from_slice(&read.stdout).unwrap();
        assert_eq!(inspected["Digest"], added.digest);
    }
}

#[test]
fn an_image_of_the_real_registry_comes_through_unchanged() {
    if met(docker_registry::available()).is_none() {
        return;
    }
    let (made, real, place) = (Registry::new(), DockerRegistry::start(), Workplace::new());
    made.add_image("shop/web", "v1", &small());
    for (format, tag) in [("oci", "v1"), ("v2s2", "docker")] {
        let image = format!("{}/shop/web:{tag}", real.host());
        let (from, to) = (format!("docker://{}", made.image("shop/web:v1")), format!("docker://{image}"));
        skopeo(&["copy", "--quiet", "--format", format, "--src-tls-verify=false", "--dest-tls-verify=false", &from, &to]);
        let done = place.run(&["pull", "-o", "json", "--store", "store", &image]).expect(0);
        let there: Value = serde_json::from_str(&skopeo(&["inspect", "--tls-verify=false", &to])).unwrap();
        assert_eq!(done.object()["digest"], there["Digest"], "{format}");
        let read = Command::new("sh").arg("-c").arg(advised(&place.run(&["pull", "--store", "store", &image]).expect(0).stderr)).output();
        assert!(read.is_ok_and(|read| read.status.success() && !read.stdout.is_empty()), "{format}");
    }
    sound_blobs(&place.path("store"));
    let read = format!("oci:{}:{}/shop/web:v1", place.text_path("store"), real.host());
    skopeo(&["copy", "--quiet", &read, &format!("dir:{}", place.text_path("copy"))]);
}

#[test]
fn each_platform_of_a_list_can_be_had_in_both_flavours() {
    for flavour in [Flavour::Oci, Flavour::Docker] {
        let (registry, place) = (Registry::new(), Workplace::new());
        let made = small().for_platforms(["linux/amd64", "linux/arm64/v8", "linux/s390x"]).of_flavour(flavour);
        let added = registry.add_image("shop/web", "v1", &made);
        let image = registry.image("shop/web:v1");
        for (platform, expected) in [("linux/arm64", &added.manifests[1]), ("linux/s390x", &added.manifests[2])] {
            let row = place.run(&["pull", "-o", "json", "--store", "store", "--platform", platform, &image]).expect(0).object();
            assert_eq!((&row["outcome"], &row["digest"]), (&"pulled".into(), &added.digest.as_str().into()), "{row}");
            assert_eq!(row["image_ref"], format!("{}@{}", registry.image("shop/web"), expected.digest), "{flavour:?} {platform}");
        }
        let absent = place.run(&["pull", "-o", "json", "--store", "store", "--platform", "windows/amd64", &image]).expect(1).object();
        assert_eq!(absent["class"], "content_invalid", "{absent}");
        assert!(absent["message"].as_str().unwrap().contains("linux/amd64, linux/arm64, linux/s390x"), "{absent}");
        let index = entries(&place.path("store"));
        assert_eq!(index[&image].len(), 2, "one entry for each platform that was pulled: {index:?}");
        sound_blobs(&place.path("store"));
    }
}

#[test]
fn the_policy_defaults_as_in_kubernetes() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    registry.add_image("shop/web", "latest", &small());
    let table = [
        ("shop/web:v1", None, "present", 0),
        ("shop/web", None, "pulled", 1),
        ("shop/web:latest", None, "pulled", 1),
        ("shop/web:latest", Some("IfNotPresent"), "present", 0),
        ("shop/web:v1", Some("Always"), "pulled", 1),
        ("shop/web:v1", Some("never"), "present", 0),
    ];
    place.run(&["pull", "--store", "store", &registry.image("shop/web:v1"), &registry.image("shop/web:latest")]).expect(0);
    for (name, policy, outcome, requests) in table {
        registry.reset_counts();
        let image = registry.image(name);
        let mut arguments = vec!["pull", "-o", "json", "--store", "store", &image];
        arguments.extend(policy.iter().flat_map(|policy| ["--policy", policy]));
        let row = place.run(&arguments).expect(0).object();
        assert_eq!(row["outcome"], outcome, "{name} {policy:?}");
        // If the image is present, policy Always costs one request for the manifest.
        assert_eq!(registry.counts().requests, requests, "{name} {policy:?}");
    }
}

#[test]
fn blobs_are_followed_to_where_the_registry_sends() {
    let (registry, elsewhere, place) = (Registry::new(), Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    elsewhere.add_image("shop/web", "v1", &small());
    for blob in added.manifests[0].blobs() {
        let to = format!("{}/v2/shop/web/blobs/{}?signature=hush-hush", elsewhere.url(), blob.digest);
        registry.faults().add(Fault::answer(&format!("/blobs/{}", blob.digest), 307, &[("location", &to)], ""));
    }
    let done = place.run(&["pull", "--store", "store", "--log-level", "trace", &registry.image("shop/web:v1")]).expect(0);
    assert_eq!(elsewhere.blobs_served().len(), 4, "config and layers");
    assert!(!done.output().contains("hush-hush"), "{done}");
    sound_blobs(&place.path("store"));
}

#[test]
fn a_store_may_be_named_by_its_variable() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([3_000]));
    let image = registry.image("shop/web:v1");
    let store = place.text_path("by-variable");
    let done = Workplace::new().with("FLEETPULL_STORE_DIR", &store).run(&["pull", &image]).expect(0);
    assert!(done.stderr.contains(&store), "{done}");
    assert_eq!(entries(&place.path("by-variable")).len(), 1);
}

#[test]
fn a_store_that_is_damaged_is_put_right_by_the_next_pull() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    let (image, store) = (registry.image("shop/web:v1"), place.path("store"));
    let pull = |policy: &str| {
        let row = place.run(&["pull", "--store", "store", "-o", "json", "--policy", policy, &image]).expect(0).object();
        row["outcome"].as_str().unwrap().to_owned()
    };
    assert_eq!(pull("IfNotPresent"), "pulled");
    let manifest = &added.manifests[0];
    // Every pull checks the bytes of manifest and configuration; policy Always also checks the layers.
    for (digest, policy) in
        [(&manifest.digest, "IfNotPresent"), (&manifest.config.digest, "IfNotPresent"), (&manifest.layers[0].digest, "Always")]
    {
        let blob = store.join("blobs").join(digest.replacen(':', "/", 1));
        let size = std::fs::metadata(&blob).unwrap().len();
        std::fs::write(&blob, vec![0; usize::try_from(size).unwrap()]).unwrap();
        assert_eq!(pull(policy), "pulled", "{digest}");
        sound_blobs(&store);
        assert_eq!(pull("IfNotPresent"), "present", "{digest}");
    }
}

#[test]
fn text_output_has_one_line_per_image_and_quiet_only_these() {
    let (registry, place) = (Registry::new(), Workplace::new().with("FLEETPULL_NODE_NAME", "n1"));
    let added = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let done = place.run(&["pull", "--store", "store", "-q", &image]).expect(0);
    assert_eq!(done.stderr, "", "{done}");
    let row = done.stdout.trim_end();
    assert!(row.starts_with(&format!("pulled   n1  {image}  ")) && row.ends_with(&added.digest) && row.lines().count() == 1, "{done}");
    let done = place.run(&["pull", "--store", "other", &image]).expect(0);
    let kubelets = format!("Successfully pulled image \"{image}\" in ");
    assert!(done.stderr.contains(&format!("Pulling image \"{image}\"")) && done.stderr.contains(&kubelets), "{done}");
    let json = place.run(&["pull", "--store", "third", "-o", "json", "-q", &image]).expect(0);
    assert_eq!(json.stderr, "", "{json}");
}

#[test]
fn a_pull_in_the_commands_own_process_leaves_the_room_that_is_set() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let pull = |keep: &str| {
        let file = place.write("node.toml", format!("[pull]\nkeep_free = \"{keep}\"\n"));
        place.run(&["pull", "-o", "json", "--store", "store", "--config", &file, &image])
    };
    let row = pull("1000TiB").expect(1).object();
    assert_eq!((&row["outcome"], &row["class"]), (&"failed".into(), &"node_local".into()), "{row}");
    let message = row["message"].as_str().unwrap();
    assert!(message.contains("short of pull.keep_free") && message.contains("lower pull.keep_free"), "{row}");
    assert_eq!(registry.counts().requests, 0, "no registry is asked");
    assert_eq!(pull("0B").expect(0).object()["outcome"], "pulled");
    assert_eq!(pull("1000TiB").expect(0).object()["outcome"], "present", "a present image takes no more room");
}
