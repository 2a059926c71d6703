//! Addresses of a Gateway: those that Gateways share, or its own.

use crate::address::Address;

/// Number of a Gateway's own Service, which decides the ports of the process that it leads to.
pub type Slot = u16;

/// Addresses at which a Gateway is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Those of the gateway's Service, together with other Gateways.
    #[default]
    Shared,
    /// Those of a Service of its own.
    Own(OwnAddress),
    /// None yet: its Service (`namespace/name`) does not exist.
    Pending(String),
    /// None: the limits leave no room for a Service. The sentence says which.
    Refused(String),
}

/// A Service of a Gateway's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnAddress {
    /// Its number.
    pub slot: Slot,
    /// Its `namespace/name`.
    pub service: String,
    /// Its addresses.
    pub addresses: Vec<Address>,
}

impl Placement {
    /// Returns the number of the Gateway's own Service; `None` if it has none.
    pub fn slot(&self) -> Option<Slot> {
        match self {
            Self::Own(own) => Some(own.slot),
            _ => None,
        }
    }

    /// Returns whether requests can reach the Gateway.
    pub fn is_reachable(&self) -> bool {
        matches!(self, Self::Shared | Self::Own(_))
    }
}
