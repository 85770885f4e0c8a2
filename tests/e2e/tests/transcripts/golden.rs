//! Golden files: what each command of an incident shows, under the line that asks for it.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// If this is set, golden files are written from what is shown, and compared with nothing.
const VARIABLE: &str = "BLESS";

/// One file, and what is to stand in it.
pub(crate) struct Golden {
    path: PathBuf,
    /// What each prompt shows as it is known.
    known: BTreeMap<String, String>,
    /// What was shown, in order.
    shown: String,
    is_written: bool,
}

impl Golden {
    /// The file of this name, which need not be there if it is written.
    pub(crate) fn of(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/golden").join(format!("{name}.txt"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let parts = text.split("$ ").skip(1).filter_map(|part| part.split_once('\n'));
        let known = parts.map(|(prompt, shown)| (prompt.to_owned(), shown.trim_end().to_owned())).collect();
        Self { path, known, shown: String::new(), is_written: std::env::var_os(VARIABLE).is_some() }
    }

    /// Whether this is what it is known to show.
    pub(crate) fn takes(&self, prompt: &str, shown: &str) -> bool {
        self.is_written || self.known.get(prompt).is_some_and(|known| known == shown)
    }

    /// It showed this.
    pub(crate) fn add(&mut self, prompt: &str, shown: &str) {
        self.shown.push_str(&format!("$ {prompt}\n{shown}\n\n"));
    }

    /// How it differs from what is known, and what to do if it is meant.
    pub(crate) fn difference(&self, prompt: &str, shown: &str) -> String {
        let Self { path, known, .. } = self;
        let known = known.get(prompt).map_or("(nothing)", String::as_str);
        let path = path.display();
        format!(
            "`{prompt}` does not show what stands in {path}\n--- known\n{known}\n--- shown last\n{shown}\n---\n\
             If that is meant: {VARIABLE}=1 cargo xtask e2e transcripts, and read what has changed"
        )
    }

    /// All was shown.
    pub(crate) fn end(&self) {
        if self.is_written {
            std::fs::write(&self.path, format!("{}\n", self.shown.trim_end())).expect("a golden file can be written");
        }
    }
}
