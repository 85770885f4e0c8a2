//! Checks the class of every text in the golden tables, and that no class depends on a name that a user chose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use contract::FailureClass;
use runtimes::failure::{GrpcCode, classify_text, read_text, scrub};

struct Record {
    class: FailureClass,
    code: GrpcCode,
    note: String,
    text: String,
}

fn records() -> Vec<Record> {
    let tables = [include_str!("golden/failure_texts.txt"), include_str!("golden/failure_texts_crio.txt")];
    let record = |block: &str| {
        let (head, text) = block.split_once('\n').unwrap_or((block, ""));
        let (head, note) = head.split_once(" | ").unwrap_or_else(|| panic!("{head:?} has no note"));
        let (class, code) = head.split_once(' ').unwrap_or_else(|| panic!("{head:?} has no code"));
        let class = FailureClass::ALL.into_iter().find(|known| known.as_str() == class).unwrap_or_else(|| panic!("{class} is no class"));
        Record { class, code: code_named(code), note: note.to_owned(), text: text.trim_end_matches('\n').to_owned() }
    };
    tables.iter().flat_map(|table| table.split("\n== ").skip(1)).map(record).collect()
}

fn code_named(name: &str) -> GrpcCode {
    let at = support::scripted_cri::CODES.iter().position(|known| *known == name).unwrap_or_else(|| panic!("{name} is no code"));
    GrpcCode::from_i32(i32::try_from(at).unwrap())
}

#[test]
fn every_text_has_its_class() {
    let records = records();
    assert!(records.len() > 200, "the tables are read whole");
    let wrong: Vec<String> = records
        .iter()
        .filter_map(|record| {
            let found = classify_text(&record.text, Some(record.code));
            (found != record.class).then(|| format!("{found} instead of {} | {}\n  {}", record.class, record.note, record.text))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn scrubbing_does_not_change_the_class() {
    for record in records() {
        assert_eq!(classify_text(&scrub(&record.text), Some(record.code)), record.class, "{}", record.text);
    }
}

#[test]
fn class_does_not_depend_on_the_images_name() {
    let names = ["x/404", "429/toomanyrequests", "denied", "not/found", "manifest-unknown", "x509/unauthorized", "eof", "no/space"];
    for record in records().iter().filter(|record| record.text.contains("registry.example/app")) {
        for name in names {
            let text = record.text.replace("registry.example/app:1", &format!("registry.example/{name}:429"));
            let text = text.replace("registry.example/app", &format!("registry.example/{name}"));
            assert_eq!(classify_text(&text, Some(record.code)), record.class, "{text}");
        }
    }
}

/// Checks which records are authoritative, and which report that the platform is missing.
#[test]
fn authoritative_failures_are_those_of_a_registry() {
    for record in records() {
        let reading = read_text(&record.text, Some(record.code));
        let expected = match record.class {
            // containers/image shows the number only if there is no registry's error body.
            FailureClass::NotFound | FailureClass::Denied if record.text.contains("StatusCode: ") => false,
            // A call's code comes from the runtime, not from a registry.
            FailureClass::RateLimited | FailureClass::NotFound | FailureClass::Denied => record.note != "a code alone",
            FailureClass::RegistryUnavailable => record.text.contains("Server message: "),
            _ => reading.no_such_platform,
        };
        assert_eq!(reading.authoritative, expected, "{}\n  {}", record.note, record.text);
        let names_platform = record.text.contains("no match for platform") || record.text.contains("no image found in");
        assert_eq!(reading.no_such_platform, names_platform && record.class == FailureClass::ContentInvalid, "{}", record.text);
    }
}
