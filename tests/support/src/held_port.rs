//! A port that nobody else gets.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpSocket;

/// A port of this machine that is held without listening there: who connects is refused. A server that allows reuse, as nats-server does,
/// can listen on it; nobody else gets it as "any free port", neither before that server has started nor after it has ended.
pub struct HeldPort(TcpSocket);

impl HeldPort {
    /// Any free one.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn any() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket can be made");
        socket.set_reuseaddr(true).expect("reuse can be allowed");
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("there is a free port");
        Self(socket)
    }

    /// Where to connect to it.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("it is bound")
    }
}
