//! Requests about devices, addresses and routes.

use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::protocols::NETLINK_ROUTE;

use crate::connection::Connection;
use crate::error::Error;

/// A connection to the kernel's network of one namespace.
#[derive(Debug)]
pub struct Netlink {
    connection: Connection,
}

impl Netlink {
    /// Connects to the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no netlink sockets.
    pub fn open() -> Result<Self, Error> {
        let connection = Connection::open(NETLINK_ROUTE)?;
        Ok(Self { connection })
    }

    /// Sends a request and waits for its acknowledgement. Returns the objects of the answer.
    pub(crate) fn request(
        &mut self,
        action: impl Fn() -> String,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        self.connection.request(action, message, flags)
    }

    /// Returns all objects of a kind.
    pub(crate) fn list(
        &mut self,
        action: impl Fn() -> String,
        message: &RouteNetlinkMessage,
    ) -> Result<Vec<RouteNetlinkMessage>, Error> {
        self.connection.list(action, message)
    }
}
