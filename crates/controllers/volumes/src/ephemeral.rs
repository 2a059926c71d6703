//! Claims of pods' ephemeral volumes: created for the pod and owned by it, so that they are deleted
//! with it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use client::Event;
use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, Write, controller_reference, object_reference, pods,
};

/// Returns the actions for one pod; `claim` reports whether its namespace has a claim of that name.
pub fn reconcile_pod(pod: &Pod, claim: &dyn Fn(&str) -> bool) -> Vec<Action> {
    if pod.is_deleting() || pods::is_terminal(pod) {
        return Vec::new();
    }
    let missing = ephemeral_volumes_of(pod).filter(|v| !claim(&claim_name(pod, v)));
    missing.filter_map(|v| create_claim(pod, v)).collect()
}

fn ephemeral_volumes_of(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec
        .iter()
        .flat_map(|s| s.volumes.iter().flatten())
        .filter(|v| v.ephemeral.is_some())
}

fn claim_name(pod: &Pod, volume: &Volume) -> String {
    format!("{}-{}", pod.name(), volume.name)
}

fn create_claim(pod: &Pod, volume: &Volume) -> Option<Action> {
    let template = volume.ephemeral.as_ref()?.volume_claim_template.as_ref()?;
    let meta = template.metadata.clone().unwrap_or_default();
    let claim = PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(claim_name(pod, volume)),
            namespace: pod.meta().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            // The kubelet and the scheduler accept the claim only with this reference, and the
            // garbage collector deletes it with the pod.
            owner_references: Some(vec![controller_reference(pod)]),
            ..ObjectMeta::default()
        },
        spec: Some(template.spec.clone()),
        status: None,
    };
    let mut write = Write::create(&claim);
    // The cache may lag. A claim of that name that another object owns is not touched: the pod then
    // waits.
    write.tolerate.exists = true;
    let text = "ephemeral volume controller failed to create the claim {name}: {error}";
    write.notes.failure = Some(controllers_runtime::Note::warning(
        &object_reference(pod),
        "EphemeralVolumeClaimCreationFailed",
        text,
    ));
    Some(write.into())
}

struct Ephemeral {
    pods: Cache<Pod>,
    claims: Cache<PersistentVolumeClaim>,
}

/// Sets up the controller of ephemeral volumes.
pub fn add_ephemeral_volume_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let waiting = queue.clone();
    let all = setup.informers.for_kind::<Pod>().on_event(move |event| {
        if let Event::Applied { old: None, new } = event
            && ephemeral_volumes_of(new).next().is_some()
        {
            waiting.add(new.key());
        }
    });
    let all = all.cache();
    let claims = setup.informers.for_kind::<PersistentVolumeClaim>().cache();
    setup.add_reconciler(
        "ephemeral-volume-controller",
        workers,
        queue,
        Ephemeral { pods: all, claims },
    );
}

impl Decide for Ephemeral {
    fn reconcile(&self, key: &str, _now: Timestamp) -> Vec<Action> {
        let Some(pod) = self.pods.get(key) else {
            return Vec::new();
        };
        reconcile_pod(&pod, &|name| {
            self.claims.get_by_name(pod.namespace(), name).is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use controllers_runtime::describe_actions;
    use serde_json::json;

    fn pod(phase: &str) -> Pod {
        serde_json::from_value(
            json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"containers": [], "volumes": [
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {
                    "metadata": {"labels": {"a": "b"}}, "spec": {}}}},
                {"name": "plain", "emptyDir": {}}]},
            "status": {"phase": phase}}),
        )
        .unwrap()
    }

    #[test]
    fn missing_claim_is_created_and_owned_by_the_pod() {
        let got = reconcile_pod(&pod("Pending"), &|_| false);
        assert_eq!(
            describe_actions(&got),
            ["create PersistentVolumeClaim p-scratch"]
        );
        let claim = &got[0].as_write().unwrap().body;
        assert_eq!(claim["metadata"]["ownerReferences"][0]["uid"], "u");
        assert_eq!(claim["metadata"]["labels"]["a"], "b");
    }

    #[test]
    fn existing_claim_is_left_alone() {
        assert!(reconcile_pod(&pod("Pending"), &|name| name == "p-scratch").is_empty());
    }

    #[test]
    fn terminated_pod_gets_no_claim() {
        assert!(reconcile_pod(&pod("Failed"), &|_| false).is_empty());
    }
}
