//! Sockets that receive and send Ethernet frames.

use std::io;
use std::os::fd::AsRawFd;

use nix::sys::socket::{LinkAddr, MsgFlags, recvfrom, sendto};
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType, socket_with};
use socket2::{SockFilter, SockRef};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use crate::ethernet::IPV6;

/// Length of received frames that is kept: that of the longest message.
pub(crate) const FRAME_LENGTH: usize = 320;

/// A socket for frames of one type.
#[derive(Debug)]
pub(crate) struct PacketSocket {
    kind: u16,
    /// Not a UDP socket. The type `UdpSocket` has the runtime's calls for any datagram socket.
    socket: UdpSocket,
}

impl PacketSocket {
    /// Opens a socket that returns no frame before [`Self::set_links`].
    ///
    /// # Errors
    /// The process lacks CAP_NET_RAW.
    pub(crate) fn open(kind: u16) -> io::Result<Self> {
        let raw = RawProtocol::new(u32::from(kind.to_be())).map(Protocol::from_raw);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, raw)?;
        let opened = Self {
            kind,
            socket: UdpSocket::from_std(socket.into())?,
        };
        opened.set_links(&[])?;
        // Frames of any interface that came before the filter.
        let mut buffer = [0; 1];
        while recvfrom::<LinkAddr>(opened.socket.as_raw_fd(), &mut buffer).is_ok() {}
        Ok(opened)
    }

    /// Receives from these links from now on. The kernel drops other frames: a host of another
    /// network, for instance a pod, must not keep this process busy.
    ///
    /// # Errors
    /// The kernel rejects the filter.
    pub(crate) fn set_links(&self, indexes: &[u32]) -> io::Result<()> {
        let program: Vec<_> = build_filter(self.kind, indexes)
            .into_iter()
            .map(|step| SockFilter::new(step.code, step.jump_true, step.jump_false, step.value))
            .collect();
        SockRef::from(&self.socket).attach_filter(&program)
    }

    /// Receives a frame; returns the index of the link and the length.
    ///
    /// # Errors
    /// The kernel reports an error of the socket.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<(u32, usize)> {
        let read = || {
            let (length, from) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), buffer)?;
            let index = from.and_then(|from| u32::try_from(from.ifindex()).ok());
            Ok((index.unwrap_or_default(), length))
        };
        self.socket.async_io(Interest::READABLE, read).await
    }

    /// Sends a frame on a link. A frame that does not fit into the queue is lost, as on the link.
    ///
    /// # Errors
    /// The link does not exist any more or is down.
    pub(crate) fn send(&self, device: &LinkAddr, frame: &[u8]) -> io::Result<()> {
        let socket = self.socket.as_raw_fd();
        sendto(socket, frame, device, MsgFlags::MSG_DONTWAIT)?;
        Ok(())
    }
}

/// A step of a program of the Berkeley Packet Filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    code: u16,
    jump_true: u8,
    jump_false: u8,
    value: u32,
}

const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
/// Offset at which a load returns the index of the interface.
const INTERFACE: u32 = 0xffff_f008;
/// Offset at which a load returns the type of the packet.
const PACKET_TYPE: u32 = 0xffff_f004;
/// Type of frames for other hosts. The kernel gives it to those of VLANs without an interface, too,
/// and removes their tag.
const OTHER_HOST: u32 = 3;
/// Number of bytes that the program keeps: all.
const ALL: u32 = 0x0004_0000;

/// Builds the filter for frames of a type from these links. Of IPv6, it passes neighbour discovery
/// only: without options, because messages have none before their header.
fn build_filter(kind: u16, indexes: &[u32]) -> Vec<Step> {
    let step = |code, value| Step {
        code,
        jump_true: 0,
        jump_false: 0,
        value,
    };
    let jump = |value, jump_true, jump_false| Step {
        code: JUMP_IF_EQUAL,
        jump_true,
        jump_false,
        value,
    };
    let mut program = vec![
        step(LOAD_WORD, PACKET_TYPE),
        jump(OTHER_HOST, 0, 1),
        step(RETURN, 0),
        step(LOAD_WORD, INTERFACE),
    ];
    // Past the other indexes and the return of 0.
    let after = (1..=indexes.len()).rev();
    for (index, after) in indexes.iter().zip(after) {
        program.push(jump(*index, u8::try_from(after).unwrap_or(u8::MAX), 0));
    }
    program.push(step(RETURN, 0));
    if kind == IPV6 {
        program.extend([
            // Next header, hop limit, type.
            step(LOAD_BYTE, 20),
            jump(58, 0, 5),
            step(LOAD_BYTE, 21),
            jump(255, 0, 3),
            step(LOAD_BYTE, 54),
            jump(135, 2, 0),
            jump(136, 1, 0),
            step(RETURN, 0),
        ]);
    }
    program.push(step(RETURN, ALL));
    program
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ethernet::{ARP, HEARTBEAT};

    /// Runs the program over a frame to this host; None if it is not valid.
    fn run(program: &[Step], link: u32, frame: &[u8]) -> Option<u32> {
        run_typed(program, 0, link, frame)
    }

    fn run_typed(program: &[Step], kind: u32, link: u32, frame: &[u8]) -> Option<u32> {
        let (mut at, mut value) = (0, 0);
        loop {
            let step = program.get(at)?;
            at += 1;
            match step.code {
                LOAD_WORD if step.value == PACKET_TYPE => value = kind,
                LOAD_WORD => value = link,
                LOAD_BYTE => {
                    value = u32::from(*frame.get(usize::try_from(step.value).ok()?)?);
                }
                JUMP_IF_EQUAL if value == step.value => at += usize::from(step.jump_true),
                JUMP_IF_EQUAL => at += usize::from(step.jump_false),
                RETURN => return Some(step.value),
                _ => return None,
            }
        }
    }

    #[test]
    fn frames_of_the_links_pass() {
        for indexes in [vec![], vec![7], vec![3, 7, 9], (1..=32).collect()] {
            for kind in [ARP, HEARTBEAT] {
                let program = build_filter(kind, &indexes);
                for link in 0..40 {
                    let passes = run(&program, link, &[0; 60]).unwrap() > 0;
                    assert_eq!(passes, indexes.contains(&link), "{indexes:?} {link}");
                }
            }
        }
    }

    #[test]
    fn frames_for_other_hosts_and_of_other_vlans_do_not_pass() {
        for kind in [ARP, IPV6, HEARTBEAT] {
            let mut frame = [0; 86];
            (frame[20], frame[21], frame[54]) = (58, 255, 135);
            let program = build_filter(kind, &[7]);
            // To this host, to all, to a group, to another host.
            let found = [0, 1, 2, 3].map(|to| run_typed(&program, to, 7, &frame).unwrap() > 0);
            assert_eq!(found, [true, true, true, false]);
        }
    }

    #[test]
    fn neighbour_discovery_passes_and_no_other_ipv6() {
        let program = build_filter(IPV6, &[3, 7]);
        for (next, hops, kind, link, expect) in [
            (58, 255, 135, 3, true),
            (58, 255, 136, 7, true),
            (58, 255, 134, 7, false),
            (58, 255, 128, 7, false),
            (58, 64, 135, 7, false),
            (6, 255, 135, 7, false),
            (58, 255, 135, 4, false),
        ] {
            let mut frame = [0; 86];
            (frame[20], frame[21], frame[54]) = (next, hops, kind);
            let passes = run(&program, link, &frame).unwrap() > 0;
            assert_eq!(passes, expect, "{next} {hops} {kind} {link}");
        }
    }
}
