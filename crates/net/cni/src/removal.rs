//! Removal of an attachment.

use net_link::{DeviceName, Netlink};

use crate::config::Network;
use crate::error::PluginError;
use crate::host_ports::{apply_host_ports, forget_pod};
use crate::pod_device::{host_device, redirect_device};
use crate::records::{RecordKey, Records};

/// Removes everything that an attachment has; what does not exist is no error. Its record is last,
/// so that its address is not given to another pod before.
pub(crate) async fn delete_attachment(
    network: &Network,
    key: &RecordKey,
) -> Result<(), PluginError> {
    // The pod's end goes with it, whether or not its namespace still exists.
    let mut netlink = Netlink::open()?;
    netlink.delete_device(&host_device(key)?)?;
    netlink.delete_device(&redirect_device(key)?)?;
    let records = Records::lock(&network.data_dir, &network.name)?;
    // That of the record: the configuration may have another one by now. A damaged record may have
    // had host ports.
    let record = records.read(key);
    let bridge = match &record {
        Ok(None) => return Ok(()),
        Ok(Some(record)) if record.host_ports.is_empty() => None,
        Ok(Some(record)) => DeviceName::parse(&record.bridge),
        Err(_) => Some(network.bridge.clone()),
    };
    if let Some(bridge) = bridge {
        // The host ports of a damaged record are closed: they must not prevent the removal of
        // others.
        let mut present = records.read_valid();
        present.retain(|(other, _)| other != key);
        present.extend(records.read_others());
        apply_host_ports(network.subnets(), &bridge, &present).await?;
        if let Ok(Some(record)) = &record {
            forget_pod(record).await;
        }
    }
    records.remove(key)
}
