//! The status writer: writes only the newest status, one write at a time, and retries until it is
//! written.
//!
//! The kubelet owns a pod's status. When the API server shows another one than the writer wrote
//! last (the node lifecycle controller marks the pods of a node that was not ready, and never
//! reverts that), the writer writes it again.

use crate::context::KubeletContext;
use crate::pod::spec;
use crate::pod::status_conditions::RESIZE_CONDITIONS;
use client::{Api, Client, Patch};
use k8s_openapi::api::core::v1::{Pod, PodCondition, PodStatus};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Fields of the status that a write removes when the kubelet has no value for them.
const CLEARED: [&str; 4] = ["reason", "message", "podIP", "startTime"];
/// Fields of the gate `InPlacePodLevelResourcesVerticalScaling`.
const GATED: [&str; 2] = ["resources", "allocatedResources"];
/// Shortest time between two repairs of a status: another client may insist on its own.
const BETWEEN_REPAIRS: Duration = Duration::from_secs(10);

/// The worker's handle to its status writer.
pub(crate) struct StatusWriter {
    input: watch::Sender<WriterInput>,
    written: watch::Receiver<u64>,
}

/// Input of the writer.
#[derive(Clone, Default)]
struct WriterInput {
    /// Counts the statuses queued so far.
    number: u64,
    status: Option<PodStatus>,
    /// The pod as the API server showed it last.
    api_pod: Option<Arc<Pod>>,
}

impl StatusWriter {
    /// Starts the status writer of a pod.
    pub(crate) fn spawn(kubelet: &Arc<KubeletContext>, pod: &Arc<Pod>, is_static: bool) -> Self {
        let (sender, input) = watch::channel(WriterInput::default());
        let (done, written) = watch::channel(0);
        if let Some(client) = kubelet.client.clone() {
            let patcher = StatusPatcher {
                client,
                namespace: pod.metadata.namespace.clone().unwrap_or_default(),
                name: pod.metadata.name.clone().unwrap_or_default(),
                // A mirror pod has a uid of its own, which is not that of the manifest.
                uid: pod.metadata.uid.clone().filter(|_| !is_static),
                full_name: spec::full_name(pod),
                before: pod.status.clone().unwrap_or_default(),
                kubelet: kubelet.clone(),
                is_static,
                version: None,
            };
            kubelet
                .tasks
                .spawn("status writer", patcher.run(input, done));
        }
        StatusWriter {
            input: sender,
            written,
        }
    }

    /// Queues a status for writing; it replaces one that is still queued.
    pub(crate) fn queue(&self, status: PodStatus) {
        self.input.send_modify(|input| {
            input.number += 1;
            input.status = Some(status);
        });
    }

    /// Passes on the pod that the API server shows, for comparison with what was written.
    pub(crate) fn compare(&self, pod: Arc<Pod>) {
        self.input.send_modify(|input| input.api_pod = Some(pod));
    }

    /// Waits up to `limit` until the newest status is written or the writer has stopped.
    pub(crate) async fn flush(&mut self, limit: Duration) {
        let number = self.input.borrow().number;
        let written = self.written.wait_for(|n| *n >= number);
        if tokio::time::timeout(limit, written).await.is_err() {
            tracing::warn!("a pod's last status could not be written in time");
        }
    }
}

struct StatusPatcher {
    client: Client,
    kubelet: Arc<KubeletContext>,
    namespace: String,
    name: String,
    uid: Option<String>,
    full_name: String,
    before: PodStatus,
    is_static: bool,
    /// The pod's resourceVersion after the last write.
    version: Option<u64>,
}

/// The result of a write.
enum WriteResult {
    /// With the object's resourceVersion.
    Written(Option<u64>),
    /// The object no longer exists or has another uid.
    Removed,
    Retry,
}

impl StatusPatcher {
    async fn run(mut self, mut input: watch::Receiver<WriterInput>, done: watch::Sender<u64>) {
        let mut number = 0;
        let mut repaired: Option<Instant> = None;
        while input.changed().await.is_ok() {
            let now = input.borrow_and_update().clone();
            // No new status: the wake-up came from the API server.
            if now.number == number {
                if !now.api_pod.is_some_and(|pod| self.is_overwritten(&pod)) {
                    continue;
                }
                if let Some(wait) =
                    repaired.and_then(|at| BETWEEN_REPAIRS.checked_sub(at.elapsed()))
                {
                    // A status that is queued meanwhile is written at once, and repairs the old one
                    // as well.
                    let queued = input.wait_for(|input| input.number != number);
                    if let Ok(Err(_)) = tokio::time::timeout(wait, queued).await {
                        return;
                    }
                    input.mark_changed();
                    continue;
                }
                repaired = Some(Instant::now());
                tracing::info!(
                    pod = self.full_name,
                    "another client changed the pod's status; writing it again"
                );
            }
            match self.write_newest(&mut input).await {
                Some(written) => number = written,
                None => {
                    // Has a receiver only while `flush` waits.
                    let _ = done.send(u64::MAX);
                    return;
                }
            }
            let _ = done.send(number);
        }
    }

    /// Writes the newest status, and retries until it is written; returns its number, or None if
    /// the pod was deleted.
    async fn write_newest(&mut self, input: &mut watch::Receiver<WriterInput>) -> Option<u64> {
        let shutdown = self.kubelet.tasks.shutdown().clone();
        let mut wait = Duration::from_millis(100);
        loop {
            let WriterInput { number, status, .. } = input.borrow_and_update().clone();
            let Some(status) = status else {
                return Some(number);
            };
            match self.write(&status).await {
                WriteResult::Written(version) => {
                    (self.before, self.version) = (status, version);
                    return Some(number);
                }
                // The mirror pod may be created again, and then gets the status from here.
                WriteResult::Removed if self.is_static => return Some(number),
                WriteResult::Removed => return None,
                WriteResult::Retry => {
                    tokio::select! {
                        () = shutdown.cancelled() => return None,
                        () = tokio::time::sleep(wait) => {}
                    }
                    wait = (wait * 2).min(Duration::from_secs(10));
                }
            }
        }
    }

    /// Returns whether the API server shows another status than was written last. What it showed
    /// before that write says nothing, so only a later resourceVersion counts.
    fn is_overwritten(&self, shown: &Pod) -> bool {
        // The watch may lag behind: it shows the status before the last write as well.
        let later = self
            .version
            .zip(resource_version(shown))
            .is_some_and(|(written, shown)| shown > written);
        later
            && is_changed(
                &self.before,
                shown.status.as_ref().unwrap_or(&PodStatus::default()),
            )
    }

    async fn write(&self, status: &PodStatus) -> WriteResult {
        let body = build_patch(&self.before, status, self.uid.as_deref());
        let api = self.client.namespaced::<Pod>(&self.namespace);
        match api.patch_status(&self.name, &Patch::Strategic(body)).await {
            // The returned version decides later whether a pod that the watch shows is older than
            // this write.
            Ok(pod) => WriteResult::Written(resource_version(&pod)),
            // Conflict: the uid in the patch is a precondition, so the name belongs to another pod
            // now.
            Err(e) if e.is_not_found() || e.is_conflict() => WriteResult::Removed,
            // The API server rejects a patch with another uid than the object's as invalid.
            Err(e) if e.is_invalid() && self.is_name_reused(&api).await => WriteResult::Removed,
            Err(e) => {
                tracing::warn!(pod = self.full_name, error = %e, "the pod's status can't be written; trying again");
                WriteResult::Retry
            }
        }
    }

    /// Returns whether another pod has this name now. If the read is forbidden, that pod is not
    /// bound to this node: the Node authorizer lets the kubelet read only its own.
    async fn is_name_reused(&self, api: &Api<Pod>) -> bool {
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

fn resource_version(pod: &Pod) -> Option<u64> {
    pod.metadata.resource_version.as_deref()?.parse().ok()
}

/// Returns whether `shown` differs from `written` in a field or condition that the kubelet writes.
fn is_changed(written: &PodStatus, shown: &PodStatus) -> bool {
    let fields = |status: &PodStatus| {
        let mut status = status.clone();
        let conditions = status.conditions.take().unwrap_or_default();
        // Serializing our own typed status can't fail.
        (serde_json::to_value(status).unwrap_or_default(), conditions)
    };
    let ((written, own), (shown, all)) = (fields(written), fields(shown));
    let differs = |key: &str, value: &Value| match shown.get(key) {
        Some(shown) => shown != value,
        // An API server without the feature drops the field.
        None => !GATED.contains(&key),
    };
    let set = written
        .as_object()
        .into_iter()
        .flatten()
        .any(|(key, value)| differs(key, value));
    let cleared = CLEARED
        .iter()
        .any(|key| written.get(key).is_none() && shown.get(key).is_some());
    let verdict = |c: &PodCondition| (c.status.clone(), c.reason.clone(), c.message.clone());
    let same = |c: &PodCondition| {
        all.iter()
            .any(|o| o.type_ == c.type_ && verdict(o) == verdict(c))
    };
    set || cleared || !own.iter().all(same)
}

/// Returns the change as a strategic merge patch, which keeps conditions of other owners.
fn build_patch(before: &PodStatus, status: &PodStatus, uid: Option<&str>) -> Value {
    // Serializing our own typed status can't fail.
    let mut body = serde_json::to_value(status).unwrap_or_default();
    if let Some(map) = body.as_object_mut() {
        // Null removes the field; an absent key would keep the reason of an earlier phase.
        for key in CLEARED {
            map.entry(key).or_insert(Value::Null);
        }
        let mut conditions: Vec<Value> = status
            .conditions
            .iter()
            .flatten()
            .map(serialize_condition)
            .collect();
        let has =
            |s: &PodStatus, kind: &str| s.conditions.iter().flatten().any(|c| c.type_ == kind);
        // A strategic merge patch merges conditions by type, so one that is absent would stay.
        let ended = |kind: &&str| has(before, kind) && !has(status, kind);
        for kind in RESIZE_CONDITIONS.into_iter().filter(|kind| ended(kind)) {
            conditions.push(json!({"type": kind, "$patch": "delete"}));
        }
        map.insert("conditions".into(), Value::Array(conditions));
        // podIPs are merged by address: without the directive the addresses of the old sandbox
        // would stay in the list.
        let moved = before.pod_ips != status.pod_ips && before.pod_ips.is_some();
        if let (true, Some(ips)) = (moved, map.get_mut("podIPs").and_then(Value::as_array_mut)) {
            ips.push(json!({"$patch": "replace"}));
        }
        // Amounts are merged by name: one that is absent now would stay.
        if let Some(resources) = map.get_mut("resources").and_then(Value::as_object_mut) {
            resources.insert("$patch".into(), json!("replace"));
        }
    }
    match uid {
        Some(uid) => json!({"metadata": {"uid": uid}, "status": body}),
        None => json!({"status": body}),
    }
}

fn serialize_condition(condition: &PodCondition) -> Value {
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
    fn status_changed_by_other_clients_is_recognized() {
        let written = json!({"phase": "Running", "podIP": "10.0.0.1", "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        for (change, expected) in [
            (json!({}), false),
            (json!({"nominatedNodeName": "n2"}), false),
            (json!({"phase": "Pending"}), true),
            (json!({"reason": "NodeLost"}), true),
            (
                json!({"conditions": [{"type": "Ready", "status": "False"}]}),
                true,
            ),
            (json!({"conditions": []}), true),
            (
                json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "example.com/x", "status": "False"}]}),
                false,
            ),
        ] {
            let mut shown = written.clone();
            shown
                .as_object_mut()
                .unwrap()
                .extend(change.as_object().unwrap().clone());
            let status =
                |value: &Value| serde_json::from_value::<PodStatus>(value.clone()).unwrap();
            assert_eq!(
                is_changed(&status(&written), &status(&shown)),
                expected,
                "{change}"
            );
        }
    }

    #[test]
    fn name_used_by_another_pod_is_recognized() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "s-0", "uid": "new"}})).unwrap();
        for (uid, found, expected) in [
            (Some("old"), Some(&pod), true),
            (Some("old"), None, true),
            (Some("new"), Some(&pod), false),
            (None, Some(&pod), false),
        ] {
            assert_eq!(is_replaced(uid, found), expected, "{uid:?}");
        }
    }

    fn parse(status: Value) -> PodStatus {
        serde_json::from_value(status).unwrap()
    }

    /// A strategic merge patch changes only what it names, so absent values are nulls.
    #[test]
    fn patch_removes_fields_that_are_gone() {
        let before = parse(json!({"reason": "Evicted", "message": "m", "podIP": "10.0.0.1"}));
        let status = parse(json!({"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}));
        let patch = build_patch(&before, &status, None);
        for key in CLEARED {
            assert_eq!(patch["status"][key], Value::Null, "{key}");
            assert!(
                patch["status"].as_object().unwrap().contains_key(key),
                "{key}"
            );
        }
        let condition = &patch["status"]["conditions"][0];
        assert_eq!(condition["type"], "Ready");
        assert!(condition.as_object().unwrap().contains_key("reason"));
        assert!(patch.get("metadata").is_none());
    }

    /// The name may belong to another pod by now.
    #[test]
    fn patch_has_the_uid_as_a_precondition() {
        let status = PodStatus::default();
        let patch = build_patch(&status, &status, Some("u"));
        assert_eq!(patch["metadata"]["uid"], "u");
    }

    #[test]
    fn changed_addresses_replace_the_list() {
        let with = |ip: &str| parse(json!({"podIP": ip, "podIPs": [{"ip": ip}]}));
        let ips = |before: &PodStatus, after: &PodStatus| {
            build_patch(before, after, None)["status"]["podIPs"].clone()
        };
        let (old, new) = (with("10.0.0.1"), with("10.0.0.2"));
        assert_eq!(
            ips(&old, &new),
            json!([{"ip": "10.0.0.2"}, {"$patch": "replace"}])
        );
        assert_eq!(ips(&new, &new), json!([{"ip": "10.0.0.2"}]));
        assert_eq!(
            ips(&PodStatus::default(), &new),
            json!([{"ip": "10.0.0.2"}])
        );
    }

    #[test]
    fn condition_of_a_resize_is_deleted_when_it_is_done() {
        for kind in RESIZE_CONDITIONS {
            let before = parse(json!({"conditions": [{"type": kind, "status": "True"}]}));
            let patch = build_patch(&before, &PodStatus::default(), None);
            let expected = json!([{"type": kind, "$patch": "delete"}]);
            assert_eq!(patch["status"]["conditions"], expected);
        }
        let none = build_patch(&PodStatus::default(), &PodStatus::default(), None);
        assert_eq!(none["status"]["conditions"], json!([]));
    }

    #[test]
    fn resources_of_the_pod_are_replaced_as_a_whole() {
        let status = parse(json!({"resources": {"requests": {"cpu": "1"}}}));
        let patch = build_patch(&PodStatus::default(), &status, None);
        let expected = json!({"requests": {"cpu": "1"}, "$patch": "replace"});
        assert_eq!(patch["status"]["resources"], expected);
    }

    #[test]
    fn resources_that_the_api_server_drops_are_not_written_again() {
        let of = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}, "allocatedResources": {"cpu": cpu}});
        for (shown, expected) in [(of("1"), false), (of("2"), true), (json!({}), false)] {
            let case = shown.to_string();
            assert_eq!(
                is_changed(&parse(of("1")), &parse(shown)),
                expected,
                "{case}"
            );
        }
    }
}
