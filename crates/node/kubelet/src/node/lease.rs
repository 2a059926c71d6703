//! The heartbeat: a Lease in `kube-node-lease`, renewed by a separate task so that no busy pod can
//! delay it.

use crate::config::Settings;
use crate::context::KubeletContext;
use client::Client;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

const NAMESPACE: &str = "kube-node-lease";

/// Renews the Lease until shutdown. `uid` is the Node object's, which changes when the object is
/// created again.
pub(crate) async fn renew_lease(
    kubelet: Arc<KubeletContext>,
    client: Client,
    uid: watch::Receiver<String>,
) {
    let api = client.namespaced::<Lease>(NAMESPACE);
    let seconds = kubelet.settings.reporting.lease_seconds;
    // Four renewals within the duration, as upstream: three may fail before the Lease expires.
    let every = Duration::from_secs(u64::try_from(seconds).unwrap_or(40)) / 4;
    let mut held: Option<Lease> = None;
    let mut failures: u32 = 0;
    loop {
        let uid = uid.borrow().clone();
        let next = desired_lease(&kubelet.settings, &uid, held.as_ref());
        // With the held object no read is needed; a conflict ends that, and the next round reads
        // again.
        let result = match &held {
            Some(_) => api.update(&next).await,
            None => match api.get(&kubelet.settings.node_name).await {
                Ok(found) => {
                    api.update(&desired_lease(&kubelet.settings, &uid, Some(&found)))
                        .await
                }
                Err(e) if e.is_not_found() => api.create(&next).await,
                Err(e) => Err(e),
            },
        };
        let wait = match result {
            Ok(lease) => {
                held = Some(lease);
                failures = 0;
                every
            }
            Err(e) => {
                // Another writer may have changed the object; an update of the stale copy would
                // fail for ever.
                held = None;
                failures += 1;
                tracing::warn!(error = %e, "the node's lease can't be renewed");
                Duration::from_millis(200 << failures.min(5)).min(every)
            }
        };
        tokio::select! {
            () = kubelet.tasks.shutdown().cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn desired_lease(settings: &Settings, uid: &str, held: Option<&Lease>) -> Lease {
    let name = settings.node_name.clone();
    let owner = OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.clone(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    };
    let mut lease = held.cloned().unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(NAMESPACE.into()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    // Always set: with the uid of a deleted Node, the garbage collector would delete the Lease.
    lease.metadata.owner_references = Some(vec![owner]);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(name),
        lease_duration_seconds: Some(settings.reporting.lease_seconds),
        renew_time: Some(MicroTime(Timestamp::now())),
        ..LeaseSpec::default()
    });
    lease
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn lease_is_owned_by_the_current_node_object() {
        let dir = tempfile::tempdir().unwrap();
        let settings = crate::testing::settings(dir.path());
        let owners = |lease: &Lease| {
            let all = lease.metadata.owner_references.iter().flatten();
            all.map(|owner| format!("{} {} {}", owner.kind, owner.name, owner.uid))
                .collect::<Vec<_>>()
        };
        let mut held = desired_lease(&settings, "first", None);
        assert_eq!(owners(&held), ["Node n1 first"]);
        held.metadata.resource_version = Some("7".into());
        let next = desired_lease(&settings, "second", Some(&held));
        assert_eq!(
            owners(&next),
            ["Node n1 second"],
            "the garbage collector would delete the Lease"
        );
        assert_eq!(next.metadata.resource_version.as_deref(), Some("7"));
    }
}
