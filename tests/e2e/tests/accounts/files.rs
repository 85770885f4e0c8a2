//! The files that `nats-setup --accounts` writes, and those that it does not change.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use e2e::Workplace;

/// Every file below a folder with its content and mode.
fn files(folder: &Path) -> BTreeMap<String, (String, u32)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let mode = path.metadata().unwrap().permissions().mode() & 0o777;
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, (std::fs::read_to_string(&path).unwrap(), mode));
            }
        }
    }
    found
}

#[test]
fn seeds_are_readable_by_their_owner_and_in_no_other_file() {
    let place = Workplace::new();
    let done = place.run(&["nats-setup", "--accounts", "acc", "--node", "n1.example", "--operator", "ann", "--auth-callout", "-o", "json"]);
    let rows = done.expect(0).objects();
    assert!(rows.iter().all(|row| row["kind"] == "file" && row["state"] == "made"), "{rows:?}");
    let all = files(&place.path("acc"));
    assert_eq!(rows.len(), all.len());
    let seeds: Vec<&String> = all.iter().filter(|(name, _)| name.starts_with("seeds/")).map(|(_, (text, _))| text).collect();
    assert_eq!(seeds.len(), 6, "two users, setup, system, the callout and its issuer");
    for (name, (text, mode)) in &all {
        if name.starts_with("seeds/") {
            assert_eq!(*mode, 0o600, "{name}");
        } else {
            assert_eq!(*mode, 0o644, "{name}");
            assert!(seeds.iter().all(|seed| !text.contains(seed.trim())), "{name} holds a seed");
        }
    }
    assert_eq!(place.path("acc/seeds").metadata().unwrap().permissions().mode() & 0o777, 0o700);
    let context = &all["nats/context/n1.example.json"].0;
    assert!(context.contains("\"_INBOX_n1_2eexample\"") && context.contains("acc/seeds/n1.example.nk"), "{context}");
    assert!(all["accounts.conf"].0.contains("fleetpull.v1.evt.*.*.n1_2eexample"));
}

#[test]
fn existing_files_are_replaced_only_by_force_and_seeds_never() {
    let place = Workplace::new();
    let make = |more: &[&str], status| place.run(&[&["nats-setup", "--accounts", "acc", "--node", "n1"], more].concat()).expect(status);
    let dry = make(&["--dry-run"], 1);
    assert!(dry.stdout.contains("missing") && !place.path("acc").exists(), "{dry}");
    make(&[], 0);
    let first = files(&place.path("acc"));
    let again = make(&[], 0);
    assert!(again.stderr.contains("nothing was written"), "{again}");
    assert_eq!(files(&place.path("acc")), first);

    // An existing server configuration belongs to the operator.
    place.write("acc/nats-server.conf", "server_name: ours\ninclude \"accounts.conf\"\n");
    let refused = make(&["--node", "n2"], 1);
    assert!(refused.stdout.contains("accounts.conf") && refused.stdout.contains("differs"), "{refused}");
    assert!(refused.stderr.contains("--force"), "{refused}");
    assert!(!place.path("acc/seeds/n2.nk").exists(), "nothing is written when something may not be changed");
    make(&["--node", "n2", "--force"], 0);
    let forced = files(&place.path("acc"));
    assert_eq!(forced["seeds/n1.nk"], first["seeds/n1.nk"], "n1 still has its key");
    assert!(forced["nats-server.conf"].0.contains("ours"));
    assert!(forced["accounts.conf"].0.contains("# n2") && forced["accounts.conf"].0.contains("# n1"));
    assert_eq!(forced["accounts.conf"].1, 0o644);
}

#[test]
fn invalid_names_are_refused_before_any_file_is_written() {
    let place = Workplace::new();
    let users = place.write("users", "node n1\nviewer grafana # the dashboards\nboss ann\n");
    let same = place.write("same", "viewer n1\n");
    for (options, expected) in [
        (&["--node", "n1", "--node", "n1"][..], "the name n1 is given twice"),
        (&["--node", "n1", "--operator", "N1"], "the name N1 is given twice, to a node and to a operator"),
        (&["--node", "n1", "--users", &same], "the name n1 is given twice"),
        (&["--node", "setup"], "a login that is always there"),
        (&["--viewer", ".."], "cannot name a file"),
        (&["--node", "a/b"], "is not a node name"),
        (&["--users", &users], "line 3: \"boss\" is not a role"),
        (&[], "no users are named"),
        (&["--node", "n1", "--replicas", "3"], "cannot be used with"),
    ] {
        let done = place.run(&[&["nats-setup", "--accounts", "acc"], options].concat()).expect(2);
        assert!(done.stderr.contains(expected), "{expected}: {done}");
    }
    let without = place.run(&["nats-setup", "--node", "n1"]).expect(2);
    assert!(without.stderr.contains("--accounts"), "{without}");
    let nowhere = place.run(&["nats-setup", "--accounts", "acc", "--users", "nowhere"]).expect(1);
    assert!(nowhere.stderr.contains("nowhere"), "{nowhere}");
    let login = place.run(&["nats-setup", "--accounts", "acc", "--node", "n1", "--nats", "tls://ann:hunter2@a:4222"]);
    assert!(login.status != 0 && !login.output().contains("hunter2"), "{login}");
    assert!(!place.path("acc").exists());
}

#[test]
fn seed_that_is_damaged_or_readable_by_others_is_refused() {
    let place = Workplace::new();
    let make = || place.run(&["nats-setup", "--accounts", "acc", "--node", "n1", "--force"]);
    make().expect(0);
    let seed = place.path("acc/seeds/n1.nk");
    std::fs::set_permissions(&seed, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = make().expect(1);
    assert!(open.stderr.contains("others may read the secret") && open.stderr.contains("n1.nk"), "{open}");
    let text = std::fs::read_to_string(&seed).unwrap();
    std::fs::write(&seed, text.replace("SU", "XX")).unwrap();
    let damaged = make().expect(1);
    assert!(damaged.stderr.contains("holds no seed") && !damaged.output().contains(text.trim().trim_start_matches("SU")), "{damaged}");
}
