//! Completions of shells: commands, options and their values, nodes that answer, images. A shell never waits long, and there is no error
//! output.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use e2e::{Finished, Registry, Started, Watch, Workplace, binary, until};

use super::common::{NOBODY, small};
use super::three_agents::Fleet;

/// A hundred times the program's time on an idle machine, and far less than a connection to a silent server may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(4);

/// The completions of bash for these words, the last of which is incomplete.
fn offered(place: &Workplace, words: &[&str]) -> Vec<String> {
    let (program, last) = (place.command(&[]), words.last().unwrap());
    let script = place.text_path("completions.bash");
    let _ = place.run(&["completions", "bash", "--to", &script]).expect(0);
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!(
        ". {script}; COMP_WORDS=(fleetpull {}); COMP_CWORD={}; COMP_TYPE=9; _clap_complete_fleetpull fleetpull '{last}' ''; printf '%s\\n' \
         \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len()
    );
    let path = format!("{}:{}", binary().parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    bash.args(["-c", &line]).env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    bash.env("PATH", path).current_dir(place.path("."));
    let done = Finished::of(&[line.as_str()], Started::of(bash)).expect(0);
    assert_eq!(done.stderr, "", "a shell is not disturbed: {done}");
    done.stdout.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The completions without options.
fn names(place: &Workplace, words: &[&str]) -> Vec<String> {
    offered(place, words).into_iter().filter(|name| !name.starts_with('-')).collect()
}

#[test]
fn completions_are_scripts_that_the_shell_takes() {
    let place = Workplace::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]).expect(0).stdout;
        assert!(script.contains("fleetpull --") || script.contains("\"fleetpull\" --"), "{shell} asks the program: {script}");
        let written = place.text_path(shell);
        assert_eq!(place.run(&["completions", shell, "--to", &written]).expect(0).stdout, "");
        assert_eq!(std::fs::read_to_string(&written).unwrap().trim_end(), script.trim_end());
    }
    let checked = Command::new("bash").args(["-n", &place.text_path("bash")]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(place.run(&["completions", "tcsh"]).expect(2).stderr.contains("fish"));
    assert!(place.run(&["completions", "bash", "--to", "/nonexistent/x"]).expect(1).stderr.contains("/nonexistent/x"));
}

#[test]
fn commands_options_and_their_words_are_offered() {
    let place = Workplace::new();
    for (words, expected) in [
        (&["ba"][..], "backoff"),
        (&["backoff", "pa"], "pause"),
        (&["pull", "--all"], "--all-nodes"),
        (&["pull", "--policy", ""], "Always IfNotPresent Never"),
        (&["pull", "--runtime", ""], "oci-layout cri"),
        (&["run", "--log-level", ""], "error warn info debug trace"),
        (&["nodes", "--output", ""], "text wide json yaml name"),
        (&["events", "--type", ""], "Normal Warning"),
        (
            &["events", "--reason", ""],
            "Pulling Pulled BackOff Failed InspectFailed ErrImageNeverPull SharingPaused SharingResumed BackoffCleared EventsDropped \
             BackoffOpened BackoffProbed BackoffReleased Throttled RateLowered RateRaised RegistryUnavailable RegistryRecovered \
             AgentStarted AgentStopped AgentDegraded AgentRecovered",
        ),
    ] {
        assert_eq!(offered(&place, words).join(" "), expected, "{words:?}");
    }
}

#[test]
fn nodes_and_images_come_from_the_fleet() {
    let Some(fleet) = Fleet::start(&[]) else { return };
    let registry = Registry::new();
    let (held, standing) = (registry.image("shop/web:v9"), registry.image("shop/job:v9"));
    let _ = fleet.rows(&["pull", &held, "--node", "n1"], 1);
    let _ = fleet.run(&["pull", &standing, "--node", "n2", "--wait", "1h", "--detach"]).expect(0);
    // An answer after more than 0.3 s is ignored, and this machine may be busy, so repeat.
    let comes = |words: &[&str], expected: &[&str]| {
        until("it is offered", || (names(&fleet.place, words) == expected).then_some(()));
    };
    comes(&["nodes", ""], &["n1", "n2", "n3"]);
    comes(&["backoff", "clear", "a", "--node", "n"], &["n1", "n2", "n3"]);
    comes(&["pull", "a", "--node", "n2"], &["n2"]);
    let host = registry.host().split(':').next().unwrap();
    for words in [&["explain", host][..], &["backoff", "clear", host], &["cancel", host]] {
        comes(words, &[standing.as_str(), held.as_str()]);
    }
    // The words before the cursor name the fleet.
    comes(&["nodes", "--fleet", "other", ""], &[]);
    let (elsewhere, url) = (Workplace::new(), fleet.nats.url());
    until("it is offered", || (names(&elsewhere, &["nodes", "--nats", &url, ""]) == ["n1", "n2", "n3"]).then_some(()));
}

#[test]
fn images_come_from_the_store_of_this_machine() {
    let (registry, place) = (Registry::new(), Workplace::new());
    registry.add_image("shop/web", "v1", &small());
    let image = registry.image("shop/web:v1");
    let _ = place.run(&["pull", "-q", "--store", "store", &image]).expect(0);
    let host = registry.host().split(':').next().unwrap();
    for words in [&["rm", "--store", "store", ""][..], &["rm", "--store", "store", host], &["explain", "--store", "store", host]] {
        until("it is offered", || (names(&place, words) == [image.as_str()]).then_some(()));
    }
    assert!(names(&place, &["rm", "--store", "elsewhere", ""]).is_empty() && !place.path("elsewhere").exists());
}

#[test]
fn a_shell_does_not_wait_for_a_server_that_is_down_or_silent() {
    // A server that accepts connections and sends nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("nats://{}", silent.local_addr().unwrap());
    for url in [format!("nats://{NOBODY}"), silent, "nats://".to_owned(), "nats://name.invalid:4222".to_owned()] {
        let place = Workplace::new().with("NATS_URL", &url);
        let watch = Watch::start();
        assert!(names(&place, &["nodes", ""]).is_empty(), "{url}");
        let took = watch.elapsed();
        assert!(took < ANSWERS_WITHIN, "{url}: {took:?}");
    }
    let place = Workplace::new().with("FLEETPULL_CONFIG", "nowhere.toml").with("FLEETPULL_NONSENSE", "1");
    assert!(names(&place, &["nodes", ""]).is_empty());
}
