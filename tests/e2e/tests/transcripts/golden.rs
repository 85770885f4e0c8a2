//! Golden files: the output of each command of an incident, below the command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// If this is set, the golden files are written from the output, and nothing is compared.
const VARIABLE: &str = "BLESS";

/// One golden file, and the output so far.
pub(crate) struct Golden {
    path: PathBuf,
    /// The expected output of each command line.
    known: BTreeMap<String, String>,
    /// The output so far, in order.
    shown: String,
    is_written: bool,
}

impl Golden {
    /// The file of this name. It need not exist if it is to be written.
    pub(crate) fn of(name: &str) -> Self {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts/golden").join(format!("{name}.txt"));
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let parts = text.split("$ ").skip(1).filter_map(|part| part.split_once('\n'));
        let known = parts.map(|(prompt, shown)| (prompt.to_owned(), shown.trim_end().to_owned())).collect();
        Self { path, known, shown: String::new(), is_written: std::env::var_os(VARIABLE).is_some() }
    }

    /// Whether this is the expected output.
    pub(crate) fn takes(&self, prompt: &str, shown: &str) -> bool {
        self.is_written || self.known.get(prompt).is_some_and(|known| known == shown)
    }

    /// Adds an output.
    pub(crate) fn add(&mut self, prompt: &str, shown: &str) {
        self.shown.push_str(&format!("$ {prompt}\n{shown}\n\n"));
    }

    /// The difference from the expected output, and the way to accept it.
    pub(crate) fn difference(&self, prompt: &str, shown: &str) -> String {
        let Self { path, known, .. } = self;
        let known = known.get(prompt).map_or("(nothing)", String::as_str);
        let path = path.display();
        format!(
            "the output of `{prompt}` differs from {path}\n--- known\n{known}\n--- shown last\n{shown}\n---\n\
             If that is meant: {VARIABLE}=1 cargo xtask test -p e2e transcripts::, and read what has changed"
        )
    }

    /// Writes the file if `BLESS` is set.
    pub(crate) fn end(&self) {
        if self.is_written {
            std::fs::write(&self.path, format!("{}\n", self.shown.trim_end())).expect("a golden file can be written");
        }
    }
}
