//! Notifications of the kernel about devices, addresses and routes, whichever program changes them.

use std::io;
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// `RTMGRP_LINK`, `RTMGRP_IPV4_IFADDR`, `RTMGRP_IPV4_ROUTE`, `RTMGRP_IPV6_IFADDR` and
/// `RTMGRP_IPV6_ROUTE`.
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;
/// The kernel's messages have at most 16 KiB. Their content does not matter.
const BUFFER: usize = 16 * 1024;
/// Limit of the notifications of one read; a reader must not be busy all the time.
const MAX_NOTIFICATIONS: usize = 10_000;

/// A socket with the notifications of one network namespace.
#[derive(Debug)]
pub struct ChangeMonitor {
    /// A netlink socket. The type `UdpSocket` has the runtime's calls for any datagram socket.
    socket: UdpSocket,
    buffer: Vec<u8>,
}

impl ChangeMonitor {
    /// Subscribes to changes in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no netlink sockets.
    pub fn open() -> io::Result<Self> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK,
            SockProtocol::NetlinkRoute,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
            buffer: vec![0; BUFFER],
        })
    }

    /// Waits for a change. Notifications that were lost count as one.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn wait_for_change(&mut self) -> io::Result<()> {
        self.socket.readable().await?;
        // Clears the runtime's readiness before the read and not after it, so that a notification
        // that arrives during the read sets it again.
        let clear = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
        let _ = self.socket.try_io(Interest::READABLE, clear);
        for _ in 0..MAX_NOTIFICATIONS {
            let socket = self.socket.as_raw_fd();
            match recvfrom::<NetlinkAddr>(socket, &mut self.buffer) {
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
