//! A folder from which the program is run as a user runs it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::binary::binary;
use crate::json_rule;
use crate::process::Started;
use crate::terminal::{Size, Terminal};

/// A temporary folder, removed with the test. The program run from it sees nothing of this host's user: its home is the folder.
pub struct Workplace {
    folder: TempDir,
    environment: Vec<(String, String)>,
}

/// The result of a run of the program.
pub struct Finished {
    /// The command line.
    pub command: String,
    /// Exit status; 128 and the signal if one ended it.
    pub status: i32,
    /// The text on stdout.
    pub stdout: String,
    /// The text on stderr.
    pub stderr: String,
}

impl Default for Workplace {
    fn default() -> Self {
        Self::new()
    }
}

impl Workplace {
    /// Makes the folder.
    ///
    /// # Panics
    /// If no folder can be made.
    #[must_use]
    pub fn new() -> Self {
        let folder = TempDir::with_prefix("fleetpull-e2e-").expect("a folder can be made");
        Self { folder, environment: Vec::new() }
    }

    /// Adds an environment variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A path in the folder, as text.
    #[must_use]
    pub fn text_path(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Writes a file in the folder, makes its parent folders, and returns its path.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a folder can be made");
        std::fs::write(&path, content).expect("a file can be written");
        path.display().to_string()
    }

    /// The program with these arguments, not started yet.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", self.folder.path());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts the program and lets it run during the test.
    #[must_use]
    pub fn start(&self, arguments: &[&str]) -> Started {
        Started::of(self.command(arguments))
    }

    /// Starts the program on a terminal of this size.
    #[must_use]
    pub fn on_a_terminal(&self, arguments: &[&str], size: Size) -> Terminal {
        let mut command = self.command(arguments);
        if !self.environment.iter().any(|(name, _)| name == "TERM") {
            command.env("TERM", "xterm-256color");
        }
        Terminal::start(command, size)
    }

    /// Runs the program to its end.
    ///
    /// # Panics
    /// If the program panics, or does not end within 1 min.
    #[must_use]
    pub fn run(&self, arguments: &[&str]) -> Finished {
        Finished::of(arguments, self.start(arguments))
    }
}

impl Finished {
    /// Waits for the end of a program that was started with these arguments.
    ///
    /// # Panics
    /// If the program panics, or does not end within 1 min.
    #[must_use]
    pub fn of(arguments: &[&str], started: Started) -> Self {
        let (status, stdout, stderr) = started.wait();
        let finished = Self { command: format!("fleetpull {}", arguments.join(" ")), status, stdout, stderr };
        assert!(finished.status != 101 && !finished.stderr.contains("panicked at"), "a panic: {finished}");
        finished
    }

    /// Asserts the exit status.
    ///
    /// # Panics
    /// If it differs; the message shows the whole run.
    pub fn expect(self, status: i32) -> Self {
        assert_eq!(self.status, status, "exit status of {self}");
        self
    }

    /// The objects on stdout, one a line.
    ///
    /// # Panics
    /// If a line is not an object, or breaks the rule for the program's JSON.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let object = |line: &str| match serde_json::from_str(line) {
            Ok(object @ Value::Object(_)) => {
                let broken = json_rule::broken(line);
                assert!(broken.is_empty(), "{}: {line}", broken.join("; "));
                object
            }
            _ => panic!("a line of stdout is no object: {line:?}; {self}"),
        };
        self.stdout.lines().map(object).collect()
    }

    /// The only object on stdout.
    ///
    /// # Panics
    /// If there is not exactly one line, or if it is not an object.
    #[must_use]
    pub fn object(&self) -> Value {
        let mut objects = self.objects();
        assert_eq!(objects.len(), 1, "one object: {self}");
        objects.remove(0)
    }

    /// The text on stdout and stderr.
    #[must_use]
    pub fn output(&self) -> String {
        format!("{}\n{}", self.stdout, self.stderr)
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, status, stdout, stderr } = self;
        write!(formatter, "{command}\nexit status {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}
