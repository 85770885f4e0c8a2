//! Checks that this crate's results equal those of Go 1.26 and of kubelet 1.36's libraries, byte for byte.
//!
//! `tests/golden/generate.go.txt` generated the golden files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::time::Duration;

use image::{Platform, Reference, go};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

#[test]
fn every_code_point_is_quoted_as_go_does() {
    let golden = include_str!("golden/code_points.txt");
    let mut quoted = String::new();
    for character in '\0'..=char::MAX {
        writeln!(quoted, "{}", go::quote(character.encode_utf8(&mut [0; 4]))).unwrap();
    }
    let line = format!("quoted {:x}", Sha256::digest(&quoted));
    assert!(golden.lines().any(|golden| golden == line), "{line}");
}

#[derive(Deserialize)]
struct QuoteRow {
    text: String,
    quoted: String,
}

#[test]
fn texts_are_quoted_as_go_does() {
    for line in include_str!("golden/quotes.jsonl").lines() {
        let row: QuoteRow = serde_json::from_str(line).unwrap();
        assert_eq!(go::quote(&row.text), row.quoted);
    }
}

#[test]
fn durations_print_as_go_prints_them() {
    for line in include_str!("golden/durations.tsv").lines() {
        let (nanoseconds, expected) = line.split_once('\t').unwrap();
        let duration = Duration::from_nanos(nanoseconds.parse().unwrap());
        assert_eq!(go::duration(duration), expected, "{nanoseconds} ns");
    }
}

/// Kubelet's result for an image; an empty field is absent.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
#[derive(Default)]
struct ReferenceRow {
    image: String,
    error: String,
    repository: String,
    domain: String,
    path: String,
    tag: String,
    digest: String,
    runtime: String,
}

#[test]
fn references_are_read_as_kubelet_reads_them() {
    let mut read = 0;
    for line in include_str!("golden/references.jsonl").lines() {
        let row: ReferenceRow = serde_json::from_str(line).unwrap();
        match Reference::parse(&row.image) {
            Ok(reference) => {
                compare(&reference, &row);
                read += 1;
            }
            Err(error) => assert_eq!(error.kubelet_message(&row.image), row.error),
        }
    }
    assert!(read > 200, "only {read} valid references in the golden file");
}

fn compare(reference: &Reference, row: &ReferenceRow) {
    let image = &row.image;
    assert_eq!(row.error, "", "{image}");
    assert_eq!(reference.requested(), image);
    assert_eq!(reference.repository(), row.repository, "{image}");
    assert_eq!(reference.tag().unwrap_or_default(), row.tag, "{image}");
    let digest = reference.digest().map(ToString::to_string).unwrap_or_default();
    assert_eq!(digest, row.digest, "{image}");
    assert_eq!(reference.runtime_reference(), row.runtime, "{image}");
    // A first part with an underscore is a path without a domain in the grammar, but the registry for runtimes.
    let (domain, path) = if row.domain.is_empty() { row.path.split_once('/').unwrap() } else { (row.domain.as_str(), row.path.as_str()) };
    assert_eq!((reference.domain(), reference.path()), (domain, path), "{image}");
}

#[test]
fn platforms_are_spelled_and_ordered_as_containerd_does() {
    let rows: Vec<Vec<&str>> = include_str!("golden/platforms.tsv").lines().map(|line| line.split('\t').collect()).collect();
    let mut known: Vec<Platform> = rows.iter().map(|row| Platform::parse(row[0]).unwrap()).collect();
    known.dedup();
    for row in &rows {
        let wanted = Platform::parse(row[0]).unwrap();
        assert_eq!(wanted.to_string(), row[1], "{}", row[0]);
        assert_eq!(best_first(&wanted, known.clone()).join(" "), row[2], "{}", row[0]);
    }
}

/// All platforms that run there, by repeatedly asking for the best of the rest.
fn best_first(wanted: &Platform, mut offered: Vec<Platform>) -> Vec<String> {
    let mut order = Vec::new();
    while let Some(index) = wanted.best_of(&offered) {
        let best = offered.remove(index);
        assert!(wanted.matches(&best));
        offered.retain(|other| *other != best);
        order.push(best.to_string());
    }
    assert!(!offered.iter().any(|other| wanted.matches(other)));
    order
}
