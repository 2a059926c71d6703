//! Membership in the multicast groups of solicitations: switches and interfaces forward them to
//! members only.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::ndp::solicited_group;

/// The groups of the announced addresses.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The end of a socket ends its membership. Without a port it receives nothing.
    joined: HashMap<(u32, Ipv6Addr), UdpSocket>,
}

impl Groups {
    /// Joins the groups of these addresses and leaves all others.
    pub(crate) fn update(&mut self, owned: impl Iterator<Item = (u32, IpAddr)>) {
        let needed: HashSet<_> = owned
            .filter_map(|(link, address)| match address {
                IpAddr::V6(v6) => Some((link, solicited_group(v6))),
                IpAddr::V4(_) => None,
            })
            .collect();
        self.joined.retain(|key, _| needed.contains(key));
        for (link, group) in needed {
            if self.joined.contains_key(&(link, group)) {
                continue;
            }
            match join_group(link, group) {
                Ok(socket) => {
                    self.joined.insert((link, group), socket);
                }
                // Most switches forward all multicast frames, so the address may work.
                Err(error) => tracing::warn!(
                    %error, %group, link,
                    "can't join the multicast group of an address; raise the limit of open files"
                ),
            }
        }
    }
}

fn join_group(link: u32, group: Ipv6Addr) -> std::io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None)?;
    let socket = UdpSocket::from(socket);
    socket.join_multicast_v6(&group, link)?;
    Ok(socket)
}
