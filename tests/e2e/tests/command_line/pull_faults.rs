//! Registries that lie and disks that are full: a clear error, no partial file, and no effect on other pulls.

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Registry, Workplace};
use memory_registry::{BodyFault, Fault, FaultAction, MadeImage};
use support::requirement::met;

use super::common::{TEXT_MAX, check_row, entries, small, sound_blobs};

#[test]
fn false_answers_of_a_registry_fail_only_their_pull() {
    let manifest = |body: BodyFault| Fault::body("/shop/web/manifests/", body);
    let blob = |body: BodyFault| Fault::body("/shop/web/blobs/", body);
    let answer = |status, headers: &[(&str, &str)], body: &str| Fault::answer("/shop/web/manifests/", status, headers, body);
    let elsewhere = [("location", "http://{host}/v2/shop/web/manifests/v1")];
    let challenge = [("www-authenticate", "Bearer realm=\"http://{host}/v2/shop/web/manifests/v1\",service=\"x\"")];
    let page = format!("<html><head><title>Sign in</title></head>{}</html>", "<p>welcome</p>".repeat(5_000));
    let header = Fault::new(
        "/shop/web/manifests/",
        FaultAction::Header { name: "docker-content-digest".to_owned(), value: format!("sha256:{}", "0".repeat(64)) },
    );
    let table = [
        ("another digest in the header", header, "content_invalid"),
        ("a page instead of a manifest", answer(200, &[("content-type", "text/html")], &page), "unknown"),
        ("a page with an error", answer(502, &[("content-type", "text/html")], &page), "registry_unavailable"),
        ("a redirect loop", answer(302, &elsewhere, ""), ""),
        ("a challenge that leads nowhere", answer(401, &challenge, ""), "denied"),
        ("an endless manifest", manifest(BodyFault::Endless), "content_invalid"),
        ("a manifest of 64 MB", answer(200, &[], &" ".repeat(64_000_000)), "content_invalid"),
        ("half a manifest", manifest(BodyFault::ShortBy(20)), "content_invalid"),
        ("another byte in a layer", blob(BodyFault::CorruptAt(500)), "content_invalid"),
        ("too few bytes of a layer", blob(BodyFault::ShortBy(10)), "content_invalid"),
        ("a layer without end", blob(BodyFault::Endless), "content_invalid"),
    ];
    for (what, fault, class) in table {
        let (registry, place) = (Registry::new(), Workplace::new());
        registry.add_image("shop/web", "v1", &small());
        registry.add_image("shop/db", "v1", &small().seeded(2));
        registry.faults().add(fault);
        let (lied, good) = (registry.image("shop/web:v1"), registry.image("shop/db:v1"));
        let done = place.run(&["pull", "-o", "json", "--store", "store", &lied, &good]).expect(3);
        let rows = done.objects();
        let row = rows.iter().find(|row| row["image"] == lied).unwrap();
        let outcome = check_row(row);
        assert!(outcome.starts_with("failed ErrImagePull ") || outcome.starts_with("failed RegistryUnavailable "), "{what}: {row}");
        assert!(class.is_empty() || row["class"] == class, "{what}: {row}");
        assert!(row["message"].as_str().unwrap().contains(registry.host()), "{what}: the registry that failed is named: {row}");
        assert!(!done.output().contains("<p>") && done.stderr.lines().all(|line| line.chars().count() < TEXT_MAX + 200), "{what}: {done}");
        sound_blobs(&place.path("store"));
        assert_eq!(entries(&place.path("store")).into_keys().collect::<Vec<_>>(), [good], "{what}");
    }
}

/// A small disk, unmounted when dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Workplace, bytes: u64) -> Result<Self, String> {
        let folder = place.path("disk");
        std::fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]).arg(&folder).output();
        match mounted {
            Ok(output) if output.status.success() => Ok(Self(folder)),
            _ => Err("a small disk needs root and mount".to_owned()),
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_named_and_fails_only_what_does_not_fit() {
    // The disk has less than the default of `pull.keep_free`.
    let (registry, place) = (Registry::new(), Workplace::new().with("FLEETPULL_PULL_KEEP_FREE", "0B"));
    let Some(disk) = met(SmallDisk::mount(&place, 3_000_000)) else { return };
    registry.add_image("shop/big", "v1", &MadeImage::of_layers([2_000_000, 2_000_000]));
    registry.add_image("shop/web", "v1", &small().seeded(2));
    let (big, web, store) = (registry.image("shop/big:v1"), registry.image("shop/web:v1"), disk.0.join("store"));
    let store_text = store.display().to_string();
    let _ = place.run(&["pull", "-q", "--store", &store_text, &web]).expect(0);
    let row = place.run(&["pull", "-o", "json", "--store", &store_text, &big]).expect(1).object();
    assert_eq!(check_row(&row), "failed ErrImagePull node_local");
    let message = row["message"].as_str().unwrap();
    assert!(message.contains("No space left on device") && message.contains(&store_text) && message.contains("free some space"), "{row}");
    assert_eq!(entries(&store).into_keys().collect::<Vec<_>>(), std::slice::from_ref(&web));
    sound_blobs(&store);
    let present = place.run(&["pull", "-o", "json", "--store", &store_text, &web]).expect(0).object();
    assert_eq!(present["outcome"], "present", "the image that was there is still there");
}

#[test]
fn a_damaged_index_is_named_with_the_way_out_and_the_way_out_works() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let _ = place.run(&["pull", "-q", "--store", "store", &image]).expect(0);
    std::fs::write(place.path("store/index.json"), "{\"schemaVersion\": 2, \"manif").unwrap();
    for policy in ["IfNotPresent", "Always"] {
        let done = place.run(&["pull", "--store", "store", "--policy", policy, &image]).expect(1);
        assert!(done.stdout.contains("index.json is damaged") && done.stdout.contains("move it away"), "{done}");
    }
    std::fs::remove_file(place.path("store/index.json")).unwrap();
    registry.reset_counts();
    let _ = place.run(&["pull", "-q", "--store", "store", &image]).expect(0);
    assert_eq!(registry.blobs_served().len(), 0, "blobs that are there are not fetched again");
    assert!(Path::new(&place.path("store/index.json")).exists());
}
