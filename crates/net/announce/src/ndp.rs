//! Neighbour discovery (RFC 4861): solicitations, and the advertisements that answer them.

use std::net::Ipv6Addr;

use crate::ethernet::{IPV6, Mac, build_frame, read_array};

const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
/// Packets with another hop limit may have been forwarded.
const HOPS: u8 = 255;
/// Length of the header of IPv6, which options don't follow in neighbour discovery.
const IPV6_HEADER: usize = 40;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
/// Option with the link-layer address of the target.
const TARGET_MAC: u8 = 2;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NeighborMessage {
    pub(crate) is_solicitation: bool,
    /// Unspecified if the sender examines whether the target is in use.
    pub(crate) sender: Ipv6Addr,
    pub(crate) target: Ipv6Addr,
}

impl NeighborMessage {
    /// Parses the payload of a frame. The checksum is not examined: Ethernet has one, and a wrong
    /// message causes an answer at most.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let [next, hops] = read_array(payload, 6)?;
        if next != ICMPV6 || hops != HOPS {
            return None;
        }
        let [kind, code] = read_array(payload, IPV6_HEADER)?;
        let address = |at| Some(Ipv6Addr::from(read_array::<16>(payload, at)?));
        Some(Self {
            is_solicitation: match (kind, code) {
                (SOLICITATION, 0) => true,
                (ADVERTISEMENT, 0) => false,
                _ => return None,
            },
            sender: address(8)?,
            target: address(IPV6_HEADER + 8)?,
        })
    }
}

/// The sender of advertisements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Advertiser {
    pub(crate) mac: Mac,
    /// Link-local address; None for an interface without.
    pub(crate) address: Option<Ipv6Addr>,
}

impl Advertiser {
    /// Builds the answer to a solicitation that `to` has sent.
    pub(crate) fn build_answer(&self, to: Mac, message: &NeighborMessage) -> Vec<u8> {
        if message.sender.is_unspecified() {
            // The sender has no address yet.
            return self.build_announcement(message.target);
        }
        let flags = SOLICITED | OVERRIDE;
        self.build(to, message.sender, message.target, flags)
    }

    /// Builds an announcement: an advertisement to all nodes, which updates their caches.
    pub(crate) fn build_announcement(&self, address: Ipv6Addr) -> Vec<u8> {
        self.build(map_multicast(ALL_NODES), ALL_NODES, address, OVERRIDE)
    }

    fn build(&self, mac: Mac, to: Ipv6Addr, target: Ipv6Addr, flags: u8) -> Vec<u8> {
        let mut message = vec![ADVERTISEMENT, 0, 0, 0, flags, 0, 0, 0];
        message.extend(target.octets());
        message.extend([TARGET_MAC, 1]);
        message.extend(self.mac);
        let from = self.address.unwrap_or(target);
        let sum = compute_checksum(from, to, &message).to_be_bytes();
        message.splice(2..4, sum);
        let length = u16::try_from(message.len()).unwrap_or_default();
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend(length.to_be_bytes());
        packet.extend([ICMPV6, HOPS]);
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet.extend(message);
        build_frame(mac, self.mac, IPV6, &packet)
    }
}

/// Returns the group to which solicitations for an address are sent.
pub(crate) fn solicited_group(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low)
}

fn map_multicast(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    [0x33, 0x33, a, b, c, d]
}

/// Returns the checksum of a message whose field for it is 0 (RFC 8200, 8.1).
fn compute_checksum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        let pairs = bytes.chunks(2);
        // A message has less than 100 bytes, so the sum does not overflow.
        pairs
            .map(|pair| match pair {
                [high, low] => u32::from(u16::from_be_bytes([*high, *low])),
                [high] => u32::from(*high) << 8,
                _ => 0,
            })
            .sum()
    };
    let length = u32::try_from(message.len()).unwrap_or_default();
    let sum = words(&from.octets()) + words(&to.octets()) + length + u32::from(ICMPV6);
    let sum = sum + words(message);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(sum & 0xffff).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ethernet::parse_frame;

    const OWN: Advertiser = Advertiser {
        mac: [2, 0, 0, 0, 0, 1],
        address: Some(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)),
    };
    const TARGET: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);

    fn sum_is_valid(frame: &[u8]) -> bool {
        let packet = &frame[14..];
        let address = |at| Ipv6Addr::from(read_array::<16>(packet, at).unwrap());
        compute_checksum(address(8), address(24), &packet[40..]) == 0
    }

    #[test]
    fn answer_goes_to_the_sender_of_the_solicitation() {
        let asked = NeighborMessage {
            is_solicitation: true,
            sender: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
            target: TARGET,
        };
        let frame = OWN.build_answer([2, 0, 0, 0, 0, 2], &asked);
        assert_eq!(frame[..6], [2, 0, 0, 0, 0, 2]);
        let (kind, _, payload) = parse_frame(&frame).unwrap();
        assert_eq!(kind, IPV6);
        let parsed = NeighborMessage::parse(payload).unwrap();
        assert!(!parsed.is_solicitation);
        assert_eq!(parsed.target, TARGET);
        assert_eq!(payload[24..40], asked.sender.octets());
        assert_eq!(payload[44], SOLICITED | OVERRIDE);
        assert!(sum_is_valid(&frame));
    }

    #[test]
    fn host_that_examines_an_address_is_answered_at_all_nodes() {
        let asked = NeighborMessage {
            is_solicitation: true,
            sender: Ipv6Addr::UNSPECIFIED,
            target: TARGET,
        };
        let frame = OWN.build_answer([2, 0, 0, 0, 0, 2], &asked);
        assert_eq!(frame[..6], [0x33, 0x33, 0, 0, 0, 1]);
        assert_eq!(frame, OWN.build_announcement(TARGET));
        assert_eq!(frame[14 + 44], OVERRIDE);
        assert!(sum_is_valid(&frame));
    }

    #[test]
    fn group_has_the_last_three_bytes_of_the_address() {
        let group = solicited_group(TARGET);
        assert_eq!(group.to_string(), "ff02::1:ff12:3456");
    }

    #[test]
    fn short_forwarded_and_other_messages_are_ignored() {
        let frame = OWN.build_announcement(TARGET);
        let payload = &frame[14..];
        for length in 0..64 {
            assert_eq!(NeighborMessage::parse(&payload[..length]), None, "{length}");
        }
        // Next header, hop limit, type, code.
        for at in [6, 7, 40, 41] {
            let mut changed = payload.to_vec();
            changed[at] ^= 0x04;
            assert_eq!(NeighborMessage::parse(&changed), None, "{at}");
        }
    }
}
