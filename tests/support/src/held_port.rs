//! A port reserved for one test.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A local port that a socket has bound without listening, so connections to it are refused. A server that sets SO_REUSEADDR, as
/// nats-server does, can listen on it; the kernel gives it to no other process as "any free port", neither before that server
/// starts nor after it ends.
pub struct HeldPort(TcpSocket);

impl HeldPort {
    /// Reserves a free port.
    ///
    /// # Panics
    /// When there is no free port.
    #[must_use]
    pub fn any() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_reuseaddr(true).expect("reuse can be allowed");
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("there is a free port");
        Self(socket)
    }

    /// The address of the port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("it is bound")
    }
}
