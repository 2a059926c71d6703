//! Notifications of the kernel about devices, addresses and routes, whichever program changes them.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recvfrom, socket,
};
use tokio::io::unix::AsyncFd;

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
    socket: AsyncFd<OwnedFd>,
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
            socket: watch_socket(socket)?,
            buffer: vec![0; BUFFER],
        })
    }

    /// Waits for a change. Notifications that were lost count as one.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn wait_for_change(&mut self) -> io::Result<()> {
        // Cleared before the read: a notification that arrives meanwhile sets it again.
        self.socket.readable().await?.clear_ready();
        for _ in 0..MAX_NOTIFICATIONS {
            let socket = self.socket.get_ref().as_raw_fd();
            match recvfrom::<NetlinkAddr>(socket, &mut self.buffer) {
                Ok(_) | Err(Errno::ENOBUFS | Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Registers the socket with the runtime, which owns it until it is closed and never replaces it,
/// as the constructor requires.
#[allow(deprecated)]
fn watch_socket(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // Its replacement is an unsafe function, for descriptors that another owner could close.
    AsyncFd::new(socket)
}
