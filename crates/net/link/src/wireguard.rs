//! WireGuard devices, with the kernel's interface `linux/wireguard.h`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use netlink_packet_route::link::{InfoKind, LinkAttribute, LinkInfo};

use crate::device::DeviceName;
use crate::error::Error;
use crate::generic::{Attributes, GenericConnection, iterate_attributes};
use crate::request::Netlink;
use crate::wireguard_key::{KEY_SIZE, PrivateKey, PublicKey};

/// `WG_GENL_NAME` and `WG_GENL_VERSION`.
const FAMILY: &str = "wireguard";
const VERSION: u8 = 1;
/// `WG_CMD_GET_DEVICE` and `WG_CMD_SET_DEVICE`.
const GET_DEVICE: u8 = 0;
const SET_DEVICE: u8 = 1;

/// `WGDEVICE_A_IFINDEX` and its neighbours in the enumeration.
const DEVICE_INDEX: u16 = 1;
const DEVICE_PRIVATE_KEY: u16 = 3;
const DEVICE_PUBLIC_KEY: u16 = 4;
const DEVICE_PORT: u16 = 6;
const DEVICE_PEERS: u16 = 8;

/// `WGPEER_A_PUBLIC_KEY` and its neighbours.
const PEER_PUBLIC_KEY: u16 = 1;
const PEER_PRESHARED_KEY: u16 = 2;
const PEER_FLAGS: u16 = 3;
const PEER_ENDPOINT: u16 = 4;
const PEER_ALLOWED: u16 = 9;

/// `WGPEER_F_REMOVE_ME`, `WGPEER_F_REPLACE_ALLOWEDIPS` and `WGPEER_F_UPDATE_ONLY`.
const REMOVE: u32 = 1;
const REPLACE_ALLOWED: u32 = 2;
const UPDATE_ONLY: u32 = 4;

/// `WGALLOWEDIP_A_FAMILY` and its neighbours.
const ALLOWED_FAMILY: u16 = 1;
const ALLOWED_ADDRESS: u16 = 2;
const ALLOWED_LENGTH: u16 = 3;

/// `AF_INET` and `AF_INET6`.
const FAMILY_V4: u16 = 2;
const FAMILY_V6: u16 = 10;
/// Lengths of `sockaddr_in` and `sockaddr_in6`.
const ENDPOINT_V4: usize = 16;
const ENDPOINT_V6: usize = 28;

/// Another node to which a device sends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireguardPeer {
    /// Address and port of the underlying network. The kernel replaces it by the source of
    /// authenticated packets.
    pub endpoint: Option<SocketAddr>,
    /// Destinations that are sent to the peer, and sources that are accepted from it.
    pub allowed: BTreeSet<IpNet>,
}

/// The state of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WireguardDevice {
    /// None if it has no identity yet.
    pub private: Option<PrivateKey>,
    /// The kernel derives it from the private key.
    pub public: Option<PublicKey>,
    /// UDP port.
    pub port: u16,
    /// Peers by their public keys.
    pub peers: BTreeMap<PublicKey, WireguardPeer>,
}

impl Netlink {
    /// Creates a WireGuard device without an identity and without peers.
    ///
    /// # Errors
    /// The name is in use, or the kernel has no WireGuard ([`Error::is_unsupported`]).
    pub fn create_wireguard(&mut self, name: &DeviceName, mtu: u32) -> Result<(), Error> {
        self.create_device(
            || format!("create the WireGuard device {name}"),
            vec![
                LinkAttribute::IfName(name.to_string()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Wireguard)]),
            ],
        )
    }
}

/// A connection to the WireGuard of one network namespace.
#[derive(Debug)]
pub struct WireguardNetlink {
    connection: GenericConnection,
}

impl WireguardNetlink {
    /// Connects to the network namespace of the calling thread.
    ///
    /// # Errors
    /// The kernel has no WireGuard, or its module is not loaded: a device loads it.
    pub fn open() -> Result<Self, Error> {
        let connection = GenericConnection::open(FAMILY, VERSION)?;
        Ok(Self { connection })
    }

    /// Returns the state of a device.
    ///
    /// # Errors
    /// The device does not exist, or has another kind.
    pub fn read_device(&mut self, index: u32) -> Result<WireguardDevice, Error> {
        let action = || format!("read the WireGuard device {index}");
        let parts = self.connection.list(action, GET_DEVICE, select(index))?;
        let mut device = WireguardDevice::default();
        for part in &parts {
            device.read_part(part);
        }
        Ok(device)
    }

    /// Sets the key and the UDP port of a device. A device that is not enabled only stores the
    /// port: if another program has it, [`Netlink::enable_device`] fails.
    ///
    /// # Errors
    /// The device does not exist, or is enabled and another program has the port.
    pub fn set_identity(&mut self, index: u32, key: &PrivateKey, port: u16) -> Result<(), Error> {
        let attributes = select(index)
            .with(DEVICE_PRIVATE_KEY, key.expose())
            .with(DEVICE_PORT, &port.to_ne_bytes());
        let action = || format!("set the key and the port {port} of the WireGuard device {index}");
        self.connection.request(action, SET_DEVICE, attributes)
    }

    /// Adds a peer, in the place of one with the key. Addresses that another peer has move here.
    /// For a moment the peer has no addresses, so that packets to and from it are lost.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn replace_peer(
        &mut self,
        index: u32,
        key: &PublicKey,
        peer: &WireguardPeer,
    ) -> Result<(), Error> {
        let action = || format!("set the WireGuard peer {key}");
        let attributes = select(index).with_nested(DEVICE_PEERS, &encode_peer(key, peer));
        self.connection.request(action, SET_DEVICE, attributes)
    }

    /// Sets the endpoint of a peer; one that does not exist is no error. No packet is lost.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn set_endpoint(
        &mut self,
        index: u32,
        key: &PublicKey,
        endpoint: SocketAddr,
    ) -> Result<(), Error> {
        let action = || format!("set the endpoint of the WireGuard peer {key}");
        let attributes = select(index).with_nested(DEVICE_PEERS, &encode_move(key, endpoint));
        self.connection.request(action, SET_DEVICE, attributes)
    }

    /// Deletes a peer; one that does not exist is no error.
    ///
    /// # Errors
    /// The device does not exist.
    pub fn delete_peer(&mut self, index: u32, key: &PublicKey) -> Result<(), Error> {
        let peer = Attributes::default()
            .with(PEER_PUBLIC_KEY, key.as_bytes())
            .with(PEER_FLAGS, &REMOVE.to_ne_bytes());
        let peers = Attributes::default().with_nested(0, &peer);
        let attributes = select(index).with_nested(DEVICE_PEERS, &peers);
        let action = || format!("delete the WireGuard peer {key}");
        self.connection.request(action, SET_DEVICE, attributes)
    }
}

fn select(index: u32) -> Attributes {
    Attributes::default().with(DEVICE_INDEX, &index.to_ne_bytes())
}

/// Returns a list with one peer. A preshared key that another program has set is removed: the peer
/// does not know it.
fn encode_peer(key: &PublicKey, peer: &WireguardPeer) -> Attributes {
    let mut allowed = Attributes::default();
    for range in &peer.allowed {
        allowed = allowed.with_nested(0, &encode_range(range));
    }
    let mut encoded = Attributes::default()
        .with(PEER_PUBLIC_KEY, key.as_bytes())
        .with(PEER_FLAGS, &REPLACE_ALLOWED.to_ne_bytes())
        .with(PEER_PRESHARED_KEY, &[0; KEY_SIZE]);
    if let Some(endpoint) = peer.endpoint {
        encoded = encoded.with(PEER_ENDPOINT, &encode_endpoint(endpoint));
    }
    let encoded = encoded.with_nested(PEER_ALLOWED, &allowed);
    Attributes::default().with_nested(0, &encoded)
}

/// Returns a list with the endpoint of one peer.
fn encode_move(key: &PublicKey, endpoint: SocketAddr) -> Attributes {
    let peer = Attributes::default()
        .with(PEER_PUBLIC_KEY, key.as_bytes())
        .with(PEER_FLAGS, &UPDATE_ONLY.to_ne_bytes())
        .with(PEER_ENDPOINT, &encode_endpoint(endpoint));
    Attributes::default().with_nested(0, &peer)
}

fn encode_range(range: &IpNet) -> Attributes {
    let family = if range.addr().is_ipv4() {
        FAMILY_V4
    } else {
        FAMILY_V6
    };
    Attributes::default()
        .with(ALLOWED_FAMILY, &family.to_ne_bytes())
        .with(ALLOWED_ADDRESS, &encode_address(range.network()))
        .with(ALLOWED_LENGTH, &[range.prefix_len()])
}

fn encode_address(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Returns a `sockaddr_in` or `sockaddr_in6`.
fn encode_endpoint(endpoint: SocketAddr) -> Vec<u8> {
    let (family, size) = match endpoint {
        SocketAddr::V4(_) => (FAMILY_V4, ENDPOINT_V4),
        SocketAddr::V6(_) => (FAMILY_V6, ENDPOINT_V6),
    };
    let mut bytes = family.to_ne_bytes().to_vec();
    bytes.extend(endpoint.port().to_be_bytes());
    if endpoint.is_ipv6() {
        // The flow.
        bytes.extend([0; 4]);
    }
    bytes.extend(encode_address(endpoint.ip()));
    // The scope of IPv6, or the padding of IPv4.
    bytes.resize(size, 0);
    bytes
}

fn read_endpoint(bytes: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let address = match family {
        FAMILY_V4 => read_address(bytes.get(4..8)?)?,
        FAMILY_V6 => read_address(bytes.get(8..24)?)?,
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

fn read_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv4Addr::from(bytes)));
    let v6 = || <[u8; 16]>::try_from(bytes).map(|bytes| IpAddr::from(Ipv6Addr::from(bytes)));
    v4.or_else(|_| v6()).ok()
}

fn read_range(bytes: &[u8]) -> Option<IpNet> {
    let (mut address, mut length) = (None, None);
    for (kind, value) in iterate_attributes(bytes) {
        match kind {
            ALLOWED_ADDRESS => address = read_address(value),
            ALLOWED_LENGTH => length = value.first().copied(),
            _ => {}
        }
    }
    IpNet::new(address?, length?).ok()
}

impl WireguardDevice {
    /// Reads a message of a listing: the first has the device, and all have some of its peers.
    fn read_part(&mut self, part: &Attributes) {
        for (kind, value) in part.iterate() {
            match kind {
                // Zeros stand for no key.
                DEVICE_PRIVATE_KEY => {
                    self.private = PrivateKey::from_bytes(value).filter(|key| !key.is_zero());
                }
                DEVICE_PUBLIC_KEY => {
                    self.public = PublicKey::from_bytes(value).filter(|key| !key.is_zero());
                }
                DEVICE_PORT => {
                    self.port = value.try_into().map_or(0, u16::from_ne_bytes);
                }
                DEVICE_PEERS => {
                    for (_, peer) in iterate_attributes(value) {
                        self.read_peer(peer);
                    }
                }
                _ => {}
            }
        }
    }

    /// Reads a peer, or further addresses of one: those of a peer may fill several messages.
    fn read_peer(&mut self, bytes: &[u8]) {
        let key = iterate_attributes(bytes)
            .find(|(kind, _)| *kind == PEER_PUBLIC_KEY)
            .and_then(|(_, value)| PublicKey::from_bytes(value));
        let Some(key) = key else {
            return;
        };
        let peer = self.peers.entry(key).or_default();
        for (kind, value) in iterate_attributes(bytes) {
            match kind {
                PEER_ENDPOINT => peer.endpoint = read_endpoint(value),
                PEER_ALLOWED => {
                    let ranges = iterate_attributes(value).map(|(_, range)| read_range(range));
                    peer.allowed.extend(ranges.flatten());
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "wireguard_tests.rs"]
mod tests;
