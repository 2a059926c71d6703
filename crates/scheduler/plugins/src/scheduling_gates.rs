//! SchedulingGates: a pod with gates does not enter the queue until the last gate is removed.

use std::sync::Arc;

use scheduler_framework::{
    Cluster, ClusterEvent, EventKind, ExtensionPoints, Plugin, PodInfo, PreEnqueue, Rejection,
};
use serde_json::Value;

pub(crate) struct SchedulingGates;

impl Plugin for SchedulingGates {
    const NAME: &'static str = "SchedulingGates";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_enqueue(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[EventKind::PodUpdated]
    }

    fn queueing_hint(&self, _pod: &PodInfo, event: &ClusterEvent) -> bool {
        matches!(event, ClusterEvent::PodUpdated { .. })
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Option<Rejection> {
        let gates = pod.spec()?.scheduling_gates.as_deref().unwrap_or_default();
        // Gates can only be removed after creation, so that a pod passes this point once.
        if gates.is_empty() {
            return None;
        }
        let names: Vec<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        let reason = format!("waiting for scheduling gates: [{}]", names.join(" "));
        Some(Rejection::unresolvable(Self::NAME, reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::build_pod;
    use serde_json::json;

    #[test]
    fn pod_with_scheduling_gates_is_rejected_with_their_names() {
        assert!(SchedulingGates.pre_enqueue(&build_pod(json!({}))).is_none());
        let held = SchedulingGates.pre_enqueue(&build_pod(
            json!({"schedulingGates": [{"name": "a"}, {"name": "b"}]}),
        ));
        let reasons = held.map(|rejection| rejection.reasons.join(""));
        assert_eq!(
            reasons.as_deref(),
            Some("waiting for scheduling gates: [a b]")
        );
    }
}
