//! Cycles with plugins that decide by the name of the node.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::Mutex;

use serde_json::{Value, json};

use super::*;
use crate::diagnosis::Code;
use crate::plugin::{
    Filter, PostFilter, PostFilterResult, PreFilter, PreFilterResult, PreScore, Score,
};
use crate::profile::{ExtensionPoints, Plugin};
use crate::snapshot::Cluster;

/// A plugin that rejects the nodes of one list with a code, and scores by another.
#[derive(Default)]
struct ByName {
    rejected: Vec<(&'static str, Code)>,
    pre_filter: Option<fn() -> PreFilterResult>,
    scores: Vec<(&'static str, i64)>,
    skips_score: bool,
    /// Rejects a node that has the pod with this name.
    avoids_pod: Option<&'static str>,
    filtered: Arc<Mutex<Vec<String>>>,
}

impl Plugin for ByName {
    const NAME: &'static str = "ByName";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self::default())
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.pre_filter(&self);
        points.filter(&self);
        points.post_filter(&self);
        points.pre_score(&self);
        points.score(&self);
    }
}

impl PreFilter for ByName {
    fn pre_filter(&self, _: &mut CycleState, _: &PodInfo, _: &Snapshot) -> PreFilterResult {
        self.pre_filter
            .map_or(PreFilterResult::All, |result| result())
    }
}

impl Filter for ByName {
    fn filter(&self, _: &CycleState, _: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        self.filtered.lock().unwrap().push(node.name.to_string());
        if node
            .pods
            .iter()
            .any(|pod| Some(pod.name()) == self.avoids_pod)
        {
            return Err(Rejection::unschedulable(Self::NAME, "avoided"));
        }
        match self.rejected.iter().find(|(name, _)| *name == &*node.name) {
            None => Ok(()),
            Some((_, code)) => Err(Rejection {
                code: *code,
                reasons: vec!["rejected".into()],
                plugin: Self::NAME,
            }),
        }
    }
}

impl PostFilter for ByName {
    fn post_filter(
        &self,
        _: &CycleState,
        _: &PodInfo,
        _: &Diagnosis,
        _: &dyn PluginsRunner,
    ) -> PostFilterResult {
        PostFilterResult {
            message: "post filter ran".into(),
            ..PostFilterResult::default()
        }
    }
}

impl PreScore for ByName {
    fn pre_score(
        &self,
        _: &mut CycleState,
        _: &PodInfo,
        _: &[Arc<NodeInfo>],
        _: &Snapshot,
    ) -> bool {
        !self.skips_score
    }
}

impl Score for ByName {
    fn score(&self, _: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let found = self.scores.iter().find(|(name, _)| *name == &*node.name);
        found.map_or(0, |(_, score)| *score)
    }
}

/// Nominations of pods to the node `a`.
struct Nominated(Vec<Arc<PodInfo>>);

impl PodNominator for Nominated {
    fn pods_on(&self, node: &str) -> Vec<Arc<PodInfo>> {
        if node == "a" {
            self.0.clone()
        } else {
            Vec::new()
        }
    }

    fn node_of(&self, uid: &str) -> Option<Arc<str>> {
        let known = self.0.iter().any(|pod| pod.uid() == uid);
        known.then(|| Arc::from("a"))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn pod(name: &str, priority: i32) -> Arc<PodInfo> {
    let object = json!({"metadata": {"name": name, "uid": name},
        "spec": {"priority": priority, "containers": []}});
    Arc::new(PodInfo::new(Arc::new(
        serde_json::from_value(object).unwrap(),
    )))
}

fn snapshot(names: &[&str]) -> Snapshot {
    Snapshot::from_nodes(names.iter().map(|name| NodeInfo::new(name)).collect())
}

fn profile(plugin: ByName) -> Profile {
    let mut points = ExtensionPoints::default();
    points.add_plugin(plugin);
    Profile {
        name: "test".into(),
        points,
        percentage_of_nodes_to_score: 0,
    }
}

fn schedule(plugin: ByName, names: &[&str]) -> Result<ScheduleResult, Box<FitError>> {
    let pod = pod("p", 0);
    schedule_pod(
        &profile(plugin),
        &snapshot(names),
        &NoNominatedPods,
        &pod,
        &mut 0,
    )
}

#[test]
fn number_of_nodes_to_find_follows_the_adaptive_percentage() {
    let cases = [
        (0, 50, 50),
        (0, 100, 100),
        (0, 1000, 420),
        (0, 5000, 500),
        (0, 20_000, 1000),
        (10, 2000, 200),
        (100, 500, 500),
    ];
    for (percentage, all, want) in cases {
        assert_eq!(
            nodes_to_find(percentage, all),
            want,
            "{percentage} of {all}"
        );
    }
}

#[test]
fn node_with_the_highest_score_is_chosen() {
    let plugin = ByName {
        scores: vec![("a", 10), ("b", 30), ("c", 20)],
        ..ByName::default()
    };
    let result = schedule(plugin, &["a", "b", "c"]).ok().unwrap();
    assert_eq!(
        (&*result.node, result.evaluated, result.feasible),
        ("b", 3, 3)
    );
}

#[test]
fn score_above_the_range_counts_as_the_maximum() {
    let plugin = ByName {
        scores: vec![("a", 500), ("b", 100)],
        ..ByName::default()
    };
    let (profile, snapshot) = (profile(plugin), snapshot(&["a", "b"]));
    let mut chosen = HashSet::new();
    for _ in 0..100 {
        let result = schedule_pod(&profile, &snapshot, &NoNominatedPods, &pod("p", 0), &mut 0);
        chosen.insert(result.ok().unwrap().node);
    }
    assert_eq!(chosen.len(), 2, "both nodes have the maximum");
}

#[test]
fn plugin_that_skips_scoring_does_not_influence_the_choice() {
    let plugin = ByName {
        scores: vec![("a", 100)],
        skips_score: true,
        ..ByName::default()
    };
    let (profile, snapshot) = (profile(plugin), snapshot(&["a", "b"]));
    let mut chosen = HashSet::new();
    for _ in 0..100 {
        let result = schedule_pod(&profile, &snapshot, &NoNominatedPods, &pod("p", 0), &mut 0);
        chosen.insert(result.ok().unwrap().node);
    }
    assert_eq!(chosen.len(), 2);
}

#[test]
fn rejections_of_all_nodes_are_reported_and_post_filter_runs() {
    let plugin = ByName {
        rejected: vec![
            ("a", Code::Unschedulable),
            ("b", Code::UnschedulableAndUnresolvable),
        ],
        ..ByName::default()
    };
    let error = schedule(plugin, &["a", "b"]).err().unwrap();
    let want = "0/2 nodes are available: 2 rejected. post filter ran";
    assert_eq!(error.diagnosis.message(), want);
    assert!(error.error.is_none() && error.diagnosis.plugins.contains("ByName"));
}

#[test]
fn failed_filter_is_an_error_without_post_filter() {
    let plugin = ByName {
        rejected: vec![("a", Code::Error)],
        ..ByName::default()
    };
    let error = schedule(plugin, &["a"]).err().unwrap();
    assert_eq!(error.error.as_deref(), Some("rejected"));
    assert!(error.diagnosis.post_filter.is_empty());
}

#[test]
fn failed_filter_fails_the_attempt_although_other_nodes_fit() {
    let filtered = Arc::<Mutex<_>>::default();
    let plugin = ByName {
        rejected: vec![("b", Code::Error)],
        filtered: filtered.clone(),
        ..ByName::default()
    };
    let error = schedule(plugin, &["a", "b", "c"]).err().unwrap();
    assert_eq!(error.error.as_deref(), Some("rejected"));
    assert!(error.diagnosis.post_filter.is_empty());
    assert_eq!(*filtered.lock().unwrap(), ["a", "b"], "no node after it");
}

#[test]
fn failed_filter_behind_enough_feasible_nodes_does_not_matter() {
    let names: Vec<String> = (0..150).map(|at| format!("n{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let plugin = ByName {
        rejected: vec![("n149", Code::Error)],
        ..ByName::default()
    };
    assert_eq!(schedule(plugin, &names).ok().unwrap().feasible, 100);
}

#[test]
fn cluster_without_nodes_has_its_own_message_and_no_post_filter() {
    let error = schedule(ByName::default(), &[]).err().unwrap();
    assert_eq!(
        error.diagnosis.message(),
        "no nodes available to schedule pods"
    );
    assert!(error.diagnosis.post_filter.is_empty());
}

#[test]
fn pre_filter_leaves_only_the_nodes_that_it_names() {
    let filtered = Arc::<Mutex<_>>::default();
    let plugin = ByName {
        pre_filter: Some(|| PreFilterResult::Nodes(["b".to_owned(), "absent".to_owned()].into())),
        filtered: filtered.clone(),
        ..ByName::default()
    };
    let result = schedule(plugin, &["a", "b", "c"]).ok().unwrap();
    assert_eq!((&*result.node, result.feasible), ("b", 1));
    assert_eq!(*filtered.lock().unwrap(), ["b"]);
}

#[test]
fn nodes_that_pre_filter_excludes_are_counted_in_the_message() {
    let plugin = ByName {
        pre_filter: Some(|| PreFilterResult::Nodes(["b".to_owned()].into())),
        rejected: vec![("b", Code::Unschedulable)],
        ..ByName::default()
    };
    let message = schedule(plugin, &["a", "b", "c"])
        .err()
        .unwrap()
        .diagnosis
        .message();
    let want = "0/3 nodes are available: 1 rejected, 2 node(s) didn't satisfy plugin(s) [ByName].";
    assert!(message.starts_with(want), "{message}");
}

#[test]
fn pre_filter_that_skips_saves_the_filter() {
    let filtered = Arc::<Mutex<_>>::default();
    let plugin = ByName {
        pre_filter: Some(|| PreFilterResult::Skip),
        rejected: vec![("a", Code::Unschedulable)],
        filtered: filtered.clone(),
        ..ByName::default()
    };
    assert_eq!(&*schedule(plugin, &["a"]).ok().unwrap().node, "a");
    assert!(filtered.lock().unwrap().is_empty());
}

#[test]
fn pre_filter_rejection_is_reported_for_the_pod_as_a_whole() {
    let plugin = ByName {
        pre_filter: Some(|| PreFilterResult::Reject(Rejection::unresolvable("ByName", "no claim"))),
        ..ByName::default()
    };
    let error = schedule(plugin, &["a", "b"]).err().unwrap();
    let want = "0/2 nodes are available: no claim. post filter ran";
    assert_eq!(error.diagnosis.message(), want);
}

#[test]
fn nominated_pod_of_equal_or_higher_priority_counts_on_its_node() {
    for (nominated, incoming, want) in [(5, 5, None), (9, 5, None), (4, 5, Some("a"))] {
        let plugin = ByName {
            avoids_pod: Some("preemptor"),
            ..ByName::default()
        };
        let nominations = Nominated(vec![pod("preemptor", nominated)]);
        let incoming = pod("p", incoming);
        let result = schedule_pod(
            &profile(plugin),
            &snapshot(&["a"]),
            &nominations,
            &incoming,
            &mut 0,
        );
        let node = result.ok().map(|result| result.node);
        assert_eq!(
            node.as_deref(),
            want,
            "{nominated} before {}",
            incoming.priority()
        );
    }
}

#[test]
fn pod_is_not_kept_from_its_nominated_node_by_its_own_nomination() {
    let plugin = ByName {
        avoids_pod: Some("p"),
        scores: vec![("b", 100)],
        ..ByName::default()
    };
    let own = pod("p", 5);
    let nominations = Nominated(vec![own.clone()]);
    let result = schedule_pod(
        &profile(plugin),
        &snapshot(&["b", "a"]),
        &nominations,
        &own,
        &mut 0,
    );
    // The nominated node is taken although another one has a higher score.
    assert_eq!(&*result.ok().unwrap().node, "a");
}

#[test]
fn next_attempt_starts_behind_the_nodes_that_this_one_looked_at() {
    let names: Vec<String> = (0..150).map(|at| format!("n{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (profile, snapshot) = (profile(ByName::default()), snapshot(&names));
    let mut start = 0;
    for want in [100, 50, 0] {
        let result = schedule_pod(
            &profile,
            &snapshot,
            &NoNominatedPods,
            &pod("p", 0),
            &mut start,
        );
        assert_eq!((result.ok().unwrap().feasible, start), (100, want));
    }
}
