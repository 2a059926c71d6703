//! Removal of an attachment.

use net_link::Netlink;

use crate::config::Network;
use crate::error::PluginError;
use crate::host_ports::apply_host_ports;
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
    let has_ports = match records.read(key) {
        Ok(None) => return Ok(()),
        Ok(Some(record)) => !record.host_ports.is_empty(),
        // A damaged record may have had some.
        Err(_) => true,
    };
    if has_ports {
        let keys = records.list_keys()?.into_iter();
        // The host ports of a damaged record are closed: they must not prevent the removal of
        // others.
        let present: Vec<_> = keys
            .filter(|other| other != key)
            .filter_map(|other| Some((other.clone(), records.read(&other).ok()??)))
            .collect();
        apply_host_ports(network, &present).await?;
    }
    records.remove(key)
}
