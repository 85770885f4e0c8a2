//! A process that runs during the test.

use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::until::until;

/// A signal to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM: end in good order.
    Terminate,
    /// SIGINT, as Ctrl-C sends it.
    Interrupt,
    /// SIGKILL: end at once.
    Kill,
    /// SIGSTOP: stop running.
    Stop,
    /// SIGCONT: go on after a stop.
    Continue,
    /// Make an actor panic, in a debug build.
    Panic,
}

impl Signal {
    fn number(self) -> libc::c_int {
        match self {
            Self::Terminate => libc::SIGTERM,
            Self::Interrupt => libc::SIGINT,
            Self::Kill => libc::SIGKILL,
            Self::Stop => libc::SIGSTOP,
            Self::Continue => libc::SIGCONT,
            Self::Panic => libc::SIGUSR2,
        }
    }
}

/// How many of the last log lines of each running process are shown when a test fails.
const LAST_LINES: usize = 40;

/// A running process whose output is read; killed when dropped. If the test is failing then, its log is shown.
pub struct Started {
    child: Child,
    stdout: Reader,
    stderr: Reader,
}

/// The output of a process so far.
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
    /// Starts `command` and reads its output. The process ends with the test, also if the test is killed.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_the_test(&mut command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{} does not start: {error}", command.get_program().display()));
        let (stdout, stderr) = (Reader::of(child.stdout.take()), Reader::of(child.stderr.take()));
        Self { child, stdout, stderr }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The whole lines that it has written to stdout so far.
    #[must_use]
    pub fn stdout(&self) -> String {
        self.stdout.so_far()
    }

    /// The whole lines that it has written to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.stderr.so_far()
    }

    /// The exit status; none while the process runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be asked for")
    }

    /// Sends a signal.
    #[allow(unsafe_code, reason = "the standard library sends SIGKILL alone")]
    pub fn signal(&self, signal: Signal) {
        let process = libc::pid_t::try_from(self.child.id()).expect("a process id fits");
        // SAFETY: kill has no memory effects; the child is waited for only through &mut self, so the id still belongs to it.
        let sent = unsafe { libc::kill(process, signal.number()) };
        assert_eq!(sent, 0, "{signal:?} reaches process {process}");
    }

    /// Waits for the end; returns the exit status (128 and the signal if one ended it), stdout and stderr.
    ///
    /// # Panics
    /// If it runs for more than 1 min.
    pub fn wait(mut self) -> (i32, String, String) {
        let what = format!("process {} ends (stderr so far: {})", self.id(), self.stderr());
        let status = until(&what, || self.ended());
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        (code, self.stdout.read_to_the_end(), self.stderr.read_to_the_end())
    }
}

impl Drop for Started {
    #[expect(clippy::print_stderr, reason = "a person reads it to learn why a test failed")]
    fn drop(&mut self) {
        // This fails only if the process has ended already.
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

/// Ends the process when the test run is killed, so that no orphan is left.
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
