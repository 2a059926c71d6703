//! The result of an addition, in the version of the request. Pure.

use std::path::Path;

use net_link::DeviceName;
use serde_json::{Value, json};

use crate::config::Network;
use crate::environment::Attachment;
use crate::pod_device::{Created, PodAddress};
use crate::version::{NEWEST_VERSION, SUPPORTED_VERSIONS, SpecVersion};

/// Index of the pod's device among the interfaces of a result.
const POD_INTERFACE: usize = 2;

/// Devices and addresses that an addition has made.
#[derive(Debug)]
pub(crate) struct Addition<'a> {
    pub(crate) network: &'a Network,
    pub(crate) attachment: &'a Attachment,
    pub(crate) namespace: &'a Path,
    pub(crate) host: &'a DeviceName,
    pub(crate) bridge_mac: Option<net_link::MacAddress>,
    pub(crate) created: Created,
    pub(crate) addresses: &'a [PodAddress],
}

impl Addition<'_> {
    /// Returns the specification's JSON.
    pub(crate) fn to_json(&self) -> Value {
        let version = self.network.version;
        let routes: Vec<_> = self
            .addresses
            .iter()
            .map(|pod| {
                let everything = match pod.gateway.is_ipv4() {
                    true => "0.0.0.0/0",
                    false => "::/0",
                };
                json!({ "dst": everything, "gw": pod.gateway })
            })
            .collect();
        let addresses: Vec<_> = self
            .addresses
            .iter()
            .map(|pod| format_address(version, pod))
            .collect();
        json!({
            "cniVersion": version.as_str(),
            "interfaces": self.list_interfaces(),
            "ips": addresses,
            "routes": routes,
            "dns": self.network.dns.clone().unwrap_or_else(|| json!({})),
        })
    }

    fn list_interfaces(&self) -> Vec<Value> {
        let mac =
            |mac: Option<net_link::MacAddress>| mac.map_or(String::new(), |mac| mac.to_string());
        let created = self.created;
        let mut interfaces = vec![
            json!({ "name": self.network.bridge.as_str(), "mac": mac(self.bridge_mac) }),
            json!({ "name": self.host.as_str(), "mac": mac(created.host_mac) }),
            json!({
                "name": self.attachment.interface.as_str(),
                "mac": created.pod_mac.to_string(),
                "sandbox": self.namespace.to_string_lossy(),
            }),
        ];
        if self.network.version >= SpecVersion::V1_1_0 {
            for interface in interfaces.iter_mut().skip(1) {
                interface["mtu"] = json!(created.mtu);
            }
        }
        interfaces
    }
}

fn format_address(version: SpecVersion, pod: &PodAddress) -> Value {
    let mut address = json!({
        "interface": POD_INTERFACE,
        "address": pod.address.to_string(),
        "gateway": pod.gateway,
    });
    if version < SpecVersion::V1_0_0 {
        let family = if pod.gateway.is_ipv4() { "4" } else { "6" };
        address["version"] = json!(family);
    }
    address
}

/// Returns the answer to VERSION, in the version of the request.
pub(crate) fn supported_versions(version: Option<&str>) -> Value {
    json!({ "cniVersion": version.unwrap_or(NEWEST_VERSION), "supportedVersions": SUPPORTED_VERSIONS })
}
