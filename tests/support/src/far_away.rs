//! A server as it is seen from far away: a proxy that lets every byte travel for a while, in each direction.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 64 * 1024;

/// A proxy on a free port. Its threads end with the process; each connection ends with either side.
#[derive(Debug)]
pub struct FarAway {
    address: SocketAddr,
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
        let server = address.to_owned();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&server) else { continue };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { continue };
                carry(near, far, round_trip / 2);
                carry(far_too, near_too, round_trip / 2);
            }
        });
        Self { address: own }
    }

    /// Host and port.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }
}

/// Carries what comes from one to the other, each piece for so long.
fn carry(mut from: TcpStream, to: TcpStream, takes: Duration) {
    let (depart, arrive) = channel();
    thread::spawn(move || {
        read_all(&mut from, &depart, takes);
        let _ = from.shutdown(Shutdown::Read);
    });
    thread::spawn(move || write_all(to, &arrive));
}

#[expect(clippy::disallowed_methods, reason = "real bytes travel in real time")]
fn read_all(from: &mut TcpStream, depart: &Sender<Travelling>, takes: Duration) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if depart.send((Instant::now() + takes, piece[..length].to_vec())).is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "real bytes travel in real time, on a thread of their own")]
fn write_all(mut to: TcpStream, arrive: &Receiver<Travelling>) {
    while let Ok((due, piece)) = arrive.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if to.write_all(&piece).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
