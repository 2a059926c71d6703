//! PodTopologySpread: spreads matching pods evenly over topology domains.
//!
//! The filter checks DoNotSchedule constraints against counts that PreFilter computed;
//! ScheduleAnyway constraints, and the defaults for pods of a Service or ReplicaSet without
//! constraints, only affect the score.

mod constraint;
mod memo;
mod tally;

use std::collections::HashMap;
use std::sync::Arc;

use scheduler_framework::{
    Cluster, ClusterEvent, CycleState, EventKind, ExtensionPoints, Filter, MAX_NODE_SCORE,
    NodeInfo, Plugin, PodInfo, PreFilter, PreFilterResult, PreScore, Rejection, Score, Snapshot,
};
use serde_json::Value;

use constraint::{Action, Constraint};
use memo::Memo;
use tally::Tally;

const HOSTNAME: &str = "kubernetes.io/hostname";
const TOO_SKEWED: &str = "node(s) didn't match pod topology spread constraints";
const NO_LABEL: &str =
    "node(s) didn't match pod topology spread constraints (missing required label)";

#[derive(Clone)]
struct Spread {
    constraint: Constraint,
    /// Matching pods by topology domain.
    counts: Tally,
    own: i64,
}

impl Spread {
    /// Returns the smallest number of pods in a domain.
    fn least_count(&self) -> i64 {
        let places = i64::try_from(self.counts.len()).unwrap_or(i64::MAX);
        // With fewer domains than `minDomains` the minimum counts as 0, so that pods wait for
        // further domains instead of piling up.
        if places < self.constraint.min_domains {
            0
        } else {
            self.counts.least_count()
        }
    }
}

#[derive(Clone)]
struct HardConstraints(Vec<Spread>);

#[derive(Clone)]
struct SoftConstraints {
    spreads: Vec<(Constraint, HashMap<String, i64>, f64)>,
    /// Nodes that lack a topology label are not scored.
    needs_all: bool,
}

impl SoftConstraints {
    fn ignores_node(&self, node: &NodeInfo) -> bool {
        self.needs_all
            && self
                .spreads
                .iter()
                .any(|(constraint, _, _)| node.label(&constraint.key).is_none())
    }
}

pub(crate) struct PodTopologySpread {
    cluster: Arc<dyn Cluster>,
    /// Default constraints of the arguments; None for the built-in ones.
    defaults: Option<Vec<Constraint>>,
    memo: Memo,
}

impl Plugin for PodTopologySpread {
    const NAME: &'static str = "PodTopologySpread";

    fn new(args: &Value, cluster: &Arc<dyn Cluster>) -> Result<Self, String> {
        let given = args
            .get("defaultConstraints")
            .filter(|value| !value.is_null());
        let listed = args.get("defaultingType").and_then(Value::as_str) == Some("List");
        let defaults = match given {
            // `List` without constraints turns default spreading off.
            None if listed => Some(Vec::new()),
            None => None,
            Some(list) => {
                let list: Vec<k8s_openapi::api::core::v1::TopologySpreadConstraint> =
                    serde_json::from_value(list.clone())
                        .map_err(|error| format!("defaultConstraints: {error}"))?;
                Some(
                    list.iter()
                        .map(|constraint| Constraint::new(constraint, None))
                        .collect(),
                )
            }
        };
        Ok(Self {
            cluster: cluster.clone(),
            defaults,
            memo: Memo::default(),
        })
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_filter(&self);
        points.filter(&self);
        points.pre_score(&self);
        points.score(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        use EventKind::{AssignedPodAdded, AssignedPodDeleted, AssignedPodUpdated};
        use EventKind::{NodeAdded, NodeDeleted, NodeLabels, NodeTaints, PodUpdated};
        &[
            AssignedPodAdded,
            AssignedPodUpdated,
            AssignedPodDeleted,
            NodeAdded,
            NodeLabels,
            NodeTaints,
            NodeDeleted,
            PodUpdated,
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        // Only hard constraints reject pods, so only they need events.
        let any = |holds: &dyn Fn(&Constraint) -> bool| {
            self.spread_constraints(pod, Action::Forbid)
                .0
                .iter()
                .any(holds)
        };
        match event {
            ClusterEvent::AssignedPodAdded(other) | ClusterEvent::AssignedPodDeleted(other) => {
                // A deleted pod counted until its deletion was requested, so its labels decide.
                other.namespace() == pod.namespace()
                    && any(&|constraint| constraint.selects_labels(other.labels()))
            }
            ClusterEvent::AssignedPodUpdated { old, new } => {
                let counted = |constraint: &Constraint| {
                    // A change of labels, or a requested deletion: both can lower the number in a
                    // domain.
                    constraint.counts_pod(&old.pod) != constraint.counts_pod(&new.pod)
                };
                new.namespace() == pod.namespace() && any(&counted)
            }
            // A domain that disappears may have been the one with the fewest pods.
            ClusterEvent::NodeAdded(node) | ClusterEvent::NodeDeleted(node) => {
                has_labels(node, &self.spread_constraints(pod, Action::Forbid).0)
            }
            ClusterEvent::NodeUpdated { old, new } => {
                // Taints matter with `nodeTaintsPolicy: Honor`.
                old.labels() != new.labels() || old.taints() != new.taints()
            }
            ClusterEvent::PodUpdated { .. } => true,
            _ => false,
        }
    }
}

impl PodTopologySpread {
    /// Returns the constraints with an action, and whether they are the pod's own.
    fn spread_constraints(&self, pod: &PodInfo, action: Action) -> (Vec<Constraint>, bool) {
        let given = pod
            .spec()
            .and_then(|spec| spec.topology_spread_constraints.as_deref())
            .unwrap_or_default();
        if !given.is_empty() {
            let all = given
                .iter()
                .map(|constraint| Constraint::new(constraint, pod.labels()));
            return (
                all.filter(|constraint| constraint.action == action)
                    .collect(),
                true,
            );
        }
        let defaults = match &self.defaults {
            Some(defaults) => defaults.clone(),
            None => {
                vec![
                    Constraint::default_for(HOSTNAME, 3),
                    Constraint::default_for("topology.kubernetes.io/zone", 5),
                ]
            }
        };
        let mut defaults: Vec<_> = defaults
            .into_iter()
            .filter(|constraint| constraint.action == action)
            .collect();
        if defaults.is_empty() {
            return (defaults, false);
        }
        // Default constraints have no selector of their own. Without an owner or a Service there is
        // nothing to spread.
        let Some(selector) = constraint::default_selector(pod, &*self.cluster) else {
            return (Vec::new(), false);
        };
        defaults
            .iter_mut()
            .for_each(|constraint| constraint.selector = Some(selector.clone()));
        (defaults, false)
    }
}

fn add_to_domain(counts: &mut HashMap<String, i64>, place: &str, by: i64) {
    match counts.get_mut(place) {
        Some(count) => *count += by,
        None => drop(counts.insert(place.to_owned(), by)),
    }
}

/// Returns whether a node has the labels of all constraints.
fn has_labels(node: &NodeInfo, constraints: &[Constraint]) -> bool {
    constraints
        .iter()
        .all(|constraint| node.label(&constraint.key).is_some())
}

impl PreFilter for PodTopologySpread {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> PreFilterResult {
        let (constraints, _) = self.spread_constraints(pod, Action::Forbid);
        if constraints.is_empty() {
            return PreFilterResult::Skip;
        }
        // A node must have the labels of all constraints to count for any of them, as upstream: a
        // pod there could not be placed by the others.
        let labelled: Vec<bool> = snapshot
            .nodes
            .iter()
            .map(|node| has_labels(node, &constraints))
            .collect();
        let spread = |constraint: Constraint| {
            let mut counts = HashMap::new();
            let pods = self.memo.count_pods(&constraint, pod, snapshot);
            let nodes = snapshot
                .nodes
                .iter()
                .zip(pods)
                .zip(&labelled)
                .filter(|(_, labelled)| **labelled);
            for ((node, count), _) in
                nodes.filter(|((node, _), _)| constraint.includes_node(pod, node))
            {
                add_to_domain(
                    &mut counts,
                    node.label(&constraint.key).unwrap_or_default(),
                    count,
                );
            }
            // The pod counts itself only if its own labels match; a constraint may speak of other
            // pods.
            let own = i64::from(constraint.selects_labels(pod.labels()));
            Spread {
                constraint,
                counts: Tally::new(counts),
                own,
            }
        };
        state.store_value(HardConstraints(
            constraints.into_iter().map(spread).collect(),
        ));
        PreFilterResult::All
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) {
        update_counts(state, pod, added, node, 1);
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) {
        update_counts(state, pod, removed, node, -1);
    }
}

fn update_counts(state: &mut CycleState, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
    let Some(HardConstraints(spreads)) = state.get_mut::<HardConstraints>() else {
        return;
    };
    // Nodes that do not count must not change the counts when preemption tries them.
    if spreads
        .iter()
        .any(|spread| node.label(&spread.constraint.key).is_none())
    {
        return;
    }
    for spread in spreads.iter_mut() {
        let counts =
            other.namespace() == pod.namespace() && spread.constraint.counts_pod(&other.pod);
        if counts && spread.constraint.includes_node(pod, node) {
            let value = node.label(&spread.constraint.key).unwrap_or_default();
            spread.counts.add(value, by);
        }
    }
}

impl Filter for PodTopologySpread {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(HardConstraints(spreads)) = state.get::<HardConstraints>() else {
            return Ok(());
        };
        for spread in spreads {
            let Some(value) = node.label(&spread.constraint.key) else {
                // Evicting pods does not give a node a label.
                return Err(Rejection::unresolvable(Self::NAME, NO_LABEL));
            };
            // The skew after placing the pod here, against the emptiest domain.
            if spread.counts.get(value) + spread.own - spread.least_count()
                > spread.constraint.max_skew
            {
                return Err(Rejection::unschedulable(Self::NAME, TOO_SKEWED));
            }
        }
        Ok(())
    }
}

impl PreScore for PodTopologySpread {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &[Arc<NodeInfo>],
        snapshot: &Snapshot,
    ) -> bool {
        let (constraints, needs_all) = self.spread_constraints(pod, Action::Score);
        if constraints.is_empty() {
            return false;
        }
        let scored: Vec<_> = nodes
            .iter()
            // The default constraints use hostname and zone. Clusters without zones must still be
            // spread by host.
            .filter(|node| !needs_all || has_labels(node, &constraints))
            .collect();
        let spread = |constraint: Constraint| {
            let mut counts: HashMap<String, i64> = HashMap::new();
            for value in scored.iter().filter_map(|node| node.label(&constraint.key)) {
                // Domains without pods must exist in the map: they are the best ones.
                add_to_domain(&mut counts, value, 0);
            }
            let pods = self.memo.count_pods(&constraint, pod, snapshot);
            for (node, pods) in snapshot
                .nodes
                .iter()
                .zip(pods)
                .filter(|(_, pods)| *pods > 0)
            {
                let counted = (!needs_all || has_labels(node, &constraints))
                    && constraint.includes_node(pod, node);
                if counted
                    && let Some(count) = node
                        .label(&constraint.key)
                        .and_then(|value| counts.get_mut(value))
                {
                    *count += pods;
                }
            }
            // With more domains each has fewer pods, so that a constraint over hosts would have
            // less influence than one over zones.
            let weight = (counts.len() as f64 + 2.0).ln();
            (constraint, counts, weight)
        };
        let spreads = constraints.iter().cloned().map(spread).collect();
        state.store_value(SoftConstraints { spreads, needs_all });
        true
    }
}

impl Score for PodTopologySpread {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let Some(scoring) = state.get::<SoftConstraints>() else {
            return 0;
        };
        let each = scoring
            .spreads
            .iter()
            .filter_map(|(constraint, counts, weight)| {
                let count = counts
                    .get(node.label(&constraint.key)?)
                    .copied()
                    .unwrap_or(0);
                // A larger tolerance flattens the differences between domains.
                Some(count as f64 * weight + (constraint.max_skew - 1) as f64)
            });
        each.sum::<f64>().round() as i64
    }

    fn normalize_scores(
        &self,
        state: &CycleState,
        _: &PodInfo,
        nodes: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) {
        let Some(scoring) = state.get::<SoftConstraints>() else {
            return;
        };
        let taking_part = || {
            nodes
                .iter()
                .enumerate()
                .filter(|(_, node)| !scoring.ignores_node(node))
                .map(|(at, _)| at)
        };
        let values = || taking_part().filter_map(|at| scores.get(at).copied());
        let (least, most) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
        let part: std::collections::HashSet<usize> = taking_part().collect();
        for (at, score) in scores.iter_mut().enumerate() {
            *score = match most {
                // Nodes without the topology labels come last, not best: their number of matching
                // pods is unknown.
                _ if !part.contains(&at) => 0,
                0 => MAX_NODE_SCORE,
                // Fewer pods are better, so the order is reversed.
                most => MAX_NODE_SCORE * (most + least - *score) / most,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::{empty_cluster, labelled_node, named_pod};
    use serde_json::json;

    fn plugin() -> PodTopologySpread {
        PodTopologySpread::new(&Value::Null, &empty_cluster()).unwrap()
    }

    fn spreading(rule: Value) -> PodInfo {
        let mut base = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"g": "g"}}});
        for (key, value) in rule.as_object().unwrap() {
            base[key] = value.clone();
        }
        named_pod(
            "p",
            json!({"g": "g"}),
            json!({"topologySpreadConstraints": [base]}),
        )
    }

    /// Builds zones with these numbers of pods, and a node without a zone.
    fn zones(counts: &[usize]) -> Snapshot {
        let zone = |(at, count): (usize, &usize)| {
            let mut node = labelled_node(
                &format!("n{at}"),
                json!({"zone": format!("z{at}"), "kubernetes.io/hostname": format!("n{at}")}),
            );
            for i in 0..*count {
                node.add_pod(Arc::new(named_pod(
                    &format!("{at}-{i}"),
                    json!({"g": "g"}),
                    json!({}),
                )));
            }
            node
        };
        let mut nodes: Vec<NodeInfo> = counts.iter().enumerate().map(zone).collect();
        nodes.push(labelled_node("bare", json!({})));
        Snapshot::from_nodes(nodes)
    }

    #[test]
    fn node_is_rejected_if_the_pod_would_exceed_the_skew() {
        let cases = [
            (json!({}), vec![1, 0], vec![false, true, false]),
            (json!({}), vec![1, 1], vec![true, true, false]),
            (json!({"maxSkew": 2}), vec![1, 0], vec![true, true, false]),
            (
                json!({"minDomains": 3}),
                vec![1, 1],
                vec![false, false, false],
            ),
            (
                json!({"labelSelector": {"matchLabels": {"g": "other"}}}),
                vec![5, 0],
                vec![true, true, false],
            ),
        ];
        for (rule, counts, want) in cases {
            let (pod, snapshot, mut state) = (
                spreading(rule.clone()),
                zones(&counts),
                CycleState::default(),
            );
            assert!(matches!(
                plugin().pre_filter(&mut state, &pod, &snapshot),
                PreFilterResult::All
            ));
            let check = |node: &Arc<NodeInfo>| plugin().filter(&state, &pod, node).is_ok();
            let got: Vec<bool> = snapshot.nodes.iter().map(check).collect();
            assert_eq!(got, want, "{rule} over {counts:?}");
        }
    }

    #[test]
    fn deleted_node_and_pod_that_no_longer_counts_help() {
        let waiting = spreading(json!({}));
        let pod = |group: &str| Arc::new(named_pod("o", json!({"g": group}), json!({})));
        let node = |labels: Value| Arc::new(labelled_node("n", labels));
        let zone = || json!({"zone": "a"});
        let cases = [
            (
                ClusterEvent::AssignedPodUpdated {
                    old: pod("g"),
                    new: pod("h"),
                },
                true,
            ),
            (
                ClusterEvent::AssignedPodUpdated {
                    old: pod("h"),
                    new: pod("h"),
                },
                false,
            ),
            (ClusterEvent::NodeDeleted(node(zone())), true),
            (ClusterEvent::NodeDeleted(node(json!({}))), false),
            (
                ClusterEvent::NodeUpdated {
                    old: node(zone()),
                    new: node(zone()),
                },
                false,
            ),
            (
                ClusterEvent::NodeUpdated {
                    old: node(json!({})),
                    new: node(zone()),
                },
                true,
            ),
        ];
        for (event, want) in cases {
            assert_eq!(plugin().queueing_hint(&waiting, &event), want, "{event:?}");
        }
    }

    #[test]
    fn replicas_spread_by_default() {
        let mut pod = named_pod("p", json!({"g": "g"}), json!({}));
        let mut object = (*pod.pod).clone();
        object.metadata.owner_references = serde_json::from_value(json!([{"apiVersion": "apps/v1",
            "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]))
        .unwrap();
        pod.pod = Arc::new(object);
        let (snapshot, mut state) = (zones(&[2, 0]), CycleState::default());
        assert!(plugin().pre_score(&mut state, &pod, &snapshot.nodes, &snapshot));
        let score = |node: &Arc<NodeInfo>| plugin().score(&state, &pod, node, &snapshot);
        let mut scores: Vec<i64> = snapshot.nodes.iter().map(score).collect();
        plugin().normalize_scores(&state, &pod, &snapshot.nodes, &mut scores);
        assert!(scores[0] < scores[1], "{scores:?}");
    }

    /// Returns for each node of the snapshot whether the pod may be placed there.
    fn fits(pod: &PodInfo, snapshot: &Snapshot) -> Vec<bool> {
        let mut state = CycleState::default();
        let _ = plugin().pre_filter(&mut state, pod, snapshot);
        let fits = |node: &Arc<NodeInfo>| plugin().filter(&state, pod, node).is_ok();
        snapshot.nodes.iter().map(fits).collect()
    }

    fn zone_node(name: &str, zone: &str, spec: Value, pods: Vec<PodInfo>) -> NodeInfo {
        let mut node = crate::testing::build_node(name, json!({"zone": zone}), spec, json!({}));
        pods.into_iter().for_each(|pod| node.add_pod(Arc::new(pod)));
        node
    }

    fn group(name: &str) -> PodInfo {
        named_pod(name, json!({"g": "g"}), json!({}))
    }

    #[test]
    fn minimum_counts_as_zero_while_there_are_fewer_domains_than_min_domains() {
        for (min_domains, want) in [(2, true), (3, false)] {
            let pod = spreading(json!({"minDomains": min_domains}));
            assert_eq!(fits(&pod, &zones(&[1, 1]))[0], want, "{min_domains}");
        }
    }

    #[test]
    fn match_label_keys_count_only_pods_of_the_same_revision() {
        let with_revision = |name: &str, revision: &str, spec: Value| {
            named_pod(name, json!({"g": "g", "pod-template-hash": revision}), spec)
        };
        let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"g": "g"}}, "matchLabelKeys": ["pod-template-hash"]});
        let spec = json!({"topologySpreadConstraints": [constraint]});
        let old = |name: &str| with_revision(name, "old", json!({}));
        let snapshot = Snapshot::from_nodes(vec![
            zone_node("a", "a", json!({}), vec![old("1"), old("2")]),
            zone_node("b", "b", json!({}), vec![]),
        ]);
        assert_eq!(
            fits(&with_revision("p", "new", spec.clone()), &snapshot),
            [true, true]
        );
        assert_eq!(
            fits(&with_revision("p", "old", spec), &snapshot),
            [false, true]
        );
    }

    #[test]
    fn node_affinity_policy_decides_whether_nodes_that_the_pod_cannot_use_count() {
        let snapshot = || {
            let empty = labelled_node("c", json!({"zone": "c", "pool": "other"}));
            let used = |name: &str| {
                let mut node = labelled_node(name, json!({"zone": name, "pool": "mine"}));
                node.add_pod(Arc::new(group(&format!("pod-{name}"))));
                node
            };
            Snapshot::from_nodes(vec![used("a"), used("b"), empty])
        };
        for (policy, want) in [("Honor", true), ("Ignore", false)] {
            let mut pod = (*spreading(json!({"nodeAffinityPolicy": policy})).pod).clone();
            let selector = serde_json::from_value(json!({"pool": "mine"})).unwrap();
            pod.spec.as_mut().unwrap().node_selector = Some(selector);
            assert_eq!(
                fits(&PodInfo::new(Arc::new(pod)), &snapshot())[0],
                want,
                "{policy}"
            );
        }
    }

    #[test]
    fn node_taints_policy_decides_whether_tainted_nodes_count() {
        let taint = json!({"taints": [{"key": "k", "effect": "NoSchedule"}]});
        for (policy, want) in [("Ignore", false), ("Honor", true)] {
            let snapshot = Snapshot::from_nodes(vec![
                zone_node("a", "a", json!({}), vec![group("1")]),
                zone_node("b", "b", json!({}), vec![group("2")]),
                zone_node("c", "c", taint.clone(), vec![]),
            ]);
            let pod = spreading(json!({"nodeTaintsPolicy": policy}));
            assert_eq!(fits(&pod, &snapshot)[0], want, "{policy}");
        }
    }

    #[test]
    fn pods_that_are_being_deleted_or_in_other_namespaces_do_not_count() {
        let change = |change: &dyn Fn(&mut k8s_openapi::api::core::v1::Pod)| {
            let mut pod = (*group("1").pod).clone();
            change(&mut pod);
            PodInfo::new(Arc::new(pod))
        };
        let now: k8s_openapi::apimachinery::pkg::apis::meta::v1::Time =
            serde_json::from_value(json!("2024-01-01T00:00:00Z")).unwrap();
        let deleting = change(&|pod| pod.metadata.deletion_timestamp = Some(now.clone()));
        let elsewhere = change(&|pod| pod.metadata.namespace = Some("other".into()));
        for (existing, want) in [(group("1"), false), (deleting, true), (elsewhere, true)] {
            let metadata = existing.pod.metadata.clone();
            let snapshot = Snapshot::from_nodes(vec![
                zone_node("a", "a", json!({}), vec![existing]),
                zone_node("b", "b", json!({}), vec![]),
            ]);
            assert_eq!(
                fits(&spreading(json!({})), &snapshot)[0],
                want,
                "{metadata:?}"
            );
        }
    }

    #[test]
    fn preemption_sees_the_counts_without_the_victim() {
        let (pod, snapshot, mut state) =
            (spreading(json!({})), zones(&[1, 0]), CycleState::default());
        let _ = plugin().pre_filter(&mut state, &pod, &snapshot);
        let node = &snapshot.nodes[0];
        assert!(plugin().filter(&state, &pod, node).is_err());
        plugin().remove_pod(&mut state, &pod, &group("0-0"), node);
        assert!(plugin().filter(&state, &pod, node).is_ok());
        plugin().add_pod(&mut state, &pod, &group("0-0"), node);
        assert!(plugin().filter(&state, &pod, node).is_err());
    }
}
