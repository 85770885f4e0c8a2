//! A fleet of real agents on a real nats-server, while the registry fails for a minute and then heals: how many requests it gets meanwhile,
//! and how soon every node has the image afterwards.
//!
//! Each case has servers of its own and mostly waits, so all cases run at the same time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]

mod case;
mod disturbed;
mod fleet;
mod knowledge;
mod kubelet;
mod observe;
mod overload;
mod partial_limit;
mod partition;
mod quota;
mod slow;
mod stages;
mod undisturbed;
