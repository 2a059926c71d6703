//! SchedulingGates: a pod with gates does not enter the queue until the last gate is removed.

use std::sync::Arc;

use scheduler_framework::{
    Cluster, ClusterEvent, EventKind, Plugin, PodInfo, Points, PreEnqueue, Rejection,
};
use serde_json::Value;

pub(crate) struct SchedulingGates;

impl Plugin for SchedulingGates {
    const NAME: &'static str = "SchedulingGates";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn extend(self: Arc<Self>, points: &mut Points) {
        points.pre_enqueue(&self);
    }

    fn events(&self) -> &'static [EventKind] {
        &[EventKind::PodUpdated]
    }

    fn hint(&self, _pod: &PodInfo, event: &ClusterEvent) -> bool {
        matches!(event, ClusterEvent::PodUpdated { .. })
    }
}

impl PreEnqueue for SchedulingGates {
    fn pre_enqueue(&self, pod: &PodInfo) -> Option<Rejection> {
        let gates = pod.spec()?.scheduling_gates.as_deref().unwrap_or_default();
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
    use crate::testing::pod;
    use serde_json::json;

    #[test]
    fn gates_hold_back() {
        assert!(SchedulingGates.pre_enqueue(&pod(json!({}))).is_none());
        let held = SchedulingGates.pre_enqueue(&pod(
            json!({"schedulingGates": [{"name": "a"}, {"name": "b"}]}),
        ));
        let reasons = held.map(|rejection| rejection.reasons.join(""));
        assert_eq!(
            reasons.as_deref(),
            Some("waiting for scheduling gates: [a b]")
        );
    }
}
