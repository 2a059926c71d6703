//! CHECK: whether an attachment is as it was made.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use ipnet::IpNet;
use net_link::{Netlink, open_in};
use serde_json::Value;

use crate::bridge::OUTSIDE;
use crate::config::Network;
use crate::environment::Attachment;
use crate::error::{ErrorCode, PluginError};
use crate::pod_device::{PodAddress, PodDevice};
use crate::records::{RecordKey, Records};

/// Checks the record, the devices and the addresses of an attachment.
///
/// # Errors
/// The first thing that differs.
pub(crate) fn check_attachment(
    network: &Network,
    attachment: &Attachment,
    namespace: &Path,
) -> Result<(), PluginError> {
    let previous = network.previous.as_ref().ok_or_else(|| {
        PluginError::invalid_config("prevResult is missing; CHECK compares with the result of ADD")
    })?;
    let key = RecordKey::of_attachment(&network.name, attachment);
    let record = Records::lock(&network.data_dir, &network.name)?.read(&key)?;
    let record = record.ok_or_else(|| {
        let message = format!("the container {} has no address", attachment.container);
        PluginError::new(ErrorCode::UnknownContainer, message)
    })?;
    let listed = read_addresses(previous);
    if let Some(address) = record.addresses.iter().find(|own| !listed.contains(own)) {
        return Err(differs(format!(
            "prevResult does not have the address {address}"
        )));
    }
    let pod = PodDevice::open(namespace, attachment, &key)?;
    check_host(network, &pod)?;
    check_inside(network, &pod, &record.addresses)
}

/// Returns the addresses in a result. Other plugins of the list may have added some.
fn read_addresses(previous: &Value) -> BTreeSet<IpAddr> {
    let list = previous.get("ips").and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|entry| entry.get("address")?.as_str()?.parse::<IpNet>().ok())
        .map(|net| net.addr())
        .collect()
}

fn check_host(network: &Network, pod: &PodDevice<'_>) -> Result<(), PluginError> {
    let mut netlink = Netlink::open()?;
    let bridge = netlink.find_device(network.bridge.as_str())?;
    let bridge =
        bridge.ok_or_else(|| differs(format!("the bridge {} does not exist", network.bridge)))?;
    let host = netlink.find_device(pod.host.as_str())?;
    let host = host.ok_or_else(|| differs(format!("the device {} does not exist", pod.host)))?;
    if host.controller != Some(bridge.index) || !host.is_up {
        let message = format!(
            "the device {} is no enabled port of {}",
            pod.host, network.bridge
        );
        return Err(differs(message));
    }
    Ok(())
}

fn check_inside(
    network: &Network,
    pod: &PodDevice<'_>,
    addresses: &[IpAddr],
) -> Result<(), PluginError> {
    let mut inside = open_in(&pod.namespace)?;
    let device = pod.find_inside(&mut inside)?;
    if !device.is_up {
        return Err(differs(format!(
            "the pod's device {} is disabled",
            pod.interface
        )));
    }
    let present = inside.list_addresses()?;
    for address in PodAddress::find_all(addresses, network.range_sets.iter().flatten()) {
        let is_there = present
            .iter()
            .any(|found| found.device == device.index && found.address == address.address);
        if !is_there {
            return Err(differs(format!(
                "the pod does not have its address {}",
                address.address
            )));
        }
        let route = inside.find_route_to(address.gateway)?;
        if route.is_none_or(|route| route.device != device.index) {
            return Err(differs(format!(
                "the pod has no route to {}",
                address.gateway
            )));
        }
        check_default_route(&mut inside, address.gateway)?;
    }
    Ok(())
}

/// Checks that packets to the outside take the gateway.
fn check_default_route(inside: &mut Netlink, gateway: IpAddr) -> Result<(), PluginError> {
    let outside = OUTSIDE
        .iter()
        .filter_map(|text| text.parse::<IpAddr>().ok());
    for address in outside.filter(|address| address.is_ipv4() == gateway.is_ipv4()) {
        let route = inside.find_route_to(address)?;
        if route.is_none_or(|route| route.gateway != Some(gateway)) {
            return Err(differs(format!(
                "the pod's default route does not lead to {gateway}"
            )));
        }
    }
    Ok(())
}

fn differs(message: String) -> PluginError {
    PluginError::new(ErrorCode::NetworkDiffers, message)
}
