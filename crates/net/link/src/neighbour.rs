//! Neighbours of a device, and forwarding entries of a VXLAN device.

use std::net::IpAddr;

use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::address::family_of;
use crate::device::MacAddress;
use crate::error::Error;
use crate::request::Netlink;

/// A permanent neighbour: the kernel does not ask for its hardware address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeighbourEntry {
    /// Its address.
    pub address: IpAddr,
    /// Its hardware address.
    pub mac: MacAddress,
}

/// A permanent forwarding entry of a VXLAN device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ForwardingEntry {
    /// Hardware address to which packets are sent.
    pub mac: MacAddress,
    /// Address of the node that has it, on the underlying network.
    pub node: IpAddr,
}

impl Netlink {
    /// Adds a permanent neighbour, in the place of another one with its address.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn replace_neighbour(&mut self, device: u32, entry: &NeighbourEntry) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewNeighbour(build_neighbour(device, entry));
        let action = || format!("add the neighbour {}", entry.address);
        self.request(action, message, NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Deletes a neighbour; one that does not exist is no error.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn delete_neighbour(&mut self, device: u32, entry: &NeighbourEntry) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelNeighbour(build_neighbour(device, entry));
        ignore_missing(self.request(
            || format!("delete the neighbour {}", entry.address),
            message,
            0,
        ))
    }

    /// Lists the permanent neighbours of a device.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn list_neighbours(&mut self, device: u32) -> Result<Vec<NeighbourEntry>, Error> {
        let objects = self.list_entries(AddressFamily::Unspec, device)?;
        Ok(objects
            .iter()
            .filter(|entry| entry.header.state == NeighbourState::Permanent)
            .filter_map(|entry| {
                let (address, mac) = read_entry(entry)?;
                Some(NeighbourEntry { address, mac })
            })
            .collect())
    }

    /// Adds a forwarding entry, in the place of another one with its hardware address.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn replace_forwarding(
        &mut self,
        device: u32,
        entry: &ForwardingEntry,
    ) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewNeighbour(build_forwarding(device, entry));
        let action = || format!("add the forwarding entry of {}", entry.mac);
        self.request(action, message, NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Deletes a forwarding entry; one that does not exist is no error.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn delete_forwarding(&mut self, device: u32, entry: &ForwardingEntry) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelNeighbour(build_forwarding(device, entry));
        ignore_missing(self.request(
            || format!("delete the forwarding entry of {}", entry.mac),
            message,
            0,
        ))
    }

    /// Lists the forwarding entries of a device.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn list_forwarding(&mut self, device: u32) -> Result<Vec<ForwardingEntry>, Error> {
        let objects = self.list_entries(AddressFamily::Bridge, device)?;
        Ok(objects
            .iter()
            .filter_map(|entry| {
                let (node, mac) = read_entry(entry)?;
                Some(ForwardingEntry { mac, node })
            })
            .collect())
    }

    fn list_entries(
        &mut self,
        family: AddressFamily,
        device: u32,
    ) -> Result<Vec<NeighbourMessage>, Error> {
        let mut message = NeighbourMessage::default();
        message.header.family = family;
        let message = RouteNetlinkMessage::GetNeighbour(message);
        let objects = self.list(|| "list neighbours".into(), &message)?;
        Ok(objects
            .into_iter()
            .filter_map(|object| match object {
                RouteNetlinkMessage::NewNeighbour(entry) => Some(entry),
                _ => None,
            })
            .filter(|entry| entry.header.ifindex == device)
            .collect())
    }
}

fn ignore_missing(done: Result<Vec<RouteNetlinkMessage>, Error>) -> Result<(), Error> {
    match done {
        Err(error) if !error.is_missing() => Err(error),
        _ => Ok(()),
    }
}

fn build_neighbour(device: u32, entry: &NeighbourEntry) -> NeighbourMessage {
    let mut message = build_entry(device, entry.mac, entry.address);
    message.header.family = family_of(entry.address);
    message
}

fn build_forwarding(device: u32, entry: &ForwardingEntry) -> NeighbourMessage {
    let mut message = build_entry(device, entry.mac, entry.node);
    message.header.family = AddressFamily::Bridge;
    message.header.flags = NeighbourFlags::Own;
    message
}

fn build_entry(device: u32, mac: MacAddress, address: IpAddr) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = device;
    message.header.state = NeighbourState::Permanent;
    message.attributes = vec![
        NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }),
        NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
    ];
    message
}

fn read_entry(entry: &NeighbourMessage) -> Option<(IpAddr, MacAddress)> {
    let (mut address, mut mac) = (None, None);
    for attribute in &entry.attributes {
        match attribute {
            NeighbourAttribute::Destination(found) => address = read_address(found),
            NeighbourAttribute::LinkLayerAddress(found) => {
                mac = found.as_slice().try_into().ok().map(MacAddress);
            }
            _ => {}
        }
    }
    Some((address?, mac?))
}

fn read_address(address: &NeighbourAddress) -> Option<IpAddr> {
    match address {
        NeighbourAddress::Inet(address) => Some((*address).into()),
        NeighbourAddress::Inet6(address) => Some((*address).into()),
        // Of the family bridge, whose addresses are those of the underlying network.
        NeighbourAddress::Other(bytes) => match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes.as_slice()).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(bytes.as_slice())
                .ok()
                .map(IpAddr::from),
            _ => None,
        },
        _ => None,
    }
}
