//! A server as it is seen from far away: a proxy that lets every byte travel for a while, in each direction, and that can be cut
//! or fall silent as a network does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A proxy on a free port. Its threads end with the process; each connection ends with either side.
#[derive(Debug)]
pub struct FarAway {
    address: SocketAddr,
    way: Arc<Way>,
}

/// Between the callers and the server.
#[derive(Debug)]
struct Way {
    now: Mutex<Condition>,
    changed: Condvar,
}

/// How it is now.
#[derive(Debug)]
struct Condition {
    /// How long a byte travels.
    takes: Duration,
    silent: bool,
    cut: bool,
    /// Both ends of all connections since the last cut, to end them by.
    ends: Vec<TcpStream>,
}

/// Bytes on their way, and when they arrive.
type Travelling = (Instant, Vec<u8>);

impl FarAway {
    /// Stands between its callers and the server at `address`: an answer comes after `round_trip` at the earliest, and a connection
    /// carries as much as before.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn from(address: &str, round_trip: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let own = listener.local_addr().expect("it is bound");
        let condition = Condition { takes: round_trip / 2, silent: false, cut: false, ends: Vec::new() };
        let way = Arc::new(Way { now: Mutex::new(condition), changed: Condvar::new() });
        let (server, shared) = (address.to_owned(), Arc::clone(&way));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // One that cannot be had is closed: the caller sees its own end at once.
                let _ = connect(&shared, near, &server);
            }
        });
        Self { address: own, way }
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// From now on an answer comes after `round_trip` at the earliest.
    pub fn take(&self, round_trip: Duration) {
        self.way.now().takes = round_trip / 2;
    }

    /// Ends all connections; each new one ends as soon as it is made, until [`FarAway::heal`].
    pub fn cut(&self) {
        let mut now = self.way.now();
        now.cut = true;
        for end in now.ends.drain(..) {
            // Fails only if it has ended already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Nothing comes through, in neither direction, until [`FarAway::heal`]: no byte, no end of a connection, no answer to a new
    /// one. What is under way then arrives, as TCP sees to.
    pub fn fall_silent(&self) {
        self.way.now().silent = true;
    }

    /// All comes through again.
    pub fn heal(&self) {
        let mut now = self.way.now();
        (now.cut, now.silent) = (false, false);
        drop(now);
        self.way.changed.notify_all();
    }
}

impl Way {
    fn now(&self) -> MutexGuard<'_, Condition> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes(&self) -> Duration {
        self.now().takes
    }

    /// Waits until something comes through.
    fn passable(&self) {
        drop(self.changed.wait_while(self.now(), |now| now.silent).unwrap_or_else(PoisonError::into_inner));
    }
}

fn connect(way: &Arc<Way>, near: TcpStream, server: &str) -> std::io::Result<()> {
    if way.now().cut {
        return Ok(());
    }
    let far = TcpStream::connect(server)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
    let mut now = way.now();
    if !now.cut {
        now.ends.extend([near.try_clone()?, far.try_clone()?]);
        drop(now);
        carry(near, far, way);
        carry(far_too, near_too, way);
    }
    Ok(())
}

/// Carries what comes from one to the other, each piece for as long as it takes.
fn carry(mut from: TcpStream, to: TcpStream, way: &Arc<Way>) {
    let (depart, arrive) = channel();
    let (there, back) = (Arc::clone(way), Arc::clone(way));
    thread::spawn(move || {
        read_all(&mut from, &depart, &there);
        let _ = from.shutdown(Shutdown::Read);
    });
    thread::spawn(move || write_all(to, &arrive, &back));
}

#[expect(clippy::disallowed_methods, reason = "real bytes travel in real time")]
fn read_all(from: &mut TcpStream, depart: &Sender<Travelling>, way: &Way) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if depart.send((Instant::now() + way.takes(), piece[..length].to_vec())).is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real bytes travel in real time, on a thread of their own")]
fn write_all(mut to: TcpStream, arrive: &Receiver<Travelling>, way: &Way) {
    while let Ok((due, piece)) = arrive.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        way.passable();
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    way.passable();
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    /// Long enough for a byte to come through a machine under load, short enough to wait for nothing.
    const NOTHING_WITHIN: Duration = Duration::from_millis(200);

    /// A server that says back what it hears, and a way to it.
    fn echo() -> FarAway {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            for mut caller in listener.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut caller.try_clone().expect("a handle"), &mut caller));
            }
        });
        FarAway::from(&address.to_string(), Duration::ZERO)
    }

    fn call(way: &FarAway) -> TcpStream {
        TcpStream::connect(way.address()).expect("the proxy listens")
    }

    /// What is heard of a byte that is sent: it itself, nothing within a while, or the end.
    fn hears(stream: &mut TcpStream, limit: Option<Duration>) -> std::io::Result<usize> {
        stream.set_read_timeout(limit).expect("a limit can be set");
        stream.read(&mut [0; 1])
    }

    #[test]
    fn a_cut_ends_connections_and_a_healed_way_takes_new_ones() {
        let way = echo();
        let mut old = call(&way);
        old.write_all(b"a").expect("it is open");
        assert_eq!(hears(&mut old, None).ok(), Some(1));
        way.cut();
        assert!(matches!(hears(&mut old, None), Ok(0) | Err(_)), "it has ended");
        assert!(matches!(hears(&mut call(&way), None), Ok(0) | Err(_)), "a new one ends too");
        way.heal();
        let mut new = call(&way);
        new.write_all(b"b").expect("it is open");
        assert_eq!(hears(&mut new, None).ok(), Some(1));
    }

    #[test]
    fn what_was_said_into_silence_arrives_when_it_ends() {
        let way = echo();
        let mut old = call(&way);
        way.fall_silent();
        let mut new = call(&way);
        for stream in [&mut old, &mut new] {
            stream.write_all(b"a").expect("it is open");
            assert!(hears(stream, Some(NOTHING_WITHIN)).is_err(), "nothing comes through");
        }
        way.heal();
        assert_eq!(hears(&mut old, None).ok(), Some(1));
        assert_eq!(hears(&mut new, None).ok(), Some(1));
    }
}
