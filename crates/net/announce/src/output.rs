//! The effects of decisions.

use std::net::IpAddr;

/// A command of a decision, which the caller executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// Send a frame on a link.
    Send {
        /// Index of the link.
        link: u32,
        /// The frame.
        frame: Vec<u8>,
    },
    /// Another host announces an address of this node.
    Conflict {
        /// The address.
        address: IpAddr,
        /// The Ethernet address of the host.
        mac: [u8; 6],
    },
    /// Another machine has the name of this node.
    DuplicateName {
        /// Its Ethernet address.
        mac: [u8; 6],
    },
}
