//! A fleet of real agents on a real nats-server, while the registry fails for a minute and then heals: how often it is asked
//! meanwhile, and how soon everybody has the image after it.
//!
//! Each case has servers of its own and mostly waits, so all run at the same time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod case;
mod disturbed;
mod fleet;
mod knowledge;
mod kubelet;
mod observe;
mod overload;
mod partition;
mod quota;
mod slow;
mod stages;
mod undisturbed;
