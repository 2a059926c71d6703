//! Frames that a pod with CAP_NET_RAW can send.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockType, sendto, socket};

use rustix::net::sockopt::{set_ipv6_multicast_hops, set_ipv6_unicast_hops};

use crate::node_network::{NodeNetwork, PODS, run_script};
use crate::traffic::{DEADLINE, DROPPED, PORTS};

/// Port of the sender.
const SOURCE_PORT: u16 = 9000;
/// Time in which an answer arrives, if the frame does.
const ANSWER_TIME: Duration = Duration::from_millis(500);

impl NodeNetwork {
    /// Returns whether a pod answers a UDP packet of another pod whose frame has a VLAN tag with
    /// the number 0. Receivers ignore such a tag.
    ///
    /// # Panics
    /// If a frame can't be sent.
    pub fn answers_tagged_frame(&self, from: &str, to: &str) -> bool {
        let name = self.name(to);
        let file = format!("ip netns exec {name} cat /sys/class/net/eth0/address");
        let address = |pod: &str| {
            let host = PODS.iter().find(|(name, _)| *name == pod).unwrap().1;
            Ipv4Addr::new(10, 244, 0, host)
        };
        let (source, destination) = (address(from), address(to));
        let target = parse_mac(run_script(&file).expect("a pod has a device").trim());
        let sent = self.run_inside(from, move || {
            let answers = UdpSocket::bind(("0.0.0.0", SOURCE_PORT)).unwrap();
            answers.set_read_timeout(Some(ANSWER_TIME)).unwrap();
            let device = find_device();
            let mut frame = target.to_vec();
            frame.extend(device.addr().unwrap());
            // 802.1Q with priority, flags and number 0, then IPv4.
            frame.extend([0x81, 0x00, 0, 0, 0x08, 0x00]);
            frame.extend(build_datagram(source, destination));
            let raw = socket(
                AddressFamily::Packet,
                SockType::Raw,
                SockFlag::SOCK_CLOEXEC,
                None,
            )
            .unwrap();
            sendto(raw.as_raw_fd(), &frame, &device, MsgFlags::empty()).unwrap();
            answers.recv(&mut [0; 16]).is_ok()
        });
        sent.join().unwrap()
    }
}

impl NodeNetwork {
    /// Sends a message of ICMPv6 from a pod or the host outside. The kernel writes its checksum.
    ///
    /// # Panics
    /// If it can't be sent.
    pub fn send_icmpv6(&self, from: &str, to: Ipv6Addr, hops: u8, message: Vec<u8>) {
        let sent = self.run_inside(from, move || {
            let raw = open_icmpv6();
            set_ipv6_unicast_hops(&raw, Some(hops)).unwrap();
            set_ipv6_multicast_hops(&raw, u32::from(hops)).unwrap();
            let device = u32::try_from(find_device().ifindex()).unwrap();
            // Other addresses than link-local ones have no scope.
            let scope = if to.is_multicast() { device } else { 0 };
            raw.send_to(&message, SocketAddrV6::new(to, 0, 0, scope))
                .unwrap();
        });
        sent.join().unwrap();
    }

    /// Sends a router advertisement to all pods from one of them, for a network of 64 bits in which
    /// they should have addresses.
    ///
    /// # Panics
    /// If it can't be sent.
    pub fn advertise_network(&self, from: &str, network: Ipv6Addr) {
        // No flags, 1800 s as a router, no times of neighbour discovery.
        let mut message = vec![134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0];
        // The prefix: on the link and for autoconfiguration, valid and preferred for 3600 s.
        message.extend([
            3, 4, 64, 0xc0, 0, 0, 0x0e, 0x10, 0, 0, 0x0e, 0x10, 0, 0, 0, 0,
        ]);
        message.extend(network.octets());
        let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
        self.send_icmpv6(from, all_nodes, 255, message);
    }
}

impl NodeNetwork {
    /// Returns whether a pod receives a message of ICMPv6 with a type and a hop limit. `expect`
    /// gives the time to wait, as for connections.
    ///
    /// # Panics
    /// If it can't be sent.
    pub fn receives_icmpv6(&self, from: &str, to: &str, kind: u8, hops: u8, expect: bool) -> bool {
        // The target in neighbour discovery, the group in MLD: an unused one.
        let mark = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x6d61, 0x726b).octets();
        let timeout = if expect { DEADLINE } else { DROPPED };
        let (ready, is_ready) = mpsc::channel();
        let receiver = self.run_inside(to, move || {
            let raw = open_icmpv6();
            ready.send(()).unwrap();
            let began = Instant::now();
            let mut data = [0; 128];
            while let Some(left) = timeout.checked_sub(began.elapsed()) {
                // 0 would mean no timeout.
                let left = left.max(Duration::from_millis(1));
                raw.set_read_timeout(Some(left)).unwrap();
                match raw.recv(&mut data) {
                    Ok(length) if data[0] == kind && data[..length].ends_with(&mark) => {
                        return true;
                    }
                    // Other messages are those of the kernel.
                    Ok(_) | Err(_) => {}
                }
            }
            false
        });
        is_ready.recv().unwrap();
        let host = PODS.iter().find(|(name, _)| *name == to).unwrap().1;
        let address = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host));
        let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        message.extend(mark);
        self.send_icmpv6(from, address, hops, message);
        receiver.join().unwrap()
    }
}

/// Opens a raw socket of ICMPv6. The type of the standard library has the calls that it needs.
fn open_icmpv6() -> UdpSocket {
    use rustix::net::{AddressFamily, SocketType, ipproto, socket};
    let raw = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::ICMPV6));
    raw.unwrap().into()
}

fn parse_mac(text: &str) -> [u8; 6] {
    let parts: Vec<u8> = text
        .split(':')
        .map(|part| u8::from_str_radix(part, 16).unwrap())
        .collect();
    parts.try_into().unwrap()
}

fn find_device() -> LinkAddr {
    let mut devices = getifaddrs().unwrap();
    let found = devices.find_map(|device| {
        let address = device.address?;
        (device.interface_name == "eth0").then(|| address.as_link_addr().copied())?
    });
    found.expect("a pod has a device")
}

/// Returns a packet of IPv4 with a datagram of 4 bytes. A checksum of 0 means none in UDP.
fn build_datagram(from: Ipv4Addr, to: Ipv4Addr) -> Vec<u8> {
    let data = b"ping";
    let udp_length = u16::try_from(8 + data.len()).unwrap();
    let mut packet = vec![0x45, 0];
    packet.extend((20 + udp_length).to_be_bytes());
    packet.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum: u32 = packet
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
        .sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap();
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet.extend(SOURCE_PORT.to_be_bytes());
    packet.extend(PORTS[0].to_be_bytes());
    packet.extend(udp_length.to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(data);
    packet
}
