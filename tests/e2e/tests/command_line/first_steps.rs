//! The first commands of a newcomer: help, version, completions, demo, explain.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use e2e::{Agent, Finished, Registry, Started, Watch, Workplace, skopeo, until};
use memory_registry::{BodyFault, Fault, FaultAction};
use serde_json::{Value, json};
use support::docker_registry;
use support::nats::{NatsConfig, NatsServer, current_program};
use support::requirement::met;

use super::common::{NOBODY, small};

const COMMANDS: [&str; 17] = [
    "pull",
    "images",
    "rm",
    "prune",
    "run",
    "events",
    "explain",
    "nodes",
    "pulls",
    "cancel",
    "backoff",
    "budget",
    "nats-setup",
    "nats-auth",
    "config",
    "demo",
    "completions",
];
/// The longest time of the demo. It takes about 17 s, 12 s of them an outage.
const DEMO_ENDS_WITHIN: Duration = Duration::from_secs(30);
/// Subcommands, each with its command.
const BELOW: [(&str, &str); 6] =
    [("backoff", "list"), ("backoff", "explain"), ("backoff", "clear"), ("backoff", "pause"), ("backoff", "resume"), ("budget", "list")];

#[test]
fn help_teaches_with_examples_and_fits_a_terminal() {
    let place = Workplace::new();
    let all = place.run(&["--help"]).expect(0);
    let commands = COMMANDS.into_iter().map(|command| vec![command]).chain(BELOW.into_iter().map(|(above, below)| vec![above, below]));
    for command in commands {
        assert!(all.stdout.contains(command[0]), "{command:?} is in {all}");
        let help = place.run(&[command.as_slice(), &["--help"]].concat()).expect(0);
        assert!(help.stdout.contains("Examples:\n  fleetpull "), "{help}");
        let (_, behind) = help.stdout.split_once("Examples:").unwrap();
        assert!(help.stdout.lines().all(|line| line.chars().count() <= 80), "{help}");
        let mut examples = behind.trim_start().lines().take_while(|line| !line.is_empty());
        assert!(
            examples.all(|line| ["fleetpull ", "source <", "--"].iter().any(|begin| line.trim_start().starts_with(begin))),
            "unbroken: {help}"
        );
        check_that_groups_hold_what_is_theirs(&help);
        let short = place.run(&[&["help"], command.as_slice()].concat()).expect(0);
        assert_eq!(short.stdout, help.stdout, "help COMMAND is COMMAND --help");
    }
    assert!(place.run(&["agent", "--help"]).expect(0).stdout.contains("fleetpull run"), "agent is run");
    assert!(place.run(&[]).expect(2).stderr.contains("Usage: fleetpull"), "nothing asked for");
}

/// Checks that options outside of groups come before every group.
fn check_that_groups_hold_what_is_theirs(help: &Finished) {
    let groups = ["\nMany nodes:\n", "\nRuntime:\n", "\nRegistry (", "\nNATS (", "\nSettings:\n"];
    let first = groups.into_iter().filter_map(|group| help.stdout.find(group)).min().unwrap_or(help.stdout.len());
    for option in ["--node <", "--output <", "--quiet", "--agent <", "--selector <"] {
        assert!(help.stdout.find(option).is_none_or(|place| place < first), "{option} stands in a group: {help}");
    }
}

#[test]
fn the_version_is_one_line() {
    for flag in ["--version", "-V"] {
        let done = Workplace::new().run(&[flag]).expect(0);
        assert!(done.stdout.starts_with("fleetpull ") && done.stdout.lines().count() == 1 && done.stderr.is_empty(), "{done}");
    }
}

#[test]
fn the_demo_shows_the_main_job_and_keeps_its_stores_if_asked() {
    let place = Workplace::new();
    let temporary = place.text_path("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let place = place.with("TMPDIR", &temporary);
    let watch = Watch::start();
    let done = place.run(&["demo", "--keep"]).expect(0);
    let took = watch.elapsed();
    assert!(took < DEMO_ENDS_WITHIN, "{took:?}");
    for text in [
        "Successfully pulled image",
        "already present on machine",
        "each of 6 blobs was served once",
        "all right",
        " waits: n",
        "all 24 images are there ",
        " times fewer, in ",
        "Try next:",
    ] {
        assert!(done.stdout.contains(text), "{text}: {done}");
    }
    let readme = std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let shown = readme.split("```text").map(|block| block.split("```").next().unwrap()).find(|block| block.contains("n1 pulls")).unwrap();
    for line in shown.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_digit())) {
        assert!(done.stdout.lines().any(|shown_line| shown_line == line), "the README shows another scene: {line}; {done}");
    }
    check_that_every_line_is_marked(&done);
    assert!(done.stdout.contains("ImagePullBackOff") && done.stdout.contains("next attempt in"), "{done}");
    assert_eq!(done.stderr, "", "{done}");
    let stores = done.stdout.split_once("stores below ").and_then(|(_, rest)| rest.split(".\n").next()).unwrap();
    assert!(done.stdout.contains(&format!("\nThe stores are kept in {stores}. To read one:\n")), "{done}");
    assert!(stores.starts_with(&temporary) && std::path::Path::new(stores).is_dir(), "{stores} is kept");
    let command = done.stdout.lines().find_map(|line| line.trim().strip_prefix("skopeo inspect ")).unwrap_or_else(|| panic!("{done}"));
    if met(docker_registry::available()).is_some() {
        skopeo(&["inspect", command.trim_matches('\'')]);
    }
}

/// Checks that each line is marked as measured, simulated or shortened, except titles, blank lines, and the advice at the end.
fn check_that_every_line_is_marked(done: &Finished) {
    let (shown, _) = done.stdout.split_once("\n\nThe stores are kept in ").unwrap();
    let mut scene = String::new();
    let mut marks: Vec<(String, &str)> = Vec::new();
    let (scenes, table) = shown.split_once("\nNODE ").unwrap();
    // The first line explains the words.
    for line in scenes.lines().skip(1).filter(|line| !line.is_empty()) {
        match line.strip_prefix("   ") {
            None => scene = line.split('.').next().unwrap().to_owned(),
            Some(line) => marks.push((scene.clone(), line.split("  ").next().unwrap())),
        }
    }
    let words = ["measured", "simulated", "shortened"];
    assert!(marks.iter().all(|(_, word)| words.contains(word)), "{marks:?} of {done}");
    assert!(table.lines().skip(1).all(|row| row.ends_with("  measured")), "{table}");
    let of = |word: &str| marks.iter().filter(|(_, mark)| *mark == word).map(|(scene, _)| scene.as_str()).collect::<BTreeSet<_>>();
    assert_eq!(of("simulated"), BTreeSet::from(["7"]), "{marks:?}");
    assert_eq!(of("shortened"), BTreeSet::from(["6"]), "{marks:?}");
    assert_eq!(of("measured"), BTreeSet::from(["", "1", "2", "3", "4", "5", "6"]), "{marks:?}");
}

#[test]
fn the_demo_in_json_is_one_object_for_each_fact_and_leaves_nothing_behind() {
    let place = Workplace::new().with("TMPDIR", "/tmp");
    let done = place.run(&["demo", "-o", "json"]).expect(0);
    let facts = done.objects();
    assert_eq!(done.stderr, "", "{done}");
    let of =
        |scene: u64, what: &str| -> Vec<&Value> { facts.iter().filter(|fact| fact["scene"] == scene && fact["what"] == what).collect() };
    let one = |scene: u64, what: &str| *of(scene, what).first().unwrap_or_else(|| panic!("{what} in scene {scene}: {done}"));
    for fact in &facts {
        let source = fact["source"].as_str().unwrap();
        let expected: &[&str] = match fact["scene"].as_u64().unwrap() {
            6 => &["measured", "shortened"],
            7 => &["simulated"],
            _ => &["measured"],
        };
        assert!(expected.contains(&source) && fact["text"].as_str().is_some_and(|text| !text.is_empty()), "{fact}");
    }
    // The lines of a scene, in order. Scene 6 is checked separately, because the number of its lines varies.
    for (scene, whats) in [
        (1, &["event", "event", "registry", "step"][..]),
        (2, &["event", "registry", "step"]),
        (3, &["event", "registry", "askers", "step"]),
        (4, &["answer", "answer", "event", "registry", "step"]),
        (5, &["blobs", "step"]),
        (7, &["storm", "storm", "spared"]),
    ] {
        let listed: Vec<&str> = facts.iter().filter(|fact| fact["scene"] == scene).map(|fact| fact["what"].as_str().unwrap()).collect();
        assert_eq!(listed, whats, "scene {scene}: {done}");
    }
    assert_eq!((&one(0, "image")["layers"], &one(0, "image")["size_bytes"]), (&json!(5), &of(1, "event")[1]["size_bytes"]));
    assert_eq!((&one(1, "registry")["requests"], &one(2, "registry")["requests"]), (&json!(7), &json!(0)));
    assert!(of(1, "event")[1]["reason"] == "Pulled" && of(1, "event")[1]["duration_ms"].is_u64(), "{done}");
    let askers = one(3, "askers");
    assert_eq!((&askers["asked"], &askers["answered"], &askers["served_at_most"]), (&json!(10), &json!(10), &json!(1)), "{askers}");
    let last = of(4, "answer")[1];
    assert_eq!((&last["number"], &last["reason"], &last["class"]), (&json!(20), &json!("ImagePullBackOff"), &json!("not_found")), "{last}");
    assert!(last["next_attempt_ms"].as_u64() > Some(0) && one(4, "registry")["failing"] == 1, "{last}");
    assert!(one(5, "blobs")["bytes"].as_u64() > Some(40_000_000), "{done}");
    let counts: Vec<&Value> = of(6, "failing");
    assert!(counts.len() >= 5 && counts.iter().all(|count| count["after_ms"].is_u64() && count["shared"].is_u64()), "{counts:?}");
    assert_eq!(one(6, "outage")["source"], "shortened");
    let all = one(6, "failing_in_all");
    assert!(all["shared"].as_u64() < all["kubelet"].as_u64(), "{all}");
    assert_eq!((&of(6, "served")[0]["rule"], &of(6, "served")[0]["there"]), (&json!("shared"), &json!(24)), "{done}");
    assert_eq!((of(6, "step").len(), &of(6, "step")[0]["failing"]), (2, &all["shared"]), "{done}");
    assert!(of(7, "storm")[0]["failing"].as_u64() > of(7, "storm")[1]["failing"].as_u64(), "{done}");
    let stores = one(0, "place")["stores"].as_str().unwrap();
    assert!(stores.starts_with("/tmp/") && !std::path::Path::new(stores).exists(), "{stores} is removed");
}

#[test]
fn explain_shows_how_a_reference_is_read_and_what_would_happen() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let explain = |image: &str, more: &[&str]| place.run(&[&["explain", "-o", "json", "--store", "store", image], more].concat());
    let busybox = explain("busybox", &[]).expect(0).object();
    for (field, value) in
        [("repository", "docker.io/library/busybox"), ("tag", "latest"), ("registry", "docker.io"), ("runtime_reference", "busybox:latest")]
    {
        assert_eq!(busybox[field], value, "{field} of {busybox}");
    }
    assert!(busybox["digest"].is_null(), "{busybox}");
    assert_eq!(busybox["pull"]["policy"], "Always");
    let before = explain(&image, &[]).expect(0).object();
    assert_eq!((&before["pull"]["policy"], &before["pull"]["present"]), (&"IfNotPresent".into(), &false.into()), "{before}");
    assert!(!place.path("store").exists(), "asking makes no store");
    let changed = || std::fs::metadata(place.path("store")).and_then(|store| store.modified()).expect("it is there");
    std::fs::create_dir(place.path("store")).expect("a folder can be made");
    let made = changed();
    assert_eq!(explain(&image, &[]).expect(0).object()["pull"]["present"], false);
    assert_eq!((std::fs::read_dir(place.path("store")).expect("a folder").count(), changed()), (0, made), "asking writes nothing");
    let _ = place.run(&["pull", "-q", "--store", "store", &image]).expect(0);
    registry.reset_counts();
    let pulled = changed();
    let after = explain(&image, &["--policy", "Always"]).expect(0).object();
    assert_eq!((after["pull"]["present"].as_bool(), changed()), (Some(true), pulled), "{after}");
    let after = explain(&image, &[]).expect(0).object();
    assert_eq!(after["pull"]["present"], true, "{after}");
    let by_digest = explain(&registry.image(&format!("shop/web@{}", added.digest)), &["--policy", "Never"]).expect(0).object();
    assert_eq!((&by_digest["digest"], &by_digest["tag"]), (&added.digest.as_str().into(), &Value::Null), "{by_digest}");
    assert_eq!(registry.counts().requests, 0, "asking what would happen asks no registry");
    let text = place.run(&["explain", &image, "--store", "store"]).expect(0);
    assert!(text.stdout.contains("nothing would be pulled"), "{text}");
    let with_a_server = place.with("NATS_URL", format!("nats://{NOBODY}"));
    let own = with_a_server.run(&["explain", &image, "--store", "store"]).expect(0);
    assert!(own.stdout.contains("here: ") && own.stdout.contains("nothing would be pulled"), "a store that is named is asked: {own}");
    assert!(with_a_server.run(&["explain", &image]).expect(1).stdout.contains("it is not known what would happen"), "else the fleet");
}

#[test]
fn explain_shows_what_would_fail_here_before_a_registry_is_asked() {
    let place = Workplace::new();
    let image = format!("{NOBODY}/shop/web:v1");
    place.write("file", "no folder");
    place.write("broken.json", "{\"auths\": ");
    place.write("helper.json", json!({"credHelpers": {NOBODY: "of-nobody"}}).to_string());
    let table: [(&[&str], &str, &str); 7] = [
        (&["--store", "/proc/1/x"], "the store /proc/1/x cannot be used: ", "; name another folder with --store"),
        (&["--store", "file/below"], "the store file/below cannot be used: ", "a file stands where the store"),
        (&["--store", "file"], "the store file cannot be used: ", "name another folder with --store"),
        (&["--store", "store", "--authfile", "gone.json"], "cannot read the registry logins in gone.json: ", "with --authfile"),
        (&["--store", "store", "--authfile", "broken.json"], "cannot use the registry logins in broken.json: ", "mend the file"),
        (&["--store", "store", "--authfile", "helper.json"], "credential helper docker-credential-of-nobody, ", "install it"),
        (
            &["--runtime", "cri", "--runtime-endpoint", "unix:///nope", "--policy", "Always"],
            "rpc error: code = Unavailable ",
            "nothing answers on /nope: start the container runtime",
        ),
    ];
    for (arguments, what, advice) in table {
        let explanation = place.run(&[&["explain", "-o", "json", &image], arguments].concat()).expect(1).object();
        assert_eq!(
            (&explanation["pull"]["class"], &explanation["repository"]),
            (&"node_local".into(), &format!("{NOBODY}/shop/web").into()),
            "{explanation}"
        );
        let cause = explanation["pull"]["cause"].as_str().unwrap();
        assert!(cause.starts_with(what) && cause.contains(advice), "{explanation}");
        let text = place.run(&[&["explain", &image], arguments].concat()).expect(1);
        assert!(text.stdout.contains("it would fail before any registry is asked\n  cause: "), "{text}");
        assert!(!place.path("store").exists(), "asking makes no store");
        let row = place.run(&[&["pull", "-o", "json", &image], arguments].concat()).expect(1).object();
        assert_eq!((&row["class"], &row["outcome"]), (&"node_local".into(), &"failed".into()), "it does: {row}");
        let _ = std::fs::remove_dir_all(place.path("store"));
    }
    let unasked = place.run(&["explain", &image, "--runtime", "cri", "--runtime-endpoint", "unix:///nope"]).expect(1);
    assert!(unasked.stdout.contains("it would fail with ImageInspectError: "), "{unasked}");
    assert!(unasked.stderr.contains("hint: nothing answers on /nope: start the container runtime"), "{unasked}");
    // Settings that a pull would not use do not matter.
    let never = place.run(&["explain", &image, "--policy", "Never", "--store", "store", "--authfile", "gone.json"]).expect(0);
    assert!(never.stdout.contains("ErrImageNeverPull"), "{never}");
    let registry = Registry::new();
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let _ = place.run(&["pull", "-q", "--store", "store", &image]).expect(0);
    let present = place.run(&["explain", &image, "--store", "store", "--authfile", "gone.json"]).expect(0);
    assert!(present.stdout.contains("nothing would be pulled"), "{present}");
    let always = place.run(&["explain", &image, "--policy", "Always", "--store", "store", "--authfile", "gone.json"]).expect(1);
    assert!(always.stdout.contains("it would fail before any registry is asked"), "{always}");
}

#[test]
fn explain_refuses_an_unreadable_reference_with_the_correct_form() {
    let place = Workplace::new();
    for (image, text) in [("https://busybox", "busybox"), ("Team/App", "team/app"), ("a@sha256:12", "")] {
        let done = place.run(&["explain", image]).expect(1);
        assert!(done.stdout.contains("couldn't parse image name"), "{done}");
        assert!(text.is_empty() || done.stderr.contains(&format!("lower case: {text}")), "{done}");
        let refused = place.run(&["explain", "-o", "json", image]).expect(1).object();
        assert!(refused["error"].as_str().unwrap().contains("couldn't parse image name"), "{refused}");
    }
    let nothing_named = place.run(&["explain"]).expect(2);
    assert!(nothing_named.stderr.contains("  fleetpull status  ") && !nothing_named.stderr.contains("Usage:"), "{nothing_named}");
    assert!(place.run(&["explain", "busybox", "--node", "n1"]).expect(2).stderr.contains("give --nats URL"));
    let alone = place.run(&["explain", "-o", "json", "busybox", "--nats", "nats://127.0.0.1:1"]).expect(1).object();
    assert_eq!(alone["repository"], "docker.io/library/busybox", "how it is read is known without a bus");
    assert!(alone["pull_error"].as_str().unwrap().contains("127.0.0.1:1"), "{alone}");
}

/// Runs a command line on a terminal of its own, which `script` makes.
fn on_a_terminal(place: &Workplace, line: &str) -> Finished {
    Finished::of(&[line], begin_on_a_terminal(place, line))
}

fn begin_on_a_terminal(place: &Workplace, line: &str) -> Started {
    begin_by(place, line, |program| vec!["script".into(), "-qec".into(), program, "/dev/null".into()])
}

/// Runs a command line with pipes and redirections.
fn in_a_shell(place: &Workplace, line: &str) -> Finished {
    Finished::of(&[line], begin_by(place, line, |program| vec!["sh".into(), "-c".into(), program]))
}

/// Starts the program followed by `line` through another program, whose arguments `words` returns.
fn begin_by(place: &Workplace, line: &str, words: impl FnOnce(String) -> Vec<String>) -> Started {
    let program = place.command(&[]);
    let words = words(format!("{} {line}", program.get_program().display()));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("TERM", "xterm").current_dir(place.path("."));
    Started::of(command)
}

#[test]
fn colour_is_for_terminals_that_want_it() {
    const ESCAPE: char = '\u{1b}';
    let colours = |done: &Finished| done.stdout.split(ESCAPE).skip(1).filter(|rest| rest.split('m').next().is_some_and(is_colour)).count();
    fn is_colour(code: &str) -> bool {
        code.strip_prefix('[')
            .is_some_and(|code| !code.is_empty() && code != "0" && code.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'))
    }
    for line in ["--help", "pull --help", "pull a:1 --node n1 --nats nats://127.0.0.1:1"] {
        let wanted = on_a_terminal(&Workplace::new(), line);
        assert!(colours(&wanted) > 0, "{wanted}");
        let plain = on_a_terminal(&Workplace::new().with("NO_COLOR", "1"), line);
        assert_eq!(colours(&plain), 0, "{plain}");
    }
    let piped = Workplace::new().run(&["--help"]).expect(0);
    assert!(!piped.output().contains(ESCAPE), "{piped}");
}

#[test]
fn bars_are_drawn_on_a_terminal_and_lines_elsewhere() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let added = registry.add_image("shop/web", "v1", &small());
    let layers = &added.manifests[0].layers;
    let largest = layers.iter().max_by_key(|layer| layer.size).unwrap();
    let name = &largest.digest.split_once(':').unwrap().1[..12];
    // The pull takes about 2 s, during which bars are drawn ten times per second.
    registry.faults().add(Fault::new("/blobs/", FaultAction::Body(BodyFault::BytesPerSecond(largest.size / 2))));
    let image = registry.image("shop/web:v1");
    let done = on_a_terminal(&place, &format!("pull --store store {image}")).expect(0);
    assert!(done.stdout.contains("pulled   ") && !done.stdout.contains("Normal   Pulling"), "{done}");
    let bars = done.stdout.lines().filter(|line| line.contains(name) && line.contains("  [") && line.contains(" of ")).count();
    // Before each drawing the cursor goes up, and everything below it is cleared.
    assert!(bars > 1 && done.stdout.contains("A\u{1b}[J"), "a bar of layer {name}, drawn again and again: {done}");
    assert!(!done.stdout.contains(" 0/0"), "a bar without figures: {done}");
    let piped = place.run(&["pull", "--store", "other", &image]).expect(0);
    assert!(piped.stderr.contains("Normal   Pulling") && !piped.output().contains('\u{1b}'), "{piped}");
    assert!(!piped.stderr.contains(name), "{piped}");
}

#[test]
fn a_pull_in_this_process_prints_its_failure_once() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let image = registry.image("shop/web:v9");
    let line = format!("pull --store store {image}");
    for done in [place.run(&["pull", "--store", "store", &image]).expect(1), on_a_terminal(&place, &line).expect(1)] {
        assert_eq!(done.output().matches("404 Not Found").count(), 1, "{done}");
    }
}

#[test]
fn a_bus_that_comes_back_is_shown_while_a_live_screen_is_drawn() {
    if met(current_program()).is_none() {
        return;
    }
    let (mut server, registry, place) = (NatsServer::start(NatsConfig::default()), Registry::new(), Workplace::new());
    let agent = Agent::start(&place, "n1", &["--nats", &server.url()]).ready();
    let line = format!("pull {} --all-nodes --wait 50s --nats {}", registry.image("shop/web:v1"), server.url());
    let waiting = begin_on_a_terminal(&place, &line);
    until("the standing pull is there", || agent.asked(&["pulls", "-o", "json"]).stdout.contains("standing_pull").then_some(()));
    server.kill();
    let notices = ["the bus is not connected", "the bus is connected again"];
    until("it shows that the bus is lost", || waiting.stdout().contains(notices[0]).then_some(()));
    server.restart();
    until("it shows that the bus is connected again", || waiting.stdout().contains(notices[1]).then_some(()));
    registry.add_image("shop/web", "v1", &small());
    let done = Finished::of(&[&line], waiting).expect(0);
    // The agent goes on with the standing pull by itself, so the image may be present before the command asks again.
    let is_there = done.stdout.contains("pulled   n1") || done.stdout.contains("present  n1");
    assert!(done.stdout.find(notices[0]) < done.stdout.find(notices[1]) && is_there, "{done}");
}

#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let place = Workplace::new();
    for line in ["config print | head -1", "--help | head -1", "completions bash | head -1", "explain busybox | head -1"] {
        let done = in_a_shell(&place, line).expect(0);
        assert_eq!((done.stdout.lines().count(), done.stderr.as_str()), (1, ""), "{done}");
    }
}

#[test]
fn results_that_cannot_be_written_are_a_failure() {
    let place = Workplace::new();
    let done = in_a_shell(&place, "config print >/dev/full").expect(1);
    assert!(done.stderr.contains("cannot be written to stdout: No space left on device"), "{done}");
}
