//! One process of nats-server: started, watched through its log, ended.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The longest a start may take: it usually takes milliseconds, and longer on a machine under load.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The text before the monitoring address in the log.
const MONITORING: &str = "Starting http monitor on ";

/// The log line of a server that accepts clients.
const READY: &str = "Server is ready";

/// The text that a member of a cluster logs after [`READY`]. If it cannot listen for the others, it ends instead.
const ROUTING: &str = "Listening for route connections on ";

/// A running nats-server; killed when dropped.
pub(super) struct ServerProcess {
    child: Child,
    /// The monitoring port, if monitoring is on.
    monitor: Option<u16>,
    log: Arc<Mutex<String>>,
}

impl ServerProcess {
    /// Starts the program and waits until it accepts connections, including those of other servers if it is a member of a cluster.
    pub(super) fn start(program: &Path, configuration: &Path, is_member: bool) -> Self {
        let mut command = Command::new(program);
        command.arg("-c").arg(configuration).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        die_with_the_test(&mut command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()));
        let log = Arc::default();
        let lines = lines_of(child.stderr.take().expect("stderr is piped"), Arc::clone(&log));
        let mut process = Self { child, monitor: None, log };
        process.monitor = wait_until_ready(&lines, if is_member { ROUTING } else { READY });
        process
    }

    pub(super) fn monitor(&self) -> Option<u16> {
        self.monitor
    }

    pub(super) fn number(&self) -> u32 {
        self.child.id()
    }

    /// The log so far.
    pub(super) fn log(&self) -> String {
        self.log.lock().expect("nothing panics while it writes").clone()
    }

    /// Terminates the process (SIGTERM) and waits for its end.
    pub(super) fn terminate(mut self) {
        self.signal(libc::SIGTERM);
        self.child.wait().expect("the process can be waited for");
    }

    /// Stops the process (SIGSTOP) and waits until it has stopped.
    #[allow(unsafe_code, reason = "the standard library does not wait for a process to stop")]
    pub(super) fn pause(&self) {
        self.signal(libc::SIGSTOP);
        // SAFETY: a null status is allowed, and waiting for a stopped child does not reap it.
        let stopped = unsafe { libc::waitpid(self.id(), std::ptr::null_mut(), libc::WUNTRACED) };
        assert_eq!(stopped, self.id(), "the process stops");
    }

    /// Continues a stopped process (SIGCONT).
    pub(super) fn resume(&self) {
        self.signal(libc::SIGCONT);
    }

    #[allow(unsafe_code, reason = "the standard library sends SIGKILL alone")]
    fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill has no memory effects, and the child has not been reaped, so the id still belongs to it.
        let sent = unsafe { libc::kill(self.id(), signal) };
        assert_eq!(sent, 0, "signal {signal} reaches process {}", self.id());
    }

    fn id(&self) -> libc::pid_t {
        libc::pid_t::try_from(self.child.id()).expect("a process id fits")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // This fails only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the log until the server ends, so that a full pipe never blocks the server.
fn lines_of(log: ChildStderr, kept: Arc<Mutex<String>>) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(log).lines().map_while(Result::ok) {
            kept.lock().expect("nothing panics while it reads").push_str(&format!("{line}\n"));
            // After the start the receiver has been dropped.
            let _ = sender.send(line);
        }
    });
    receiver
}

/// Waits for the line `last` in the log; returns the monitoring port, if it was logged.
fn wait_until_ready(lines: &Receiver<String>, last: &str) -> Option<u16> {
    let mut log = String::new();
    let mut monitor = None;
    loop {
        let line = match lines.recv_timeout(START_LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("nats-server is not ready after {START_LIMIT:?}:\n{log}"),
            Err(RecvTimeoutError::Disconnected) => panic!("nats-server has ended:\n{log}"),
        };
        if let Some((_, address)) = line.split_once(MONITORING) {
            monitor = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
        }
        if line.contains(last) {
            return monitor;
        }
        log = log + &line + "\n";
    }
}

/// Makes the kernel kill the process when the test process is killed.
#[allow(unsafe_code, reason = "the standard library cannot ask the kernel for this")]
fn die_with_the_test(command: &mut Command) {
    // SAFETY: between fork and exec only prctl is called, which is async-signal-safe and allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}
