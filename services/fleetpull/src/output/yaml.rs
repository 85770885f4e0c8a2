//! A JSON object as a YAML document.

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::Value;

use super::{acts_on_a_terminal, complain, document, json_line};

/// Writes an object as a YAML document.
pub fn write<T: Serialize>(object: &T) {
    if let Some(json) = json_line(object) {
        write_json(&json);
    }
}

/// Writes a line of JSON as a YAML document.
pub fn write_json(json: &str) {
    match document_of(json) {
        Ok(yaml) => document(&yaml),
        Err(error) => complain(&error.context("a result cannot be written as YAML")),
    }
}

/// The YAML document of a line of JSON, with `---` at its start and with sorted keys.
///
/// It contains no terminal control characters: if a text has one, the document is the line of JSON, which is also YAML.
fn document_of(json: &str) -> Result<String> {
    let object: Value = serde_json::from_str(json).context("it is no JSON")?;
    // Block scalars are off, because lines in a text from another node could look like keys.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let yaml = serde_saphyr::to_string_with_options(&object, options)?;
    let is_safe = !yaml.chars().any(|character| character != '\n' && acts_on_a_terminal(character));
    let document = if is_safe { yaml.trim_end() } else { json };
    Ok(format!("---\n{document}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(object: &Value) -> String {
        document_of(&json_line(object).unwrap()).unwrap()
    }

    #[test]
    fn objects_are_documents_with_sorted_keys() {
        let object =
            json!({ "node": "n1", "labels": { "zone": "a" }, "waits": [], "standing_pulls": [{ "image": "a/b:v1" }], "bus": null });
        let expected = "---\nbus: null\nlabels:\n  zone: a\nnode: n1\nstanding_pulls:\n- image: a/b:v1\nwaits: []";
        assert_eq!(of(&object), expected);
    }

    #[test]
    fn texts_read_as_they_were_and_stay_texts() {
        let texts = [
            "",
            "null",
            "true",
            "yes",
            "12",
            "1e3",
            "0x1f",
            "1:30",
            "2026-11-27",
            "- a",
            "a: b",
            "# a",
            "'",
            "\"",
            "&a",
            "*a",
            "!!a",
            "%",
            "@a",
            " a ",
            "a\nb",
            "a\n---\nnode: forged",
            "\t",
            "\u{1b}[2J",
            "\u{7f}",
            "\u{85}",
            "\u{202e}abc",
            "\u{feff}",
            "é",
            "\u{1f980}",
            "=",
            "<<",
        ];
        for text in texts {
            let object = json!({ "cause": text, text: 1 });
            let document = of(&object);
            assert!(!document.chars().any(|character| character != '\n' && acts_on_a_terminal(character)), "{document:?}");
            assert_eq!(document.lines().filter(|line| *line == "---").count(), 1, "{document:?}");
            let read: Value = serde_saphyr::from_str(&document).unwrap_or_else(|error| panic!("{document:?}: {error}"));
            assert_eq!(read, object, "{document}");
        }
    }

    #[test]
    fn numbers_read_as_they_were() {
        let object = json!({ "small": 0, "large": u64::MAX, "below": -1, "ratio": 0.25, "is": true });
        let read: Value = serde_saphyr::from_str(&of(&object)).unwrap();
        assert_eq!(read, object);
    }
}
