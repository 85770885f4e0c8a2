//! Parses the samples of a text, for `fleetpull nodes NAME --counters` and tests.

/// One sample line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample<'a> {
    /// The name with `_total`, `_bucket`, `_sum` or `_count`.
    pub name: &'a str,
    /// The text between the braces; empty without labels.
    pub labels: &'a str,
    /// Its number.
    pub value: f64,
    /// The exemplar after the value.
    pub exemplar: Option<&'a str>,
}

impl<'a> Sample<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => inside.split_at_checked(closing(inside)?).map(|(labels, rest)| (labels, &rest[1..]))?,
            None => ("", rest),
        };
        let (value, exemplar) = match rest.split_once(" # ") {
            Some((value, exemplar)) => (value, Some(exemplar)),
            None => (rest, None),
        };
        Some(Self { name, labels, value: value.trim().parse().ok()?, exemplar })
    }

    /// The value of one label.
    #[must_use]
    pub fn label(&self, name: &str) -> Option<&'a str> {
        let start = format!("{name}=\"");
        let mut rest = self.labels;
        loop {
            let is_label = rest.starts_with(&start);
            let value = &rest[rest.find('"')? + 1..];
            let length = ending(value)?;
            if is_label {
                return Some(&value[..length]);
            }
            rest = value[length + 1..].strip_prefix(',')?;
        }
    }
}

/// The position of the closing brace, outside quotes.
fn closing(text: &str) -> Option<usize> {
    let mut at = 0;
    loop {
        let next = at + text[at..].find(['"', '}'])?;
        if text.as_bytes()[next] == b'}' {
            return Some(next);
        }
        at = next + 1 + ending(&text[next + 1..])? + 1;
    }
}

/// The end of a quoted value: the first quote without a backslash before it.
fn ending(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

/// The samples of a text, in order. Other lines are left out.
pub fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(Sample::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_labels_and_exemplars() {
        let text =
            "# TYPE a counter\na_total 3\nb{x=\"1\",y=\"z}\\\" q\"} 0.5 # {trace_id=\"ab\"} 0.4\nc +Inf\nnonsense\n{} 1 2 3\n# EOF\n";
        let found: Vec<Sample<'_>> = samples(text).collect();
        assert_eq!(found[0], Sample { name: "a_total", labels: "", value: 3.0, exemplar: None });
        let labelled = &found[1];
        assert_eq!((labelled.name, labelled.value, labelled.exemplar), ("b", 0.5, Some("{trace_id=\"ab\"} 0.4")));
        assert_eq!((labelled.label("x"), labelled.label("y"), labelled.label("z")), (Some("1"), Some("z}\\\" q"), None));
        assert!(found[2].value.is_infinite() && found.len() == 3, "{found:?}");
    }
}
