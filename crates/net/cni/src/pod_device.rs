//! The devices of a pod: one end on the node's bridge, the other in the pod's network namespace.

use std::fs::File;
use std::net::IpAddr;

use ipnet::IpNet;
use net_link::{
    Device, DeviceName, MacAddress, Netlink, NewVeth, Route, RouteSource, is_own_namespace,
    open_in, run_in,
};

use crate::bridge::{disable_autoconfiguration, gateway_mac, set_kernel_setting};
use crate::config::AddressRange;
use crate::environment::Attachment;
use crate::error::{ErrorCode, PluginError};
use crate::records::RecordKey;

/// An address of a pod with the range that it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PodAddress {
    pub(crate) address: IpNet,
    pub(crate) gateway: IpAddr,
}

impl PodAddress {
    /// Returns the addresses with their ranges. One that is in no range, because the configuration
    /// has changed, is left out.
    pub(crate) fn find_all<'a>(
        addresses: &[IpAddr],
        ranges: impl Iterator<Item = &'a AddressRange> + Clone,
    ) -> Vec<Self> {
        let find = |address: &IpAddr| {
            let range = ranges
                .clone()
                .find(|range| range.subnet.contains(address))?;
            Some(Self {
                address: IpNet::new(*address, range.subnet.prefix_len()).ok()?,
                gateway: range.gateway,
            })
        };
        addresses.iter().filter_map(find).collect()
    }
}

/// A pod's network namespace and the names of its devices.
#[derive(Debug)]
pub(crate) struct PodDevice<'a> {
    pub(crate) namespace: File,
    pub(crate) interface: &'a DeviceName,
    pub(crate) host: DeviceName,
}

/// Returns the name of the attachment's device on the node.
pub(crate) fn host_device(key: &RecordKey) -> Result<DeviceName, PluginError> {
    parse_name(&key.device_name())
}

/// Returns the name of the device for what the pod sends, if its rate is limited.
pub(crate) fn redirect_device(key: &RecordKey) -> Result<DeviceName, PluginError> {
    parse_name(&key.redirect_name())
}

fn parse_name(name: &str) -> Result<DeviceName, PluginError> {
    DeviceName::parse(name)
        .ok_or_else(|| PluginError::input_output(format!("{name:?} is not a name of a device")))
}

impl<'a> PodDevice<'a> {
    /// Opens the namespace.
    ///
    /// # Errors
    /// There is no such file, or it is the node's own namespace.
    pub(crate) fn open(
        path: &std::path::Path,
        attachment: &'a Attachment,
        key: &RecordKey,
    ) -> Result<Self, PluginError> {
        let failed = |error: std::io::Error| {
            PluginError::new(
                ErrorCode::UnknownContainer,
                format!(
                    "the network namespace {} can't be used: {error}",
                    path.display()
                ),
            )
        };
        let namespace = File::open(path).map_err(failed)?;
        if is_own_namespace(&namespace).map_err(failed)? {
            return Err(PluginError::new(
                ErrorCode::InvalidEnvironment,
                format!(
                    "CNI_NETNS {} is the node's own network namespace",
                    path.display()
                ),
            ));
        }
        Ok(Self {
            namespace,
            interface: &attachment.interface,
            host: host_device(key)?,
        })
    }

    /// Makes the devices and sets the pod's addresses and default routes.
    ///
    /// # Errors
    /// The kernel refuses something. The devices may remain; deleting the one of the node deletes
    /// both.
    pub(crate) fn create(
        &self,
        netlink: &mut Netlink,
        bridge: &Device,
        mtu: u32,
        addresses: &[PodAddress],
    ) -> Result<Created, PluginError> {
        let first = addresses.first().map(|pod| pod.address.addr());
        let mac = gateway_mac(first.unwrap_or(IpAddr::from([0; 4])));
        netlink.create_veth(&NewVeth {
            name: &self.host,
            bridge: bridge.index,
            namespace: &self.namespace,
            peer: self.interface,
            peer_mac: mac,
            mtu,
        })?;
        let host = netlink.find_device(self.host.as_str())?;
        let host = host.ok_or_else(|| {
            PluginError::input_output(format!("the device {} was deleted meanwhile", self.host))
        })?;
        disable_autoconfiguration(&self.host)?;
        netlink.enable_hairpin(host.index)?;
        netlink.enable_device(host.index)?;
        self.configure(addresses)?;
        Ok(Created {
            pod_mac: mac,
            host_mac: host.mac,
            mtu,
        })
    }

    fn configure(&self, addresses: &[PodAddress]) -> Result<(), PluginError> {
        let has_ipv6 = addresses.iter().any(|pod| pod.gateway.is_ipv6());
        let interface = self.interface;
        let set = || {
            if has_ipv6 {
                // Some runtimes disable IPv6 in new namespaces.
                set_kernel_setting(&format!("ipv6/conf/{interface}/disable_ipv6"), "0")?;
            }
            disable_autoconfiguration(interface)
        };
        run_in(&self.namespace, set).map_err(|error| {
            PluginError::input_output(format!("the pod's namespace can't be entered: {error}"))
        })??;
        let mut inside = open_in(&self.namespace)?;
        let device = self.find_inside(&mut inside)?;
        for pod in addresses {
            inside.add_address(device.index, pod.address)?;
        }
        inside.enable_device(device.index)?;
        if let Some(loopback) = inside.find_device("lo")? {
            inside.enable_device(loopback.index)?;
        }
        for pod in addresses {
            inside.replace_route(&default_route(device.index, pod.gateway), RouteSource::BOOT)?;
        }
        Ok(())
    }

    /// Returns the pod's end.
    ///
    /// # Errors
    /// It does not exist.
    pub(crate) fn find_inside(&self, inside: &mut Netlink) -> Result<Device, PluginError> {
        let device = inside.find_device(self.interface.as_str())?;
        device.ok_or_else(|| {
            PluginError::new(
                ErrorCode::NetworkDiffers,
                format!("the pod has no device {}", self.interface),
            )
        })
    }
}

/// The devices that were made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Created {
    pub(crate) pod_mac: MacAddress,
    pub(crate) host_mac: Option<MacAddress>,
    pub(crate) mtu: u32,
}

/// Returns the default route through a gateway.
pub(crate) fn default_route(device: u32, gateway: IpAddr) -> Route {
    let everything: IpAddr = match gateway {
        IpAddr::V4(_) => [0u8; 4].into(),
        IpAddr::V6(_) => [0u8; 16].into(),
    };
    Route {
        destination: IpNet::new_assert(everything, 0),
        device,
        gateway: Some(gateway),
        source: None,
        is_on_link: false,
    }
}
