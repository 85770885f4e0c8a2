//! A process that runs beside the test.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::until::until;

/// What can be sent to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// End in good order.
    Terminate,
    /// As Ctrl-C.
    Interrupt,
    /// End at once.
    Kill,
    /// Do nothing more, answer nobody.
    Stop,
    /// Go on after a stop.
    Continue,
    /// Make an actor panic, in a debug build.
    Break,
}

impl Signal {
    fn number(self) -> libc::c_int {
        match self {
            Self::Terminate => libc::SIGTERM,
            Self::Interrupt => libc::SIGINT,
            Self::Kill => libc::SIGKILL,
            Self::Stop => libc::SIGSTOP,
            Self::Continue => libc::SIGCONT,
            Self::Break => libc::SIGUSR2,
        }
    }
}

/// So many of the last lines of its log are shown for each process that runs when a test fails.
const LAST_LINES: usize = 40;

/// A running process whose output is read along; killed when dropped, and its log shown if that is by a failing test.
pub struct Started {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

/// What a process has written so far.
struct Reader {
    text: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader {
    fn of(stream: Option<impl Read + Send + 'static>) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let thread = stream.map(|stream| {
            let text = Arc::clone(&text);
            std::thread::spawn(move || read_along(stream, &text))
        });
        Self { text, thread }
    }

    fn so_far(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn read_to_the_end(&mut self) -> String {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a reader does not panic");
        }
        self.so_far()
    }
}

fn read_along(stream: impl Read, text: &Mutex<String>) {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    while stream.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        text.lock().unwrap_or_else(PoisonError::into_inner).push_str(&String::from_utf8_lossy(&line));
        line.clear();
    }
}

impl Started {
    /// Starts `command` with its output read along. It ends with the test, however that ends.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_the_test(&mut command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{} does not start: {error}", command.get_program().display()));
        let (stdout, stderr) = (Reader::of(child.stdout.take()), Reader::of(child.stderr.take()));
        Self { child, stdout, stderr }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written to stdout so far, in whole lines.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.so_far()
    }

    /// What it has written to stderr so far, in whole lines.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.so_far()
    }

    /// Whether it has ended, and how.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked for")
    }

    /// Sends a signal.
    #[allow(unsafe_code, reason = "the standard library sends SIGKILL alone")]
    pub fn signal(&self, signal: Signal) {
        let process = libc::pid_t::try_from(self.child.id()).expect("a process id fits");
        // SAFETY: kill has no memory effects; the child is waited for only through &mut self, so the id is its own until then.
        let sent = unsafe { libc::kill(process, signal.number()) };
        assert_eq!(sent, 0, "{signal:?} reaches process {process}");
    }

    /// Waits until it has ended; gives its status (128 and the signal if one ended it), stdout and stderr.
    ///
    /// # Panics
    /// When it goes on for more than a minute.
    pub fn wait(mut self) -> (i32, String, String) {
        let what = format!("process {} ends (stderr so far: {})", self.id(), self.stderr());
        let status = until(&what, || self.ended());
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        (code, self.stdout.read_to_the_end(), self.stderr.read_to_the_end())
    }
}

impl Drop for Started {
    #[expect(clippy::print_stderr, reason = "for a person who reads why a test failed")]
    fn drop(&mut self) {
        // Fails only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.stderr();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
            eprintln!("--- process {}, the end of its log:\n{last}", self.id());
        }
    }
}

/// No orphan is left when a test run is killed.
#[allow(unsafe_code, reason = "the standard library cannot ask the kernel for this")]
pub(crate) fn die_with_the_test(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}
