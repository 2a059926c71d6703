//! The status writer: writes only the newest status, one write at a time, and retries until it is written.

use crate::context::Node;
use crate::pod::spec;
use crate::pod::status_conditions::RESIZE_PENDING;
use client::{Api, Client, Patch};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The worker's handle to its status writer.
pub(crate) struct Teller {
    newest: watch::Sender<(u64, Option<PodStatus>)>,
    written: watch::Receiver<u64>,
}

impl Teller {
    /// Starts the status writer of a pod.
    pub(crate) fn spawn(node: &Arc<Node>, pod: &Arc<Pod>, is_static: bool) -> Self {
        let (newest, wanted) = watch::channel((0, None));
        let (done, written) = watch::channel(0);
        if let Some(client) = node.client.clone() {
            let writer = Writer {
                client,
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                name: pod.metadata.name.clone().unwrap_or_default(),
                uid: pod.metadata.uid.clone().filter(|_| !is_static),
                full_name: spec::full_name(pod),
                before: pod.status.clone().unwrap_or_default(),
                node: node.clone(),
                is_static,
            };
            node.tasks.spawn("status writer", writer.run(wanted, done));
        }
        Teller { newest, written }
    }

    /// Queues a status for writing; it replaces one that is still queued.
    pub(crate) fn tell(&self, status: PodStatus) {
        self.newest.send_modify(|(number, newest)| {
            *number += 1;
            *newest = Some(status);
        });
    }

    /// Waits up to `limit` until the newest status is written or the writer has stopped.
    pub(crate) async fn flush(&mut self, limit: Duration) {
        let number = self.newest.borrow().0;
        let written = self.written.wait_for(|n| *n >= number);
        if tokio::time::timeout(limit, written).await.is_err() {
            tracing::warn!("a pod's last status could not be written in time");
        }
    }
}

struct Writer {
    client: Client,
    node: Arc<Node>,
    namespace: String,
    name: String,
    uid: Option<String>,
    full_name: String,
    before: PodStatus,
    is_static: bool,
}

/// The result of a write.
enum Outcome {
    Written,
    /// The object no longer exists or has another uid.
    Gone,
    Again,
}

impl Writer {
    async fn run(mut self, mut wanted: watch::Receiver<(u64, Option<PodStatus>)>, done: watch::Sender<u64>) {
        let shutdown = self.node.tasks.shutdown().clone();
        let mut wait = Duration::from_millis(100);
        while wanted.changed().await.is_ok() {
            loop {
                let (number, status) = wanted.borrow_and_update().clone();
                let Some(status) = status else { break };
                match self.write(&status).await {
                    Outcome::Written => {
                        self.before = status;
                        wait = Duration::from_millis(100);
                    }
                    Outcome::Gone if self.is_static => {}
                    Outcome::Gone => {
                        let _ = done.send(u64::MAX);
                        return;
                    }
                    Outcome::Again => {
                        tokio::select! {
                            () = shutdown.cancelled() => return,
                            () = tokio::time::sleep(wait) => {}
                        }
                        wait = (wait * 2).min(Duration::from_secs(10));
                        continue;
                    }
                }
                // Has a receiver only while `flush` waits.
                let _ = done.send(number);
                break;
            }
        }
    }

    async fn write(&self, status: &PodStatus) -> Outcome {
        let body = patch(&self.before, status, self.uid.as_deref());
        let api = self.client.namespaced::<Pod>(&self.namespace);
        match api.patch_status(&self.name, &Patch::Strategic(body)).await {
            Ok(_) => Outcome::Written,
            Err(e) if e.is_not_found() || e.is_conflict() => Outcome::Gone,
            // The API server rejects a patch with another uid than the object's as invalid.
            Err(e) if e.is_invalid() && self.replaced(&api).await => Outcome::Gone,
            Err(e) => {
                tracing::warn!(pod = self.full_name, error = %e, "the pod's status can't be written; trying again");
                Outcome::Again
            }
        }
    }

    /// Returns whether another pod has this name now. If the read is forbidden, that pod is not bound to this node:
    /// the Node authorizer lets the kubelet read only its own.
    async fn replaced(&self, api: &Api<Pod>) -> bool {
        match api.get_opt(&self.name).await {
            Ok(found) => is_replaced(self.uid.as_deref(), found.as_ref()),
            Err(e) => e.is_forbidden(),
        }
    }
}

/// Returns whether the name belongs to another pod now, or to none.
fn is_replaced(uid: Option<&str>, found: Option<&Pod>) -> bool {
    uid.is_some() && found.and_then(|pod| pod.metadata.uid.as_deref()) != uid
}

/// Returns the change as a strategic merge patch, which keeps conditions of other owners.
fn patch(before: &PodStatus, status: &PodStatus, uid: Option<&str>) -> Value {
    // Serializing our own typed status can't fail.
    let mut body = serde_json::to_value(status).unwrap_or_default();
    if let Some(map) = body.as_object_mut() {
        for key in ["reason", "message", "podIP", "startTime"] {
            map.entry(key).or_insert(Value::Null);
        }
        let mut conditions: Vec<Value> = status.conditions.iter().flatten().map(condition).collect();
        let pending = |s: &PodStatus| s.conditions.iter().flatten().any(|c| c.type_ == RESIZE_PENDING);
        if pending(before) && !pending(status) {
            conditions.push(json!({"type": RESIZE_PENDING, "$patch": "delete"}));
        }
        map.insert("conditions".into(), Value::Array(conditions));
        let moved = before.pod_ips != status.pod_ips && before.pod_ips.is_some();
        if let (true, Some(ips)) = (moved, map.get_mut("podIPs").and_then(Value::as_array_mut)) {
            ips.push(json!({"$patch": "replace"}));
        }
    }
    match uid {
        Some(uid) => json!({"metadata": {"uid": uid}, "status": body}),
        None => json!({"status": body}),
    }
}

fn condition(condition: &PodCondition) -> Value {
    let mut value = serde_json::to_value(condition).unwrap_or_default();
    if let Some(map) = value.as_object_mut() {
        for key in ["reason", "message"] {
            map.entry(key).or_insert(Value::Null);
        }
        map.insert("lastProbeTime".into(), Value::Null);
    }
    value
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn names_that_were_used_again() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "s-0", "uid": "new"}})).unwrap();
        for (uid, found, expected) in [
            (Some("old"), Some(&pod), true),
            (Some("old"), None, true),
            (Some("new"), Some(&pod), false),
            (None, Some(&pod), false),
        ] {
            assert_eq!(is_replaced(uid, found), expected, "{uid:?}");
        }
    }
}
