//! DefaultPreemption: finds a node on which an unschedulable pod fits after evicting pods of lower
//! priority.
//!
//! On each node that could be helped, all pods of lower priority are removed; if the pod then fits,
//! as many of them as possible are reprieved, those under a disruption budget and the more
//! important ones first. The cheapest of the remaining nodes is nominated. The decision is pure;
//! the core evicts.

mod candidate;

use std::sync::Arc;

use scheduler_framework::{
    Cluster, ClusterEvent, Code, CycleState, Diagnosis, EventKind, Eviction, ExtensionPoints,
    NodeInfo, Plugin, PluginsRunner, PodInfo, PostFilter, PostFilterResult, Rejection,
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
            cluster: cluster.clone(),
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
        deallocate: Vec::new(),
        nominate,
        evict: Vec::new(),
        message: format!("preemption: {}", message.into()),
    }
}

/// Returns why the pod may not preempt; None if it may.
fn find_ineligibility(
    pod: &PodInfo,
    diagnosis: &Diagnosis,
    runner: &dyn PluginsRunner,
) -> Option<&'static str> {
    let policy = pod
        .spec()
        .and_then(|spec| spec.preemption_policy.as_deref());
    // Such a pod still goes ahead in the queue by its priority; it only does not evict.
    if policy == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // Uses the nomination in memory: the status may not name the node yet.
    let node = runner.snapshot().node(&runner.nominated_node(pod)?)?;
    let hopeless = diagnosis
        .rejections
        .get(&node.name)
        .map(|rejection| rejection.code);
    // The nominated node cannot take the pod any more, whatever leaves it, so it may look for
    // another.
    if hopeless == Some(Code::UnschedulableAndUnresolvable) {
        return None;
    }
    // Victims of an earlier preemption of this pod are still terminating. Evicting more pods
    // elsewhere would be waste.
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
        runner: &dyn PluginsRunner,
    ) -> Result<Candidate, Rejection> {
        let (mut state, mut trial) = (state.clone(), (**node).clone());
        let mut lower: Vec<Arc<PodInfo>> = node
            .pods
            .iter()
            .filter(|other| other.priority() < pod.priority())
            .cloned()
            .collect();
        // Equal priority is never preempted: two such pods would evict each other forever.
        if lower.is_empty() {
            return Err(Rejection::unresolvable(Self::NAME, NO_VICTIMS));
        }
        for other in &lower {
            runner.remove_pod(&mut state, pod, other, &mut trial);
        }
        // If the pod does not fit without all of them, no subset helps. This rules out most nodes
        // with one run of the filters.
        runner.run_filters_with_nominated_pods(&state, pod, &trial)?;
        // The most important pods are reprieved first, while there is still room.
        lower.sort_by(|a, b| compare_importance(a, b));
        // Budgets are counted in this order: the most important pods use up the allowed
        // disruptions, and the rest violates the budget.
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
            runner.add_pod(&mut state, pod, &other, &mut trial);
            if runner
                .run_filters_with_nominated_pods(&state, pod, &trial)
                .is_err()
            {
                runner.remove_pod(&mut state, pod, &other, &mut trial);
                candidate.victims.push(other);
                // A violation is possible, only expensive: preemption respects budgets if it can,
                // and no further.
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
        runner: &dyn PluginsRunner,
    ) -> PostFilterResult {
        if let Some(why) = find_ineligibility(pod, diagnosis, runner) {
            return build_result(why, None);
        }
        let nominated = runner.nominated_node(pod).is_some() || pod.nominated_node().is_some();
        let clear = nominated.then(String::new);
        let all = runner.snapshot().nodes.len();
        // Nodes that rejected the pod for other reasons than their pods are not tried.
        let helpful = |node: &&Arc<NodeInfo>| {
            diagnosis
                .rejections
                .get(&node.name)
                .is_some_and(|rejection| rejection.code == Code::Unschedulable)
        };
        let nodes: Vec<&Arc<NodeInfo>> = runner.snapshot().nodes.iter().filter(helpful).collect();
        // A good candidate is enough in a large cluster; the dry run for all nodes would take
        // seconds.
        let wanted = (all * self.least_share / 100).max(self.least_nodes);
        let mut tried = Diagnosis {
            nodes: all,
            ..Diagnosis::default()
        };
        let not_helpful = Rejection::unresolvable(Self::NAME, NOT_HELPFUL);
        tried.absent = Some((all - nodes.len(), not_helpful)).filter(|(count, _)| *count > 0);
        let mut candidates = Vec::new();
        for node in nodes {
            match self.select_victims_on_node(state, pod, node, runner) {
                Ok(candidate) => candidates.push(candidate),
                Err(rejection) => drop(tried.rejections.insert(node.name.clone(), rejection)),
            }
            if candidates.len() >= wanted {
                break;
            }
        }
        let Some(best) = candidates.into_iter().min_by_key(Candidate::cost) else {
            // The former nomination is withdrawn: no preemption helps now, and others may use that
            // room.
            return build_result(tried.message(), clear);
        };
        let evict = |victim: Arc<PodInfo>| Eviction {
            pod: victim.pod.clone(),
            node: best.node.to_string(),
        };
        PostFilterResult {
            deallocate: Vec::new(),
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

    fn profile(cluster: &Arc<dyn Cluster>) -> Profile {
        let mut points = ExtensionPoints::default();
        for name in ["NodeResourcesFit", "NodeAffinity", "DefaultPreemption"] {
            let entry = crate::plugin_registry()
                .into_iter()
                .find(|entry| entry.name == name)
                .unwrap();
            (entry.make)(&Value::Null, cluster, &mut points).unwrap();
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
        outcome_in(&empty_cluster(), pod, nodes)
    }

    fn outcome_in(
        cluster: &Arc<dyn Cluster>,
        pod: &PodInfo,
        nodes: Vec<NodeInfo>,
    ) -> (Option<String>, Vec<String>, String) {
        let fit_error = schedule_pod(
            &profile(cluster),
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
    fn node_with_the_least_important_victims_is_chosen() {
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
    fn message_explains_the_failed_preemption() {
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
    fn pod_with_preemption_policy_never_does_not_preempt() {
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

    /// Returns a pod with the label `app`, and what `change` does to it.
    fn labelled_worker(
        name: &str,
        priority: i32,
        app: &str,
        change: impl FnOnce(&mut k8s_openapi::api::core::v1::Pod),
    ) -> PodInfo {
        let mut object = (*worker(name, "1", priority).pod).clone();
        object.metadata.labels = Some([("app".to_owned(), app.to_owned())].into());
        change(&mut object);
        PodInfo::new(Arc::new(object))
    }

    fn node_with(name: &str, pods: Vec<PodInfo>) -> NodeInfo {
        let mut node = full(name, &[]);
        pods.into_iter().for_each(|pod| node.add_pod(Arc::new(pod)));
        node
    }

    fn cluster_with_budget(app: &str, allowed: i32, disrupted: Value) -> Arc<dyn Cluster> {
        let budget = json!({"metadata": {"name": "b", "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1,
                "expectedPods": 1, "disruptedPods": disrupted}});
        Arc::new(crate::testing::TestCluster {
            budgets: vec![budget],
            ..Default::default()
        })
    }

    #[test]
    fn pods_under_a_budget_are_reprieved_before_more_important_ones() {
        let top = worker("top", "1", 100);
        let nodes = || {
            let guarded = labelled_worker("guarded", 10, "db", |_| {});
            let plain = labelled_worker("plain", 50, "web", |_| {});
            vec![node_with("a", vec![guarded, plain])]
        };
        let cases = [(0, json!({}), "plain"), (1, json!({}), "guarded")];
        for (allowed, disrupted, want) in cases {
            let cluster = cluster_with_budget("db", allowed, disrupted);
            assert_eq!(
                outcome_in(&cluster, &top, nodes()).1,
                [want],
                "{allowed} allowed"
            );
        }
    }

    #[test]
    fn pod_whose_eviction_is_counted_already_does_not_violate_its_budget() {
        let cluster = cluster_with_budget("db", 0, json!({"guarded": "2024-01-01T00:00:00Z"}));
        let guarded = labelled_worker("guarded", 10, "db", |_| {});
        let plain = labelled_worker("plain", 50, "web", |_| {});
        let nodes = vec![node_with("a", vec![guarded, plain])];
        assert_eq!(
            outcome_in(&cluster, &worker("top", "1", 100), nodes).1,
            ["guarded"]
        );
    }

    #[test]
    fn node_without_a_violated_budget_wins_over_lower_priorities() {
        let pair = |app: &str, priority| {
            let worker = |at| labelled_worker(&format!("{app}{at}"), priority, app, |_| {});
            vec![worker(1), worker(2)]
        };
        let nodes = || {
            vec![
                node_with("a", pair("db", 1)),
                node_with("b", pair("web", 50)),
            ]
        };
        let top = worker("top", "1", 100);
        let guarded = cluster_with_budget("db", 0, json!({}));
        assert_eq!(outcome_in(&guarded, &top, nodes()).0.as_deref(), Some("b"));
        assert_eq!(outcome(&top, nodes()).0.as_deref(), Some("a"));
    }

    #[test]
    fn violated_budget_does_not_prevent_a_preemption() {
        let guarded = |at| labelled_worker(&format!("db{at}"), 1, "db", |_| {});
        let nodes = vec![node_with("a", vec![guarded(1), guarded(2)])];
        let cluster = cluster_with_budget("db", 0, json!({}));
        let (node, victims, _) = outcome_in(&cluster, &worker("top", "1", 100), nodes);
        assert_eq!((node.as_deref(), victims.len()), (Some("a"), 1));
    }

    #[test]
    fn of_equal_victims_those_that_started_last_are_evicted() {
        let started = |name: &str, at: &str| {
            labelled_worker(name, 1, "web", |pod| {
                pod.status = serde_json::from_value(json!({"startTime": at})).unwrap();
            })
        };
        let (old, new) = ("2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z");
        let top = worker("top", "1", 100);
        let one = vec![node_with(
            "a",
            vec![started("young", new), started("old", old)],
        )];
        assert_eq!(outcome(&top, one).1, ["young"]);
        // Each node must lose one of two: the node whose victim is younger is chosen.
        let nodes = vec![
            node_with("a", vec![started("a1", old), started("a2", old)]),
            node_with("b", vec![started("b1", old), started("b2", new)]),
        ];
        assert_eq!(outcome(&top, nodes).0.as_deref(), Some("b"));
    }

    #[test]
    fn pods_of_equal_priority_are_not_preempted() {
        let (node, victims, _) = outcome(&worker("p", "1", 5), vec![full("a", &[("a1", "2", 5)])]);
        assert!(node.is_none() && victims.is_empty());
    }
}
