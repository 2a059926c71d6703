//! Applies a plan to the kernel: the difference to the present entries, so that packets of
//! connections see no gap.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use net_cni::{AddressRange, Bridge};
use net_link::{Device, Netlink, NewVxlan, RouteSource};

use crate::identity::IdentityError;
use crate::plan::{LocalNetwork, Plan, first_address, tunnel_mac};
use crate::settings::{Backend, NodeSettings};

/// The owner of the agent's routes. The kernel does not interpret it; iproute2's `rt_protos` has no
/// program with this one.
const OWNER: RouteSource = RouteSource(120);
/// The kernel's name of the kind of WireGuard devices.
pub(crate) const WIREGUARD: &str = "wireguard";
/// Smallest packet that each link of IPv6 has to carry, in bytes.
const LEAST_MTU: u32 = 1280;

/// The reason why the kernel's state is not the desired one.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// A request failed.
    #[error("{0}")]
    Link(#[from] net_link::Error),
    /// The bridge can't be made.
    #[error("{0}")]
    Bridge(#[from] net_cni::PluginError),
    /// The node's address is on no device.
    #[error(
        "no device of this node has its InternalIP {0}; set the kubelet's --node-ip to one that a device has"
    )]
    NoDevice(IpAddr),
    /// Packets would be smaller than IPv6 allows.
    #[error(
        "the MTU of {device} is {mtu}: too small for a tunnel; use --backend=direct, or a larger one"
    )]
    SmallMtu {
        /// Its name.
        device: String,
        /// Its MTU in bytes.
        mtu: u32,
    },
    /// The name of the tunnel is in use.
    #[error("a device {0} exists that is no VXLAN device; choose another name with --vxlan-device")]
    NotVxlan(String),
    /// Packets can't be encrypted.
    #[error(
        "the kernel has no WireGuard, so nothing is sent to pods of other nodes; load it with `modprobe wireguard`, \
         install a kernel that has it (Linux 5.6 or later with CONFIG_WIREGUARD), or choose another --backend on all nodes"
    )]
    NoWireguard,
    /// The name of the WireGuard device is in use.
    #[error(
        "a device {0} exists that is no WireGuard device; choose another name with --wireguard-device"
    )]
    NotWireguard(String),
    /// The node has no private key.
    #[error("{0}")]
    Identity(#[from] IdentityError),
}

/// Returns the device with the node's address.
pub(crate) fn find_uplink(netlink: &mut Netlink, address: IpAddr) -> Result<Device, KernelError> {
    let addresses = netlink.list_addresses()?;
    let found = addresses
        .iter()
        .find(|found| found.address.addr() == address);
    let index = found.map(|found| found.device);
    let device = match index {
        Some(index) => netlink.find_device_by_index(index)?,
        None => None,
    };
    device.ok_or(KernelError::NoDevice(address))
}

/// Returns the largest packet of pods in bytes.
pub(crate) fn choose_mtu(
    settings: &NodeSettings,
    uplink: &Device,
    local: IpAddr,
) -> Result<u32, KernelError> {
    if let Some(mtu) = settings.mtu {
        return Ok(mtu);
    }
    let mtu = uplink
        .mtu
        .min(65_535)
        .saturating_sub(settings.overhead(local));
    if mtu < LEAST_MTU {
        return Err(KernelError::SmallMtu {
            device: uplink.name.clone(),
            mtu: uplink.mtu,
        });
    }
    Ok(mtu)
}

/// Makes the bridge with the node's addresses for pods, which are sources of routes.
pub(crate) fn ensure_bridge(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    local: &LocalNetwork,
    mtu: u32,
) -> Result<(), KernelError> {
    let ranges = local.ranges.iter().copied();
    let bridge = Bridge {
        name: &settings.bridge,
        mtu: Some(mtu),
        ranges: ranges.filter_map(AddressRange::of_network).collect(),
    };
    let device = bridge.ensure(netlink)?;
    remove_former_addresses(netlink, settings, local, device.index)
}

/// Removes the node's addresses of ranges that it no longer has: another node may have them by now,
/// and its pods would be looked for on the device.
fn remove_former_addresses(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    local: &LocalNetwork,
    device: u32,
) -> Result<(), KernelError> {
    let cluster = &settings.cluster_ranges;
    for entry in netlink.list_addresses()? {
        let address = entry.address.addr();
        let is_former = entry.device == device
            && cluster.iter().any(|range| range.contains(&address))
            && !local.ranges.iter().any(|range| range.contains(&address));
        if is_former {
            netlink.delete_address(&entry)?;
        }
    }
    Ok(())
}

/// Makes the VXLAN device, or removes it if the backend has none. A device with other settings is
/// replaced: they can't be changed. Returns its number.
pub(crate) fn ensure_tunnel(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    local: &LocalNetwork,
    mtu: u32,
) -> Result<Option<u32>, KernelError> {
    let name = &settings.vxlan_device;
    let mac = tunnel_mac(&local.ranges);
    let (Backend::Auto | Backend::Vxlan, Some(mac)) = (settings.backend, mac) else {
        remove_tunnel(netlink, settings)?;
        return Ok(None);
    };
    if let Some(device) = netlink.find_device(name.as_str())? {
        let info = device
            .vxlan
            .ok_or_else(|| KernelError::NotVxlan(name.to_string()))?;
        let is_same = info.vni == settings.vni
            && info.port == settings.vxlan_port
            && info.local == Some(local.address)
            && !info.learns
            && device.mac == Some(mac);
        if is_same {
            if device.mtu != mtu {
                netlink.set_mtu(device.index, mtu)?;
            }
            return enable_tunnel(netlink, settings, &device, local).map(Some);
        }
        netlink.delete_device(name)?;
    }
    netlink.create_vxlan(&NewVxlan {
        name,
        mac,
        mtu,
        vni: settings.vni,
        port: settings.vxlan_port,
        local: local.address,
    })?;
    let device = netlink.find_device(name.as_str())?;
    let device = device.ok_or_else(|| KernelError::NotVxlan(name.to_string()))?;
    enable_tunnel(netlink, settings, &device, local).map(Some)
}

/// Enables the tunnel with the node's address of its IPv4 range: the kernel masquerades with an
/// address of the device, and would choose one of another device otherwise. For IPv6 it chooses
/// that of the bridge.
pub(crate) fn enable_tunnel(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    device: &Device,
    local: &LocalNetwork,
) -> Result<u32, KernelError> {
    let gateways = local
        .ranges
        .iter()
        .filter_map(|range| first_address(*range));
    remove_former_addresses(netlink, settings, local, device.index)?;
    for address in gateways.filter(IpAddr::is_ipv4) {
        netlink.add_address(device.index, IpNet::from(address))?;
    }
    if !device.is_up {
        netlink.enable_device(device.index)?;
    }
    Ok(device.index)
}

/// Removes the WireGuard device of an earlier configuration.
pub(crate) fn remove_wireguard(
    netlink: &mut Netlink,
    settings: &NodeSettings,
) -> Result<(), KernelError> {
    let name = &settings.wireguard_device;
    let device = netlink.find_device(name.as_str())?;
    if device.is_some_and(|device| device.kind == WIREGUARD) {
        netlink.delete_device(name)?;
    }
    Ok(())
}

fn remove_tunnel(netlink: &mut Netlink, settings: &NodeSettings) -> Result<(), KernelError> {
    let name = &settings.vxlan_device;
    match netlink.find_device(name.as_str())? {
        Some(device) if device.vxlan.is_some() => {
            netlink.delete_device(name)?;
        }
        _ => {}
    }
    Ok(())
}

/// Returns the device of a link that this node shares with an address.
pub(crate) fn find_link(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    address: IpAddr,
) -> Option<u32> {
    let route = netlink.find_route_to(address).ok()??;
    let device = netlink.find_device_by_index(route.device).ok()??;
    let own = [
        settings.bridge.as_str(),
        settings.vxlan_device.as_str(),
        settings.wireguard_device.as_str(),
        "lo",
    ];
    // A tunnel of another program, such as WireGuard, has no neighbours that could be gateways.
    let is_link =
        route.gateway.is_none() && device.has_neighbours && !own.contains(&device.name.as_str());
    is_link.then_some(device.index)
}

/// Returns the gateways of the default routes.
pub(crate) fn find_gateways(netlink: &mut Netlink) -> BTreeSet<IpAddr> {
    let outside = net_cni::OUTSIDE.iter().filter_map(|text| text.parse().ok());
    outside
        .filter_map(|address| netlink.find_route_to(address).ok()??.gateway)
        .collect()
}

/// Applies the difference between a plan and the kernel. An entry that is refused does not prevent
/// the others. Returns the failures.
pub(crate) fn apply_plan(
    netlink: &mut Netlink,
    tunnel: Option<u32>,
    plan: &Plan,
) -> Result<Vec<net_link::Error>, KernelError> {
    let mut failures = Vec::new();
    if let Some(device) = tunnel {
        // Before the routes that lead to them; entries that are no longer needed go last.
        let forwarding: BTreeSet<_> = netlink.list_forwarding(device)?.into_iter().collect();
        for entry in plan.forwarding.difference(&forwarding) {
            failures.extend(netlink.replace_forwarding(device, entry).err());
        }
        let neighbours: BTreeSet<_> = netlink.list_neighbours(device)?.into_iter().collect();
        for entry in plan.neighbours.difference(&neighbours) {
            failures.extend(netlink.replace_neighbour(device, entry).err());
        }
        failures.extend(apply_routes(netlink, plan)?);
        for entry in neighbours.difference(&plan.neighbours) {
            // One that was replaced has the same address, and no longer exists.
            if plan
                .neighbours
                .iter()
                .all(|kept| kept.address != entry.address)
            {
                failures.extend(netlink.delete_neighbour(device, entry).err());
            }
        }
        for entry in forwarding.difference(&plan.forwarding) {
            if plan.forwarding.iter().all(|kept| kept.mac != entry.mac) {
                failures.extend(netlink.delete_forwarding(device, entry).err());
            }
        }
        return Ok(failures);
    }
    failures.extend(apply_routes(netlink, plan)?);
    Ok(failures)
}

fn apply_routes(netlink: &mut Netlink, plan: &Plan) -> Result<Vec<net_link::Error>, KernelError> {
    let mut failures = Vec::new();
    let present: BTreeSet<_> = netlink.list_routes(OWNER)?.into_iter().collect();
    for route in present.difference(&plan.routes) {
        let is_replaced = plan
            .routes
            .iter()
            .any(|kept| kept.destination == route.destination);
        // Routes of IPv6 to one destination stand beside each other, if their devices differ.
        if !is_replaced || route.destination.addr().is_ipv6() {
            failures.extend(netlink.delete_route(route, OWNER).err());
        }
    }
    for route in plan.routes.difference(&present) {
        failures.extend(netlink.replace_route(route, OWNER).err());
    }
    Ok(failures)
}

/// Removes the routes, the tunnels and the bridge.
pub(crate) fn remove_devices(
    netlink: &mut Netlink,
    settings: &NodeSettings,
) -> Result<(), KernelError> {
    for route in netlink.list_routes(OWNER)? {
        netlink.delete_route(&route, OWNER)?;
    }
    remove_tunnel(netlink, settings)?;
    remove_wireguard(netlink, settings)?;
    let bridge = netlink.find_device(settings.bridge.as_str())?;
    if bridge.is_some_and(|device| device.kind == "bridge") {
        netlink.delete_device(&settings.bridge)?;
    }
    Ok(())
}
