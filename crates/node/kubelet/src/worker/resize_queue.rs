//! The order of resizes that wait for resources of the node, and what the node can allocate.
//!
//! Each worker decides about its own pod. It does so as if the resizes before its own had been
//! decided already, so the order in which workers are notified does not matter.

use super::admit::{UsedResources, find_shortage};
use super::registry::PodSnapshot;
use api_meta::Quantity;
use api_semantics::qos::pod_qos;
use api_semantics::resources::{Options, pod_requests};
use k8s_openapi::api::core::v1::Pod;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Decides whether the node can allocate what the pod `uid` desires beside the other active pods;
/// returns why it can't. The requests of each pod are computed a fixed number of times.
pub(super) fn decide_resize(
    uid: &str,
    pods: &[PodSnapshot],
    allocatable: &BTreeMap<String, Quantity>,
) -> Result<(), String> {
    let active = pods.iter().filter(|snapshot| snapshot.active);
    let mut used = UsedResources::default();
    active.clone().for_each(|snapshot| used.add(&snapshot.pod));
    let mut queue: Vec<(&PodSnapshot, &Arc<Pod>)> = active
        .filter_map(|snapshot| Some((snapshot, &snapshot.resize.as_ref()?.desired)))
        .collect();
    queue.sort_by_cached_key(|(snapshot, desired)| compute_order(snapshot, desired));
    for (snapshot, desired) in queue {
        used.remove(&snapshot.pod);
        let shortage = find_shortage(desired, &used, allocatable);
        if read_uid(&snapshot.pod) == uid {
            return shortage.map_or(Ok(()), |shortage| Err(shortage.to_string()));
        }
        // Counted as allocated if it fits, although its worker may not have decided yet.
        used.add(if shortage.is_none() {
            desired
        } else {
            &snapshot.pod
        });
    }
    // A pod that is not active any more gets nothing.
    Err("the pod is not active".to_owned())
}

fn read_uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns the place of a resize, as upstream: first those that request no more, then by priority,
/// by class, and by the time since when they are pending.
fn compute_order(snapshot: &PodSnapshot, desired: &Pod) -> impl Ord + use<> {
    let options = Options::default();
    let (before, after) = (
        pod_requests(&snapshot.pod, &options),
        pod_requests(desired, &options),
    );
    let grows = ["cpu", "memory"]
        .iter()
        .any(|name| after.count(name) > before.count(name));
    let priority = desired.spec.as_ref().and_then(|spec| spec.priority);
    let since = snapshot.resize.as_ref().and_then(|resize| resize.since);
    (
        grows,
        Reverse(priority.unwrap_or(0)),
        pod_qos(desired) != "Guaranteed",
        since.unwrap_or(i64::MAX),
        read_uid(desired).to_owned(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::pod::view::Observed;
    use crate::worker::registry::ResizeRequest;
    use serde_json::json;

    fn pod(uid: &str, cpu: &str, priority: i32) -> Arc<Pod> {
        let pod = json!({"metadata": {"name": uid, "uid": uid}, "spec": {"priority": priority,
            "resources": {"requests": {"cpu": cpu}}, "containers": [{"name": "c"}]}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// A pod with allocated and desired processors, its priority, and since when it is pending.
    type Row<'a> = (&'a str, &'a str, Option<&'a str>, i32, Option<i64>);

    fn snapshot((uid, allocated, desired, priority, since): Row<'_>) -> PodSnapshot {
        PodSnapshot {
            pod: pod(uid, allocated, priority),
            resize: desired.map(|cpu| ResizeRequest {
                desired: pod(uid, cpu, priority),
                since,
            }),
            status: Arc::default(),
            observed: Arc::new(Observed::default()),
            active: true,
            is_static: false,
            is_desired: true,
        }
    }

    fn decide(uid: &str, pods: &[PodSnapshot]) -> Result<(), String> {
        let allocatable = [("cpu", "4"), ("memory", "1Gi"), ("pods", "2")]
            .map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()));
        decide_resize(uid, pods, &allocatable.into())
    }

    #[test]
    fn resize_is_allocated_up_to_the_node_and_beside_other_pods() {
        let deferred =
            "Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000";
        let beyond =
            "Node didn't have enough resource: cpu, requested: 5000, used: 1000, capacity: 4000";
        for (desired, expect) in [
            ("3", Ok(())),
            ("500m", Ok(())),
            ("3500m", Err(deferred)),
            ("5", Err(beyond)),
        ] {
            let pods = [
                ("a", "1", Some(desired), 0, None),
                ("b", "1", None, 0, None),
            ];
            let got = decide("a", &pods.map(snapshot));
            assert_eq!(got, expect.map_err(str::to_owned), "{desired}");
        }
    }

    #[test]
    fn pod_that_is_not_active_takes_nothing_and_gets_nothing() {
        let rows = [
            ("a", "1", Some("4"), 0, None),
            ("b", "3", Some("4"), 9, None),
        ];
        let mut pods = rows.map(snapshot);
        pods[1].active = false;
        assert_eq!(decide("a", &pods), Ok(()));
        assert!(decide("b", &pods).is_err());
    }

    #[test]
    fn resize_waits_for_those_before_it_whichever_worker_decides_first() {
        // One processor is free.
        for (first, second, why) in [
            (
                ("a", "2", Some("3"), 0, Some(5)),
                ("b", "1", Some("2"), 1, None),
                "priority",
            ),
            (
                ("a", "2", Some("3"), 0, None),
                ("b", "1", Some("2"), 0, Some(5)),
                "time",
            ),
        ] {
            let pods = [first, second].map(snapshot);
            assert_eq!(decide("b", &pods), Ok(()), "{why}");
            assert!(decide("a", &pods).is_err(), "{why}");
        }
        // A pod that shrinks makes room for one of a higher priority.
        let rows = [
            ("a", "2", Some("1"), 0, None),
            ("b", "2", Some("3"), 9, None),
        ];
        let pods = rows.map(snapshot);
        assert_eq!(decide("b", &pods), Ok(()));
        // One that can't be allocated keeps nothing from others.
        let rows = [
            ("a", "2", Some("4"), 9, None),
            ("b", "1", Some("2"), 0, None),
        ];
        let pods = rows.map(snapshot);
        assert_eq!(decide("b", &pods), Ok(()));
    }
}
