//! `vocabulary`: checks that replaced words are not used. `shared/README.md` has the words to use.

use std::fs;
use std::path::Path;

use anyhow::bail;

/// The folders and files that are checked.
const FOLDERS: [&str; 7] = [".github", "services", "shared", "config", "deploy", "tests", "README.md"];
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
/// The extensions of text files; `1` is that of man pages.
const ENDINGS: [&str; 12] = ["rs", "md", "toml", "json", "jsonl", "yaml", "yml", "conf", "service", "proto", "txt", "1"];
/// A replaced word and the words to use. Names are split into words (`WishId`, `next_try_ms`), and plurals are found too.
///
/// Some replaced words are right in other meanings: about, alone, binding, call, gone, held, known, later, lead, leave, line, member,
/// memory, target, try, turn, want, way, word. Of these, this list has only phrases.
const REPLACED: [(&str, &str); 60] = [
    ("wish", "standing pull, or request for clearance"),
    ("wishes", "standing pulls, or requests for clearance"),
    ("topic", "back-off key; NATS has subjects"),
    ("struct about", "back-off key, key in a view, or key parts"),
    ("enum about", "back-off key, key in a view, or key parts"),
    ("stored about", "key in a view"),
    ("abouts", "back-off keys"),
    ("gravestone", "panic guard"),
    ("practice registry", "memory registry"),
    ("surroundings", "locality"),
    ("sought", "query, or looked for"),
    ("untold", "unpublished, or unsent"),
    ("hearsay", "what nodes report"),
    ("saying", "report"),
    ("node's word", "report"),
    ("word of a node", "report"),
    ("next try", "next attempt"),
    ("deed", "attempt"),
    ("office", "term"),
    ("planted fault", "planted bug"),
    ("breaking", "planted bug, panicking, or incompatible"),
    ("told", "reported, sent, stated, or distinguished"),
    ("heard", "received"),
    ("believed", "confirmed, unconfirmed, or corroborated"),
    ("contradicted", "refuted, or distrusted"),
    ("pardon", "trust restored"),
    ("pardoned", "trusted again"),
    ("errand", "task, or request"),
    ("door", "what answers there"),
    ("doorkeeper", "what answers there"),
    ("fleet's leave", "clearance"),
    ("no leave", "no clearance"),
    ("without leave", "without clearance"),
    ("for leave", "for clearance"),
    ("boarding", "joining a flight"),
    ("take off", "a flight is started"),
    ("takes off", "a flight is started"),
    ("taking off", "a flight is started"),
    ("took off", "a flight was started"),
    ("to the air", "a flight is started"),
    ("who goes", "the leader of a resolution, or the prober"),
    ("pace", "rate, or rate limiter"),
    ("paced", "limited to a rate"),
    ("pacing", "rate limiter"),
    ("gone caller", "abandoned caller"),
    ("caller is gone", "the caller abandoned it"),
    ("callers are gone", "the callers abandoned it"),
    ("caller has gone", "the caller abandoned it"),
    ("whom", "the endpoint, the node, the registry"),
    ("beside", "during, with, or side-channel check"),
    ("meeting", "deferred reply, or reply slot"),
    ("weigh", "estimate"),
    ("weighed", "estimated"),
    ("weighing", "size estimate"),
    ("rival", "duplicate agent"),
    ("deaf", "stalled, or cut off from the bus"),
    ("cares", "say what needs it"),
    ("stands a", "is expected, or is"),
    ("whoever", "a node, a caller, a person"),
    ("whomever", "any node, any caller"),
];
/// Folders in which a word has a replaced meaning, the word, and the words to use. Elsewhere it is right: a node is a member of its fleet.
const REPLACED_IN: [(&str, &str, &str); 3] = [
    ("services/throttler/", "member", "budget client"),
    ("services/throttler/", "line", "queue"),
    ("services/pull-coordinator/src/", "gone", "abandoned"),
];
/// Plain words that look like the plural of a replaced word.
const NO_PLURALS: [&str; 1] = ["besides"];

/// Checks every text of the workspace.
pub(crate) fn run(root: &Path) -> anyhow::Result<()> {
    let (mut files, mut found) = (0, Vec::new());
    for folder in FOLDERS {
        check_texts(root, &root.join(folder), &mut |path, text| {
            files += 1;
            found.extend(replaced(path, path).map(|(word, instead)| format!("{path}: {word} in the name: write {instead}")));
            for (number, line) in text.lines().enumerate() {
                found.extend(replaced(path, line).map(|(word, instead)| format!("{path}:{}: {word}: write {instead}", number + 1)));
            }
        })?;
    }
    if !found.is_empty() {
        bail!("{} replaced words:\n     {}", found.len(), found.join("\n     "));
    }
    println!("{files} texts and their names: none of {} replaced words", REPLACED.len() + REPLACED_IN.len());
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

/// The replaced words of a line of this file.
fn replaced(path: &str, line: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let words = format!(" {} ", words(line).join(" "));
    let contains = move |word: &str| words.contains(&format!(" {word} ")) || words.contains(&format!(" {word}s "));
    let here = REPLACED_IN.into_iter().filter(move |(folder, ..)| path.starts_with(folder)).map(|(_, word, instead)| (word, instead));
    REPLACED.into_iter().chain(here).filter(move |(word, _)| contains(word))
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
    words.retain(|word| !word.is_empty() && !NO_PLURALS.contains(&word.as_str()));
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
            ("pub enum About {", Some("enum about")),
            ("about: StoredAbout,", Some("stored about")),
            ("a report is about a key", None),
            ("wishful, officer, topical, next trying", None),
            ("leave it out", None),
            ("a check beside a pull, and what it needs besides", Some("beside")),
            ("what it needs besides", None),
        ] {
            assert_eq!(replaced("services/README.md", line).map(|(word, _)| word).next(), found, "{line}");
        }
    }

    #[test]
    fn a_word_that_is_replaced_in_one_folder_is_right_elsewhere() {
        for (path, found) in [("services/throttler/src/lib.rs", Some("member")), ("services/registrar/src/lib.rs", None)] {
            assert_eq!(replaced(path, "struct MemberCount;").map(|(word, _)| word).next(), found, "{path}");
        }
    }

    #[test]
    fn pages_for_contributors_are_checked() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut checked = Vec::new();
        for folder in FOLDERS {
            check_texts(&root, &root.join(folder), &mut |path, _| checked.push(path.to_owned())).unwrap();
        }
        for page in ["README.md", ".github/CONTRIBUTING.md", "services/README.md"] {
            assert!(checked.iter().any(|path| path == page), "{page}");
        }
    }

    #[test]
    fn a_replaced_word_in_a_file_name_is_found() {
        let path = "shared/actors/src/gravestone.rs";
        assert_eq!(replaced(path, path).map(|(word, _)| word).next(), Some("gravestone"));
    }
}
