//! Membership in the multicast groups of solicitations: switches and interfaces forward them to
//! members only.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::ndp::solicited_group;

/// Memberships of a socket: more files than needed are open otherwise, and the kernel limits the
/// memory of a socket's memberships to some hundred.
const PER_SOCKET: usize = 64;

/// A group on a link.
type Group = (u32, Ipv6Addr);

/// A socket and its groups. Its end ends its memberships. Without a port it receives nothing.
#[derive(Debug)]
struct Membership {
    socket: UdpSocket,
    groups: HashSet<Group>,
}

/// The groups of the announced addresses.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    joined: Vec<Membership>,
}

impl Groups {
    /// Joins the groups of these addresses and leaves all others.
    pub(crate) fn update(&mut self, owned: impl Iterator<Item = (u32, IpAddr)>) {
        let mut needed: HashSet<_> = owned
            .filter_map(|(link, address)| match address {
                IpAddr::V6(v6) => Some((link, solicited_group(v6))),
                IpAddr::V4(_) => None,
            })
            .collect();
        for Membership { socket, groups } in &mut self.joined {
            groups.retain(|(link, group)| {
                let is_needed = needed.remove(&(*link, *group));
                if !is_needed {
                    // Fails if the link does not exist any more.
                    let _ = socket.leave_multicast_v6(group, *link);
                }
                is_needed
            });
        }
        self.joined.retain(|joined| !joined.groups.is_empty());
        let count = needed.len();
        let failed = needed.into_iter().map(|group| self.join(group));
        // Most switches forward all multicast frames, so the addresses may work.
        if let Some(error) = failed.filter_map(Result::err).last() {
            tracing::warn!(
                %error, count,
                "can't join all multicast groups of new addresses; raise the limits of open files and of net.core.optmem_max"
            );
        }
    }

    fn join(&mut self, (link, group): Group) -> std::io::Result<()> {
        let has_room = |joined: &&mut Membership| joined.groups.len() < PER_SOCKET;
        if let Some(joined) = self.joined.iter_mut().find(has_room) {
            joined.socket.join_multicast_v6(&group, link)?;
            joined.groups.insert((link, group));
            return Ok(());
        }
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, None)?;
        let socket = UdpSocket::from(socket);
        socket.join_multicast_v6(&group, link)?;
        let groups = HashSet::from([(link, group)]);
        self.joined.push(Membership { socket, groups });
        Ok(())
    }
}
