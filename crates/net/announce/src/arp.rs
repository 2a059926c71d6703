//! ARP for IPv4 on Ethernet (RFC 826, RFC 5227).

use std::net::Ipv4Addr;

use crate::ethernet::{ARP, BROADCAST, Mac, build_frame, read_array};

/// Ethernet, IPv4, and the lengths of their addresses.
const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: u16 = 1;
const REPLY: u16 = 2;

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArpMessage {
    pub(crate) is_request: bool,
    pub(crate) sender_mac: Mac,
    /// Unspecified in a probe.
    pub(crate) sender: Ipv4Addr,
    pub(crate) target: Ipv4Addr,
}

impl ArpMessage {
    /// Parses the payload of a frame.
    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        if read_array(payload, 0)? != PREFIX {
            return None;
        }
        let operation = u16::from_be_bytes(read_array(payload, 6)?);
        let address = |at| Some(Ipv4Addr::from(read_array::<4>(payload, at)?));
        Some(Self {
            is_request: match operation {
                REQUEST => true,
                REPLY => false,
                _ => return None,
            },
            sender_mac: read_array(payload, 8)?,
            sender: address(14)?,
            target: address(24)?,
        })
    }
}

/// Builds the reply to a request for `address`.
pub(crate) fn build_reply(own: Mac, address: Ipv4Addr, request: &ArpMessage) -> Vec<u8> {
    let to = request.sender_mac;
    build_message(to, own, REPLY, address, to, request.sender)
}

/// Builds an announcement: a request for the own address, which updates the caches of all hosts.
pub(crate) fn build_announcement(own: Mac, address: Ipv4Addr) -> Vec<u8> {
    build_message(BROADCAST, own, REQUEST, address, [0; 6], address)
}

fn build_message(
    to: Mac,
    own: Mac,
    operation: u16,
    sender: Ipv4Addr,
    target_mac: Mac,
    target: Ipv4Addr,
) -> Vec<u8> {
    let mut payload = PREFIX.to_vec();
    payload.extend(operation.to_be_bytes());
    payload.extend(own);
    payload.extend(sender.octets());
    payload.extend(target_mac);
    payload.extend(target.octets());
    build_frame(to, own, ARP, &payload)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::ethernet::parse_frame;

    const OWN: Mac = [2, 0, 0, 0, 0, 1];
    const PEER: Mac = [2, 0, 0, 0, 0, 2];
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);

    #[test]
    fn reply_has_the_address_and_goes_to_the_requester() {
        let request = ArpMessage {
            is_request: true,
            sender_mac: PEER,
            sender: Ipv4Addr::new(192, 0, 2, 7),
            target: ADDRESS,
        };
        let frame = build_reply(OWN, ADDRESS, &request);
        assert_eq!(frame[..6], PEER);
        let (kind, from, payload) = parse_frame(&frame).unwrap();
        assert_eq!((kind, from), (ARP, OWN));
        let parsed = ArpMessage::parse(payload).unwrap();
        assert!(!parsed.is_request);
        assert_eq!((parsed.sender_mac, parsed.sender), (OWN, ADDRESS));
        assert_eq!(parsed.target, request.sender);
    }

    #[test]
    fn announcement_names_the_address_twice() {
        let frame = build_announcement(OWN, ADDRESS);
        assert_eq!(frame[..6], BROADCAST);
        let parsed = ArpMessage::parse(&frame[14..]).unwrap();
        assert!(parsed.is_request);
        assert_eq!((parsed.sender, parsed.target), (ADDRESS, ADDRESS));
    }

    #[test]
    fn short_and_foreign_messages_are_ignored() {
        let frame = build_announcement(OWN, ADDRESS);
        let payload = &frame[14..];
        for length in 0..28 {
            assert_eq!(ArpMessage::parse(&payload[..length]), None, "{length}");
        }
        for at in 0..8 {
            let mut changed = payload.to_vec();
            changed[at] ^= 0x40;
            assert_eq!(ArpMessage::parse(&changed), None, "{at}");
        }
    }
}
