//! Every fuzz target over its corpus and mutations of it. Inputs that found a bug stay in the corpus.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clock::Random;
use fuzz::{TARGETS, Target};

/// How many mutations of each target's corpus are run: some milliseconds in all, unoptimised.
const MUTATIONS: u64 = 2_000;
/// The longest input that mutations make, in bytes.
const LONGEST: usize = 4_096;

fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let files = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.display().to_string(), std::fs::read(&path).unwrap())).collect()
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let folders: BTreeSet<String> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(folders, TARGETS.iter().map(|target| target.name.to_owned()).collect());
    for target in TARGETS {
        assert!(corpus(target.name).len() >= 3, "{} has hardly a corpus", target.name);
    }
}

#[test]
fn every_target_has_its_libfuzzer_program() {
    let manifest = include_str!("../libfuzzer/Cargo.toml");
    for target in TARGETS {
        assert!(manifest.contains(&format!("name = \"{}\"\n", target.name)), "{} is missing in libfuzzer/Cargo.toml", target.name);
        let program = include_str!("../libfuzzer/fuzz_targets/target.rs");
        assert!(program.contains("CARGO_BIN_NAME"), "the program runs the target of its own name");
    }
}

/// All files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn every_command_of_the_contract_is_read_by_the_message_target() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/contract/src/messages");
    let (target, mut commands) = (include_str!("../src/messages.rs"), 0);
    for path in files_below(&folder) {
        let module = path.strip_prefix(&folder).unwrap().iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let text = std::fs::read_to_string(&path).unwrap();
        for name in text.lines().filter_map(|line| line.strip_prefix("impl Command for ")?.strip_suffix(" {")) {
            assert!(target.contains(&format!("both::<{module}::{name}>(data);")), "{module}::{name} is missing in src/messages.rs");
            commands += 1;
        }
    }
    assert!(commands > 30, "{commands} commands are found");
}

#[test]
fn corpora_break_no_promise() {
    for target in TARGETS {
        for (path, data) in corpus(target.name) {
            check(target, &data, &path);
        }
    }
}

#[test]
fn mutations_of_corpora_break_no_promise() {
    for target in TARGETS {
        let inputs: Vec<Vec<u8>> = corpus(target.name).into_iter().map(|(_, data)| data).collect();
        for seed in 0..MUTATIONS {
            let data = mutated(&inputs, &mut Random::seeded(seed));
            check(target, &data, &format!("seed {seed}"));
        }
    }
}

fn check(target: Target, data: &[u8], origin: &str) {
    let outcome = std::panic::catch_unwind(|| (target.run)(data));
    assert!(outcome.is_ok(), "{} panics on {origin}: {:?}", target.name, String::from_utf8_lossy(data));
}

/// An input with some bytes changed, inserted, doubled, cut, or replaced by those of another input.
fn mutated(inputs: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut below = |limit: usize| usize::try_from(random.word() % limit.max(1) as u64).unwrap();
    let mut data = inputs[below(inputs.len())].clone();
    for _ in 0..=below(4) {
        let at = below(data.len() + 1);
        let until = at + below((data.len() - at).min(16) + 1);
        match below(6) {
            0 if at < data.len() => data[at] ^= 1 << below(8),
            1 => data.insert(at, [0, 0x7f, 0xff, b'"', b',', b'=', b'\\', b' '][below(8)]),
            2 => drop(data.drain(at..until)),
            3 => data.truncate(at),
            4 => {
                let doubled = data[at..until].repeat(1 + below(64));
                data.splice(at..at, doubled);
            }
            _ => {
                let other = &inputs[below(inputs.len())];
                let from = below(other.len() + 1);
                let piece = other[from..from + below(other.len() - from + 1)].to_vec();
                data.splice(at..until, piece);
            }
        }
    }
    data.truncate(LONGEST);
    data
}
