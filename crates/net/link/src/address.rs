//! Addresses of devices.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::error::Error;
use crate::request::Netlink;

/// An address of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAddress {
    /// Number of the device.
    pub device: u32,
    /// The address with the length of its network.
    pub address: IpNet,
}

pub(crate) fn family_of(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

impl Netlink {
    /// Adds an address to a device, usable at once; an address that the device has is no error.
    ///
    /// # Errors
    /// The device does not exist, or has no addresses of the family.
    pub fn add_address(&mut self, device: u32, address: IpNet) -> Result<(), Error> {
        let mut message = AddressMessage::default();
        message.header.family = family_of(address.addr());
        message.header.prefix_len = address.prefix_len();
        message.header.index = device;
        message.attributes = vec![
            AddressAttribute::Local(address.addr()),
            AddressAttribute::Address(address.addr()),
        ];
        match address {
            IpNet::V4(network) => message
                .attributes
                .push(AddressAttribute::Broadcast(network.broadcast())),
            // Duplicates are excluded by the allocation. Their detection takes 1 s in which the
            // address can't be used.
            IpNet::V6(_) => message
                .attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad)),
        }
        let message = RouteNetlinkMessage::NewAddress(message);
        let action = || format!("add the address {address} to the device {device}");
        match self.request(action, message, NLM_F_CREATE | NLM_F_EXCL) {
            Err(error) if !error.is_existing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Deletes an address, with the route of its network; one that does not exist is no error.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn delete_address(&mut self, entry: &DeviceAddress) -> Result<(), Error> {
        let DeviceAddress { device, address } = entry;
        let mut message = AddressMessage::default();
        message.header.family = family_of(address.addr());
        message.header.prefix_len = address.prefix_len();
        message.header.index = *device;
        message.attributes = vec![
            AddressAttribute::Local(address.addr()),
            AddressAttribute::Address(address.addr()),
        ];
        let message = RouteNetlinkMessage::DelAddress(message);
        let action = || format!("delete the address {address} of the device {device}");
        match self.request(action, message, 0) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Lists the addresses of all devices.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn list_addresses(&mut self) -> Result<Vec<DeviceAddress>, Error> {
        let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let objects = self.list(|| "list addresses".into(), &message)?;
        Ok(objects.into_iter().filter_map(read_address).collect())
    }
}

fn read_address(object: RouteNetlinkMessage) -> Option<DeviceAddress> {
    let RouteNetlinkMessage::NewAddress(message) = object else {
        return None;
    };
    let (mut local, mut address) = (None, None);
    for attribute in message.attributes {
        match attribute {
            AddressAttribute::Local(found) => local = Some(found),
            AddressAttribute::Address(found) => address = Some(found),
            _ => {}
        }
    }
    // IPv6 has the second one only; on a link between two points it is that of the peer.
    let address = IpNet::new(local.or(address)?, message.header.prefix_len).ok()?;
    Some(DeviceAddress {
        device: message.header.index,
        address,
    })
}
