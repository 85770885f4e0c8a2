//! A program on a terminal of its own, and the screen that a person sees.

use std::fs::File;
use std::io::Read as _;
use std::num::NonZeroU16;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::process::die_with_the_test;
use crate::until::until;

/// Rows and columns of a terminal.
pub type Size = (u16, u16);

/// A running program whose stdin, stdout and stderr are a pseudo-terminal; killed when dropped.
pub struct Terminal {
    child: Child,
    /// The test's side of the pseudo-terminal.
    master: File,
    shown: Arc<Mutex<Shown>>,
    reader: Option<JoinHandle<()>>,
}

/// The output of the program so far.
struct Shown {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

impl Terminal {
    /// Starts `command` on a terminal of this size. It ends with the test, also if the test is killed.
    ///
    /// # Panics
    /// If there is no pseudo-terminal, or the command cannot be started.
    #[must_use]
    pub fn start(mut command: Command, size: Size) -> Self {
        let (master, slave) = open(size);
        let of_slave = || Stdio::from(slave.try_clone().expect("a terminal can be opened thrice"));
        command.stdin(of_slave()).stdout(of_slave()).stderr(of_slave());
        die_with_the_test(&mut command);
        belong_to_the_terminal(&mut command);
        let child = command.spawn().unwrap_or_else(|error| panic!("{} does not start: {error}", command.get_program().display()));
        // The command also owns the program's side: while that is open here, the end of the output is not noticed.
        drop((command, slave));
        let (rows, columns) = non_zero(size);
        let shown = Arc::new(Mutex::new(Shown { parser: vt100::Parser::new(rows, columns, 0), bytes: Vec::new() }));
        let (mut stream, seen) = (master.try_clone().expect("a terminal can be opened twice"), Arc::clone(&shown));
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4_096];
            // Reading is an error once no process has the program's side open.
            while let Ok(read @ 1..) = stream.read(&mut piece) {
                let mut shown = seen.lock().unwrap_or_else(PoisonError::into_inner);
                shown.parser.process(&piece[..read]);
                shown.bytes.extend_from_slice(&piece[..read]);
            }
        });
        Self { child, master, shown, reader: Some(reader) }
    }

    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rows of the screen as they are now, without the empty ones at its end.
    #[must_use]
    pub fn rows(&self) -> Vec<String> {
        rows_of(self.shown().parser.screen())
    }

    /// The lines as they were written: a line that is wider than the terminal takes several rows.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let shown = self.shown();
        let screen = shown.parser.screen();
        let mut lines: Vec<String> = Vec::new();
        let mut goes_on = false;
        for (row, number) in rows_of(screen).into_iter().zip(0..) {
            match lines.last_mut() {
                Some(line) if goes_on => line.push_str(&row),
                _ => lines.push(row),
            }
            goes_on = screen.row_wrapped(number);
        }
        lines
    }

    /// The rows that continue in the next row, because the line is wider than the terminal.
    #[must_use]
    pub fn broken_rows(&self) -> Vec<String> {
        let shown = self.shown();
        let screen = shown.parser.screen();
        let rows = rows_of(screen);
        rows.into_iter().zip(0..).filter(|(_, row)| screen.row_wrapped(*row)).map(|(text, _)| text).collect()
    }

    /// The whole output, unchanged.
    #[must_use]
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.shown().bytes).into_owned()
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Resizes the terminal.
    pub fn resize(&self, size: Size) {
        let (rows, columns) = non_zero(size);
        let mut shown = self.shown();
        shown.parser.set_size(rows, columns);
        set_size(&self.master, size);
    }

    /// Waits for the end; returns the exit status (128 and the signal if one ended it). The output stays readable.
    ///
    /// # Panics
    /// If it runs for more than 1 min, or panics.
    pub fn wait(&mut self) -> i32 {
        let status = until(&format!("process {} ends", self.id()), || self.child.try_wait().expect("a child can be asked for"));
        if let Some(reader) = self.reader.take() {
            reader.join().expect("a reader does not panic");
        }
        let status = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
        assert!(status != 101 && !self.written().contains("panicked at"), "a panic: {}", self.written());
        status
    }
}

impl Drop for Terminal {
    #[expect(clippy::print_stderr, reason = "shows why a test failed")]
    fn drop(&mut self) {
        // This fails only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the terminal of process {}:\n{}", self.id(), self.rows().join("\n"));
        }
    }
}

fn rows_of(screen: &vt100::Screen) -> Vec<String> {
    let (_, columns) = screen.size();
    let mut rows: Vec<String> = screen.rows(0, columns.get()).map(|row| row.trim_end().to_owned()).collect();
    rows.truncate(rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1));
    rows
}

fn non_zero((rows, columns): Size) -> (NonZeroU16, NonZeroU16) {
    let least = |number| NonZeroU16::new(number).expect("a terminal has rows and columns");
    (least(rows), least(columns))
}

fn winsize((rows, columns): Size) -> libc::winsize {
    libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Opens a pseudo-terminal: the test's side and the program's side.
#[allow(unsafe_code, reason = "the standard library has no pseudo-terminals")]
fn open(size: Size) -> (File, OwnedFd) {
    let (mut master, mut slave, size) = (-1, -1, winsize(size));
    // SAFETY: the two numbers and the size live until the call is over; null requests neither a name nor settings.
    let opened = unsafe { libc::openpty(&raw mut master, &raw mut slave, std::ptr::null_mut(), std::ptr::null(), &raw const size) };
    assert_eq!(opened, 0, "a pseudo-terminal: {}", std::io::Error::last_os_error());
    for side in [master, slave] {
        // SAFETY: fcntl changes only the descriptor, which was just opened. Another program that a test starts must not hold it open.
        unsafe { libc::fcntl(side, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: both were just opened and have no other owner.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

#[allow(unsafe_code, reason = "the standard library has no pseudo-terminals")]
fn set_size(master: &File, size: Size) {
    let size = winsize(size);
    // SAFETY: the request reads the size, which lives until the call is over.
    let set = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(set, 0, "a terminal takes another size: {}", std::io::Error::last_os_error());
}

/// Makes the program the leader of a session on the terminal that is its stdin.
#[allow(unsafe_code, reason = "the standard library cannot ask the kernel for this")]
fn belong_to_the_terminal(command: &mut Command) {
    // SAFETY: between fork and exec only setsid and ioctl are called, which are async-signal-safe and allocate nothing.
    unsafe {
        command.pre_exec(|| match (libc::setsid(), libc::ioctl(0, libc::TIOCSCTTY, 0)) {
            (0.., 0) => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
}
