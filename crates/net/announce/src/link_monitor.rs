//! Messages of the kernel about changed interfaces and addresses.

use std::io;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// Groups of rtnetlink: links, addresses of IPv4 and of IPv6.
const GROUPS: u32 = 0x1 | 0x10 | 0x100;
/// Messages that are read at once.
const BATCH: usize = 64;

/// A socket that receives the messages.
#[derive(Debug)]
pub(crate) struct LinkMonitor {
    /// Not a UDP socket. The type `UdpSocket` has the runtime's calls for any datagram socket.
    socket: UdpSocket,
}

impl LinkMonitor {
    /// Opens the socket.
    ///
    /// # Errors
    /// The kernel has no sockets of rtnetlink.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self {
            socket: UdpSocket::from_std(socket.into())?,
        })
    }

    /// Waits for a change.
    ///
    /// # Errors
    /// The kernel reports an error of the socket.
    pub(crate) async fn wait_for_change(&self) -> io::Result<()> {
        let read = || {
            // The content does not matter: the caller lists all.
            let mut buffer = [0; 1];
            let flags = RecvFlags::DONTWAIT;
            match recv(&self.socket, &mut buffer, flags) {
                Err(error) if error != Errno::NOBUFS => return Err(error.into()),
                // Messages were lost: those of a change.
                Ok(_) | Err(_) => {}
            }
            for _ in 1..BATCH {
                if recv(&self.socket, &mut buffer, flags).is_err() {
                    break;
                }
            }
            Ok(())
        };
        self.socket.async_io(Interest::READABLE, read).await
    }
}
