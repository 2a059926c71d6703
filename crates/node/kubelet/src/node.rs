//! The Node object: machine info, registration, status, heartbeat.

mod info;
mod lease;
mod object;
mod register;

pub(crate) use info::{Machine, compute_allocatable, measure_capacity};
pub(crate) use register::keep_registered;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Returns the source address of the default route; sends no packet.
pub(crate) fn default_address() -> IpAddr {
    let probe = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))?;
        // An address of the documentation range (RFC 5737). Connecting a UDP socket only looks up
        // the route.
        socket.connect(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)))?;
        Ok(socket.local_addr()?.ip())
    };
    probe()
        .ok()
        .filter(|ip| !ip.is_unspecified())
        .unwrap_or_else(first_address)
}

/// Returns the first address of an interface that is up and not the loopback.
fn first_address() -> IpAddr {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let addresses =
        interfaces.filter_map(|i| i.address?.as_sockaddr_in().map(|a| IpAddr::V4(a.ip())));
    addresses
        .into_iter()
        .find(|ip| !ip.is_loopback())
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}
