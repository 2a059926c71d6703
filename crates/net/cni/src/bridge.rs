//! The bridge of the node's pods.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use net_link::{Device, DeviceName, MacAddress, Netlink};
use sha2::{Digest, Sha256};

use crate::config::AddressRange;
use crate::error::PluginError;

/// The first two bytes of hardware addresses of pods and bridges: locally administered, and not
/// used by hardware.
const MAC_PREFIX: [u8; 2] = [0x0a, 0x58];
/// Packet size where the node has no default route.
const USUAL_MTU: u32 = 1500;
/// Addresses that the default route leads to (RFC 5737, RFC 3849). No packet is sent to them.
pub const OUTSIDE: [&str; 2] = ["198.51.100.1", "2001:db8:ffff::1"];
/// The loopback device, to which a node's own addresses lead.
const LOOPBACK: &str = "lo";

/// Settings with which a device takes addresses and routes from what it receives.
const AUTOCONFIGURATION: [&str; 3] = ["accept_ra", "autoconf", "accept_redirects"];

/// A node's bridge.
#[derive(Debug)]
pub struct Bridge<'a> {
    /// Its name.
    pub name: &'a DeviceName,
    /// Largest packet in bytes; None is that of the default route's device.
    pub mtu: Option<u32>,
    /// Ranges of the pods, whose gateways are its addresses.
    pub ranges: Vec<AddressRange>,
}

/// Returns the hardware address that belongs to an address: a neighbour's entry of a former pod
/// with the address is right for the next one, too.
#[must_use]
pub fn gateway_mac(address: IpAddr) -> MacAddress {
    let [a, b, c, d] = match address {
        IpAddr::V4(address) => address.octets(),
        // Of all bits: two ranges may have addresses with equal lower ones.
        IpAddr::V6(address) => {
            let digest = Sha256::digest(address.octets());
            let mut bytes = [0; 4];
            for (byte, digit) in bytes.iter_mut().zip(digest.iter()) {
                *byte = *digit;
            }
            bytes
        }
    };
    let [first, second] = MAC_PREFIX;
    MacAddress([first, second, a, b, c, d])
}

impl Bridge<'_> {
    /// Makes the bridge with its addresses, if it is not there, and lets the node forward packets.
    /// Processes that do so at the same time do not disturb each other.
    ///
    /// # Errors
    /// The name is in use by a device that is no bridge, or the kernel refuses something.
    pub fn ensure(&self, netlink: &mut Netlink) -> Result<Device, PluginError> {
        let device = self.create(netlink)?;
        if let Some(mtu) = self.mtu.filter(|mtu| *mtu != device.mtu) {
            netlink.set_mtu(device.index, mtu)?;
        }
        if !device.is_up {
            netlink.enable_device(device.index)?;
        }
        for range in &self.ranges {
            let address = IpNet::new(range.gateway, range.subnet.prefix_len());
            let address = address
                .map_err(|error| PluginError::invalid_config(format!("ipam.ranges: {error}")))?;
            netlink.add_address(device.index, address)?;
        }
        self.enable_forwarding()?;
        Ok(device)
    }

    fn create(&self, netlink: &mut Netlink) -> Result<Device, PluginError> {
        let name = self.name;
        if let Some(device) = netlink.find_device(name.as_str())? {
            return check_kind(device);
        }
        let mtu = match self.mtu {
            Some(mtu) => mtu,
            None => detect_mtu(netlink)?,
        };
        let gateway = self.ranges.first().map(|range| range.gateway);
        let mac = gateway_mac(gateway.unwrap_or(IpAddr::from([0; 4])));
        match netlink.create_bridge(name, mac, mtu) {
            // Another process was faster.
            Err(error) if !error.is_existing() => return Err(error.into()),
            _ => {}
        }
        let device = netlink.find_device(name.as_str())?.ok_or_else(|| {
            PluginError::input_output(format!(
                "the bridge {name} was deleted meanwhile; try again"
            ))
        })?;
        check_kind(device)
    }

    fn enable_forwarding(&self) -> Result<(), PluginError> {
        for range in &self.ranges {
            let name = match range.gateway {
                IpAddr::V4(_) => "ipv4/ip_forward",
                IpAddr::V6(_) => "ipv6/conf/all/forwarding",
            };
            set_kernel_setting(name, "1")?;
        }
        Ok(())
    }
}

/// Makes a device ignore router advertisements, if the kernel has IPv6: otherwise a pod could give
/// the node, or another pod, an address and a default route (CVE-2020-10749).
///
/// # Errors
/// The kernel refuses it.
pub(crate) fn disable_autoconfiguration(device: &DeviceName) -> Result<(), PluginError> {
    AUTOCONFIGURATION
        .iter()
        .try_for_each(|name| clear_kernel_setting(&format!("ipv6/conf/{device}/{name}")))
}

fn check_kind(device: Device) -> Result<Device, PluginError> {
    match device.kind.as_str() {
        "bridge" => Ok(device),
        kind => Err(PluginError::invalid_config(format!(
            "the device {} is no bridge but {kind:?}; set another name of the bridge",
            device.name
        ))),
    }
}

/// Returns the largest packet of the default route's device, in bytes.
fn detect_mtu(netlink: &mut Netlink) -> Result<u32, PluginError> {
    for outside in OUTSIDE.iter().filter_map(|text| text.parse().ok()) {
        let Some(route) = netlink.find_route_to(outside)? else {
            continue;
        };
        let device = netlink.find_device_by_index(route.device)?;
        if let Some(device) = device.filter(|device| device.name != LOOPBACK) {
            return Ok(device.mtu);
        }
    }
    Ok(USUAL_MTU)
}

/// Sets a setting to 0, if its device still exists.
///
/// # Errors
/// It can't be written and has another value.
pub(crate) fn clear_kernel_setting(name: &str) -> Result<(), PluginError> {
    match Path::new("/proc/sys/net").join(name).exists() {
        true => set_kernel_setting(name, "0"),
        false => Ok(()),
    }
}

/// Sets a setting of the calling thread's network, below `/proc/sys/net`.
///
/// # Errors
/// It does not exist, or can't be written and has another value.
pub(crate) fn set_kernel_setting(name: &str, value: &str) -> Result<(), PluginError> {
    let path = Path::new("/proc/sys/net").join(name);
    let set = || -> io::Result<()> {
        // In a container /proc/sys is often read-only and already right.
        if fs::read_to_string(&path)?.trim() != value {
            fs::write(&path, value)?;
        }
        Ok(())
    };
    set().map_err(|error| {
        PluginError::input_output(format!(
            "{} can't be set to {value}: {error}",
            path.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_two_ranges_have_different_hardware_addresses() {
        let mac = |text: &str| text.parse().ok().map(gateway_mac);
        assert_ne!(mac("fd00:0:0:1::5"), mac("fd00:0:0:2::5"));
        let expect = MacAddress([0x0a, 0x58, 10, 244, 0, 5]);
        assert_eq!(mac("10.244.0.5"), Some(expect));
    }
}
