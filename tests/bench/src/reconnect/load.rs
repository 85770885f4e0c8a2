//! Reads the load of a nats-server each second from its monitoring endpoint.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::Clock;
use serde_json::Value;
use support::nats::Monitoring;

/// The pause between two reads.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The measured load of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    /// The most messages in and out in one second. After reads that failed, all messages since the last good one count as those of the last
    /// second, so that no peak is hidden.
    pub(super) most_per_second: f64,
    pub(super) slow_consumers: u64,
    /// The most connections.
    connections: u64,
    /// All messages in and out.
    pub(super) messages: u64,
}

/// A server whose load a thread reads.
pub(super) struct Load {
    seen: Arc<Mutex<Seen>>,
    ended: Arc<AtomicBool>,
    watcher: JoinHandle<()>,
}

impl Load {
    #[allow(clippy::disallowed_methods, reason = "a thread that has to wait")]
    pub(super) fn watch(server: Monitoring, clock: Clock) -> Self {
        let (seen, ended) = (Arc::<Mutex<Seen>>::default(), Arc::new(AtomicBool::new(false)));
        let (measured, over) = (Arc::clone(&seen), Arc::clone(&ended));
        let watcher = std::thread::spawn(move || {
            let (mut looked, mut messages_before) = (clock.now().monotonic, 0);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_EVERY);
                let answer = server.ask("/varz");
                let (now, number) = (clock.now().monotonic, |name: &str| answer[name].as_u64().unwrap_or_default());
                let since_look = now.saturating_sub(std::mem::replace(&mut looked, now));
                if answer == Value::Null {
                    continue;
                }
                let messages = number("in_msgs") + number("out_msgs");
                let since = messages.saturating_sub(messages_before);
                let mut seen = measured.lock().unwrap_or_else(PoisonError::into_inner);
                seen.most_per_second = seen.most_per_second.max(since as f64 / since_look.as_secs_f64());
                seen.slow_consumers = number("slow_consumers");
                seen.connections = seen.connections.max(number("connections"));
                seen.messages += since;
                messages_before = messages;
            }
        });
        Self { seen, ended, watcher }
    }

    /// Ends the thread; returns the measured load.
    pub(super) fn end(self) -> Seen {
        self.ended.store(true, Ordering::Relaxed);
        // The measured load is valid also if the thread panicked.
        let _ = self.watcher.join();
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
