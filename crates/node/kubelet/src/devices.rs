//! ResourceClaims of pods: reads them from the API server, has their devices prepared, and follows
//! the plugins of drivers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use api_semantics::devices::{ClaimName, claim_name, claims_of_pod, is_generated_for};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use node_runtime::{FolderWatch, labels};

use crate::context::KubeletContext;

/// Folder beneath the kubelet's in which plugins put their sockets.
const REGISTRATION: &str = "plugins_registry";
/// Delay after a plugin did not answer: it may have made its socket a moment too early.
const AGAIN: Duration = Duration::from_secs(5);
/// Interval of the scans of a folder that can't be watched.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time for the releases of one round.
const RELEASE_TIME: Duration = Duration::from_secs(60);

/// Prepares the devices of a pod's claims.
pub(crate) async fn prepare_devices(kubelet: &KubeletContext, pod: &Pod) -> Result<(), String> {
    // A restarted kubelet needs no API server for the pods that it finds running.
    if kubelet.devices.is_prepared(pod) {
        return Ok(());
    }
    let claims = read_claims(kubelet, pod).await?;
    let prepared = kubelet.devices.prepare_pod(pod, &claims).await;
    prepared.map_err(|error| error.to_string())
}

async fn read_claims(kubelet: &KubeletContext, pod: &Pod) -> Result<Vec<ResourceClaim>, String> {
    let client = kubelet.client.as_ref();
    let client = client.ok_or("resource claims need an API server, and none is configured")?;
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let api = client.namespaced::<ResourceClaim>(namespace);
    let mut claims = Vec::new();
    for entry in claims_of_pod(pod) {
        let (name, generated) = match claim_name(pod, entry) {
            ClaimName::NotNeeded => continue,
            ClaimName::Named(name) => (name, false),
            ClaimName::Generated(name) => (name, true),
            ClaimName::NotGenerated => {
                return Err(format!(
                    "the ResourceClaim of {:?} is not created yet",
                    entry.name
                ));
            }
            ClaimName::Unknown => {
                return Err(format!(
                    "{:?} names neither a claim nor a template",
                    entry.name
                ));
            }
        };
        let read = api.get(name).await;
        let claim = read.map_err(|error| format!("ResourceClaim {namespace}/{name}: {error}"))?;
        if generated && !is_generated_for(&claim, pod) {
            return Err(format!(
                "ResourceClaim {namespace}/{name} was not created for the pod"
            ));
        }
        claims.push(claim);
    }
    Ok(claims)
}

/// Registers plugins as their sockets appear.
pub(crate) async fn follow_plugins(kubelet: Arc<KubeletContext>) {
    let folder = kubelet.settings.root_dir.join(REGISTRATION);
    let watch = base_task::blocking(|| {
        std::fs::create_dir_all(&folder).and_then(|()| FolderWatch::new(&folder))
    });
    if let Err(error) = &watch {
        // The kernel limits the number of watches, and many simulated nodes need one each.
        tracing::info!(folder = %folder.display(), %error, "looking for plugins of devices at intervals");
    }
    let mut watch = watch.ok();
    loop {
        let failed = kubelet.devices.plugins().scan_folder(&folder).await;
        tokio::select! {
            () = kubelet.tasks.shutdown().cancelled() => return,
            () = wait_for_change(&mut watch) => {}
            () = tokio::time::sleep(AGAIN), if failed => {}
        }
    }
}

async fn wait_for_change(watch: &mut Option<FolderWatch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => tokio::time::sleep(INTERVAL).await,
    }
}

/// Releases the devices of pods that no worker has and whose sandboxes are removed.
pub(crate) async fn release_orphans(kubelet: &KubeletContext) {
    // A container that could not be stopped still uses its devices. The next round tries again.
    let Ok(sandboxes) = kubelet.runtime.list_sandboxes(None).await else {
        return;
    };
    let left: BTreeSet<&str> = sandboxes
        .iter()
        .map(|sandbox| labels::read_label(&sandbox.labels, labels::POD_UID))
        .collect();
    let pods = kubelet.devices.list_pods().into_iter();
    let gone = pods.filter(|uid| !left.contains(uid.as_str()) && !kubelet.workers.contains(uid));
    let releases = gone.map(|uid| async move {
        if let Err(error) = kubelet.devices.release_pod(&uid).await {
            tracing::warn!(pod = uid, %error, "devices of a deleted pod can't be released");
        }
    });
    // A plugin that hangs must not hold up the other plugins, and the collection.
    let releases = futures::future::join_all(releases);
    if tokio::time::timeout(RELEASE_TIME, releases).await.is_err() {
        tracing::warn!("devices of deleted pods are not all released yet; trying again");
    }
}
