//! A proxy that makes a server appear far away: it delays every byte in both directions, and a test can cut it or make it
//! silent, as happens in a network.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of one read.
const PIECE_BYTES: usize = 64 * 1024;

/// A proxy on a free port. Its threads end with the process; each connection ends with either side.
#[derive(Debug)]
pub struct FaultyLink {
    address: SocketAddr,
    link: Arc<Link>,
}

/// The link between the callers and the server, shared by all connections.
#[derive(Debug)]
struct Link {
    now: Mutex<Condition>,
    changed: Condvar,
}

/// The present condition of the link.
#[derive(Debug)]
struct Condition {
    /// The delay of a byte in one direction.
    delay: Duration,
    silent: bool,
    cut: bool,
    /// Both ends of all connections since the last cut, so that the next cut can close them.
    ends: Vec<TcpStream>,
}

/// Delayed bytes, and when they are due.
type Travelling = (Instant, Vec<u8>);

impl FaultyLink {
    /// Starts a proxy for the server at `address`: an answer takes at least `round_trip`. The bandwidth of a connection is not
    /// limited.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn from(address: &str, round_trip: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let own = listener.local_addr().expect("it is bound");
        let condition = Condition { delay: round_trip / 2, silent: false, cut: false, ends: Vec::new() };
        let link = Arc::new(Link { now: Mutex::new(condition), changed: Condvar::new() });
        let (server, shared) = (address.to_owned(), Arc::clone(&link));
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // If the server cannot be reached, `near` is dropped, and the caller sees its connection closed.
                let _ = connect(&shared, near, &server);
            }
        });
        Self { address: own, link }
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Sets the round trip: from now on an answer takes at least this long.
    pub fn set_round_trip(&self, round_trip: Duration) {
        self.link.now().delay = round_trip / 2;
    }

    /// Closes all connections, and each new connection as soon as it is made, until [`FaultyLink::heal`].
    pub fn cut(&self) {
        let mut now = self.link.now();
        now.cut = true;
        for end in now.ends.drain(..) {
            // This fails only if the connection has ended already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    /// Holds back everything in both directions until [`FaultyLink::heal`]: every byte, every end of a connection, every answer to a
    /// new connection. The data then arrives, as TCP would resend it.
    pub fn fall_silent(&self) {
        self.link.now().silent = true;
    }

    /// Ends the cut or the silence.
    pub fn heal(&self) {
        let mut now = self.link.now();
        (now.cut, now.silent) = (false, false);
        drop(now);
        self.link.changed.notify_all();
    }
}

impl Link {
    fn now(&self) -> MutexGuard<'_, Condition> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn delay(&self) -> Duration {
        self.now().delay
    }

    /// Waits while the link is silent.
    fn wait_while_silent(&self) {
        drop(self.changed.wait_while(self.now(), |now| now.silent).unwrap_or_else(PoisonError::into_inner));
    }
}

fn connect(link: &Arc<Link>, near: TcpStream, server: &str) -> std::io::Result<()> {
    if link.now().cut {
        return Ok(());
    }
    let far = TcpStream::connect(server)?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (near_too, far_too) = (near.try_clone()?, far.try_clone()?);
    let mut now = link.now();
    if !now.cut {
        now.ends.extend([near.try_clone()?, far.try_clone()?]);
        drop(now);
        forward(near, far, link);
        forward(far_too, near_too, link);
    }
    Ok(())
}

/// Forwards bytes from one connection to the other, each piece after the delay of its time.
fn forward(mut from: TcpStream, to: TcpStream, link: &Arc<Link>) {
    let (depart, arrive) = channel();
    let (there, back) = (Arc::clone(link), Arc::clone(link));
    thread::spawn(move || {
        read_all(&mut from, &depart, &there);
        let _ = from.shutdown(Shutdown::Read);
    });
    thread::spawn(move || write_all(to, &arrive, &back));
}

#[expect(clippy::disallowed_methods, reason = "real bytes travel in real time")]
fn read_all(from: &mut TcpStream, depart: &Sender<Travelling>, link: &Link) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if depart.send((Instant::now() + link.delay(), piece[..length].to_vec())).is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real bytes travel in real time, on a thread of their own")]
fn write_all(mut to: TcpStream, arrive: &Receiver<Travelling>, link: &Link) {
    while let Ok((due, piece)) = arrive.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        link.wait_while_silent();
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    link.wait_while_silent();
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    /// How long a test waits to see that no byte arrives: longer than a byte takes on a machine under load.
    const NOTHING_WITHIN: Duration = Duration::from_millis(200);

    /// A proxy in front of a server that echoes every byte.
    fn echo() -> FaultyLink {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        thread::spawn(move || {
            for mut caller in listener.incoming().flatten() {
                thread::spawn(move || std::io::copy(&mut caller.try_clone().expect("a handle"), &mut caller));
            }
        });
        FaultyLink::from(&address.to_string(), Duration::ZERO)
    }

    fn call(link: &FaultyLink) -> TcpStream {
        TcpStream::connect(link.address()).expect("the proxy listens")
    }

    /// Reads one byte: `Ok(1)` for a byte, `Ok(0)` for the end, an error if none arrives within `limit`.
    fn read_byte(stream: &mut TcpStream, limit: Option<Duration>) -> std::io::Result<usize> {
        stream.set_read_timeout(limit).expect("a limit can be set");
        stream.read(&mut [0; 1])
    }

    #[test]
    fn cut_closes_connections_until_the_link_is_healed() {
        let link = echo();
        let mut old = call(&link);
        old.write_all(b"a").expect("the connection is open");
        assert_eq!(read_byte(&mut old, None).ok(), Some(1));
        link.cut();
        assert!(matches!(read_byte(&mut old, None), Ok(0) | Err(_)), "the connection has ended");
        assert!(matches!(read_byte(&mut call(&link), None), Ok(0) | Err(_)), "a new connection ends too");
        link.heal();
        let mut new = call(&link);
        new.write_all(b"b").expect("the connection is open");
        assert_eq!(read_byte(&mut new, None).ok(), Some(1));
    }

    #[test]
    fn bytes_sent_during_silence_arrive_after_it() {
        let link = echo();
        let mut old = call(&link);
        link.fall_silent();
        let mut new = call(&link);
        for stream in [&mut old, &mut new] {
            stream.write_all(b"a").expect("the connection is open");
            assert!(read_byte(stream, Some(NOTHING_WITHIN)).is_err(), "no byte arrives");
        }
        link.heal();
        assert_eq!(read_byte(&mut old, None).ok(), Some(1));
        assert_eq!(read_byte(&mut new, None).ok(), Some(1));
    }
}
