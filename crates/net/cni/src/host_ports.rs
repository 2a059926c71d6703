//! Ports of the node that lead to pods.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use ipnet::IpNet;
use net_link::{DeviceName, Netlink};
use net_nft::Family;

use crate::bridge::{clear_kernel_setting, set_kernel_setting};
use crate::error::{ErrorCode, PluginError};
use crate::host_port_rules::{build_rules, table_name};
use crate::port_mapping::HostPort;
use crate::records::{Record, RecordKey, Records};

/// Limit of the deletion of tracked connections.
const CONNECTIONS_TIMEOUT: Duration = Duration::from_secs(5);

/// Checks that no other pod has one of the ports.
///
/// # Errors
/// Another pod, or another entry of the same one, has it.
pub(crate) fn check_free<'a>(
    ports: &[HostPort],
    records: impl Iterator<Item = &'a (RecordKey, Record)> + Clone,
) -> Result<(), PluginError> {
    for (index, port) in ports.iter().enumerate() {
        let mut earlier = ports.iter().take(index);
        if earlier.any(|other| port.contradicts(other)) {
            return Err(PluginError::invalid_config(format!(
                "portMappings: {port} leads to two ports of the pod"
            )));
        }
        let owner = records
            .clone()
            .find(|(_, record)| record.host_ports.iter().any(|other| port.collides(other)));
        if let Some((_, owner)) = owner {
            return Err(PluginError::new(
                ErrorCode::HostPortInUse,
                format!(
                    "the host port {port} belongs to the container {}; delete its pod, or wait until it has ended",
                    owner.container
                ),
            ));
        }
    }
    Ok(())
}

/// Installs the rules of those records that are of a bridge.
///
/// # Errors
/// `nft` fails; then the rules are those of before.
pub(crate) async fn apply_host_ports(
    mut subnets: Vec<IpNet>,
    bridge: &DeviceName,
    records: &[(RecordKey, Record)],
) -> Result<(), PluginError> {
    let families = net_nft::supported_families();
    let records: Vec<_> = records
        .iter()
        .map(|(_, record)| record)
        .filter(|record| record.bridge == bridge.as_str())
        .collect();
    // Pods of other networks on the bridge.
    for address in records.iter().flat_map(|record| &record.addresses) {
        if !subnets.iter().any(|subnet| subnet.contains(address)) {
            subnets.push(IpNet::from(*address));
        }
    }
    let loopback = format!("ipv4/conf/{bridge}/route_localnet");
    let needs_loopback = records.iter().any(|record| {
        let mut ports = record.host_ports.iter();
        record.addresses.iter().any(IpAddr::is_ipv4) && ports.any(|port| port.ipv4)
    });
    // Set only while the chain that makes it harmless is there.
    if !needs_loopback {
        clear_kernel_setting(&loopback)?;
    }
    let rules = build_rules(bridge, &subnets, &families, &records);
    net_nft::apply_commands(&rules).await?;
    if needs_loopback {
        set_kernel_setting(&loopback, "1")?;
    }
    Ok(())
}

/// The records of a directory, locked: no pod's host ports change meanwhile.
#[derive(Debug)]
pub struct LockedHostPorts(Records);

impl LockedHostPorts {
    /// Waits for the lock; returns None if the network has no pods yet.
    ///
    /// # Errors
    /// The directory can't be used.
    pub fn lock(data_dir: &Path, network: &str) -> Result<Option<Self>, PluginError> {
        match data_dir.join(network).is_dir() {
            true => Records::lock(data_dir, network).map(|records| Some(Self(records))),
            false => Ok(None),
        }
    }

    /// Installs the host ports of pods on a bridge, if there are any: another program may have
    /// removed the rules. Pods without a device have ended with an earlier boot.
    ///
    /// # Errors
    /// The kernel or `nft` refuses it.
    pub async fn restore(self, subnets: &[IpNet], bridge: &DeviceName) -> Result<(), PluginError> {
        let Self(records) = self;
        let mut netlink = Netlink::open()?;
        let mut present = Vec::new();
        for (key, record) in records
            .read_valid()
            .into_iter()
            .chain(records.read_others())
        {
            if netlink.find_device(&key.device_name())?.is_some() {
                present.push((key, record));
            }
        }
        let has_ports = |(_, record): &(RecordKey, Record)| {
            record.bridge == bridge.as_str() && !record.host_ports.is_empty()
        };
        if !present.iter().any(has_ports) {
            return Ok(());
        }
        apply_host_ports(subnets.to_vec(), bridge, &present).await
    }
}

/// Removes the rules of a bridge.
///
/// # Errors
/// `nft` fails.
pub async fn remove_host_ports(bridge: &DeviceName) -> Result<(), net_nft::Error> {
    for family in net_nft::supported_families() {
        net_nft::delete_table(family, &table_name(bridge)).await?;
    }
    Ok(())
}

/// Deletes tracked UDP packets to the ports on addresses of the node: the kernel would not send
/// further ones to the pod. Those that only pass the node, such as queries of pods to a DNS server
/// elsewhere, stay.
pub(crate) async fn forget_connections(ports: &[HostPort]) {
    let ports = ports.iter().filter(|port| port.protocol == "udp");
    let ports: Vec<_> = ports.collect();
    if ports.is_empty() {
        return;
    }
    let listed = Netlink::open().and_then(|mut netlink| netlink.list_addresses());
    // Without the list, none is deleted: the pod works without.
    let local = listed.unwrap_or_default();
    let local: BTreeSet<IpAddr> = local.iter().map(|found| found.address.addr()).collect();
    let mut calls = Vec::new();
    for port in ports {
        let leads = |address: &&IpAddr| match port.address {
            Some(own) => own == **address,
            None => port.has_family(Family::of(**address)),
        };
        for address in local.iter().filter(leads) {
            let words = ["--orig-dst", &address.to_string(), "--orig-port-dst"];
            let number = port.port.to_string();
            calls.push(format_deletion(
                *address,
                &[&words[..], &[&number]].concat(),
            ));
        }
    }
    delete_connections(&calls).await;
}

/// Deletes tracked UDP packets to a pod: the kernel would send further ones to the next pod with
/// its addresses.
pub(crate) async fn forget_pod(record: &Record) {
    if record.host_ports.iter().all(|port| port.protocol != "udp") {
        return;
    }
    let format = |address: &IpAddr| {
        let words = ["--reply-src", &address.to_string()];
        format_deletion(*address, &words)
    };
    let calls: Vec<_> = record.addresses.iter().map(format).collect();
    delete_connections(&calls).await;
}

fn format_deletion(address: IpAddr, words: &[&str]) -> Vec<String> {
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let all = [&["-D", "-f", family, "-p", "udp"], words].concat();
    all.into_iter().map(str::to_owned).collect()
}

async fn delete_connections(calls: &[Vec<String>]) {
    // Pods work without; clients that send all the time from one port may be late.
    if let Err(error) = net_nft::delete_connections(calls, CONNECTIONS_TIMEOUT).await {
        eprintln!("tracked connections of host ports are not deleted: {error}");
    }
}
