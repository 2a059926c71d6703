//! The connection of a request.

use crate::memory_budget::Budget;
use base_serve::Peer;
use std::sync::Arc;

/// Origin of a request; part of every request's extensions.
#[derive(Clone)]
pub struct Connection {
    /// Address and certificates of the client.
    pub peer: Peer,
    /// Memory budget of the connection's requests.
    pub memory_budget: Arc<Budget>,
}
