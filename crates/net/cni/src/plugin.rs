//! One operation of a runtime.

use std::path::Path;

use net_link::Netlink;
use serde_json::Value;

use crate::allocation::choose_addresses;
use crate::bandwidth::limit_bandwidth;
use crate::bridge::{Bridge, disable_autoconfiguration};
use crate::check::check_attachment;
use crate::collect::collect_garbage;
use crate::config::{Network, PodOptions, read_version};
use crate::environment::{Attachment, Environment, Operation};
use crate::error::{ErrorCode, PluginError};
use crate::host_ports::{apply_host_ports, check_free, forget_connections};
use crate::loopback::{execute_loopback, is_loopback};
use crate::pod_device::{PodAddress, PodDevice, host_device, redirect_device};
use crate::port_mapping::HostPort;
use crate::records::{Record, RecordKey, Records, taken_addresses};
use crate::removal::delete_attachment;
use crate::response::{Addition, supported_versions};
use crate::version::{NEWEST_VERSION, SpecVersion};

/// The text for standard output, and the exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// JSON of the specification; empty if the operation has no result.
    pub text: String,
    /// The operation succeeded.
    pub is_success: bool,
}

/// Executes the operation of an environment with a configuration.
pub async fn run_plugin(environment: &Environment, input: &[u8]) -> Output {
    match execute(environment, input).await {
        Ok(result) => Output {
            text: result.map_or(String::new(), |result| format!("{result:#}\n")),
            is_success: true,
        },
        Err(error) => Output {
            text: format_error(&error, input),
            is_success: false,
        },
    }
}

fn format_error(error: &PluginError, input: &[u8]) -> String {
    let version = read_version(input);
    let tree = error.to_json(version.as_deref().unwrap_or(NEWEST_VERSION));
    format!("{tree:#}\n")
}

async fn execute(environment: &Environment, input: &[u8]) -> Result<Option<Value>, PluginError> {
    let operation = Operation::parse(environment)?;
    if operation == Operation::Version {
        let version = read_version(input);
        return Ok(Some(supported_versions(version.as_deref())));
    }
    if let Ok(tree) = serde_json::from_slice(input)
        && is_loopback(&tree)
    {
        return execute_loopback(&operation, &tree);
    }
    let network = Network::parse(input)?;
    if matches!(operation, Operation::Add(..) | Operation::Status) {
        check_boot(&network)?;
    }
    match operation {
        Operation::Add(attachment, namespace) => add_attachment(&network, &attachment, &namespace)
            .await
            .map(Some),
        Operation::Delete(attachment) => {
            let key = RecordKey::of_attachment(&network.name, &attachment);
            delete_attachment(&network, &key).await.map(|()| None)
        }
        Operation::Check(attachment, namespace) => {
            require_version(&network, SpecVersion::V0_4_0, "CHECK")?;
            check_attachment(&network, &attachment, &namespace).map(|()| None)
        }
        Operation::Collect => {
            require_version(&network, SpecVersion::V1_1_0, "GC")?;
            collect_garbage(&network).await.map(|()| None)
        }
        Operation::Status => {
            require_version(&network, SpecVersion::V1_1_0, "STATUS")?;
            check_status(&network).await.map(|()| None)
        }
        Operation::Version => Ok(None),
    }
}

/// Checks that the configuration is of this boot, if it names one: it survives a restart of the
/// node, but routes and rules do not.
fn check_boot(network: &Network) -> Result<(), PluginError> {
    let Some(expect) = &network.boot_id else {
        return Ok(());
    };
    if read_boot_id().is_ok_and(|boot| boot == *expect) {
        return Ok(());
    }
    Err(PluginError::new(
        ErrorCode::Unavailable,
        "the network's configuration is from before a restart of the node; wait until its agent has written a new one, or see its log",
    ))
}

/// Returns the number of the kernel's boot.
///
/// # Errors
/// The file can't be read.
pub fn read_boot_id() -> std::io::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(text.trim().to_owned())
}

fn require_version(
    network: &Network,
    least: SpecVersion,
    operation: &str,
) -> Result<(), PluginError> {
    if network.version >= least {
        return Ok(());
    }
    let message = format!(
        "{operation} needs cniVersion {} or newer; the configuration has {}",
        least.as_str(),
        network.version.as_str()
    );
    Err(PluginError::new(ErrorCode::IncompatibleVersion, message))
}

async fn add_attachment(
    network: &Network,
    attachment: &Attachment,
    namespace: &Path,
) -> Result<Value, PluginError> {
    if network.previous.is_some() {
        return Err(PluginError::invalid_config(
            "another plugin is before this one in the list; put this one first",
        ));
    }
    let key = RecordKey::of_attachment(&network.name, attachment);
    let pod = PodDevice::open(namespace, attachment, &key)?;
    let options = network.pod_options()?;
    let addresses = reserve(network, attachment, &key, &options.host_ports)?;
    let work = make_attachment(network, attachment, namespace, &pod, &addresses);
    let made = match work {
        Ok(result) => apply_options(network, &key, &options)
            .await
            .map(|()| result),
        Err(error) => Err(error),
    };
    match made {
        Ok(result) => Ok(result),
        Err(error) => Err(match delete_attachment(network, &key).await {
            Ok(()) => error,
            Err(left) => error.with_failure(&left),
        }),
    }
}

/// Reserves addresses and host ports, before anything is made.
fn reserve(
    network: &Network,
    attachment: &Attachment,
    key: &RecordKey,
    ports: &[HostPort],
) -> Result<Vec<PodAddress>, PluginError> {
    let records = Records::lock(&network.data_dir, &network.name)?;
    if records.list_keys()?.contains(key) {
        return Err(PluginError::new(
            ErrorCode::AlreadyAttached,
            format!(
                "the container {} has the interface {} already; DEL comes before another ADD",
                attachment.container, attachment.interface
            ),
        ));
    }
    let present = records.read_all()?;
    let others = records.read_others();
    check_free(ports, present.iter().chain(&others))?;
    let taken = taken_addresses(&present);
    let addresses = choose_addresses(&network.range_sets, &taken, &records.read_last())?;
    let record = Record {
        container: attachment.container.clone(),
        interface: attachment.interface.to_string(),
        addresses: addresses.clone(),
        host_ports: ports.to_vec(),
        bridge: network.bridge.to_string(),
    };
    records.write(key, &record)?;
    records.write_last(&addresses);
    Ok(PodAddress::find_all(
        &addresses,
        network.range_sets.iter().flatten(),
    ))
}

fn make_attachment(
    network: &Network,
    attachment: &Attachment,
    namespace: &Path,
    pod: &PodDevice<'_>,
    addresses: &[PodAddress],
) -> Result<Value, PluginError> {
    let mut netlink = Netlink::open()?;
    let bridge = Bridge {
        name: &network.bridge,
        mtu: network.mtu,
        ranges: network.ranges().copied().collect(),
    };
    let bridge = bridge.ensure(&mut netlink)?;
    // Here, before a pod is on it: an agent in a container can't write kernel settings.
    disable_autoconfiguration(&network.bridge)?;
    let mtu = network.mtu.unwrap_or(bridge.mtu);
    let created = pod.create(&mut netlink, &bridge, mtu, addresses)?;
    let addition = Addition {
        network,
        attachment,
        namespace,
        host: &pod.host,
        bridge_mac: bridge.mac,
        created,
        addresses,
    };
    Ok(addition.to_json())
}

/// Limits the rates of a pod, and opens its host ports.
async fn apply_options(
    network: &Network,
    key: &RecordKey,
    options: &PodOptions,
) -> Result<(), PluginError> {
    let (host, target) = (host_device(key)?, redirect_device(key)?);
    limit_bandwidth(&mut Netlink::open()?, &options.bandwidth, &host, &target)?;
    if options.host_ports.is_empty() {
        return Ok(());
    }
    install_host_ports(network).await?;
    forget_connections(&options.host_ports).await;
    Ok(())
}

/// Installs the host ports of all records, under their lock: the last process has all of them.
async fn install_host_ports(network: &Network) -> Result<(), PluginError> {
    let records = Records::lock(&network.data_dir, &network.name)?;
    let mut present = records.read_all()?;
    present.extend(records.read_others());
    apply_host_ports(network.subnets(), &network.bridge, &present).await
}

/// Checks whether pods could be added. A node without a free address is ready nevertheless: its
/// pods must not be evicted.
async fn check_status(network: &Network) -> Result<(), PluginError> {
    let unavailable = |error: PluginError| error.with_code(ErrorCode::Unavailable);
    // Without the lock, for which it would wait while a large transaction is applied.
    Records::check_dir(&network.data_dir).map_err(unavailable)?;
    Netlink::open().map_err(|error| unavailable(error.into()))?;
    let checked = net_nft::check_nft().await;
    checked.map_err(|error| unavailable(error.into()))
}
