//! DefaultPreemption: finds a node on which an unschedulable pod fits after evicting pods of lower
//! priority.
//!
//! On each node that could be helped, all pods of lower priority are removed; if the pod then fits,
//! as many of them as possible are reprieved, those under a disruption budget and the more
//! important ones first. The cheapest of the remaining nodes is nominated. The decision is pure;
//! the core evicts.

mod candidate;

use std::sync::Arc;

use scheduler_framework::cycle::Feasibility;
use scheduler_framework::{
    Cluster, ClusterEvent, Code, CycleState, Diagnosis, EventKind, Eviction, ExtensionPoints,
    NodeInfo, Plugin, PodInfo, PostFilter, PostFilterResult, Rejection,
};
use serde_json::Value;

use candidate::{Budgets, Candidate, compare_importance};

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

pub(crate) struct DefaultPreemption {
    cluster: Arc<dyn Cluster>,
    least_share: usize,
    least_nodes: usize,
}

impl Plugin for DefaultPreemption {
    const NAME: &'static str = "DefaultPreemption";

    fn new(args: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String> {
        let number = |field: &str, default: u64| {
            let given = args.get(field).and_then(Value::as_u64).unwrap_or(default);
            usize::try_from(given).map_err(|_| format!("{field} is too large"))
        };
        Ok(Self {
            cluster: Arc::clone(cluster),
            least_share: number("minCandidateNodesPercentage", 10)?,
            least_nodes: number("minCandidateNodesAbsolute", 100)?,
        })
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.post_filter(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        &[EventKind::AssignedPodDeleted]
    }

    fn queueing_hint(&self, _pod: &PodInfo, event: &ClusterEvent) -> bool {
        matches!(event, ClusterEvent::AssignedPodDeleted(_))
    }
}

fn build_result(message: impl Into<String>, nominate: Option<String>) -> PostFilterResult {
    PostFilterResult {
        nominate,
        evict: Vec::new(),
        message: format!("preemption: {}", message.into()),
    }
}

/// Returns why the pod may not preempt; None if it may.
fn find_ineligibility(
    pod: &PodInfo,
    diagnosis: &Diagnosis,
    feasibility: &Feasibility<'_>,
) -> Option<&'static str> {
    let policy = pod
        .spec()
        .and_then(|spec| spec.preemption_policy.as_deref());
    if policy == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // Uses the nomination in memory: the status may not name the node yet.
    let node = feasibility
        .snapshot
        .node(&feasibility.nominated_node(pod)?)?;
    let hopeless = diagnosis
        .rejections
        .get(&node.name)
        .map(|rejection| rejection.code);
    if hopeless == Some(Code::UnschedulableAndUnresolvable) {
        return None;
    }
    let leaving = |other: &Arc<PodInfo>| other.priority() < pod.priority() && is_preempted(other);
    node.pods
        .iter()
        .any(leaving)
        .then_some("not eligible due to a terminating pod on the nominated node.")
}

/// Returns whether a pod is being deleted because of a preemption.
fn is_preempted(pod: &PodInfo) -> bool {
    let conditions = pod
        .pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    let disrupted = conditions
        .iter()
        .find(|condition| condition.type_ == "DisruptionTarget");
    pod.pod.metadata.deletion_timestamp.is_some()
        && disrupted.is_some_and(|condition| {
            condition.status == "True"
                && condition.reason.as_deref() == Some("PreemptionByScheduler")
        })
}

impl DefaultPreemption {
    fn load_budgets(&self, pods: &[Arc<PodInfo>]) -> Budgets {
        Budgets::new(&*self.cluster, pods)
    }

    /// Finds victims whose removal makes the pod fit on a node, and reprieves as many pods as
    /// possible.
    fn select_victims_on_node(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        node: &Arc<NodeInfo>,
        feasibility: &Feasibility<'_>,
    ) -> Result<Candidate, Rejection> {
        let (mut state, mut trial) = (state.clone(), (**node).clone());
        let mut lower: Vec<Arc<PodInfo>> = node
            .pods
            .iter()
            .filter(|other| other.priority() < pod.priority())
            .cloned()
            .collect();
        if lower.is_empty() {
            return Err(Rejection::unresolvable(Self::NAME, NO_VICTIMS));
        }
        for other in &lower {
            feasibility.remove_pod(&mut state, pod, other, &mut trial);
        }
        feasibility.run_filters_with_nominated_pods(&state, pod, &trial)?;
        lower.sort_by(|a, b| compare_importance(a, b));
        let mut budgets = self.load_budgets(&lower);
        let (violating, free): (Vec<_>, Vec<_>) = lower
            .into_iter()
            .partition(|other| budgets.count_disruption(other));
        // Reprieve pods under a budget first: violated budgets weigh most in the cost.
        let mut candidate = Candidate::new(&node.name);
        for (other, violates) in violating
            .into_iter()
            .map(|other| (other, true))
            .chain(free.into_iter().map(|other| (other, false)))
        {
            feasibility.add_pod(&mut state, pod, &other, &mut trial);
            if feasibility
                .run_filters_with_nominated_pods(&state, pod, &trial)
                .is_err()
            {
                feasibility.remove_pod(&mut state, pod, &other, &mut trial);
                candidate.victims.push(other);
                candidate.violations += usize::from(violates);
            }
        }
        candidate.victims.sort_by(|a, b| compare_importance(a, b));
        Ok(candidate)
    }
}

impl PostFilter for DefaultPreemption {
    fn post_filter(
        &self,
        state: &CycleState,
        pod: &PodInfo,
        diagnosis: &Diagnosis,
        feasibility: &Feasibility<'_>,
    ) -> PostFilterResult {
        if let Some(why) = find_ineligibility(pod, diagnosis, feasibility) {
            return build_result(why, None);
        }
        let nominated = feasibility.nominated_node(pod).is_some() || pod.nominated_node().is_some();
        let clear = nominated.then(String::new);
        let all = feasibility.snapshot.nodes.len();
        let helpful = |node: &&Arc<NodeInfo>| {
            diagnosis
                .rejections
                .get(&node.name)
                .is_some_and(|rejection| rejection.code == Code::Unschedulable)
        };
        let nodes: Vec<&Arc<NodeInfo>> =
            feasibility.snapshot.nodes.iter().filter(helpful).collect();
        let wanted = (all * self.least_share / 100).max(self.least_nodes);
        let mut tried = Diagnosis {
            nodes: all,
            ..Diagnosis::default()
        };
        let not_helpful = Rejection::unresolvable(Self::NAME, NOT_HELPFUL);
        tried.absent = Some((all - nodes.len(), not_helpful)).filter(|(count, _)| *count > 0);
        let mut candidates = Vec::new();
        for node in nodes {
            match self.select_victims_on_node(state, pod, node, feasibility) {
                Ok(candidate) => candidates.push(candidate),
                Err(rejection) => drop(tried.rejections.insert(Arc::clone(&node.name), rejection)),
            }
            if candidates.len() >= wanted {
                break;
            }
        }
        let Some(best) = candidates.into_iter().min_by_key(Candidate::cost) else {
            return build_result(tried.message(), clear);
        };
        let evict = |victim: Arc<PodInfo>| Eviction {
            pod: Arc::clone(&victim.pod),
            node: best.node.to_string(),
        };
        PostFilterResult {
            nominate: Some(best.node.to_string()),
            evict: best.victims.into_iter().map(evict).collect(),
            message: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::{build_node, build_pod, empty_cluster};
    use scheduler_framework::cycle::{NoNominatedPods, schedule_pod};
    use scheduler_framework::{Profile, Snapshot};
    use serde_json::json;

    fn profile() -> Profile {
        let mut points = ExtensionPoints::default();
        for name in ["NodeResourcesFit", "NodeAffinity", "DefaultPreemption"] {
            let entry = crate::plugin_registry()
                .into_iter()
                .find(|entry| entry.name == name)
                .unwrap();
            (entry.make)(&Value::Null, &empty_cluster(), &mut points).unwrap();
        }
        Profile {
            name: "test".into(),
            points,
            percentage_of_nodes_to_score: 0,
        }
    }

    fn worker(name: &str, cpu: &str, priority: i32) -> PodInfo {
        let mut object = (*build_pod(json!({"priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}))
        .pod)
            .clone();
        object.metadata.name = Some(name.into());
        object.metadata.uid = Some(name.into());
        PodInfo::new(Arc::new(object))
    }

    fn full(name: &str, pods: &[(&str, &str, i32)]) -> NodeInfo {
        let mut info = build_node(
            name,
            json!({}),
            json!({}),
            json!({"cpu": "2", "memory": "1Gi", "pods": "10"}),
        );
        for (name, cpu, priority) in pods {
            info.add_pod(Arc::new(worker(name, cpu, *priority)));
        }
        info
    }

    fn outcome(pod: &PodInfo, nodes: Vec<NodeInfo>) -> (Option<String>, Vec<String>, String) {
        let fit_error = schedule_pod(
            &profile(),
            &Snapshot::from_nodes(nodes),
            &NoNominatedPods,
            pod,
            &mut 0,
        )
        .err()
        .unwrap();
        let victims = fit_error
            .post_filter_result
            .evict
            .iter()
            .map(|eviction| eviction.pod.metadata.name.clone().unwrap());
        (
            fit_error.post_filter_result.nominate,
            victims.collect(),
            fit_error.diagnosis.message(),
        )
    }

    #[test]
    fn the_cheapest_node_is_taken_and_the_important_are_spared() {
        let top = worker("top", "1", 100);
        let nodes = vec![
            full("a", &[("a1", "1", 50), ("a2", "1", 50)]),
            full("b", &[("b1", "1", 10), ("b2", "1", 50)]),
        ];
        assert_eq!(outcome(&top, nodes).0.as_deref(), Some("b"));
        let nodes = vec![full("b", &[("b1", "1", 10), ("b2", "1", 50)])];
        assert_eq!(outcome(&top, nodes).1, ["b1"]);
    }

    #[test]
    fn messages() {
        let low = worker("low", "1", 0);
        let text = outcome(&low, vec![full("a", &[("a1", "2", 0)])]).2;
        let want = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
                    1 No preemption victims found for incoming pod.";
        assert_eq!(text, want);
        let huge = worker("huge", "9", 100);
        let text = outcome(&huge, vec![full("a", &[])]).2;
        let want = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: \
                    1 Preemption is not helpful for scheduling.";
        assert_eq!(text, want);
    }

    #[test]
    fn never_means_never() {
        let mut object = (*worker("p", "1", 100).pod).clone();
        object.spec.as_mut().unwrap().preemption_policy = Some("Never".into());
        let (nominate, victims, text) = outcome(
            &PodInfo::new(Arc::new(object)),
            vec![full("a", &[("a1", "2", 0)])],
        );
        assert!(nominate.is_none() && victims.is_empty());
        assert!(
            text.ends_with("preemption: not eligible due to preemptionPolicy=Never."),
            "{text}"
        );
    }
}
