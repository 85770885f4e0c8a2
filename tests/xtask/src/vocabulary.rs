//! `vocabulary`: checks that replaced words are not used. `shared/README.md` has the words to use.

use std::fs;
use std::path::Path;

use anyhow::bail;

/// The folders and files that are checked.
const FOLDERS: [&str; 6] = ["services", "shared", "config", "deploy", "tests", "README.md"];
/// Exempt texts: those of other projects, those whose bytes must not change, and this list.
const EXCEPT: [&str; 7] = [
    "tests/integration/kubelet/",
    "tests/fuzz/corpus/",
    "tests/xtask/jaeger/",
    "tests/xtask/promtool/",
    "shared/image/tests/golden/",
    "shared/runtimes/tests/golden/",
    "tests/xtask/src/vocabulary.rs",
];
/// The extensions of text files.
const ENDINGS: [&str; 9] = ["rs", "md", "toml", "json", "jsonl", "yaml", "yml", "conf", "service"];
/// A replaced word and the words to use. Names are split into words (`WishId`, `next_try_ms`), and plurals are found too.
const REPLACED: [(&str, &str); 20] = [
    ("wish", "standing pull, or request for clearance"),
    ("wishes", "standing pulls, or requests for clearance"),
    ("topic", "back-off key; NATS has subjects"),
    ("gravestone", "panic guard"),
    ("practice registry", "memory registry"),
    ("surroundings", "locality"),
    ("sought", "query, or looked for"),
    ("untold", "unpublished, or unsent"),
    ("hearsay", "what nodes report"),
    ("next try", "next attempt"),
    ("office", "term"),
    ("planted fault", "planted bug"),
    ("told", "reported, sent, stated, or distinguished"),
    ("heard", "received"),
    ("pardon", "trust restored"),
    ("errand", "task, or request"),
    ("doorkeeper", "what answers there"),
    ("fleet's leave", "clearance"),
    ("whoever", "a node, a caller, a person"),
    ("whomever", "any node, any caller"),
];

/// Checks every text of the workspace.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let (mut files, mut found) = (0, Vec::new());
    for folder in FOLDERS {
        check_texts(root, &root.join(folder), &mut |path, text| {
            files += 1;
            for (number, line) in text.lines().enumerate() {
                found.extend(replaced(line).map(|(word, instead)| format!("{path}:{}: {word}: write {instead}", number + 1)));
            }
        })?;
    }
    if !found.is_empty() {
        bail!("{} replaced words:\n     {}", found.len(), found.join("\n     "));
    }
    println!("{files} texts: none of {} replaced words", REPLACED.len());
    Ok(())
}

fn check_texts(root: &Path, path: &Path, text: &mut impl FnMut(&str, &str)) -> anyhow::Result<()> {
    let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
    if EXCEPT.iter().any(|except| format!("{name}/").starts_with(except) || name == *except) {
        return Ok(());
    }
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            check_texts(root, &entry?.path(), text)?;
        }
    } else if path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known)) {
        text(&name, &fs::read_to_string(path)?);
    }
    Ok(())
}

/// The replaced words of a line.
fn replaced(line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = format!(" {} ", words(line).join(" "));
    let contains = move |word: &str| words.contains(&format!(" {word} ")) || words.contains(&format!(" {word}s "));
    REPLACED.into_iter().filter(move |(word, _)| contains(word))
}

/// The words of a line in lower case, with names split.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_small = false;
    for letter in line.chars() {
        let is_part = letter.is_alphabetic() || letter == '\'';
        let begins = !is_part || (letter.is_uppercase() && was_small);
        if begins && words.last().is_some_and(|word| !word.is_empty()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| is_part) {
            word.extend(letter.to_lowercase());
        }
        was_small = letter.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_word_is_found_in_prose_and_in_names_and_nowhere_else() {
        for (line, found) in [
            ("/// A wish stands.", Some("wish")),
            ("struct WishId(u64);", Some("wish")),
            ("for wish in wishes {", Some("wish")),
            ("let by_topics = 1;", Some("topic")),
            ("next_try_ms: 3", Some("next try")),
            ("in 3 s is the next try", Some("next try")),
            ("const MAX_TOPICS: usize = 3;", Some("topic")),
            ("asks for the fleet's leave", Some("fleet's leave")),
            ("wishful, officer, topical, next trying", None),
            ("leave it out", None),
        ] {
            assert_eq!(replaced(line).map(|(word, _)| word).next(), found, "{line}");
        }
    }
}
