//! A bus through a unix socket: what a process on the same machine asks an agent by when there is no server between them.
//!
//! [`serve_socket`] puts a bus behind a socket file, [`SocketBus`] is the other end. Frames are a length of four bytes and that
//! much MessagePack, at most [`MAX_FRAME_BYTES`]. It carries messages; state and streams it does not.

mod address;
mod client;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod server;

pub use self::client::SocketBus;
pub use self::frame::MAX_FRAME_BYTES;
pub use self::server::{MAX_CONNECTIONS, MAX_OUTSTANDING, MAX_SUBSCRIPTIONS, SocketServer, serve_socket};
