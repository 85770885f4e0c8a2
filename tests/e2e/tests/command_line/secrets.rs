//! No output contains a password, at any log level, whatever fails. (Logins at registries: `pull_logins`.)

use e2e::{Finished, Registry, Started, Workplace};
use support::nats::Authority;

use super::common::NOBODY;

const PASSWORD: &str = "hunter2-s3cret";

fn keeps_it(done: Finished) -> Finished {
    assert!(!done.output().contains(PASSWORD), "the password leaks: {done}");
    done
}

#[test]
fn a_password_in_a_nats_url_is_never_shown() {
    let place = Workplace::new();
    // A port without a server; another scheme; a bad port; a bad host; several servers.
    let urls = [
        format!("nats://bob:{PASSWORD}@127.0.0.1:1"),
        format!("http://bob:{PASSWORD}@127.0.0.1:1"),
        format!("nats://bob:{PASSWORD}@127.0.0.1:none"),
        format!("nats://bob:{PASSWORD}@"),
        format!("tls://{PASSWORD}@127.0.0.1:1,nats://bob:{PASSWORD}@127.0.0.1:2"),
        format!("nats://bob:{PASSWORD}/@127.0.0.1:1"),
    ];
    // All commands run at the same time, because each waits some seconds for a server that may be starting.
    std::thread::scope(|scope| {
        for url in &urls {
            let commands: [&[&str]; 4] = [
                &["nodes", "--nats", url, "--log-level", "trace"],
                &["pull", "busybox", "--node", "n1", "--nats", url, "--log-level", "trace", "-o", "json"],
                &["explain", "busybox", "--nats", url, "--log-level", "trace", "--log-format", "json"],
                &["pull", "busybox", "--nats", url],
            ];
            for command in commands.map(|command| place.command(command)) {
                scope.spawn(move || {
                    let done = keeps_it(Finished::of(&[url], Started::of(command)));
                    assert_ne!(done.status, 0, "{done}");
                });
            }
        }
    });
}

#[test]
fn settings_are_printed_without_it_and_wrong_ones_too() {
    let url = format!("nats://bob:{PASSWORD}@nats.example:4222");
    let file = format!("[nats]\nurl = [\"{url}\"]\ncreds = \"/etc/nats.creds\"\n");
    let broken = format!("[nats]\nurl = [\"ftp://bob:{PASSWORD}@nats.example\"]\nurls = [\"{url}\"]\n[nats");
    for format in ["text", "json"] {
        let by_variable = Workplace::new().with("FLEETPULL_NATS_URL", &url);
        let printed = keeps_it(by_variable.run(&["config", "print", "-o", format]).expect(0));
        assert!(printed.stdout.contains("nats.example:4222"), "{printed}");
        let by_nats = Workplace::new().with("NATS_URL", &url);
        let _ = keeps_it(by_nats.run(&["config", "print", "-o", format]).expect(0));
        let place = Workplace::new();
        let (good, bad) = (place.write("good.toml", &file), place.write("bad.toml", &broken));
        let _ = keeps_it(place.run(&["config", "print", "-o", format, "--config", &good]).expect(0));
        let _ = keeps_it(place.run(&["config", "validate", "-o", format, "--config", &bad]).expect(1));
        let _ = keeps_it(place.run(&["config", "print", "-o", format, "--config", &bad]).expect(2));
    }
}

#[test]
fn a_broken_context_or_creds_file_is_named_not_quoted() {
    let place = Workplace::new();
    place.write(".config/nats/context/ours.json", format!("{{\"url\": \"nats://127.0.0.1:1\", \"password\": \"{PASSWORD}\", "));
    let creds = place.write("user.creds", format!("-----BEGIN NATS USER JWT-----\n{PASSWORD}\n"));
    let context = keeps_it(place.run(&["nodes", "--nats-context", "ours", "--log-level", "trace"]).expect(1));
    assert!(context.stderr.contains("ours"), "{context}");
    let login = keeps_it(place.run(&["nodes", "--nats", "nats://127.0.0.1:1", "--nats-creds", &creds, "--log-level", "trace"]).expect(1));
    assert!(login.stderr.contains("user.creds"), "{login}");
    let missing = place.run(&["nodes", "--nats-context", "nowhere"]).expect(1);
    assert!(missing.stderr.contains("nowhere"), "{missing}");
}

#[test]
fn what_a_hosts_file_and_a_proxy_variable_hold_is_never_shown() {
    let (registry, place) = (Registry::new(), Workplace::new());
    let mirror = format!("http://bob:{PASSWORD}@{NOBODY}");
    let itself = format!("http://bob:{PASSWORD}@{}", registry.host());
    let hosts = format!(
        "server = \"{itself}\"\n[host.\"{mirror}\"]\n[host.\"{mirror}\".header]\nauthorization = \"Basic {PASSWORD}\"\n\
         [host.\"{}\"]\n[host.\"{}\".header]\nx-secret = [\"{PASSWORD}\"]\n",
        registry.url(),
        registry.url()
    );
    place.write(&format!("certs.d/{}/hosts.toml", registry.host()), hosts);
    let folder = place.text_path("certs.d");
    let place = place.with("FLEETPULL_REGISTRY_CONFIG_PATH", folder);
    let missing = registry.image("shop/web:v9");
    let pull = |place: &Workplace, image: &str, format| {
        let done = place.run(&["pull", "--store", "store", "--plain-http", "--log-level", "trace", "-o", format, image]).expect(1);
        keeps_it(done)
    };
    for format in ["text", "json"] {
        let asked = pull(&place, &missing, format);
        assert!(asked.stdout.contains(registry.host()) && asked.stdout.contains(NOBODY), "{asked}");
        let behind = Workplace::new().with("http_proxy", format!("http://bob:{PASSWORD}@{NOBODY}"));
        let unreached = pull(&behind, "registry.example/web:v1", format);
        assert!(format == "json" || unreached.stderr.contains("hint: http_proxy is set: "), "{unreached}");
    }
    assert!(registry.requests().iter().any(|request| request.headers.get("x-secret").is_some_and(|value| value == PASSWORD)), "it is used");
}

/// The file is named by the option, by our variable, and by the variable of the nats command.
#[test]
fn each_file_for_nats_is_read_where_it_is_named_and_is_named_with_its_kind_if_it_is_missing() {
    let authority = Authority::new("servers");
    let (cert, key) = authority.issue("client");
    let (cert, key) = (cert.display().to_string(), key.display().to_string());
    let table = [
        ("creds", "NATS credentials file", None),
        ("nkey", "NATS nkey file", None),
        ("ca", "NATS CA file", None),
        ("cert", "NATS client certificate", Some(("key", key.as_str()))),
        ("key", "key of the NATS client certificate", Some(("cert", cert.as_str()))),
    ];
    for (file, kind, other_files) in table {
        for source in ["flag", "FLEETPULL_NATS", "NATS"] {
            let missing = format!("/nonexistent/{file}-by-{source}");
            let mut place = Workplace::new();
            let mut arguments = vec!["nodes".to_owned(), "--nats".to_owned(), "nats://127.0.0.1:1".to_owned()];
            for (name, path) in other_files.into_iter().chain([(file, missing.as_str())]) {
                if source == "flag" {
                    arguments.extend([format!("--nats-{name}"), path.to_owned()]);
                } else {
                    place = place.with(&format!("{source}_{}", name.to_uppercase()), path);
                }
            }
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let done = place.run(&arguments).expect(1);
            let expected = format!("the {kind} {missing} cannot be read: No such file or directory");
            assert!(done.stderr.contains(&expected), "{expected:?} in {done}");
        }
    }
    let half = Workplace::new().run(&["nodes", "--nats", "nats://127.0.0.1:1", "--nats-cert", &cert]).expect(2);
    assert!(half.stderr.contains("--nats-cert: nats.cert: needs nats.key"), "{half}");
}
