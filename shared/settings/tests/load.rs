//! Precedence and origins of values, and the problems reported for wrong values.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;
use std::time::Duration;

use settings::{
    Alone, ConfigFile, Host, Loaded, LogLevel, OnExhausted, RuntimeKind, Settings, SettingsError, Share, Sources, print_json, print_toml,
};
use tempfile::TempDir;

struct Case {
    dir: TempDir,
    sources: Sources,
}

impl Case {
    fn new(file: &str) -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("c.toml"), file).unwrap();
        let sources = Sources { file: ConfigFile::At(dir.path().join("c.toml")), ..Sources::default() };
        Self { dir, sources }
    }

    fn environment(mut self, name: &str, value: &str) -> Self {
        self.sources.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn flag(mut self, key: &str, value: &str) -> Self {
        self.sources.flags.push((key.to_owned(), value.to_owned()));
        self
    }

    fn load(self) -> Result<Loaded, SettingsError> {
        Settings::load(self.sources)
    }

    /// The problems, with the directory of the file left out.
    fn problems(self) -> Vec<String> {
        let dir = format!("{}/", self.dir.path().display());
        let error = Settings::load(self.sources).unwrap_err();
        error.problems.iter().map(|problem| problem.to_string().replace(&dir, "")).collect()
    }
}

#[test]
fn settings_without_sources_are_the_defaults() {
    let loaded = Settings::load(Sources::default()).unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert!(loaded.origins.values().all(|origin| origin.kind() == "default"));
    assert!(loaded.warnings.is_empty());
}

#[test]
fn flag_precedes_environment_precedes_file_precedes_nats_cli() {
    let case =
        || Case::new("[nats]\nurl = \"nats://file\"\n").environment("NATS_URL", "nats://cli").environment("NATS_CREDS", "/cli.creds");
    let origin = |loaded: &Loaded| (loaded.settings.nats.url[0].expose().to_owned(), loaded.origins["nats.url"].kind());

    let loaded = case().load().unwrap();
    assert_eq!(origin(&loaded), ("nats://file".into(), "file"));
    assert_eq!(loaded.settings.nats.creds, Some(PathBuf::from("/cli.creds")));
    assert_eq!(loaded.origins["nats.creds"].to_string(), "NATS_CREDS");

    let case = || case().environment("FLEETPULL_NATS_URL", "nats://environment");
    assert_eq!(origin(&case().load().unwrap()), ("nats://environment".into(), "environment"));
    assert_eq!(origin(&case().flag("nats.url", "nats://flag").load().unwrap()), ("nats://flag".into(), "flag"));

    let nothing = Case::new("").environment("NATS_URL", "").load().unwrap();
    assert!(!nothing.settings.nats.is_wanted());
    assert!(Case::new("").environment("NATS_CONTEXT", "blue").load().unwrap().settings.nats.is_wanted());
}

#[test]
fn events_may_be_kept_for_one_year() {
    let loaded = Case::new("events.stream_max_age = \"1year\"").load().unwrap();
    assert_eq!(loaded.settings.events.stream_max_age, Duration::from_secs(31_557_600));
}

#[test]
fn login_set_in_fleetpull_replaces_a_login_of_another_kind_from_the_nats_cli() {
    let loaded = Case::new("").environment("NATS_CREDS", "/cli.creds").flag("nats.nkey", "/n").load().unwrap();
    assert_eq!((loaded.settings.nats.creds, loaded.settings.nats.nkey), (None, Some(PathBuf::from("/n"))));
    assert_eq!(loaded.origins["nats.creds"].kind(), "default");
    let loaded = Case::new("nats.creds = \"/c\"").environment("NATS_NKEY", "/cli.nk").load().unwrap();
    assert_eq!((loaded.settings.nats.creds, loaded.settings.nats.nkey), (Some(PathBuf::from("/c")), None));
    assert!(Case::new("").environment("NATS_CREDS", "/c").environment("NATS_NKEY", "/n").load().is_err());
}

#[test]
fn empty_fleetpull_variable_clears_the_value_of_the_file() {
    let loaded = Case::new("nats.url = \"nats://file\"").environment("FLEETPULL_NATS_URL", "").load().unwrap();
    assert!(!loaded.settings.nats.is_wanted());
}

#[test]
fn every_kind_of_value_is_read_from_every_source() {
    let file = "\
        runtime.kind = \"cri\"\n\
        [node]\nname = \"n1\"\nlabels = { zone = \"a\" }\n\
        [pull]\ntimeout = \"1m30s\"\nserial = true\n\
        [throttle]\nqps = 2\non_exhausted = \"fail\"\nburst = 0\n";
    let settings = Case::new(file)
        .environment("FLEETPULL_STORE_FSYNC", "false")
        .environment("FLEETPULL_REGISTRY_CONNECT_TIMEOUT", "250ms")
        .environment("FLEETPULL_LOG_LEVEL", "debug")
        .flag("store.dir", "/srv")
        .flag("registry.config_path", "")
        .load()
        .unwrap()
        .settings;
    assert_eq!(settings.runtime.kind, RuntimeKind::Cri);
    assert_eq!(settings.node.name.as_deref(), Some("n1"));
    assert_eq!(settings.node.labels["zone"], "a");
    assert_eq!(settings.pull.timeout, Some(Duration::from_secs(90)));
    assert_eq!(settings.pull.slots(), 1);
    assert_eq!(settings.throttle.qps.to_bits(), 2.0_f64.to_bits());
    assert_eq!((settings.throttle.on_exhausted, settings.throttle.burst), (OnExhausted::Fail, 0));
    assert!(!settings.store.fsync);
    assert_eq!(settings.registry.connect_timeout, Duration::from_millis(250));
    assert_eq!(settings.registry.config_path, None);
    assert_eq!(settings.log.level, LogLevel::Debug);
    assert_eq!(settings.store.dir, Some(PathBuf::from("/srv")));
}

#[test]
fn fleet_settings_are_read_and_egress_defaults_to_the_scope() {
    let file = "\
        [fleet]\nshare = \"observe\"\nscope = \"eu-1\"\nkey_file = \"/k\"\n\
        [pull]\nkeep_free = \"1536 MiB\"\n\
        [budget]\npulls_per_second = 7\nalone = \"share\"\n\
        [throttle]\nmax_wait = \"0s\"\n";
    let settings = Case::new(file).environment("FLEETPULL_BUDGET_PULLS_AT_ONCE", "40").load().unwrap().settings;
    assert_eq!((settings.fleet.share, settings.fleet.egress()), (Share::Observe, "eu-1"));
    assert_eq!(settings.fleet.key_file, Some(PathBuf::from("/k")));
    assert_eq!(settings.pull.keep_free, 1_536 << 20);
    assert_eq!((settings.budget.pulls_at_once, settings.budget.alone), (40, Alone::Share));
    assert_eq!(settings.throttle.max_wait, Duration::ZERO);
    let apart = Case::new("").environment("FLEETPULL_FLEET_EGRESS", "nat-2").load().unwrap().settings;
    assert_eq!((apart.fleet.egress(), apart.fleet.scope.as_str(), apart.node.zone.as_str()), ("nat-2", "default", "default"));
    let problems = Case::new("fleet.scope = \"\"\npull.keep_free = 2\nfleet.share = \"on\"").problems();
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn repeated_flag_of_a_list_joins_its_values_and_replaces_the_file() {
    let case = Case::new("node.labels = { zone = \"a\" }\nnats.url = [\"nats://file\"]");
    let settings = case
        .flag("node.labels", "disk=ssd")
        .flag("node.labels", "rack=7")
        .flag("nats.url", "a:1")
        .flag("nats.url", "b:2,c:3")
        .load()
        .unwrap()
        .settings;
    assert_eq!(settings.node.labels.keys().collect::<Vec<_>>(), ["disk", "rack"]);
    assert_eq!(settings.nats.url.iter().map(settings::ServerUrl::expose).collect::<Vec<_>>(), ["a:1", "b:2", "c:3"]);
}

#[test]
fn all_problems_are_reported_together_with_their_places() {
    let file = "\
        [throttle]\nqsp = 5\nburst = -1\n\n\
        [store]\nfsync = \"true\"\n\
        [registry]\nconnect_timeout = 10\n";
    let problems = Case::new(file)
        .environment("FLEETPULL_PULL_PARALLEL", "many")
        .environment("FLEETPULL_NATS_URL", "http://ann:s3cret@one")
        .flag("runtime.kind", "docker")
        .flag("pull.paralel", "3")
        .problems();
    assert_eq!(
        problems,
        [
            "c.toml:2: throttle.qsp: is not a known key; did you mean throttle.qps?",
            "c.toml:3: throttle.burst = -1: must be a whole number from 0 to 100000",
            "c.toml:6: store.fsync = \"true\": must be true or false, written without quotes",
            "c.toml:8: registry.connect_timeout = 10: must be a duration with its unit (ms, s, m, h), such as 10s or 1m30s, from 100ms to 1h: write it as \"10s\" if seconds are meant",
            "FLEETPULL_PULL_PARALLEL: pull.parallel = \"many\": must be a whole number from 1 to 1000",
            "FLEETPULL_NATS_URL: nats.url = \"http://ann:***@one\": must be at most 64 URLs such as nats://host:4222 or tls://host:4222, with commas between them; in the file a list; or empty",
            "pull.paralel: is not a known key; did you mean pull.parallel?",
            "--runtime: runtime.kind = \"docker\": must be one of oci-layout, cri",
        ]
    );
}

#[test]
fn wrong_structure_of_the_file_is_reported() {
    for (file, expected) in [
        ("[throtle]\nburst = 3", "c.toml:2: throtle.burst: is not a known key; did you mean throttle.burst?"),
        ("throttle = 3", "c.toml:1: throttle: is a section, not a key: write [throttle] and its keys below it"),
        ("[colours]", "c.toml:1: colours: is not a known key; `fleetpull config print` shows every key"),
        ("fsync = true", "c.toml:1: fsync: is not a known key; did you mean store.fsync?"),
        (
            "[store.dir]\nx = 1",
            "c.toml:1: store.dir = { … }: must be a path (~ is not expanded; a relative one begins at the working directory); or empty",
        ),
    ] {
        assert_eq!(Case::new(file).problems(), [expected]);
    }
    let syntax = Case::new("[store]\nfsync = \n\ndir = [\"a\"\n").problems();
    assert!(syntax.len() >= 2 && syntax.iter().all(|problem| problem.contains("is not TOML: ")), "{syntax:?}");
    assert!(syntax[0].starts_with("c.toml:2: "), "{syntax:?}");
}

#[test]
fn unreadable_file_is_reported() {
    let load = |path: PathBuf| Settings::load(Sources { file: ConfigFile::At(path), ..Sources::default() }).unwrap_err().to_string();
    let dir = TempDir::new().unwrap();
    assert!(load(dir.path().join("none.toml")).contains("none.toml: cannot be opened: No such file"));
    assert!(load(dir.path().to_owned()).contains("cannot be read: "));
    assert!(load("/dev/zero".into()).contains("is larger than 1048576 bytes"));
    std::fs::write(dir.path().join("bin"), [0xff, 0xfe]).unwrap();
    assert!(load(dir.path().join("bin")).contains("it must be TOML in UTF-8"));
}

#[test]
fn conflicting_values_are_reported() {
    for (file, expected) in [
        (
            "throttle.burst = 0",
            "c.toml:1: throttle.burst: is 0 with throttle.on_exhausted = wait, so every pull would wait for ever: make it at least 1, or throttle.qps 0 for no limit",
        ),
        ("\nbackoff.max = \"5s\"", "c.toml:2: backoff.initial: is 10s, more than backoff.max = 5s: make it at most that"),
        ("nats.cert = \"/c\"", "c.toml:1: nats.cert: needs nats.key: a client certificate is of no use without its key"),
        ("nats.key = \"/k\"", "c.toml:1: nats.key: needs nats.cert: the key of a client certificate is of no use without it"),
        (
            "nats = { creds = \"/c\", nkey = \"/n\" }",
            "c.toml:1: nats.nkey: is given together with nats.creds, and each is a login: give one of them",
        ),
    ] {
        assert_eq!(Case::new(file).problems(), [expected]);
    }
    for fine in [
        "throttle = { burst = 0, qps = 0 }",
        "throttle = { burst = 0, on_exhausted = \"fail\" }",
        "pull.serial = true",
        "pull = { serial = true, parallel = 3 }",
    ] {
        assert!(Case::new(fine).load().is_ok(), "{fine}");
    }
    // A rule reports no problem if one of its keys has a problem of its own.
    assert_eq!(Case::new("backoff = { initial = \"20m\", max = \"x\" }").problems().len(), 1);
}

#[test]
fn unknown_variable_as_injected_by_kubernetes_is_only_a_warning() {
    let loaded = Case::new("")
        .environment("FLEETPULL_SERVICE_HOST", "10.0.0.1")
        .environment("FLEETPULL_PORT_4222_TCP", "tcp://10.0.0.1:4222")
        .environment("FLEETPULL_STORE_FSYNCH", "true")
        .environment("PATH", "/bin")
        .load()
        .unwrap();
    assert_eq!(loaded.settings, Settings::default());
    assert_eq!(
        loaded.warnings,
        [
            "FLEETPULL_SERVICE_HOST is not a setting and is ignored",
            "FLEETPULL_PORT_4222_TCP is not a setting and is ignored",
            "FLEETPULL_STORE_FSYNCH is not a setting and is ignored; did you mean FLEETPULL_STORE_FSYNC?",
        ]
    );
}

#[test]
fn value_that_is_not_utf8_is_refused() {
    let problems = Case::new("").environment("FLEETPULL_STORE_DIR", "/a\u{fffd}").problems();
    assert_eq!(problems, ["FLEETPULL_STORE_DIR: store.dir = \"/a\u{fffd}\": is not UTF-8"]);
}

#[test]
fn printed_settings_name_their_origins_and_load_to_the_same_settings() {
    let case = || {
        Case::new("\n[throttle]\nburst = 20\n")
            .environment("FLEETPULL_NODE_LABELS", "zone=a")
            .flag("nats.url", "nats://ann:s3cret@one,nats://two")
            .flag("registry.no_progress_timeout", "90s")
    };
    let host = Host { is_root: true, ..Host::default() };
    let loaded = case().load().unwrap();
    let (toml, json) = (print_toml(&loaded, &host), print_json(&loaded, &host));
    for line in [
        "burst = 20  # ",
        "labels = { zone = \"a\" }  # FLEETPULL_NODE_LABELS\n",
        "url = [\"nats://ann:***@one\", \"nats://two\"]  # --nats\n",
        "dir = \"\"  # default; here /var/lib/fleetpull\n",
    ] {
        assert!(toml.contains(line), "{line:?} is not in\n{toml}");
    }
    assert!(toml.contains("c.toml:3\n"));
    assert!(!toml.contains("s3cret") && !json.contains("s3cret") && !format!("{loaded:?}").contains("s3cret"));

    let without_password = |file: &str| Case::new(file).flag("nats.url", "").load().unwrap().settings;
    assert_eq!(
        without_password(&toml),
        case().flag("nats.url", "").load().map(|loaded| Settings { nats: Default::default(), ..loaded.settings }).unwrap()
    );

    let objects: Vec<serde_json::Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), settings::keys().len());
    let burst = objects.iter().find(|object| object["key"] == "throttle.burst").unwrap();
    assert_eq!(
        (&burst["value"], &burst["origin"], &burst["environment"]),
        (&20.into(), &"file".into(), &"FLEETPULL_THROTTLE_BURST".into())
    );
}
