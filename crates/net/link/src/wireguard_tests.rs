#![allow(clippy::unwrap_used)]

use super::*;

fn key(byte: u8) -> PublicKey {
    PublicKey::from_bytes(&[byte; KEY_SIZE]).unwrap()
}

fn peer(endpoint: &str, allowed: &[&str]) -> WireguardPeer {
    WireguardPeer {
        endpoint: Some(endpoint.parse().unwrap()),
        allowed: allowed.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

/// Reads a request as the kernel would answer it.
fn read_back(key: &PublicKey, peer: &WireguardPeer) -> WireguardDevice {
    let mut device = WireguardDevice::default();
    device.read_part(&Attributes::default().with_nested(DEVICE_PEERS, &encode_peer(key, peer)));
    device
}

#[test]
fn peer_is_read_as_it_is_encoded() {
    for peer in [
        peer("192.0.2.7:51820", &["10.244.1.0/24", "fd00:0:0:1::/64"]),
        peer("[2001:db8::7]:51821", &["10.244.2.0/24"]),
        peer("192.0.2.7:1", &[]),
    ] {
        let device = read_back(&key(7), &peer);
        assert_eq!(device.peers, BTreeMap::from([(key(7), peer)]));
    }
}

/// `struct sockaddr_in` and `struct sockaddr_in6`: port and address in network byte order.
#[test]
fn endpoint_has_the_layout_of_a_socket_address() {
    let mut v4 = 2u16.to_ne_bytes().to_vec();
    v4.extend([0xca, 0x6c, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(encode_endpoint("192.0.2.7:51820".parse().unwrap()), v4);
    let mut v6 = 10u16.to_ne_bytes().to_vec();
    v6.extend([0xca, 0x6c, 0, 0, 0, 0, 0x20, 1, 0x0d, 0xb8]);
    v6.extend([0; 11]);
    v6.extend([7, 0, 0, 0, 0]);
    assert_eq!(encode_endpoint("[2001:db8::7]:51820".parse().unwrap()), v6);
}

/// `WGPEER_A_*`: the key, the flag that replaces the addresses, no preshared key, the endpoint and
/// the addresses.
#[test]
fn request_replaces_the_addresses_of_a_peer() {
    let request = encode_peer(&key(7), &peer("192.0.2.7:51820", &["10.244.1.0/24"]));
    let (list_kind, list) = request.iterate().next().unwrap();
    assert_eq!(list_kind, 0);
    let found: BTreeMap<_, _> = iterate_attributes(list).collect();
    assert_eq!(found[&1], [7; 32]);
    assert_eq!(found[&2], [0; 32]);
    assert_eq!(found[&3], 2u32.to_ne_bytes());
    assert_eq!(found[&4].len(), 16);
    let (_, range) = iterate_attributes(found[&9]).next().unwrap();
    let range: BTreeMap<_, _> = iterate_attributes(range).collect();
    assert_eq!(range[&1], 2u16.to_ne_bytes());
    assert_eq!(range[&2], [10, 244, 1, 0]);
    assert_eq!(range[&3], [24]);
}

/// The addresses stay: the kernel would drop packets while it replaces them.
#[test]
fn request_moves_a_present_peer_and_keeps_its_addresses() {
    let request = encode_move(&key(7), "192.0.2.7:51820".parse().unwrap());
    let (_, list) = request.iterate().next().unwrap();
    let found: BTreeMap<_, _> = iterate_attributes(list).collect();
    assert_eq!(found[&1], [7; 32]);
    assert_eq!(found[&3], 4u32.to_ne_bytes());
    assert_eq!(found[&4].len(), 16);
    assert_eq!(found.len(), 3);
}

/// The kernel cuts a device into messages: later ones have the rest of a peer, and further peers.
#[test]
fn parts_of_a_device_are_put_together() {
    let first = Attributes::default()
        .with(DEVICE_INDEX, &9u32.to_ne_bytes())
        .with(DEVICE_PRIVATE_KEY, &[3; KEY_SIZE])
        .with(DEVICE_PUBLIC_KEY, &[4; KEY_SIZE])
        .with(DEVICE_PORT, &51_820u16.to_ne_bytes())
        .with_nested(
            DEVICE_PEERS,
            &encode_peer(&key(7), &peer("192.0.2.7:1", &["10.244.1.0/24"])),
        );
    let rest = WireguardPeer {
        endpoint: None,
        allowed: BTreeSet::from(["10.244.2.0/24".parse().unwrap()]),
    };
    let second = Attributes::default().with_nested(DEVICE_PEERS, &encode_peer(&key(7), &rest));
    let third = Attributes::default().with_nested(
        DEVICE_PEERS,
        &encode_peer(&key(8), &peer("192.0.2.8:1", &[])),
    );
    let mut device = WireguardDevice::default();
    for part in [first, second, third] {
        device.read_part(&part);
    }
    assert_eq!((device.public, device.port), (Some(key(4)), 51_820));
    assert_eq!(device.private, PrivateKey::from_bytes(&[3; KEY_SIZE]));
    let expect = peer("192.0.2.7:1", &["10.244.1.0/24", "10.244.2.0/24"]);
    assert_eq!(device.peers[&key(7)], expect);
    assert_eq!(device.peers.len(), 2);
}

#[test]
fn device_without_an_identity_has_no_keys() {
    let mut device = WireguardDevice::default();
    device.read_part(
        &Attributes::default()
            .with(DEVICE_PRIVATE_KEY, &[0; KEY_SIZE])
            .with(DEVICE_PUBLIC_KEY, &[0; KEY_SIZE]),
    );
    assert_eq!(device, WireguardDevice::default());
}
