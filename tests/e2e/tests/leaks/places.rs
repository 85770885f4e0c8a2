//! The places that are searched for secrets.

use std::path::Path;

use super::secrets::Secrets;

/// How many bytes are shown around a leak.
const AROUND: usize = 60;

/// Contents to search, each with a name.
#[derive(Default)]
pub(crate) struct Places(Vec<(String, Vec<u8>)>);

impl Places {
    pub(crate) fn add(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.0.push((name.to_owned(), bytes.into()));
    }

    /// Adds every file below a folder.
    pub(crate) fn add_files(&mut self, name: &str, folder: &Path) {
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    let content = match std::fs::read(entry.path()) {
                        Ok(content) => content,
                        // A file that was deleted meanwhile contains nothing; one that cannot be read may contain a secret.
                        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
                        Err(error) => panic!("{}: {error}", entry.path().display()),
                    };
                    self.add(&format!("{name}: {}", entry.file_name().display()), content);
                }
            }
        }
    }

    /// Whether a place of this name contains a secret.
    pub(crate) fn holds(&self, name: &str, secrets: &Secrets) -> bool {
        self.named(name).any(|bytes| !secrets.found_in(bytes).is_empty())
    }

    /// Whether a place of this name contains a text.
    pub(crate) fn holds_text(&self, name: &str, text: &str) -> bool {
        self.named(name).any(|bytes| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
    }

    fn named(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(move |(other, _)| other.starts_with(name)).map(|(_, bytes)| bytes.as_slice())
    }

    /// Each secret that is found, with the place and the text around it.
    pub(crate) fn leaks(&self, secrets: &Secrets) -> Vec<String> {
        let mut leaks = Vec::new();
        for (name, bytes) in &self.0 {
            for (secret, at) in secrets.places_in(bytes) {
                let around = &bytes[at.start.saturating_sub(AROUND)..bytes.len().min(at.end + AROUND)];
                leaks.push(format!("{secret} in {name}: ...{}...", String::from_utf8_lossy(around).escape_debug()));
            }
        }
        leaks
    }
}
