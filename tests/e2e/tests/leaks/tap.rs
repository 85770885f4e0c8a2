//! Records everything that is sent over a nats-server, as a subscriber to all subjects.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

/// The recorded bytes; records until the server ends.
pub(crate) struct Tap(Arc<Mutex<Vec<u8>>>);

impl Tap {
    pub(crate) fn on(address: &str, user: &str, password: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        let login = serde_json::json!({"verbose": false, "headers": true, "user": user, "pass": password});
        write!(stream, "CONNECT {login}\r\nSUB > 1\r\nPING\r\n").unwrap();
        let recorded = Arc::new(Mutex::new(Vec::new()));
        let (recorder, mut own) = (Arc::clone(&recorded), stream.try_clone().unwrap());
        std::thread::spawn(move || {
            let mut buffer = [0; 64 * 1024];
            while let Ok(length @ 1..) = stream.read(&mut buffer) {
                recorder.lock().unwrap().extend_from_slice(&buffer[..length]);
                if buffer[..length].windows(6).any(|window| window == b"PING\r\n") {
                    let _ = own.write_all(b"PONG\r\n");
                }
            }
        });
        let tap = Self(recorded);
        e2e::until("the tap is on", || tap.recorded().windows(4).any(|window| window == b"PONG").then_some(()));
        tap
    }

    pub(crate) fn recorded(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}
