//! InterPodAffinity: affinity and anti-affinity between pods, by topology domain.
//!
//! PreFilter computes three counts for each topology domain (a label and its value): existing pods
//! whose anti-affinity matches the pod, pods that match the pod's affinity, and pods that match its
//! anti-affinity. The filter only looks counts up.

mod topology_counts;

use std::collections::HashMap;
use std::sync::Arc;

use api_semantics::selectors::{Labels, labels_match};
use k8s_openapi::api::core::v1::Pod;
use scheduler_framework::{
    AffinityTerm, Cluster, ClusterEvent, CycleState, EventKind, ExtensionPoints, Filter,
    MAX_NODE_SCORE, NodeInfo, Plugin, PodInfo, PreFilter, PreFilterResult, PreScore, Rejection,
    Score, Snapshot,
};
use serde_json::Value;

const NO_AFFINITY: &str = "node(s) didn't match pod affinity rules";
const ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const EXISTING: &str = "node(s) didn't satisfy existing pods anti-affinity rules";

use topology_counts::TopologyCounts;

type Namespaces = Arc<HashMap<String, Labels>>;

#[derive(Clone, Default)]
struct Counts {
    existing_anti_affinity: TopologyCounts,
    affinity: TopologyCounts,
    anti_affinity: TopologyCounts,
    namespaces: Namespaces,
}

#[derive(Clone, Default)]
struct Scores(TopologyCounts);

pub(crate) struct InterPodAffinity {
    hard_weight: i64,
    ignore_preferred_of_existing: bool,
}

fn all_match(terms: &[AffinityTerm], pod: &Pod, namespaces: &HashMap<String, Labels>) -> bool {
    !terms.is_empty() && terms.iter().all(|term| term.matches_pod(pod, namespaces))
}

impl Counts {
    /// Makes copies cheap.
    fn freeze_counts(&mut self) {
        [
            &mut self.existing_anti_affinity,
            &mut self.affinity,
            &mut self.anti_affinity,
        ]
        .into_iter()
        .for_each(TopologyCounts::freeze_counts);
    }

    /// Adds `by` (1 or -1) to the counts of `other` on `node`.
    fn count_pod(&mut self, pod: &PodInfo, other: &PodInfo, node: &NodeInfo, by: i64) {
        let namespaces = self.namespaces.clone();
        // Anti-affinity is symmetric: a pod that is running keeps others away by its own terms,
        // whatever the incoming pod says. Affinity is not.
        for term in &other.required_anti_affinity {
            if let Some(value) = node.label(&term.topology_key)
                && term.matches_pod(&pod.pod, &namespaces)
            {
                self.existing_anti_affinity
                    .add_count(&term.topology_key, value, by);
            }
        }
        // Upstream counts a pod for affinity only if it matches all of the terms. For anti-affinity
        // each term counts on its own.
        if all_match(&pod.required_affinity, &other.pod, &namespaces) {
            for term in &pod.required_affinity {
                if let Some(value) = node.label(&term.topology_key) {
                    self.affinity.add_count(&term.topology_key, value, by);
                }
            }
        }
        for term in &pod.required_anti_affinity {
            if let Some(value) = node.label(&term.topology_key)
                && term.matches_pod(&other.pod, &namespaces)
            {
                self.anti_affinity.add_count(&term.topology_key, value, by);
            }
        }
    }

    fn satisfies_affinity(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        // All terms are looked at before the exception for the first pod of a group: a node without
        // one of the topology labels is never allowed.
        let mut near = true;
        for term in &pod.required_affinity {
            let Some(value) = node.label(&term.topology_key) else {
                return false;
            };
            near &= self.affinity.get(&term.topology_key, value) > 0;
        }
        // If no pod matches yet, a pod that matches its own affinity may be the first of its group.
        // Without this exception no pod of a Deployment with affinity to its own label could ever
        // be scheduled.
        near || self.affinity.is_void()
            && all_match(&pod.required_affinity, &pod.pod, &self.namespaces)
    }

    fn violates_anti_affinity(&self, pod: &PodInfo, node: &NodeInfo) -> bool {
        pod.required_anti_affinity.iter().any(|term| {
            node.label(&term.topology_key)
                .is_some_and(|value| self.anti_affinity.get(&term.topology_key, value) > 0)
        })
    }

    fn violates_existing_anti_affinity(&self, node: &NodeInfo) -> bool {
        self.existing_anti_affinity.topology_keys().any(|key| {
            node.label(key)
                .is_some_and(|value| self.existing_anti_affinity.get(key, value) > 0)
        })
    }
}

impl Plugin for InterPodAffinity {
    const NAME: &'static str = "InterPodAffinity";

    fn new(args: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        let hard_weight = args
            .get("hardPodAffinityWeight")
            .and_then(Value::as_i64)
            .unwrap_or(1);
        // The range of upstream's validation; 0 turns the symmetric scoring of required affinity
        // off.
        if !(0..=100).contains(&hard_weight) {
            return Err(format!(
                "hardPodAffinityWeight: {hard_weight} is not in 0 to 100"
            ));
        }
        let ignored = args
            .get("ignorePreferredTermsOfExistingPods")
            .and_then(Value::as_bool);
        Ok(Self {
            hard_weight,
            ignore_preferred_of_existing: ignored.unwrap_or(false),
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
        use EventKind::{NamespaceChanged, NodeAdded, NodeLabels, PodUpdated};
        &[
            AssignedPodAdded,
            AssignedPodUpdated,
            AssignedPodDeleted,
            NodeAdded,
            NodeLabels,
            PodUpdated,
            NamespaceChanged,
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        let satisfies = |other: &PodInfo| {
            !pod.required_affinity.is_empty()
                && pod
                    .required_affinity
                    .iter()
                    .all(|term| may_match(term, other))
        };
        match event {
            ClusterEvent::AssignedPodAdded(other) => satisfies(other),
            ClusterEvent::AssignedPodUpdated { old, new } => {
                let stops_matching =
                    |term: &AffinityTerm| may_match(term, old) && !may_match(term, new);
                // A pod that was relabelled can satisfy affinity by its new labels, or clear
                // anti-affinity by losing the old ones.
                satisfies(new) && !satisfies(old)
                    || pod.required_anti_affinity.iter().any(stops_matching)
            }
            // The deletion of a pod that affinity points to can help, too: if it was the last one,
            // the first-of-its-group exception applies.
            ClusterEvent::AssignedPodDeleted(other) => {
                pod.required_anti_affinity
                    .iter()
                    .any(|term| may_match(term, other))
                    || other
                        .required_anti_affinity
                        .iter()
                        .any(|term| may_match(term, pod))
                    || pod
                        .required_affinity
                        .iter()
                        .any(|term| may_match(term, other))
            }
            // Topology domains depend only on labels.
            ClusterEvent::NodeUpdated { old, new } => old.labels() != new.labels(),
            ClusterEvent::NodeAdded(_)
            | ClusterEvent::PodUpdated { .. }
            | ClusterEvent::NamespaceChanged => true,
            _ => false,
        }
    }
}

/// Returns whether a term may match a pod. Namespace selectors are not resolved: in doubt they
/// match.
fn may_match(term: &AffinityTerm, other: &PodInfo) -> bool {
    let here = term.namespaces.iter().any(|name| name == other.namespace())
        // Hints have no snapshot and thus no namespace labels. A wrong yes costs one attempt, a
        // wrong no costs five minutes.
        || term.namespace_selector.is_some();
    here && labels_match(term.selector.as_ref(), other.labels())
}

impl PreFilter for InterPodAffinity {
    fn pre_filter(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        snapshot: &Snapshot,
    ) -> PreFilterResult {
        let own = !pod.required_affinity.is_empty() || !pod.required_anti_affinity.is_empty();
        let mut counts = Counts {
            namespaces: snapshot.namespaces.clone(),
            ..Counts::default()
        };
        for node in &snapshot.nodes {
            // For a pod without terms of its own only existing anti-affinity matters, which few
            // nodes have. This keeps PreFilter cheap for most pods.
            if !own && node.with_required_anti_affinity == 0 {
                continue;
            }
            for other in &node.pods {
                if own || !other.required_anti_affinity.is_empty() {
                    counts.count_pod(pod, other, node, 1);
                }
            }
        }
        // Nothing restricts the pod, so its filter need not run for any node.
        if !own && counts.existing_anti_affinity.is_empty() {
            return PreFilterResult::Skip;
        }
        // Preemption copies the state once per node that it tries. Frozen counts are shared by all
        // copies.
        counts.freeze_counts();
        state.store_value(counts);
        PreFilterResult::All
    }

    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, node: &NodeInfo) {
        if let Some(counts) = state.get_mut::<Counts>() {
            counts.count_pod(pod, added, node, 1);
        }
    }

    fn remove_pod(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        removed: &PodInfo,
        node: &NodeInfo,
    ) {
        if let Some(counts) = state.get_mut::<Counts>() {
            counts.count_pod(pod, removed, node, -1);
        }
    }
}

impl Filter for InterPodAffinity {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let Some(counts) = state.get::<Counts>() else {
            return Ok(());
        };
        // Unresolvable: evicting pods never creates the pods that affinity asks for.
        if !counts.satisfies_affinity(pod, node) {
            return Err(Rejection::unresolvable(Self::NAME, NO_AFFINITY));
        }
        // Resolvable, as is the next: the pods in the way may be victims.
        if counts.violates_anti_affinity(pod, node) {
            return Err(Rejection::unschedulable(Self::NAME, ANTI_AFFINITY));
        }
        if counts.violates_existing_anti_affinity(node) {
            return Err(Rejection::unschedulable(Self::NAME, EXISTING));
        }
        Ok(())
    }
}

impl InterPodAffinity {
    fn add_term_weights(
        &self,
        scores: &mut TopologyCounts,
        pod: &PodInfo,
        other: &PodInfo,
        node: &NodeInfo,
        namespaces: &Namespaces,
    ) {
        let mut add = |term: &AffinityTerm, about: &Pod, weight: i64| {
            if let Some(value) = node.label(&term.topology_key)
                && weight != 0
                && term.matches_pod(about, namespaces)
            {
                scores.add_count(&term.topology_key, value, weight);
            }
        };
        pod.preferred_affinity
            .iter()
            .for_each(|term| add(term, &other.pod, term.weight));
        pod.preferred_anti_affinity
            .iter()
            .for_each(|term| add(term, &other.pod, -term.weight));
        other
            .required_affinity
            .iter()
            // Required affinity of existing pods counts as a preference of the incoming pod: they
            // attract it, with a weight of the profile.
            .for_each(|term| add(term, &pod.pod, self.hard_weight));
        // Reading the terms of all existing pods is the expensive part in large clusters; the
        // argument exists to save it.
        if !self.ignore_preferred_of_existing {
            other
                .preferred_affinity
                .iter()
                .for_each(|term| add(term, &pod.pod, term.weight));
            other
                .preferred_anti_affinity
                .iter()
                .for_each(|term| add(term, &pod.pod, -term.weight));
        }
    }
}

impl PreScore for InterPodAffinity {
    fn pre_score(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        _: &[Arc<NodeInfo>],
        snapshot: &Snapshot,
    ) -> bool {
        // Pods without any affinity can be skipped if the incoming pod has no preferences itself.
        let own = !pod.preferred_affinity.is_empty() || !pod.preferred_anti_affinity.is_empty();
        let mut scores = TopologyCounts::default();
        for node in snapshot
            .nodes
            .iter()
            .filter(|node| own || node.with_affinity > 0)
        {
            for other in node.pods.iter().filter(|other| own || other.has_affinity()) {
                self.add_term_weights(&mut scores, pod, other, node, &snapshot.namespaces);
            }
        }
        let any = !scores.is_empty();
        state.store_value(Scores(scores));
        any
    }
}

impl Score for InterPodAffinity {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let Some(Scores(topology_counts)) = state.get::<Scores>() else {
            return 0;
        };
        topology_counts
            .topology_keys()
            .filter_map(|key| Some(topology_counts.get(key, node.label(key)?)))
            .sum()
    }

    fn normalize_scores(
        &self,
        _: &CycleState,
        _: &PodInfo,
        _: &[Arc<NodeInfo>],
        scores: &mut [i64],
    ) {
        let least = scores.iter().min().copied().unwrap_or(0);
        let most = scores.iter().max().copied().unwrap_or(0);
        for score in scores {
            // Scores can be negative, so the range is shifted and scaled; dividing by the maximum
            // would be wrong here.
            *score = if most > least {
                MAX_NODE_SCORE * (*score - least) / (most - least)
            } else {
                0
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

    fn near(kind: &str, app: &str) -> Value {
        json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}]}}})
    }

    /// Builds zones `a` (with the given pod) and `b` (empty), and a node without a zone.
    fn snapshot(existing: Option<PodInfo>) -> Snapshot {
        let mut here = labelled_node("a", json!({"zone": "a"}));
        if let Some(pod) = existing {
            here.add_pod(Arc::new(pod));
        }
        Snapshot::from_nodes(vec![
            here,
            labelled_node("b", json!({"zone": "b"})),
            labelled_node("c", json!({})),
        ])
    }

    fn verdicts(pod: &PodInfo, snapshot: &Snapshot) -> Vec<&'static str> {
        let plugin = InterPodAffinity::new(&Value::Null, &empty_cluster()).unwrap();
        let mut state = CycleState::default();
        if matches!(
            plugin.pre_filter(&mut state, pod, snapshot),
            PreFilterResult::Skip
        ) {
            return vec!["ok"; snapshot.nodes.len()];
        }
        let check = |node: &Arc<NodeInfo>| match plugin.filter(&state, pod, node) {
            Ok(()) => "ok",
            Err(found) if found.reasons[0] == NO_AFFINITY => "far",
            Err(found) if found.reasons[0] == ANTI_AFFINITY => "shuns",
            Err(_) => "shunned",
        };
        snapshot.nodes.iter().map(check).collect()
    }

    #[test]
    fn required_terms_decide_by_topology_domain() {
        let web = || named_pod("w", json!({"app": "web"}), json!({}));
        let plain = named_pod("p", json!({"app": "x"}), json!({}));
        let follower = named_pod("p", json!({"app": "x"}), near("podAffinity", "web"));
        let own_kind = named_pod("p", json!({"app": "web"}), near("podAffinity", "web"));
        let loner = named_pod("p", json!({"app": "x"}), near("podAntiAffinity", "web"));
        let guard = named_pod("g", json!({}), near("podAntiAffinity", "x"));
        let cases = [
            (&plain, Some(web()), ["ok", "ok", "ok"]),
            (&follower, Some(web()), ["ok", "far", "far"]),
            (&follower, None, ["far", "far", "far"]),
            (&own_kind, None, ["ok", "ok", "far"]),
            (&own_kind, Some(web()), ["ok", "far", "far"]),
            (&loner, Some(web()), ["shuns", "ok", "ok"]),
            (&plain, Some(guard), ["shunned", "ok", "ok"]),
        ];
        for (pod, existing, want) in cases {
            assert_eq!(
                verdicts(pod, &snapshot(existing)),
                want,
                "{:?}",
                pod.labels()
            );
        }
    }

    #[test]
    fn pod_update_helps_by_its_old_and_by_its_new_labels() {
        let plugin = InterPodAffinity::new(&Value::Null, &empty_cluster()).unwrap();
        let follower = named_pod("p", json!({"app": "x"}), near("podAffinity", "web"));
        let loner = named_pod("p", json!({"app": "x"}), near("podAntiAffinity", "web"));
        let update = |from: &str, to: &str| ClusterEvent::AssignedPodUpdated {
            old: Arc::new(named_pod("w", json!({"app": from}), json!({}))),
            new: Arc::new(named_pod("w", json!({"app": to}), json!({}))),
        };
        let cases = [
            (&follower, update("db", "web"), true),
            (&follower, update("web", "db"), false),
            (&loner, update("web", "db"), true),
            (&loner, update("db", "web"), false),
        ];
        for (pod, event, want) in cases {
            assert_eq!(plugin.queueing_hint(pod, &event), want, "{event:?}");
        }
        let zone = |zone: &str| Arc::new(labelled_node("n", json!({"zone": zone})));
        let moved = |from: &str, to: &str| ClusterEvent::NodeUpdated {
            old: zone(from),
            new: zone(to),
        };
        assert!(
            plugin.queueing_hint(&follower, &moved("a", "b"))
                && !plugin.queueing_hint(&follower, &moved("a", "a"))
        );
    }

    #[test]
    fn preferred_terms_score() {
        let plugin = InterPodAffinity::new(&Value::Null, &empty_cluster()).unwrap();
        let prefers = |kind: &str| {
            named_pod(
                "p",
                json!({}),
                json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 50, "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": "web"}},
                    "topologyKey": "zone"}}]}}}),
            )
        };
        for (kind, want) in [
            ("podAffinity", [100, 0, 0]),
            ("podAntiAffinity", [0, 100, 100]),
        ] {
            let pod = prefers(kind);
            let snapshot = snapshot(Some(named_pod("w", json!({"app": "web"}), json!({}))));
            let mut state = CycleState::default();
            assert!(plugin.pre_score(&mut state, &pod, &snapshot.nodes, &snapshot));
            let score = |node: &Arc<NodeInfo>| plugin.score(&state, &pod, node, &snapshot);
            let mut scores: Vec<i64> = snapshot.nodes.iter().map(score).collect();
            plugin.normalize_scores(&state, &pod, &snapshot.nodes, &mut scores);
            assert_eq!(scores, want, "{kind}");
        }
    }

    fn verdict_near(
        existing: PodInfo,
        pod: &PodInfo,
        namespaces: &[(&str, Value)],
    ) -> &'static str {
        let mut snapshot = snapshot(Some(existing));
        let labels = namespaces.iter().map(|(name, labels)| {
            (
                (*name).to_owned(),
                serde_json::from_value(labels.clone()).unwrap(),
            )
        });
        snapshot.namespaces = Arc::new(labels.collect());
        verdicts(pod, &snapshot)[0]
    }

    fn in_namespace(namespace: &str, pod: &PodInfo) -> PodInfo {
        let mut object = (*pod.pod).clone();
        object.metadata.namespace = Some(namespace.into());
        PodInfo::new(Arc::new(object))
    }

    #[test]
    fn term_selects_its_own_namespace_unless_it_names_or_selects_others() {
        let web = named_pod("w", json!({"app": "web"}), json!({}));
        let elsewhere = in_namespace("prod-1", &web);
        let with_term = |extra: Value| {
            let mut spec = near("podAntiAffinity", "web");
            let path = "/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution/0";
            let term = spec.pointer_mut(path).unwrap();
            for (key, value) in extra.as_object().unwrap() {
                term[key] = value.clone();
            }
            named_pod("p", json!({}), spec)
        };
        let selector = |team: &str| json!({"namespaceSelector": {"matchLabels": {"team": team}}});
        let cases = [
            (json!({}), &web, "shuns"),
            (json!({}), &elsewhere, "ok"),
            (json!({"namespaces": ["prod-1"]}), &elsewhere, "shuns"),
            (json!({"namespaces": ["prod-1"]}), &web, "ok"),
            (selector("a"), &elsewhere, "shuns"),
            (selector("b"), &elsewhere, "ok"),
            (selector("a"), &web, "ok"),
            (json!({"namespaceSelector": {}}), &elsewhere, "shuns"),
            (
                json!({"namespaceSelector": {"matchLabels": {"team": "b"}}, "namespaces": ["prod-1"]}),
                &elsewhere,
                "shuns",
            ),
        ];
        for (extra, existing, want) in cases {
            let namespaces = [("prod-1", json!({"team": "a"})), ("ns", json!({}))];
            let got = verdict_near(existing.clone(), &with_term(extra.clone()), &namespaces);
            assert_eq!(got, want, "{extra} {:?}", existing.pod.metadata.namespace);
        }
    }

    #[test]
    fn pod_must_match_all_affinity_terms_of_the_incoming_pod() {
        let term = |app: &str, key: &str| json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key});
        let spec = |terms: Value| json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
        let web = || Some(named_pod("w", json!({"app": "web"}), json!({})));
        let both = named_pod(
            "p",
            json!({}),
            spec(json!([term("web", "zone"), term("db", "zone")])),
        );
        let one = named_pod("p", json!({}), spec(json!([term("web", "zone")])));
        let no_label = named_pod(
            "p",
            json!({}),
            spec(json!([term("web", "zone"), term("web", "rack")])),
        );
        assert_eq!(verdicts(&one, &snapshot(web()))[0], "ok");
        assert_eq!(verdicts(&both, &snapshot(web()))[0], "far");
        assert_eq!(verdicts(&no_label, &snapshot(web()))[0], "far");
    }

    /// Returns the raw scores of the nodes `a`, `b` and `c` for a pod beside an existing one in
    /// `a`.
    fn raw_scores(args: Value, pod: &PodInfo, existing: PodInfo) -> Vec<i64> {
        let plugin = InterPodAffinity::new(&args, &empty_cluster()).unwrap();
        let (snapshot, mut state) = (snapshot(Some(existing)), CycleState::default());
        if !plugin.pre_score(&mut state, pod, &snapshot.nodes, &snapshot) {
            return vec![0; snapshot.nodes.len()];
        }
        let score = |node: &Arc<NodeInfo>| plugin.score(&state, pod, node, &snapshot);
        snapshot.nodes.iter().map(score).collect()
    }

    fn prefers(kind: &str, app: &str, weight: i32) -> Value {
        json!({"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": weight,
            "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"}}]}}})
    }

    #[test]
    fn scores_count_preferred_terms_of_both_pods_and_required_terms_of_existing_ones() {
        let web = |spec: Value| named_pod("w", json!({"app": "web"}), spec);
        let pod = |spec: Value| named_pod("p", json!({"app": "x"}), spec);
        let plain = || json!({});
        let cases = [
            (pod(prefers("podAffinity", "web", 7)), web(plain()), 7),
            (pod(prefers("podAntiAffinity", "web", 7)), web(plain()), -7),
            (pod(plain()), web(prefers("podAffinity", "x", 5)), 5),
            (pod(plain()), web(prefers("podAntiAffinity", "x", 5)), -5),
            (pod(plain()), web(near("podAffinity", "x")), 1),
            (pod(plain()), web(near("podAffinity", "y")), 0),
        ];
        for (pod, existing, want) in cases {
            let got = raw_scores(json!({}), &pod, existing);
            assert_eq!(got, [want, 0, 0], "{:?}", pod.spec());
        }
        let heavy = json!({"hardPodAffinityWeight": 50});
        let existing = web(near("podAffinity", "x"));
        assert_eq!(raw_scores(heavy, &pod(plain()), existing)[0], 50);
        let ignoring = json!({"ignorePreferredTermsOfExistingPods": true});
        let existing = web(prefers("podAffinity", "x", 5));
        assert_eq!(raw_scores(ignoring, &pod(plain()), existing)[0], 0);
    }

    #[test]
    fn negative_scores_are_shifted_before_they_are_scaled() {
        let plugin = InterPodAffinity::new(&Value::Null, &empty_cluster()).unwrap();
        let (state, pod) = (CycleState::default(), named_pod("p", json!({}), json!({})));
        for (mut scores, want) in [
            (vec![-10, 0, 10], [0, 50, 100]),
            (vec![-10, -10, -5], [0, 0, 100]),
            (vec![3, 3, 3], [0, 0, 0]),
        ] {
            plugin.normalize_scores(&state, &pod, &[], &mut scores);
            assert_eq!(scores, want);
        }
    }

    #[test]
    fn hard_weight_outside_of_its_range_is_an_error() {
        for (weight, valid) in [(0, true), (100, true), (101, false), (-1, false)] {
            let args = json!({"hardPodAffinityWeight": weight});
            assert_eq!(
                InterPodAffinity::new(&args, &empty_cluster()).is_ok(),
                valid,
                "{weight}"
            );
        }
    }
}
