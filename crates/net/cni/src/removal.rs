//! Removal of an attachment.

use net_link::Netlink;

use crate::config::Network;
use crate::error::PluginError;
use crate::host_ports::apply_host_ports;
use crate::pod_device::host_device;
use crate::records::{RecordKey, Records};

/// Removes everything that an attachment has; what does not exist is no error. Its record is last,
/// so that its address is not given to another pod before.
pub(crate) async fn delete_attachment(
    network: &Network,
    key: &RecordKey,
) -> Result<(), PluginError> {
    // The pod's end goes with it, whether or not its namespace still exists.
    Netlink::open()?.delete_device(&host_device(key)?)?;
    let records = Records::lock(&network.data_dir, &network.name)?;
    let has_ports = match records.read(key) {
        Ok(None) => return Ok(()),
        Ok(Some(record)) => !record.host_ports.is_empty(),
        // A damaged record may have had some.
        Err(_) => true,
    };
    if has_ports {
        let mut present = Vec::new();
        for other in records.list_keys()?.iter().filter(|other| *other != key) {
            let record = records.read(other)?;
            present.extend(record.map(|record| (other.clone(), record)));
        }
        apply_host_ports(network, &present).await?;
    }
    records.remove(key)
}
