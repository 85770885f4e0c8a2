//! Help and version.

use e2e::{Finished, Workplace};

const COMMANDS: [&str; 20] = [
    "pull",
    "images",
    "rm",
    "prune",
    "run",
    "events",
    "report",
    "status",
    "explain",
    "nodes",
    "pulls",
    "cancel",
    "backoff",
    "budget",
    "policy",
    "nats-setup",
    "nats-auth",
    "config",
    "demo",
    "completions",
];
/// Subcommands, each with its command.
const BELOW: [(&str, &str); 9] = [
    ("backoff", "list"),
    ("backoff", "explain"),
    ("backoff", "clear"),
    ("backoff", "pause"),
    ("backoff", "resume"),
    ("budget", "list"),
    ("policy", "get"),
    ("policy", "set"),
    ("policy", "diff"),
];

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
