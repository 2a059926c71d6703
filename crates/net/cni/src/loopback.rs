//! The plugin `loopback`, which containerd before 2.0 runs beside the plugin of the pod network: it
//! enables a pod's loopback device.

use std::fs::File;
use std::path::Path;

use net_link::{Device, Netlink, open_in};
use serde_json::{Value, json};

use crate::environment::Operation;
use crate::error::{ErrorCode, PluginError};
use crate::version::SpecVersion;

/// The name of the plugin in a configuration.
const KIND: &str = "loopback";
/// Name of the device.
const DEVICE: &str = "lo";

/// Returns whether a configuration is for this plugin.
pub(crate) fn is_loopback(tree: &Value) -> bool {
    tree.get("type").and_then(Value::as_str) == Some(KIND)
}

/// Executes an operation.
///
/// # Errors
/// The version is not supported, or the namespace can't be used.
pub(crate) fn execute_loopback(
    operation: &Operation,
    tree: &Value,
) -> Result<Option<Value>, PluginError> {
    let version = tree.get("cniVersion").and_then(Value::as_str);
    let version = SpecVersion::parse(version.unwrap_or_default())?;
    match operation {
        Operation::Add(_, namespace) => enable(version, namespace).map(Some),
        Operation::Check(_, namespace) => match find_device(namespace)? {
            (_, device) if device.is_up => Ok(None),
            _ => Err(PluginError::new(
                ErrorCode::NetworkDiffers,
                "the pod's loopback device is disabled",
            )),
        },
        // The device goes with its namespace.
        _ => Ok(None),
    }
}

fn find_device(namespace: &Path) -> Result<(Netlink, Device), PluginError> {
    let file = File::open(namespace).map_err(|error| {
        let path = namespace.display();
        let message = format!("the network namespace {path} can't be used: {error}");
        PluginError::new(ErrorCode::UnknownContainer, message)
    })?;
    let mut inside = open_in(&file)?;
    let device = inside.find_device(DEVICE)?.ok_or_else(|| {
        PluginError::input_output(format!("{} has no loopback device", namespace.display()))
    })?;
    Ok((inside, device))
}

fn enable(version: SpecVersion, namespace: &Path) -> Result<Value, PluginError> {
    let (mut inside, device) = find_device(namespace)?;
    inside.enable_device(device.index)?;
    let addresses: Vec<_> = inside
        .list_addresses()?
        .into_iter()
        .filter(|found| found.device == device.index)
        .map(|found| {
            let mut entry = json!({ "interface": 0, "address": found.address.to_string() });
            if version < SpecVersion::V1_0_0 {
                let family = if found.address.addr().is_ipv4() {
                    "4"
                } else {
                    "6"
                };
                entry["version"] = json!(family);
            }
            entry
        })
        .collect();
    Ok(json!({
        "cniVersion": version.as_str(),
        "interfaces": [{
            "name": DEVICE,
            "mac": device.mac.map_or(String::new(), |mac| mac.to_string()),
            "sandbox": namespace.to_string_lossy(),
        }],
        "ips": addresses,
        "dns": {},
    }))
}
