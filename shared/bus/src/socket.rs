//! A bus through a unix socket, for a process on the same machine as an agent if no server connects them.
//!
//! [`serve_socket`] serves a bus behind a socket file, [`SocketBus`] is the client. A frame is a length of four bytes and that many bytes
//! of MessagePack, at most [`MAX_FRAME_BYTES`]. Only messages are carried, no state and no streams.

mod address;
mod client;
mod frame;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod server;

pub use self::client::SocketBus;
pub use self::frame::MAX_FRAME_BYTES;
pub use self::server::{MAX_CONNECTIONS, MAX_OUTSTANDING, MAX_SUBSCRIPTIONS, SocketServer, serve_socket};
