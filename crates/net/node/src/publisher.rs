//! Publishes the node's public key of WireGuard in its Node.

use std::time::Duration;

use client::{Client, Patch};
use k8s_openapi::api::core::v1::Node;
use net_link::PublicKey;
use serde_json::json;
use tokio::sync::watch;

use crate::peers::KEY_ANNOTATION;

/// Pause after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(5);
/// Pause after a success, until the Node is known to have the key: another program may have removed
/// it meanwhile.
const CONFIRMATION_DELAY: Duration = Duration::from_secs(60);

/// Writes the key that the Node lacks, each time there is one, until the sender is dropped. In a
/// task of its own: a request that hangs must not delay repairs of the kernel.
pub(crate) async fn publish_keys(
    client: Client,
    node_name: String,
    mut unpublished: watch::Receiver<Option<PublicKey>>,
) {
    let nodes = client.api::<Node>();
    let mut reported = None;
    loop {
        let key = *unpublished.borrow_and_update();
        let mut delay = CONFIRMATION_DELAY;
        if let Some(key) = key {
            match nodes.patch(&node_name, &build_key_patch(&key)).await {
                Ok(_) => {
                    tracing::info!(%key, "the WireGuard key is published");
                    reported = None;
                }
                Err(error) => {
                    delay = RETRY_DELAY;
                    report_failure(&mut reported, error.to_string());
                }
            }
        }
        tokio::select! {
            changed = unpublished.changed() => if changed.is_err() {
                return;
            },
            () = tokio::time::sleep(delay), if key.is_some() => {}
        }
    }
}

fn build_key_patch(key: &PublicKey) -> Patch {
    Patch::Merge(json!({ "metadata": { "annotations": { KEY_ANNOTATION: key.to_string() } } }))
}

/// Logs a failure once, as long as it lasts.
fn report_failure(reported: &mut Option<String>, error: String) {
    if reported.as_ref() != Some(&error) {
        tracing::warn!(
            error,
            "the WireGuard key of this node can't be published, so other nodes send nothing to its pods; \
             set --node-kubeconfig to the kubelet's, which may write the Node"
        );
    }
    *reported = Some(error);
}
