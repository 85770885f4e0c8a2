//! The file of standing pulls.
//!
//! Contracts: stored standing pulls are loaded unchanged. A process that ends at any point of a write leaves either the old or the new
//! standing pulls, complete. A damaged file is reported, put aside and replaced, and never read in part.
#![cfg(feature = "shell")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use contract::PodRef;
use contract::messages::pull_coordinator::{EnsureImage, PullPolicy};
use proptest::prelude::*;
use pull_coordinator::core::KeptStandingPull;
use pull_coordinator::{StandingPullFile, StandingPullStore as _, StandingPullStoreError};
use tempfile::TempDir;

fn standing_pull(number: u8) -> KeptStandingPull {
    let ask = EnsureImage {
        image: format!("registry.example/team/app:{number}"),
        policy: Some(PullPolicy::Always),
        platform: number.is_multiple_of(2).then(|| "linux/arm64".to_owned()),
        pod: Some(PodRef { namespace: "shop".to_owned(), name: "wéb \"0\"".to_owned(), uid: String::new() }),
        wait_ms: Some(60_000),
        standing_pull: format!("{number:032x}").try_into().ok(),
        ..EnsureImage::default()
    };
    KeptStandingPull { standing_pull: format!("{number:032x}").try_into().unwrap(), ask, since_ms: 1, until_ms: u64::MAX }
}

fn standing_pulls(count: u8) -> Vec<KeptStandingPull> {
    (0..count).map(standing_pull).collect()
}

fn store() -> (TempDir, PathBuf, StandingPullFile) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("standing-pulls.json");
    let store = StandingPullFile::new(path.clone());
    (directory, path, store)
}

fn aside(path: &Path) -> PathBuf {
    path.with_extension("json.corrupt")
}

#[test]
fn stored_standing_pulls_are_loaded_and_none_exist_before() {
    let (_directory, path, store) = store();
    assert_eq!(store.load().unwrap(), []);
    for count in [3, 200, 1, 0] {
        store.keep(&standing_pulls(count)).unwrap();
        assert_eq!(StandingPullFile::new(path.clone()).load().unwrap(), standing_pulls(count));
    }
}

#[test]
fn write_failure_names_the_file_and_the_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let error = StandingPullFile::new(directory.path().join("gone/standing-pulls.json")).keep(&standing_pulls(1)).unwrap_err().to_string();
    assert!(error.starts_with("cannot create ") && error.contains("gone/standing-pulls.json.new"), "{error}");
    assert!(error.ends_with("see that its directory exists, is the agent's own and has room"), "{error}");
}

#[test]
fn file_of_another_version_or_too_large_is_put_aside() {
    let (_directory, path, store) = store();
    fs::write(&path, br#"{"version":2,"standing_pulls":[]}"#).unwrap();
    let error = store.load().unwrap_err();
    assert!(error.to_string().contains("it is of version 2, this agent reads 1"), "{error}");
    assert_eq!(store.load().unwrap(), [], "the next load starts empty");
    fs::write(&path, vec![b' '; 16 * 1024 * 1024 + 1]).unwrap();
    assert!(store.load().unwrap_err().to_string().contains("it is larger than"));
}

#[test]
fn unreadable_file_is_not_replaced_until_it_is_read() {
    let (_directory, path, store) = store();
    // A directory cannot be read as a file, not even by root.
    fs::create_dir(&path).unwrap();
    let error = store.load().unwrap_err();
    assert!(matches!(error, StandingPullStoreError::File { .. }), "{error}");
    fs::remove_dir(&path).unwrap();
    StandingPullFile::new(path.clone()).keep(&standing_pulls(2)).unwrap();
    let error = store.clone().keep(&standing_pulls(1)).unwrap_err().to_string();
    assert!(error.ends_with("are left as they are; see that the agent may read them, then restart it"), "{error}");
    assert_eq!(store.load().unwrap(), standing_pulls(2));
    store.keep(&standing_pulls(1)).unwrap();
}

#[test]
fn fields_of_a_later_version_are_ignored() {
    let (_directory, path, store) = store();
    store.keep(&standing_pulls(1)).unwrap();
    let grown = fs::read_to_string(&path).unwrap().replacen("{\"standing pull\"", "{\"mood\":\"calm\",\"standing pull\"", 1);
    fs::write(&path, grown).unwrap();
    assert_eq!(store.load().unwrap(), standing_pulls(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// If the process ended while it wrote the new file, the old standing pulls are loaded and the next write succeeds.
    #[test]
    fn process_killed_during_a_write_loses_nothing(before in 0..5_u8, after in 0..5_u8, cut in 0.0..=1.0_f64) {
        let (_directory, path, store) = store();
        store.keep(&standing_pulls(after)).unwrap();
        let bytes = fs::read(&path).unwrap();
        store.keep(&standing_pulls(before)).unwrap();
        let written = (bytes.len() as f64 * cut) as usize;
        fs::write(path.with_extension("json.new"), &bytes[..written]).unwrap();
        prop_assert_eq!(store.load().unwrap(), standing_pulls(before));
        store.keep(&standing_pulls(after)).unwrap();
        prop_assert_eq!(store.load().unwrap(), standing_pulls(after));
    }

    /// A truncated or overwritten file is not read in part.
    #[test]
    fn damaged_file_is_reported_and_put_aside(count in 1..5_u8, cut in 0.0..1.0_f64, flip in any::<Option<u8>>()) {
        let (_directory, path, store) = store();
        store.keep(&standing_pulls(count)).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate((bytes.len() as f64 * cut) as usize);
        bytes.extend(flip);
        fs::write(&path, &bytes).unwrap();
        let error = store.load().unwrap_err();
        let corrupt = matches!(error, StandingPullStoreError::Corrupt { .. });
        prop_assert!(corrupt, "{}", error);
        prop_assert_eq!(fs::read(aside(&path)).unwrap(), bytes);
        prop_assert_eq!(store.load().unwrap(), vec![]);
    }
}
