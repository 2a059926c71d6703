//! Routes of the main table.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
    RouteType,
};

use crate::address::family_of;
use crate::error::Error;
use crate::request::Netlink;

/// A route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Route {
    /// Addresses for which it is.
    pub destination: IpNet,
    /// Number of the device.
    pub device: u32,
    /// The next node.
    pub gateway: Option<IpAddr>,
    /// Source of packets of this machine, if they have no other.
    pub source: Option<IpAddr>,
    /// The gateway is reached through the device, whatever the device's addresses are.
    pub is_on_link: bool,
}

/// The program that owns a route (`rtm_protocol`); the kernel does not interpret it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteSource(pub u8);

impl RouteSource {
    /// Routes of an administrator or of a boot script (`RTPROT_BOOT`).
    pub const BOOT: Self = Self(3);
}

impl Netlink {
    /// Adds a route, in the place of another one to the same destination.
    ///
    /// # Errors
    /// The device or its way to the gateway does not exist.
    pub fn replace_route(&mut self, route: &Route, owner: RouteSource) -> Result<(), Error> {
        let message = RouteNetlinkMessage::NewRoute(build_message(route, owner));
        let action = || format!("add the route to {}", route.destination);
        self.request(action, message, NLM_F_CREATE | NLM_F_REPLACE)
            .map(drop)
    }

    /// Deletes a route; one that does not exist is no error.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn delete_route(&mut self, route: &Route, owner: RouteSource) -> Result<(), Error> {
        let message = RouteNetlinkMessage::DelRoute(build_message(route, owner));
        let action = || format!("delete the route to {}", route.destination);
        match self.request(action, message, 0) {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }

    /// Lists the routes of an owner, of both families.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn list_routes(&mut self, owner: RouteSource) -> Result<Vec<Route>, Error> {
        let message = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let objects = self.list(|| "list routes".into(), &message)?;
        let routes = objects.into_iter().filter_map(|object| match object {
            RouteNetlinkMessage::NewRoute(route) => Some(route),
            _ => None,
        });
        Ok(routes
            .filter(|route| {
                u8::from(route.header.protocol) == owner.0
                    && route.header.table == RouteHeader::RT_TABLE_MAIN
            })
            .filter_map(read_route)
            .collect())
    }

    /// Returns the route that packets of this machine to an address take, or None.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn find_route_to(&mut self, address: IpAddr) -> Result<Option<Route>, Error> {
        let mut message = RouteMessage::default();
        message.header.address_family = family_of(address);
        message.header.destination_prefix_length = IpNet::from(address).prefix_len();
        message
            .attributes
            .push(RouteAttribute::Destination(address.into()));
        let message = RouteNetlinkMessage::GetRoute(message);
        match self.request(|| format!("look up the route to {address}"), message, 0) {
            Ok(objects) => Ok(objects.into_iter().find_map(|object| match object {
                RouteNetlinkMessage::NewRoute(route) => read_route(route),
                _ => None,
            })),
            Err(error) if error.is_unreachable() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn build_message(route: &Route, owner: RouteSource) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family_of(route.destination.addr());
    message.header.destination_prefix_length = route.destination.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::from(owner.0);
    message.header.kind = RouteType::Unicast;
    message.header.scope = match route.gateway {
        Some(_) => RouteScope::Universe,
        None => RouteScope::Link,
    };
    if route.is_on_link {
        message.header.flags = RouteFlags::Onlink;
    }
    let destination = route.destination.network();
    message.attributes = vec![
        RouteAttribute::Destination(destination.into()),
        RouteAttribute::Oif(route.device),
    ];
    let gateway = route.gateway.map(|address| address.into());
    message
        .attributes
        .extend(gateway.map(RouteAttribute::Gateway));
    let source = route.source.map(|address| address.into());
    message
        .attributes
        .extend(source.map(RouteAttribute::PrefSource));
    message
}

fn read_address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn read_route(message: RouteMessage) -> Option<Route> {
    let header = message.header;
    let (mut destination, mut gateway, mut source, mut device) = (None, None, None, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(address) => destination = read_address(address),
            RouteAttribute::Gateway(address) => gateway = read_address(address),
            RouteAttribute::PrefSource(address) => source = read_address(address),
            RouteAttribute::Oif(index) => device = Some(*index),
            _ => {}
        }
    }
    let unspecified: IpAddr = match u8::from(header.address_family) {
        2 => [0u8; 4].into(),
        10 => [0u8; 16].into(),
        _ => return None,
    };
    let destination = destination.unwrap_or(unspecified);
    Some(Route {
        destination: IpNet::new(destination, header.destination_prefix_length).ok()?,
        device: device?,
        gateway,
        source,
        is_on_link: header.flags.contains(RouteFlags::Onlink),
    })
}
