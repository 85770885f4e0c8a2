//! What the server says of its load, asked each second over HTTP.

use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::Clock;
use serde::Deserialize;

const ASKED_EVERY: Duration = Duration::from_secs(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Varz {
    in_msgs: u64,
    out_msgs: u64,
    slow_consumers: u64,
    total_connections: u64,
}

/// The load of the server since it was started last.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// In and out, in the worst second.
    pub(super) messages_per_second: f64,
    pub(super) slow_consumers: u64,
    last: Varz,
}

impl fmt::Display for Load {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Varz { in_msgs, out_msgs, total_connections, .. } = self.last;
        write!(formatter, "the server has had {total_connections} connections, {in_msgs} messages in and {out_msgs} out since it is back")
    }
}

/// Asks until it is ended.
pub(super) struct ServerLoad {
    ends: Arc<AtomicBool>,
    asking: JoinHandle<Load>,
}

impl ServerLoad {
    /// On a thread of its own, which the nodes' work does not hold up.
    pub(super) fn watch(port: u16, clock: Clock) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&ends);
        let asking = std::thread::spawn(move || {
            let (mut load, mut before) = (Load::default(), (clock.now().monotonic, 0));
            while !ended.load(Ordering::Relaxed) {
                std::thread::sleep(ASKED_EVERY);
                let Some(varz) = ask(port) else { continue };
                let (now, messages) = (clock.now().monotonic, varz.in_msgs + varz.out_msgs);
                let rate = messages.saturating_sub(before.1) as f64 / (now - before.0).as_secs_f64();
                load.messages_per_second = load.messages_per_second.max(rate);
                (load.slow_consumers, load.last, before) = (varz.slow_consumers, varz, (now, messages));
            }
            load
        });
        Self { ends, asking }
    }

    pub(super) fn end(self) -> Load {
        self.ends.store(true, Ordering::Relaxed);
        self.asking.join().unwrap_or_default()
    }
}

fn ask(port: u16) -> Option<Varz> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).ok()?;
    stream.write_all(b"GET /varz HTTP/1.0\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
}
