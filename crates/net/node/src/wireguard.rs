//! The WireGuard device of the backend `wireguard`, its identity and its peers.

use std::collections::BTreeMap;

use net_link::{Device, Netlink, PublicKey, WireguardNetlink, WireguardPeer};

use crate::encryption::{PeerChange, compare_peers};
use crate::identity::load_or_create;
use crate::kernel::{KernelError, WIREGUARD, enable_tunnel};
use crate::plan::LocalNetwork;
use crate::settings::NodeSettings;

/// The device with its identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Encryption {
    /// Number of the device.
    pub(crate) device: u32,
    /// The key that other nodes must know.
    pub(crate) key: PublicKey,
}

/// Makes the device with the node's key and port.
pub(crate) fn ensure_wireguard(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    local: &LocalNetwork,
    mtu: u32,
) -> Result<Encryption, KernelError> {
    // First: without a key there is no use of a device.
    let private = load_or_create(&settings.private_key_path())?;
    let device = ensure_device(netlink, settings, mtu)?;
    let mut wireguard = WireguardNetlink::open()?;
    let mut present = wireguard.read_device(device.index)?;
    let port = settings.wireguard_port;
    if present.private.as_ref() != Some(&private) || present.port != port {
        wireguard.set_identity(device.index, &private, port)?;
        present = wireguard.read_device(device.index)?;
    }
    let name = &settings.wireguard_device;
    let key = present
        .public
        .ok_or_else(|| KernelError::NotWireguard(name.to_string()))?;
    enable_tunnel(netlink, settings, &device, local)?;
    Ok(Encryption {
        device: device.index,
        key,
    })
}

fn ensure_device(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    mtu: u32,
) -> Result<Device, KernelError> {
    let name = &settings.wireguard_device;
    let present = match netlink.find_device(name.as_str())? {
        Some(device) => Some(device),
        None => {
            let created = netlink.create_wireguard(name, mtu);
            created.map_err(|error| match error.is_unsupported() {
                true => KernelError::NoWireguard,
                false => error.into(),
            })?;
            netlink.find_device(name.as_str())?
        }
    };
    let device = present.filter(|device| device.kind == WIREGUARD);
    let device = device.ok_or_else(|| KernelError::NotWireguard(name.to_string()))?;
    if device.mtu != mtu {
        netlink.set_mtu(device.index, mtu)?;
    }
    Ok(device)
}

/// Applies the difference to the peers of the device. A peer that is refused does not prevent the
/// others. Returns the failures.
pub(crate) fn apply_peers(
    device: u32,
    desired: &BTreeMap<PublicKey, WireguardPeer>,
) -> Result<Vec<net_link::Error>, KernelError> {
    let mut wireguard = WireguardNetlink::open()?;
    let present = wireguard.read_device(device)?;
    let changes = compare_peers(&present.peers, desired);
    let applied = changes.into_iter().map(|change| match change {
        PeerChange::Delete(key) => wireguard.delete_peer(device, &key),
        PeerChange::Move(key, endpoint) => wireguard.set_endpoint(device, &key, endpoint),
        PeerChange::Replace(key, peer) => wireguard.replace_peer(device, &key, &peer),
    });
    Ok(applied.filter_map(Result::err).collect())
}
