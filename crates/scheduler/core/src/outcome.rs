//! Writes the result of an attempt: conditions, events, evictions.

use std::sync::Arc;

use api_meta::text::truncate_text;
use client::events::Recorder;
use client::{Client, DeleteParams, ObjectExt, Patch, Result, object_reference};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use scheduler_framework::{Eviction, PodInfo};
use serde_json::{Value, json};

const SCHEDULED: &str = "PodScheduled";
/// Maximum length of an event's message in bytes.
const MESSAGE_LIMIT: usize = 1024;

/// Writes through a client and a recorder.
#[derive(Clone)]
pub(crate) struct OutcomeWriter {
    pub(crate) client: Client,
    pub(crate) events: Recorder,
    pub(crate) name: String,
}

fn find_condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    pod.status
        .as_ref()?
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == kind)
}

/// Returns the status patch for an unschedulable pod; None if the status is up to date.
fn status_patch(
    pod: &Pod,
    reason: &str,
    message: &str,
    nominate: Option<&str>,
    now: Timestamp,
) -> Option<Value> {
    let known = find_condition(pod, SCHEDULED);
    // An equal condition is not written again: thousands of pending pods would otherwise load the
    // API server with each retry.
    let same = known.is_some_and(|known| {
        known.status == "False"
            && known.reason.as_deref() == Some(reason)
            && known.message.as_deref() == Some(message)
    });
    let present = pod
        .status
        .as_ref()
        .and_then(|status| status.nominated_node_name.as_deref())
        .unwrap_or_default();
    let nominate = nominate.filter(|name| *name != present);
    if same && nominate.is_none() {
        return None;
    }
    let mut status = json!({});
    if !same {
        // The transition time changes with the status of a condition, not with its reason or
        // message.
        let kept = known
            .filter(|known| known.status == "False")
            .and_then(|known| known.last_transition_time.clone());
        let since =
            kept.unwrap_or_else(|| Time(Timestamp::from_second(now.as_second()).unwrap_or(now)));
        status["conditions"] = json!([{
            "type": SCHEDULED, "status": "False", "reason": reason, "message": message,
            "lastProbeTime": null, "lastTransitionTime": since,
            "observedGeneration": pod.metadata.generation,
        }]);
    }
    if let Some(name) = nominate {
        // A strategic merge patch removes a field by null; an empty string would stay in the
        // object.
        status["nominatedNodeName"] = if name.is_empty() {
            Value::Null
        } else {
            json!(name)
        };
    }
    // With the UID as a precondition: a pod of the same name that was created since must not get
    // this status.
    Some(json!({"metadata": {"uid": pod.metadata.uid}, "status": status}))
}

fn truncate_message(message: &str) -> String {
    if message.len() <= MESSAGE_LIMIT {
        return message.to_owned();
    }
    format!("{} ...", truncate_text(message, MESSAGE_LIMIT - 4))
}

impl OutcomeWriter {
    /// Writes condition and event of an unschedulable pod.
    pub(crate) async fn write_unschedulable(
        &self,
        pod: &Pod,
        reason: &str,
        message: &str,
        nominate: Option<&str>,
    ) {
        self.events.warning(
            &object_reference(pod),
            "FailedScheduling",
            truncate_message(message),
        );
        self.write_condition(pod, reason, message, nominate).await;
    }

    /// Writes the condition PodScheduled=False without an event.
    pub(crate) async fn write_condition(
        &self,
        pod: &Pod,
        reason: &str,
        message: &str,
        nominate: Option<&str>,
    ) {
        if let Some(patch) = status_patch(pod, reason, message, nominate, Timestamp::now())
            && let Err(error) = self.patch_status(pod, patch).await
        {
            tracing::debug!(pod = pod.metadata.name, %error, "the status could not be written");
        }
    }

    /// Frees the devices of claims, unless they have changed since the plugin read them.
    pub(crate) async fn deallocate_claims(&self, claims: &[Arc<ResourceClaim>]) {
        for claim in claims {
            let mut free = ResourceClaim::clone(claim);
            if let Some(status) = &mut free.status {
                (status.allocation, status.devices, status.reserved_for) = (None, None, None);
            }
            let api = self.client.namespaced::<ResourceClaim>(claim.namespace());
            if let Err(error) = api.update_status(&free).await {
                tracing::debug!(claim = claim.key(), %error, "the claim could not be deallocated");
            }
        }
    }

    async fn patch_status(&self, pod: &Pod, patch: Value) -> Result<()> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        match self
            .client
            .namespaced::<Pod>(namespace)
            .patch_status(name, &Patch::Strategic(patch))
            .await
        {
            // The pod was deleted: there is nothing left to describe.
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Records the event of a bound pod.
    pub(crate) fn record_scheduled(&self, pod: &PodInfo, node: &str) {
        let message = format!(
            "Successfully assigned {}/{} to {node}",
            pod.namespace(),
            pod.name()
        );
        self.events
            .normal(&object_reference(&*pod.pod), "Scheduled", message);
    }

    /// Clears the nomination in a pod's status.
    pub(crate) async fn clear_nomination(&self, pod: &Pod) {
        let patch =
            json!({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": null}});
        if let Err(error) = self.patch_status(pod, patch).await {
            tracing::warn!(pod = pod.metadata.name, %error, "cannot clear the nominated node of a pod");
        }
    }

    /// Evicts a victim of a preemption. Returns false on failure, true also if it is already being
    /// deleted.
    pub(crate) async fn delete_victim(&self, eviction: &Eviction, preemptor: &Arc<Pod>) -> bool {
        let victim = &eviction.pod;
        if victim.metadata.deletion_timestamp.is_some() {
            return true;
        }
        // The condition comes before the deletion: Jobs with a pod failure policy decide by it, and
        // a pod that is deleted first may already be removed.
        let mark = json!({"metadata": {"uid": victim.metadata.uid}, "status": {"conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
            "message": format!("{}: preempting to accommodate a higher priority pod", self.name),
            "lastProbeTime": null, "lastTransitionTime": Time(Timestamp::now()),
            "observedGeneration": victim.metadata.generation,
        }]}});
        if let Err(error) = self.patch_status(victim, mark).await {
            tracing::warn!(pod = victim.metadata.name, %error, "cannot mark the victim of a preemption");
            return false;
        }
        let params = DeleteParams {
            // Without the precondition a new pod of the same name could be deleted.
            uid: victim.metadata.uid.clone(),
            ..DeleteParams::new()
        };
        let namespace = victim.metadata.namespace.as_deref().unwrap_or_default();
        let name = victim.metadata.name.as_deref().unwrap_or_default();
        match self
            .client
            .namespaced::<Pod>(namespace)
            .delete(name, &params)
            .await
        {
            Ok(()) => {}
            Err(error) if error.is_not_found() => return true,
            Err(error) => {
                tracing::warn!(pod = name, %error, "cannot evict the victim of a preemption");
                return false;
            }
        }
        let uid = preemptor.metadata.uid.as_deref().unwrap_or_default();
        let message = format!("Preempted by pod {uid} on node {}", eviction.node);
        self.events
            .normal(&object_reference(&**victim), "Preempted", message);
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    #[test]
    fn status_is_written_only_when_it_changes() {
        let now = Timestamp::from_second(100).unwrap();
        let mut pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "uid": "u"}})).unwrap();
        let patch = status_patch(&pod, "Unschedulable", "m", Some("n"), now).unwrap();
        assert_eq!(patch["status"]["nominatedNodeName"], "n");
        assert_eq!(
            patch["status"]["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:01:40Z"
        );
        pod.status = serde_json::from_value(
            json!({"nominatedNodeName": "n", "conditions": [{"type": "PodScheduled",
            "status": "False", "reason": "Unschedulable", "message": "m",
            "lastTransitionTime": "1970-01-01T00:00:01Z"}]}),
        )
        .unwrap();
        assert_eq!(status_patch(&pod, "Unschedulable", "m", None, now), None);
        assert_eq!(
            status_patch(&pod, "Unschedulable", "m", Some("n"), now),
            None
        );
        let patch = status_patch(&pod, "Unschedulable", "other", Some(""), now).unwrap();
        assert_eq!(
            patch["status"]["conditions"][0]["lastTransitionTime"],
            "1970-01-01T00:00:01Z"
        );
        assert_eq!(patch["status"]["nominatedNodeName"], Value::Null);
    }

    #[test]
    fn long_message_is_truncated_to_the_limit_of_events() {
        let fitting = "x".repeat(MESSAGE_LIMIT);
        assert_eq!(truncate_message(&fitting), fitting);
        let truncated = truncate_message(&"ä".repeat(2000));
        assert_eq!(truncated, format!("{} ...", "ä".repeat(510)));
    }
}
