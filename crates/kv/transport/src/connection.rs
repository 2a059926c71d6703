//! The connection of a request.

use crate::memory_budget::Budget;
use base_serve::Peer;
use std::net::SocketAddr;
use std::sync::Arc;

/// Origin of a request; part of every request's extensions.
#[derive(Clone)]
pub struct Connection {
    /// Address and certificates of the client.
    pub peer: Peer,
    /// Memory budget of the connection's requests.
    pub memory_budget: Arc<Budget>,
}

impl Connection {
    /// Describes a connection on which the client has shown no certificate.
    pub(crate) fn without_certificate(addr: SocketAddr, memory_budget: Arc<Budget>) -> Self {
        let peer = Peer {
            addr,
            certificates: Arc::new([]),
            server_name: None,
        };
        Connection {
            peer,
            memory_budget,
        }
    }
}
