//! `pull --runtime cri` against a real containerd; `ctr` checks the result.

use std::process::Command;

use e2e::{Agent, Finished, Registry, Workplace, until};
use memory_registry::{Auth, BodyFault, Fault, MadeImage, Options};
use serde_json::{Value, json};
use support::containerd::{self, Containerd, ContainerdConfig};
use support::requirement::met;

use super::common::{NOBODY, check_row, small};

/// A containerd, and a workplace whose settings name it.
struct Node {
    containerd: Containerd,
    place: Workplace,
}

impl Node {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let containerd = runtime.block_on(Containerd::start(ContainerdConfig::default()));
        let place = Workplace::new().with("FLEETPULL_RUNTIME_ENDPOINT", containerd.endpoint());
        Self { containerd, place }
    }

    fn run(&self, more: &[&str]) -> Finished {
        self.place.run(&[&["pull", "--runtime", "cri"], more].concat())
    }

    fn row(&self, more: &[&str], status: i32) -> Value {
        let row = self.run(&[&["-o", "json"], more].concat()).expect(status).object();
        check_row(&row);
        row
    }

    /// The names of the images that containerd itself lists.
    fn listed(&self) -> Vec<String> {
        let socket = self.containerd.endpoint().replace("unix://", "");
        let done = Command::new("ctr").args(["--address", &socket, "--namespace", "k8s.io", "images", "list", "--quiet"]).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().lines().map(str::to_owned).collect()
    }
}

#[test]
fn a_dry_run_counts_the_whole_image_as_containerd_lists_no_layers() {
    if met(containerd::available()).is_none() {
        return;
    }
    let (registry, node) = (Registry::new(), Node::start());
    let _ = registry.add_image("shop/base", "v1", &MadeImage::of_layers([40_000, 20_000]));
    let whole = registry.add_image("shop/web", "v1", &small());
    let (base, image) = (registry.image("shop/base:v1"), registry.image("shop/web:v1"));
    let agent = Agent::start(&node.place, "n1", &["--runtime", "cri"]).ready();
    let _ = agent.asked(&["pull", &base, "-q"]).expect(0);
    let dry = |more: &[&str]| agent.asked(&[&["pull", &image, "--dry-run"], more].concat()).expect(0);
    let row = dry(&["-o", "json"]).object();
    assert_eq!((&row["bytes_to_fetch"], &row["bytes_at_most"]), (&json!(whole.manifests[0].size()), &json!(true)), "{row}");
    let text = dry(&[]);
    assert!(text.stdout.contains("\nto fetch in all: up to "), "{text}");
    let _ = agent.asked(&["pull", &image, "-q"]).expect(0);
    let row = dry(&["--policy", "Always", "-o", "json"]).object();
    assert_eq!((&row["bytes_to_fetch"], &row["bytes_at_most"]), (&json!(0), &json!(false)), "the tag has not moved: {row}");
}

#[test]
fn containerd_pulls_and_keeps_to_the_policy() {
    if met(containerd::available()).is_none() {
        return;
    }
    let (registry, node) = (Registry::new(), Node::start());
    let added = registry.add_image("shop/web", "v1", &small());
    registry.add_image("shop/web", "latest", &small());
    let (image, latest) = (registry.image("shop/web:v1"), registry.image("shop/web"));

    let never = node.row(&[&image, "--policy", "Never"], 1);
    assert_eq!(check_row(&never), "failed ErrImageNeverPull node_local");
    assert_eq!(registry.counts().requests, 0);

    let pulled = node.row(&[&image], 0);
    assert_eq!((&pulled["outcome"], &pulled["digest"]), (&json!("pulled"), &json!(added.digest)), "{pulled}");
    let config = &added.manifests[0].config.digest;
    assert_eq!(pulled["image_ref"], *config, "containerd's own name for it");
    assert!(pulled["size_bytes"].as_u64() >= Some(60_000), "{pulled}");
    assert!(node.listed().contains(&image), "{:?}", node.listed());

    registry.reset_counts();
    for policy in [None, Some("IfNotPresent"), Some("Never")] {
        let more: Vec<&str> = std::iter::once(image.as_str()).chain(policy.iter().flat_map(|policy| ["--policy", policy])).collect();
        assert_eq!(node.row(&more, 0)["outcome"], "present", "{policy:?}");
    }
    assert_eq!(registry.counts().requests, 0);
    assert_eq!(node.row(&[&image, "--policy", "Always"], 0)["outcome"], "pulled");
    assert!(registry.counts().requests > 0 && registry.blobs_served().is_empty(), "asked again, fetched nothing");
    for _ in 0..2 {
        assert_eq!(node.row(&[&latest], 0)["outcome"], "pulled", "the tag latest is always pulled");
    }

    let text = node.run(&[&image]).expect(0);
    assert!(text.stderr.contains(&format!("crictl inspecti '{image}'")), "{text}");
    let explained = node.place.run(&["explain", "-o", "json", "--runtime", "cri", &image]).expect(0).object();
    assert_eq!(explained["pull"]["present"], true);
}

#[test]
fn containerds_failures_keep_its_words_and_gain_a_class() {
    if met(containerd::available()).is_none() {
        return;
    }
    let auth = Auth::Basic { user: "deploy".to_owned(), password: "hush-7".to_owned() };
    let (registry, closed, node) = (Registry::new(), Registry::with(Options { auth, ..Options::default() }), Node::start());
    registry.add_image("shop/web", "v1", &small());
    closed.add_image("shop/web", "v1", &small());
    registry.add_image("shop/arm", "v1", &small().for_platforms(["plan9/mips"]));
    let table = [
        (registry.image("shop/web:v9"), "not_found", "failed to resolve reference"),
        (closed.image("shop/web:v1"), "denied", "401"),
        (format!("{NOBODY}/shop/web:v1"), "registry_unavailable", "connection refused"),
        (registry.image("shop/arm:v1"), "content_invalid", "no match for platform"),
    ];
    for (image, class, text) in table {
        let row = node.row(&[&image], 1);
        // containerd's error for a refused connection stays ErrImagePull, as in kubelet.
        assert_eq!(check_row(&row), format!("failed ErrImagePull {class}"), "{row}");
        let message = row["message"].as_str().unwrap();
        assert!(message.contains(text) && message.contains(&image), "{row}");
    }
    // deploy:hush-7
    let authfile = node.place.write("auth.json", json!({"auths": {closed.host(): {"auth": "ZGVwbG95Omh1c2gtNw=="}}}).to_string());
    let image = closed.image("shop/web:v1");
    let done = node.run(&["-o", "json", "--log-level", "trace", "--authfile", &authfile, &image]).expect(0);
    assert!(!done.output().contains("hush-7") && !done.output().contains("ZGVwbG95Omh1c2gtNw"), "{done}");
    assert_eq!(done.object()["auth"], format!("login for {} in {authfile}", closed.host()), "{done}");
}

#[test]
fn a_socket_that_is_missing_or_dies_is_named() {
    if met(containerd::available()).is_none() {
        return;
    }
    let nowhere = Workplace::new();
    let done = nowhere.run(&["pull", "a:1", "--runtime", "cri", "--runtime-endpoint", "unix:///nonexistent/cri.sock"]).expect(1);
    assert!(done.stdout.contains("dial unix /nonexistent/cri.sock: connect: no such file or directory"), "kubelet's words: {done}");
    assert!(done.stderr.contains("hint: nothing answers on /nonexistent/cri.sock: start the container runtime"), "{done}");

    let (registry, mut node) = (Registry::new(), Node::start());
    registry.add_image("shop/web", "v1", &MadeImage::of_layers([900_000]));
    registry.faults().add(Fault::body("/blobs/", BodyFault::StallAfter(1_000)));
    let image = registry.image("shop/web:v1");
    let arguments = ["pull", "--runtime", "cri", "-o", "json", &image];
    let started = node.place.start(&arguments);
    until("containerd fetches a layer", || (registry.counts().peak_blobs_in_flight > 0).then_some(()));
    node.containerd.kill();
    let row = Finished::of(&arguments, started).expect(1).object();
    assert_eq!((&row["class"], &row["reason"]), (&json!("node_local"), &json!("ErrImagePull")), "{row}");
}
