//! The network configuration, from standard input.
//!
//! The names of fields are those of the CNI project's plugins `bridge` and `host-local`. A field
//! that this plugin does not have is an error, and so is a value that it does not implement.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use net_link::DeviceName;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::bandwidth::Bandwidth;
use crate::environment::is_identifier;
use crate::error::{ErrorCode, PluginError};
use crate::port_mapping::{HostPort, PortMapping};
use crate::version::SpecVersion;

/// Name of the bridge, unless the configuration has another.
pub const DEFAULT_BRIDGE: &str = "cni0";
/// Directory of the records, unless the configuration has another.
pub const DEFAULT_DATA_DIR: &str = "/var/lib/cni/ironclad";
/// Capabilities of the plugin.
const CAPABILITIES: [&str; 2] = ["portMappings", "bandwidth"];
/// Limits of lists in a configuration.
const MAX_RANGES: usize = 16;
const MAX_PORT_MAPPINGS: usize = 4096;
/// Limits of the largest packet in bytes: the least of IPv4, and what the kernel allows.
const MTU_LIMITS: std::ops::RangeInclusive<u32> = 68..=65_535;

/// A network, checked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Network {
    pub(crate) version: SpecVersion,
    pub(crate) name: String,
    pub(crate) bridge: DeviceName,
    /// Largest packet in bytes; None is that of the node's default route.
    pub(crate) mtu: Option<u32>,
    pub(crate) data_dir: PathBuf,
    /// The only boot of the node with which it is valid.
    pub(crate) boot_id: Option<String>,
    /// One set of ranges for each family; a pod has an address of each.
    pub(crate) range_sets: Vec<Vec<AddressRange>>,
    pub(crate) dns: Option<Value>,
    runtime_config: Option<Value>,
    pub(crate) previous: Option<Value>,
    /// Containers and interfaces that a collection keeps.
    pub(crate) valid_attachments: Option<Vec<ValidAttachment>>,
}

/// A range of addresses of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    /// The network.
    pub subnet: IpNet,
    /// First address that a pod may have.
    pub start: IpAddr,
    /// Last address that a pod may have.
    pub end: IpAddr,
    /// The node's address on the bridge.
    pub gateway: IpAddr,
}

/// An attachment in the list of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct ValidAttachment {
    #[serde(rename = "containerID")]
    pub(crate) container: String,
    #[serde(rename = "ifname")]
    pub(crate) interface: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawNetwork {
    #[serde(rename = "cniVersion")]
    _version: Option<String>,
    #[serde(default)]
    name: String,
    #[serde(rename = "type")]
    _type: Option<String>,
    bridge: Option<String>,
    mtu: Option<u32>,
    is_gateway: Option<bool>,
    is_default_gateway: Option<bool>,
    hairpin_mode: Option<bool>,
    ip_masq: Option<bool>,
    boot_id: Option<String>,
    ipam: Option<RawIpam>,
    dns: Option<Value>,
    #[serde(default)]
    capabilities: Map<String, Value>,
    runtime_config: Option<Value>,
    prev_result: Option<Value>,
    #[serde(rename = "args")]
    _args: Option<Value>,
    #[serde(
        default,
        rename = "cni.dev/valid-attachments",
        deserialize_with = "read_attachments"
    )]
    valid_attachments: Option<Vec<ValidAttachment>>,
    // The name of the same list in drafts of the specification, which runtimes send beside it.
    #[serde(rename = "cni.dev/attachments")]
    _attachments: Option<Value>,
}

/// Reads a list in which null is an empty one; an absent list remains None.
fn read_attachments<'de, D: serde::Deserializer<'de>>(
    source: D,
) -> Result<Option<Vec<ValidAttachment>>, D::Error> {
    Ok(Some(Option::deserialize(source)?.unwrap_or_default()))
}

fn read_network<'de, D: serde::Deserializer<'de>>(source: D) -> Result<IpNet, D::Error> {
    let text = String::deserialize(source)?;
    let error = || serde::de::Error::custom(format!("{text:?} is no range such as 10.244.0.0/24"));
    text.parse().map_err(|_| error())
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawIpam {
    #[serde(rename = "type")]
    kind: String,
    data_dir: Option<PathBuf>,
    #[serde(default)]
    ranges: Vec<Vec<RawRange>>,
    #[serde(default)]
    routes: Vec<RawRoute>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRange {
    #[serde(deserialize_with = "read_network")]
    subnet: IpNet,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRoute {
    #[serde(deserialize_with = "read_network")]
    dst: IpNet,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawRuntimeConfig {
    #[serde(default)]
    port_mappings: Option<Vec<PortMapping>>,
    bandwidth: Option<Bandwidth>,
}

/// Host ports and rates of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PodOptions {
    pub(crate) host_ports: Vec<HostPort>,
    pub(crate) bandwidth: Bandwidth,
}

/// Reads the version of a configuration, for the answer to one that is not valid.
pub(crate) fn read_version(input: &[u8]) -> Option<String> {
    let tree: Value = serde_json::from_slice(input).ok()?;
    Some(tree.get("cniVersion")?.as_str()?.to_owned())
}

impl Network {
    /// Parses and checks a configuration.
    ///
    /// # Errors
    /// It is no JSON, has fields or values that the plugin does not have, or misses some.
    pub(crate) fn parse(input: &[u8]) -> Result<Self, PluginError> {
        // First: the fields of another version may be others.
        let version = SpecVersion::parse(&read_version(input).unwrap_or_default());
        let tree: Value = serde_json::from_slice(input).map_err(|error| {
            let message = format!("the network configuration is not valid JSON: {error}");
            PluginError::new(ErrorCode::InvalidContent, message)
        })?;
        let version = version?;
        let raw: RawNetwork = serde_json::from_value(tree).map_err(|error| {
            PluginError::invalid_config(format!("the network configuration: {error}"))
        })?;
        check_fixed_values(&raw)?;
        if !is_identifier(&raw.name) {
            return Err(PluginError::invalid_config(format!(
                "the network's name {:?} is not valid; it begins with a letter or digit, and has letters, digits, '-', '_' \
                 and '.' only",
                raw.name
            )));
        }
        let bridge = raw.bridge.as_deref().unwrap_or(DEFAULT_BRIDGE);
        let bridge = DeviceName::parse(bridge).ok_or_else(|| {
            PluginError::invalid_config(format!("bridge {bridge:?} is not a name of a device"))
        })?;
        let mtu = raw.mtu.filter(|mtu| *mtu != 0);
        if mtu.is_some_and(|mtu| !MTU_LIMITS.contains(&mtu)) {
            return Err(PluginError::invalid_config(
                "mtu is not 0 or from 68 to 65535",
            ));
        }
        let ipam = raw.ipam.ok_or_else(|| {
            PluginError::invalid_config("ipam is missing; set its type host-local and its ranges")
        })?;
        Ok(Self {
            version,
            name: raw.name,
            bridge,
            mtu,
            range_sets: check_ipam(&ipam)?,
            data_dir: ipam.data_dir.unwrap_or_else(|| DEFAULT_DATA_DIR.into()),
            boot_id: raw.boot_id,
            dns: raw.dns,
            runtime_config: raw.runtime_config,
            previous: raw.prev_result,
            valid_attachments: raw.valid_attachments,
        })
    }

    /// Returns the options of the pod. They are read by ADD alone: a pod whose options are not
    /// valid can be deleted nevertheless.
    ///
    /// # Errors
    /// A value is not valid, or the runtime passes other capabilities.
    pub(crate) fn pod_options(&self) -> Result<PodOptions, PluginError> {
        let Some(tree) = &self.runtime_config else {
            return Ok(PodOptions::default());
        };
        let raw = RawRuntimeConfig::deserialize(tree)
            .map_err(|error| PluginError::invalid_config(format!("runtimeConfig: {error}")))?;
        let mappings = raw.port_mappings.unwrap_or_default();
        if mappings.len() > MAX_PORT_MAPPINGS {
            return Err(PluginError::invalid_config(
                "portMappings has more than 4096 entries",
            ));
        }
        Ok(PodOptions {
            host_ports: HostPort::parse_all(&mappings)?,
            bandwidth: raw.bandwidth.unwrap_or_default(),
        })
    }

    /// Returns the networks of all ranges.
    pub(crate) fn subnets(&self) -> Vec<IpNet> {
        self.ranges().map(|range| range.subnet).collect()
    }

    /// Returns the ranges of all families.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = &AddressRange> {
        self.range_sets.iter().flatten()
    }
}

/// Checks settings of the CNI project's plugins that have one value here.
fn check_fixed_values(raw: &RawNetwork) -> Result<(), PluginError> {
    for (name, value, expect) in [
        ("isGateway", raw.is_gateway, true),
        ("isDefaultGateway", raw.is_default_gateway, true),
        ("hairpinMode", raw.hairpin_mode, true),
        // It would hide the addresses of pods from other nodes.
        ("ipMasq", raw.ip_masq, false),
    ] {
        if value.is_some_and(|value| value != expect) {
            return Err(PluginError::invalid_config(format!(
                "{name} is always {expect} here; remove the field"
            )));
        }
    }
    let unknown = raw.capabilities.iter().find(|(name, value)| {
        // An off switch for something that is not there is as good as none.
        !CAPABILITIES.contains(&name.as_str()) && **value != Value::Bool(false)
    });
    match unknown {
        Some((name, _)) => Err(PluginError::invalid_config(format!(
            "the capability {name:?} is not supported; remove it, or add a plugin that has it after this one"
        ))),
        None => Ok(()),
    }
}

fn check_ipam(ipam: &RawIpam) -> Result<Vec<Vec<AddressRange>>, PluginError> {
    if ipam.kind != "host-local" {
        return Err(PluginError::invalid_config(format!(
            "ipam.type {:?} is not supported; it is host-local",
            ipam.kind
        )));
    }
    if ipam.data_dir.as_ref().is_some_and(|dir| !dir.is_absolute()) {
        return Err(PluginError::invalid_config(
            "ipam.dataDir is no absolute path",
        ));
    }
    if let Some(route) = ipam.routes.iter().find(|route| route.dst.prefix_len() != 0) {
        return Err(PluginError::invalid_config(format!(
            "ipam.routes has {}; pods have the default route only",
            route.dst
        )));
    }
    let sets = &ipam.ranges;
    if sets.is_empty() || sets.len() > 2 || sets.iter().any(Vec::is_empty) {
        return Err(PluginError::invalid_config(
            "ipam.ranges has one set of ranges for each family, such as [[{\"subnet\": \"10.244.0.0/24\"}]]",
        ));
    }
    if sets.iter().map(Vec::len).sum::<usize>() > MAX_RANGES {
        return Err(PluginError::invalid_config(
            "ipam.ranges has more than 16 ranges",
        ));
    }
    let sets: Vec<Vec<_>> = sets
        .iter()
        .map(|set| set.iter().map(AddressRange::check).collect())
        .collect::<Result<_, _>>()?;
    check_families(&sets)?;
    Ok(sets)
}

fn check_families(sets: &[Vec<AddressRange>]) -> Result<(), PluginError> {
    let families: Vec<bool> = sets
        .iter()
        .filter_map(|set| Some(set.first()?.gateway.is_ipv4()))
        .collect();
    for (set, is_v4) in sets.iter().zip(&families) {
        if set.iter().any(|range| range.gateway.is_ipv4() != *is_v4) {
            return Err(PluginError::invalid_config(
                "a set in ipam.ranges has ranges of both families; give each family a set of its own",
            ));
        }
    }
    if families.first() == families.get(1) && families.len() == 2 {
        return Err(PluginError::invalid_config(
            "two sets in ipam.ranges have one family; put the ranges of a family into one set",
        ));
    }
    Ok(())
}

impl AddressRange {
    /// Returns the range of all addresses of a network, with the first one as the gateway.
    #[must_use]
    pub fn of_network(subnet: IpNet) -> Option<Self> {
        let raw = RawRange {
            subnet,
            range_start: None,
            range_end: None,
            gateway: None,
        };
        Self::check(&raw).ok()
    }

    fn check(raw: &RawRange) -> Result<Self, PluginError> {
        let subnet = raw.subnet.trunc();
        let refuse = |reason: &str| {
            let message = format!("the range {subnet} in ipam.ranges {reason}");
            Err(PluginError::invalid_config(message))
        };
        let host_bits = subnet.max_prefix_len() - subnet.prefix_len();
        if host_bits < 2 {
            return refuse("is too small: a node and a pod need an address each");
        }
        let (first, last) = usable_addresses(subnet);
        let range = Self {
            subnet,
            start: raw.range_start.unwrap_or(first),
            end: raw.range_end.unwrap_or(last),
            gateway: raw.gateway.unwrap_or(first),
        };
        for (name, address) in [
            ("rangeStart", range.start),
            ("rangeEnd", range.end),
            ("gateway", range.gateway),
        ] {
            if !(first..=last).contains(&address) {
                return refuse(&format!("does not have its {name} {address}"));
            }
        }
        if range.start > range.end {
            return refuse("ends before it starts");
        }
        Ok(range)
    }
}

/// Returns the first and the last address that a machine may have: not the network's own (the
/// anycast address of routers in IPv6), and not the broadcast address of IPv4.
fn usable_addresses(subnet: IpNet) -> (IpAddr, IpAddr) {
    match subnet {
        IpNet::V4(net) => {
            let bits = |address: std::net::Ipv4Addr| u32::from(address);
            let first = bits(net.network()).saturating_add(1);
            let last = bits(net.broadcast()).saturating_sub(1);
            (IpAddr::V4(first.into()), IpAddr::V4(last.into()))
        }
        IpNet::V6(net) => {
            let first = u128::from(net.network()).saturating_add(1);
            (IpAddr::V6(first.into()), IpAddr::V6(net.broadcast()))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn example() -> Value {
        json!({
            "cniVersion": "1.0.0", "name": "pods", "type": "ironclad-cni",
            "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.244.3.7/24" }], [{ "subnet": "fd00::/64" }]] }
        })
    }

    fn parse(tree: &Value) -> Result<Network, PluginError> {
        Network::parse(tree.to_string().as_bytes())
    }

    #[test]
    fn defaults_are_those_of_the_whole_network() {
        let network = parse(&example()).unwrap();
        assert_eq!(network.bridge.as_str(), DEFAULT_BRIDGE);
        let range = network.range_sets[0][0];
        assert_eq!(range.subnet.to_string(), "10.244.3.0/24");
        assert_eq!(range.gateway.to_string(), "10.244.3.1");
        assert_eq!(range.end.to_string(), "10.244.3.254");
        let range = network.range_sets[1][0];
        assert_eq!(range.gateway.to_string(), "fd00::1");
        assert_eq!(range.end.to_string(), "fd00::ffff:ffff:ffff:ffff");
    }

    /// Whatever is accepted takes effect.
    #[test]
    fn values_that_would_have_no_effect_are_refused() {
        for (path, value) in [
            ("/cniVersion", json!("0.2.0")),
            ("/cniVersion", json!("2.0.0")),
            ("/name", json!("")),
            ("/name", json!("../x")),
            ("/bridge", json!("a b")),
            ("/mtu", json!(5)),
            ("/mtu", json!(70000)),
            ("/vlan", json!(5)),
            ("/ipMasq", json!(true)),
            ("/hairpinMode", json!(false)),
            ("/isGateway", json!(false)),
            ("/capabilities", json!({"aliases": true})),
            ("/ipam/type", json!("dhcp")),
            ("/ipam/dataDir", json!("x")),
            ("/ipam/routes", json!([{"dst": "10.0.0.0/8"}])),
            ("/ipam/ranges", json!([])),
            ("/ipam/ranges", json!([[]])),
            ("/ipam/ranges", json!([[{"subnet": "10.0.0.0/31"}]])),
            (
                "/ipam/ranges",
                json!([[{"subnet": "10.0.0.0/24"}, {"subnet": "fd00::/64"}]]),
            ),
            (
                "/ipam/ranges",
                json!([[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.1.0/24"}]]),
            ),
            (
                "/ipam/ranges",
                json!([[{"subnet": "10.0.0.0/24", "gateway": "10.0.1.1"}]]),
            ),
            (
                "/ipam/ranges",
                json!([[{"subnet": "10.0.0.0/24", "rangeStart": "10.0.0.9", "rangeEnd": "10.0.0.8"}]]),
            ),
        ] {
            let mut tree = example();
            let (parent, name) = path.rsplit_once('/').unwrap();
            tree.pointer_mut(parent).unwrap()[name] = value.clone();
            assert!(parse(&tree).is_err(), "{path} {value}");
        }
        assert!(Network::parse(b"").is_err());
        assert!(Network::parse(b"[]").is_err());
    }

    /// A list that is missing must not make a collection remove everything.
    #[test]
    fn absent_list_of_attachments_is_no_empty_one() {
        assert_eq!(parse(&example()).unwrap().valid_attachments, None);
        let mut tree = example();
        tree["cni.dev/valid-attachments"] = Value::Null;
        assert_eq!(parse(&tree).unwrap().valid_attachments, Some(vec![]));
    }
}
