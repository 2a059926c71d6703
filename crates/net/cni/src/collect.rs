//! Garbage collection: removal of attachments that the runtime does not know.

use std::collections::BTreeSet;

use crate::config::Network;
use crate::error::PluginError;
use crate::records::{RecordKey, Records};
use crate::removal::delete_attachment;

/// Removes all attachments of a network but the valid ones.
///
/// # Errors
/// The list of valid ones is missing, or an attachment can't be removed; the others are.
pub(crate) async fn collect_garbage(network: &Network) -> Result<(), PluginError> {
    let valid = network.valid_attachments.as_ref().ok_or_else(|| {
        PluginError::invalid_config(
            "cni.dev/valid-attachments is missing; without it, GC would remove the network of all pods",
        )
    })?;
    let valid: BTreeSet<_> = valid
        .iter()
        .map(|valid| RecordKey::new(&network.name, &valid.container, &valid.interface))
        .collect();
    let keys = Records::lock(&network.data_dir, &network.name)?.list_keys()?;
    let mut failed = Ok(());
    for key in keys.iter().filter(|key| !valid.contains(key)) {
        failed = failed.and(delete_attachment(network, key).await);
    }
    failed
}
