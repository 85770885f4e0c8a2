//! Reads a configuration file into assignments, each with its line.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::key::Key;
use crate::load::Assignment;
use crate::problem::{Origin, Problem};
use crate::server_url::hide_passwords;
use crate::suggest;
use crate::table::{find, keys};

/// A configuration is a few KiB; a larger file was given by mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The assignments of a file, and its problems.
pub(crate) fn read(path: &Path) -> (Vec<Assignment>, Vec<Problem>) {
    match text_of(path) {
        Ok(text) => Reader { path, text: &text, assignments: Vec::new(), problems: Vec::new() }.read(),
        Err(what) => (Vec::new(), vec![Problem::at(Origin::File { path: path.to_owned(), line: 0 }, what)]),
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| format!("cannot be opened: {error}; name a file that can be read"))?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(|error| format!("cannot be read: {error}; it must be TOML in UTF-8"))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than {MAX_FILE_BYTES} bytes, so it is no configuration of fleetpull"));
    }
    Ok(text)
}

struct Reader<'f> {
    path: &'f Path,
    text: &'f str,
    assignments: Vec<Assignment>,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn read(mut self) -> (Vec<Assignment>, Vec<Problem>) {
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let origin = self.line(error.span().map_or(0, |span| span.start));
            self.problems.push(Problem::at(origin, format!("is not TOML: {}", error.message())));
        }
        // After a syntax error the rest may appear in a wrong section, and would be reported as wrong by mistake.
        if errors.is_empty() {
            for (section, value) in table.get_ref() {
                self.section(section.get_ref(), section.span().start, value.get_ref());
            }
        }
        // The parser sorts tables by name and errors by kind; people read a file from its top.
        self.problems.sort_by_key(|problem| line_of(&problem.origin));
        (self.assignments, self.problems)
    }

    fn section(&mut self, section: &str, at: usize, value: &DeValue<'_>) {
        let known = keys().iter().any(|key| key.name.split('.').next() == Some(section));
        match value {
            DeValue::Table(table) => {
                for (key, value) in table {
                    self.entry(&format!("{section}.{}", key.get_ref()), key.span().start, value.get_ref());
                }
                if table.is_empty() && !known {
                    self.unknown(section, at);
                }
            }
            _ if known => {
                let origin = self.line(at);
                self.problems.push(Problem::of(
                    origin,
                    section,
                    format!("is a section, not a key: write [{section}] and its keys below it"),
                ));
            }
            _ => self.unknown(section, at),
        }
    }

    fn entry(&mut self, name: &str, at: usize, value: &DeValue<'_>) {
        let Some(key) = find(name) else { return self.unknown(name, at) };
        let origin = self.line(at);
        match key.kind.parse_toml(value) {
            Ok(value) => self.assignments.push(Assignment { key, value, origin }),
            Err(what) => self.problems.push(Problem::of(origin, name, what).with_value(&shown(key, value))),
        }
    }

    fn unknown(&mut self, name: &str, at: usize) {
        let origin = self.line(at);
        self.problems.push(Problem::of(origin, name, format!("is not a known key; {}", suggest::hint(name))));
    }

    fn line(&self, at: usize) -> Origin {
        let before = self.text.as_bytes().get(..at).unwrap_or_default();
        Origin::File { path: self.path.to_owned(), line: 1 + before.iter().filter(|byte| **byte == b'\n').count() }
    }
}

fn line_of(origin: &Origin) -> usize {
    match origin {
        Origin::File { line, .. } => *line,
        _ => 0,
    }
}

/// A wrong value as text, without passwords.
fn shown(key: &Key, value: &DeValue<'_>) -> String {
    let text = match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(on) => on.to_string(),
        DeValue::Datetime(time) => time.to_string(),
        DeValue::Array(list) => {
            let items: Vec<String> = list.iter().map(|item| shown(key, item.get_ref())).collect();
            format!("[{}]", items.join(", "))
        }
        DeValue::Table(_) => "{ … }".to_owned(),
    };
    if key.kind == crate::kind::Kind::Servers { hide_passwords(&text) } else { text }
}
