//! "Did you mean": finds the known key that is nearest to an unknown key.

use crate::table::keys;

/// With more edits than this, the name is taken for another word.
const MOST_EDITS: usize = 3;
/// Longer names are not compared: the comparison costs the product of both lengths.
const LONGEST_NAME_CHARS: usize = 64;

/// `did you mean x?`, or the command that shows all keys.
pub(crate) fn hint(unknown: &str) -> String {
    match nearest(unknown) {
        Some(key) => format!("did you mean {key}?"),
        None => "`fleetpull config print` shows every key".to_owned(),
    }
}

/// The nearest known key: by its whole name within [`MOST_EDITS`], else a key with the same last word in another section.
pub(crate) fn nearest(unknown: &str) -> Option<&'static str> {
    let unknown = unknown.to_lowercase().replace('-', "_");
    if unknown.chars().count() > LONGEST_NAME_CHARS {
        return None;
    }
    let whole = keys().iter().map(|key| (distance(&unknown, key.name), key.name)).min()?;
    if whole.0 <= MOST_EDITS.min(unknown.len() / 3) {
        return Some(whole.1);
    }
    let last = |name: &'static str| name.rsplit('.').next().unwrap_or(name);
    let word = unknown.rsplit('.').next().unwrap_or(&unknown);
    keys().iter().map(|key| key.name).find(|name| last(name) == word)
}

/// The number of insertions, removals, replacements and swaps of neighbours that turn one word into the other.
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut rows = vec![(0..=other.len()).collect::<Vec<usize>>()];
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut best = (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[one.len()][other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_key_is_recognised_and_another_word_is_not() {
        for (unknown, known) in [
            ("throttle.qsp", Some("throttle.qps")),
            ("throtle.burst", Some("throttle.burst")),
            ("store.Fsync", Some("store.fsync")),
            ("registry.connect-timeout", Some("registry.connect_timeout")),
            ("store.config_path", Some("registry.config_path")),
            ("fsync", Some("store.fsync")),
            ("x", None),
            ("colour.of.the.sky", None),
            ("", None),
        ] {
            assert_eq!(nearest(unknown), known, "{unknown}");
        }
        assert_eq!(nearest(&"a".repeat(100_000)), None);
    }
}
