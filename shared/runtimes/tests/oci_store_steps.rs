//! Checks by the order of system calls what outlives a power failure.
//!
//! With `store.fsync` a blob's content is synced before its rename, all blobs' names before the index names the image, and the index before
//! the pull ends. A prune syncs the index without an image before it removes the first blob. Without `store.fsync` nothing is synced, and
//! the other steps have the same order.
#![allow(clippy::disallowed_methods, reason = "tasks of a test")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clock::Clock;
use memory_registry::{Flavour, MadeImage};
use runtimes::oci_layout::{OciLayout, PruneOptions, StoreUpkeep};
use runtimes::{ImageRuntime as _, Progress};
use support::requirement::met;

use super::oci_support::{options, registry, request};

/// The variable with the child's task: a folder, an image, and whether to sync.
const CHILD: &str = "FLEETPULL_TEST_STORE_STEPS";
/// Folders that the child creates after opening the store, after the pull and after the prune.
const OPENED: &str = "opened";
const PULLED: &str = "pulled";
const PRUNED: &str = "pruned";

/// Not a test: the code of a child process that pulls an image, and removes it again.
#[tokio::test]
async fn pull_in_child_process() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let [folder, image, fsync] = arguments.split(' ').collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    let mut options = options(Path::new(folder));
    options.fsync = fsync == "true";
    let runtime = OciLayout::open(options).unwrap();
    std::fs::create_dir(Path::new(folder).join(OPENED)).unwrap();
    runtime.pull(request(image, None), Progress::new()).await.unwrap();
    std::fs::create_dir(Path::new(folder).join(PULLED)).unwrap();
    let upkeep = StoreUpkeep::open(&Path::new(folder).join("store"), fsync == "true", Clock::host()).unwrap().unwrap();
    let all = PruneOptions { older_than: Some(Duration::ZERO), keep: Vec::new() };
    assert_eq!(upkeep.prune(&all, |_| {}).await.unwrap().images.len(), 1);
    std::fs::create_dir(Path::new(folder).join(PRUNED)).unwrap();
}

/// Checks that strace works here.
fn traces() -> Result<(), String> {
    let traced = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    match traced {
        Ok(traced) if traced.status.success() => Ok(()),
        Ok(traced) => Err(format!("strace cannot trace here: {}", String::from_utf8_lossy(&traced.stderr).trim())),
        Err(error) => Err(format!("strace cannot be run: {error}; cargo xtask tools gets it")),
    }
}

/// Steps on the disk: `sync PATH`, `rename PATH PATH`, `mkdir PATH` or `unlink PATH`. A sync counts when it ends, the others when they
/// begin.
#[derive(Default)]
struct Steps {
    steps: Vec<String>,
    /// The unfinished call of each thread.
    unfinished: BTreeMap<String, String>,
}

impl Steps {
    fn of(trace: &str) -> Vec<String> {
        let mut steps = Self::default();
        trace.lines().for_each(|line| steps.read_line(line));
        steps.steps
    }

    fn read_line(&mut self, line: &str) {
        let Some((thread, call)) = line.split_once(char::is_whitespace) else { return };
        let call = call.trim();
        if call.starts_with("<... ") {
            let begun = self.unfinished.remove(thread).unwrap_or_default();
            if begun.starts_with('f') && call.ends_with("= 0") {
                self.steps.extend(step(&begun));
            }
        } else if let Some(begun) = call.strip_suffix("<unfinished ...>") {
            self.unfinished.insert(thread.to_owned(), begun.to_owned());
            if !begun.starts_with('f') {
                self.steps.extend(step(begun));
            }
        } else if call.ends_with("= 0") {
            self.steps.extend(step(call));
        }
    }
}

/// Parses `fsync(7</store/blobs>)`, `rename("/a", "/b")`, `renameat2(5</store>, "a", 5</store>, "b", 0)`.
fn step(call: &str) -> Option<String> {
    let (name, arguments) = call.split_once('(')?;
    let (mut folder, mut paths) = ("", Vec::new());
    for argument in arguments.split(", ") {
        let argument = argument.split(") ").next()?.trim().trim_end_matches(')');
        if let Some(path) = argument.strip_prefix('"') {
            let path = path.trim_end_matches('"');
            paths.push(if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") });
        } else if let Some((_, path)) = argument.split_once('<') {
            folder = path.trim_end_matches('>');
        }
    }
    match name {
        "fsync" | "fdatasync" => Some(format!("sync {folder}")),
        "rename" | "renameat" | "renameat2" => Some(format!("rename {}", paths.join(" "))),
        "mkdir" | "mkdirat" => Some(format!("mkdir {}", paths.join(" "))),
        "unlink" | "unlinkat" => Some(format!("unlink {}", paths.join(" "))),
        _ => None,
    }
}

#[test]
fn steps_are_parsed_from_strace_output() {
    let trace = "\
11 fsync(7</s/blobs>) = 0
11 fdatasync(8</s/partial/x> <unfinished ...>
12 rename(\"/s/a\", \"/s/b\") = 0
11 <... fdatasync resumed>) = 0
12 renameat2(5</s>, \"c\", 6</s/blobs>, \"d\", RENAME_NOREPLACE) = 0
12 fsync(9</s/gone>) = -1 EIO (Input/output error)
11 mkdir(\"/s/e\", 0777) = -1 EEXIST (File exists)
11 mkdirat(AT_FDCWD</home>, \"f\", 0777) = 0
11 unlinkat(6</s/blobs>, \"g\", 0) = 0
";
    let expected =
        ["sync /s/blobs", "rename /s/a /s/b", "sync /s/partial/x", "rename /s/c /s/blobs/d", "mkdir /home/f", "unlink /s/blobs/g"];
    assert_eq!(Steps::of(trace), expected);
}

/// The steps of a child process between two folders that it makes.
async fn steps_between(from: &str, to: &str, image: String, fsync: bool) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let mut command = Command::new("strace");
    command.args(["-f", "-y", "-qq", "-s", "4096", "-o"]).arg(&trace);
    command
        .args(["-e", "trace=fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat,unlink,unlinkat"])
        .arg(std::env::current_exe().unwrap());
    command.args(["--exact", "oci_store_steps::pull_in_child_process"]);
    command.env(CHILD, format!("{} {image} {fsync}", folder.path().display()));
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let store = folder.path().join("store").display().to_string();
    let steps = Steps::of(&std::fs::read_to_string(trace).unwrap());
    let moment = |name: &str| {
        let made = format!("mkdir {}", folder.path().join(name).display());
        steps.iter().position(|step| *step == made).unwrap_or_else(|| panic!("{made} in {steps:#?}"))
    };
    let steps = &steps[moment(from) + 1..moment(to)];
    steps.iter().filter(|step| !step.starts_with("mkdir ")).map(|step| step.replace(&store, "STORE")).collect()
}

#[tokio::test]
async fn content_is_synced_before_its_name_and_names_before_the_index() {
    if met(traces()).is_none() {
        return;
    }
    for (flavour, fsync) in [(Flavour::Oci, true), (Flavour::Docker, true), (Flavour::Oci, false)] {
        let registry = registry().await;
        registry.add_image("app", "1", &MadeImage::of_layers([100_000, 200_000, 3_000]).of_flavour(flavour));
        let mut steps = steps_between(OPENED, PULLED, format!("{}/app:1", registry.host()), fsync).await;
        steps.retain(|step| !step.starts_with("unlink "));
        let after = |from: usize, step: &str| {
            from + steps[from..].iter().position(|seen| seen == step).unwrap_or_else(|| panic!("{step} in {steps:#?}"))
        };
        let is_name_of_blob = |step: &&String| step.starts_with("rename ") && step.contains(" STORE/blobs/sha256/");
        // Config, layers and manifest; with Docker's form also the index around it.
        let names: Vec<&String> = steps.iter().filter(is_name_of_blob).collect();
        assert_eq!(names.len(), if flavour == Flavour::Docker { 6 } else { 5 }, "{steps:#?}");
        let index = steps.iter().position(|step| step.ends_with(" STORE/index.json")).expect("the image is entered");
        let last_name = steps.iter().rposition(|step| is_name_of_blob(&step)).unwrap();
        assert!(last_name < index, "{steps:#?}");
        let syncs = steps.iter().filter(|step| step.starts_with("sync ")).count();
        if !fsync {
            assert_eq!(syncs, 0, "{steps:#?}");
            continue;
        }
        for name in steps.iter().filter(|step| step.starts_with("rename ")) {
            let content = name.split(' ').nth(1).unwrap();
            assert!(after(0, &format!("sync {content}")) < after(0, name), "{name} in {steps:#?}");
        }
        assert!(after(last_name, "sync STORE/blobs/sha256") < index, "{steps:#?}");
        assert!(after(0, "sync STORE/blobs") < index, "{steps:#?}");
        assert_eq!(after(index, "sync STORE"), steps.len() - 1, "nothing is reported before the index is kept: {steps:#?}");
    }
}

#[tokio::test]
async fn index_is_kept_without_an_image_before_a_blob_is_removed() {
    if met(traces()).is_none() {
        return;
    }
    for fsync in [true, false] {
        let registry = registry().await;
        registry.add_image("app", "1", &MadeImage::of_layers([100_000, 3_000]));
        let steps = steps_between(PULLED, PRUNED, format!("{}/app:1", registry.host()), fsync).await;
        let removals: Vec<usize> = (0..steps.len()).filter(|step| steps[*step].starts_with("unlink STORE/blobs/sha256/")).collect();
        assert_eq!(removals.len(), 4, "{steps:#?}");
        let index = steps.iter().position(|step| step.ends_with(" STORE/index.json")).expect("the image leaves the index");
        let kept = steps.iter().position(|step| step == "sync STORE");
        assert_eq!(kept.is_some(), fsync, "{steps:#?}");
        assert!(index < kept.unwrap_or(index + 1) && kept.unwrap_or(index) < removals[0], "{steps:#?}");
    }
}
