//! NodeResourcesFit: a node must have room for the pod; its utilization determines the score.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use scheduler_framework::{
    Cluster, ClusterEvent, Code, CycleState, EventKind, ExtensionPoints, Filter, MAX_NODE_SCORE,
    NodeInfo, Plugin, PodInfo, Rejection, Resources, Score, Snapshot,
};
use serde_json::Value;

/// The mapping from utilization to score.
#[derive(Clone, Debug, PartialEq)]
enum Strategy {
    LeastAllocated,
    MostAllocated,
    /// Points of utilization in percent and score 0 to 100, ascending.
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

pub(crate) struct Fit {
    strategy: Strategy,
    weights: BTreeMap<String, i64>,
    ignored: Vec<String>,
    ignored_groups: Vec<String>,
}

fn parse_string_list(args: &Value, field: &str) -> Vec<String> {
    let items = args
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn parse_strategy(args: &Value) -> Result<Strategy, String> {
    let given = args.get("scoringStrategy");
    match given
        .and_then(|given| given.get("type"))
        .and_then(Value::as_str)
    {
        // Upstream's default: new pods go to the emptiest node.
        None | Some("LeastAllocated") => Ok(Strategy::LeastAllocated),
        Some("MostAllocated") => Ok(Strategy::MostAllocated),
        Some("RequestedToCapacityRatio") => {
            let shape = given.and_then(|given| given.pointer("/requestedToCapacityRatio/shape"));
            Ok(Strategy::RequestedToCapacityRatio(parse_shape(shape)?))
        }
        Some(other) => Err(format!("scoringStrategy.type {other:?} is not known")),
    }
}

/// Parses the points of a shape; scales their scores from upstream's 0 to 10 to 0 to 100.
fn parse_shape(shape: Option<&Value>) -> Result<Vec<(i64, i64)>, String> {
    let number = |point: &Value, field: &str| point.get(field).and_then(Value::as_i64).unwrap_or(0);
    let points = shape.and_then(Value::as_array).into_iter().flatten();
    let points: Vec<_> = points
        .map(|point| (number(point, "utilization"), number(point, "score")))
        .collect();
    if points.is_empty()
        // Interpolation divides by the distance of two points, which must not be zero.
        || points
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a.0 >= b.0))
    {
        return Err("requestedToCapacityRatio.shape needs points of ascending utilization".into());
    }
    if points
        .iter()
        .any(|(utilization, score)| !(0..=100).contains(utilization) || !(0..=10).contains(score))
    {
        return Err(
            "requestedToCapacityRatio.shape: utilization must be in 0 to 100 and score in 0 to 10"
                .into(),
        );
    }
    Ok(points
        .into_iter()
        .map(|(utilization, score)| (utilization, score * MAX_NODE_SCORE / 10))
        .collect())
}

fn parse_weights(args: &Value) -> BTreeMap<String, i64> {
    let given = args
        .pointer("/scoringStrategy/resources")
        .and_then(Value::as_array);
    let named = given.into_iter().flatten().filter_map(|entry| {
        let weight = entry
            .get("weight")
            .and_then(Value::as_i64)
            // A weight of 0 counts as 1, as by upstream's defaulting.
            .filter(|weight| *weight > 0)
            .unwrap_or(1);
        Some((entry.get("name")?.as_str()?.to_owned(), weight))
    });
    let named: BTreeMap<_, _> = named.collect();
    if named.is_empty() {
        [("cpu".to_owned(), 1), ("memory".to_owned(), 1)].into()
    } else {
        named
    }
}

/// Returns a resource's usage with the pod, and its allocatable amount.
fn usage_with_pod(pod: &PodInfo, node: &NodeInfo, name: &str) -> (i64, i64) {
    let count = |total: &Resources, own: &Resources| total.get(name).saturating_add(own.get(name));
    let used = match name {
        // Containers without requests count with a default here. With zero, any number of them
        // would look as good as none.
        "cpu" | "memory" => count(&node.non_zero, &pod.non_zero),
        _ => count(&node.requested, &pod.requests),
    };
    (used, node.allocatable.get(name))
}

impl Fit {
    fn ignores_resource(&self, name: &str) -> bool {
        // Native resources have no group, and ignoring groups must not reach them.
        let group = name.split_once('/').map_or("", |(group, _)| group);
        self.ignored.iter().any(|ignored| ignored == name)
            || self.ignored_groups.iter().any(|ignored| ignored == group)
    }

    fn score_utilization(&self, used: i64, total: i64) -> i64 {
        let share = |part: i64| {
            // In 128 bits, because an amount near the maximum times 100 would overflow.
            i64::try_from(i128::from(part) * i128::from(MAX_NODE_SCORE) / i128::from(total))
                .unwrap_or(0)
        };
        match &self.strategy {
            // Defaults of containers without requests can exceed the node, although the filter let
            // the pod pass.
            Strategy::LeastAllocated if used > total => 0,
            Strategy::LeastAllocated => share(total - used),
            Strategy::MostAllocated => share(used.min(total)),
            Strategy::RequestedToCapacityRatio(points) => {
                // More than the whole counts as the whole: the shape ends at 100.
                let percent = if used > total { 100 } else { share(used) };
                interpolate_score(points, percent)
            }
        }
    }
}

/// Interpolates the score at a utilization.
fn interpolate_score(points: &[(i64, i64)], at: i64) -> i64 {
    let mut before: Option<(i64, i64)> = None;
    for point in points {
        // Outside of the shape the score of its first or last point applies.
        if at <= point.0 {
            return match before {
                Some(last) => last.1 + (point.1 - last.1) * (at - last.0) / (point.0 - last.0),
                None => point.1,
            };
        }
        before = Some(*point);
    }
    before.map_or(0, |last| last.1)
}

impl Plugin for Fit {
    const NAME: &'static str = "NodeResourcesFit";

    fn new(args: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self {
            strategy: parse_strategy(args)?,
            weights: parse_weights(args),
            ignored: parse_string_list(args, "ignoredResources"),
            ignored_groups: parse_string_list(args, "ignoredResourceGroups"),
        })
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.filter(&self);
        points.score(&self);
    }

    fn events_to_register(&self) -> &'static [EventKind] {
        use EventKind::{
            AssignedPodDeleted, AssignedPodUpdated, NodeAdded, NodeAllocatable, PodUpdated,
        };
        &[
            AssignedPodDeleted,
            AssignedPodUpdated,
            PodUpdated,
            NodeAdded,
            NodeAllocatable,
        ]
    }

    fn queueing_hint(&self, pod: &PodInfo, event: &ClusterEvent) -> bool {
        // For a hint the node counts as empty: whether its pods leave enough room is decided by the
        // filter.
        let fits = |node: &NodeInfo| {
            self.insufficient_resources(pod, &Resources::default(), &node.allocatable, 0)
                .is_empty()
        };
        match event {
            ClusterEvent::AssignedPodDeleted(_) | ClusterEvent::PodUpdated { .. } => true,
            ClusterEvent::AssignedPodUpdated { old, new } => {
                has_grown(&pod.requests, &new.requests, &old.requests)
            }
            ClusterEvent::NodeAdded(node) => fits(node),
            ClusterEvent::NodeUpdated { old, new } => {
                let (before, after) = (&old.allocatable, &new.allocatable);
                // An update that only lowers an amount, or raises one that the pod does not
                // request, cannot help.
                (after.pods > before.pods || has_grown(&pod.requests, before, after)) && fits(new)
            }
            _ => false,
        }
    }
}

/// Returns whether a resource that is requested has grown from `before` to `after`.
fn has_grown(want: &Resources, before: &Resources, after: &Resources) -> bool {
    let scalars = want.scalars.keys().map(String::as_str);
    let mut names = ["cpu", "memory", "ephemeral-storage"]
        .into_iter()
        .chain(scalars);
    names.any(|name| want.get(name) > 0 && after.get(name) > before.get(name))
}

impl Fit {
    /// Returns the insufficient resources of a node with `used` of `all` and `count` pods.
    fn insufficient_resources(
        &self,
        pod: &PodInfo,
        used: &Resources,
        all: &Resources,
        count: usize,
    ) -> Vec<(Cow<'static, str>, bool)> {
        let mut short: Vec<(Cow<'static, str>, bool)> = Vec::new();
        // The number of pods is a limit of its own, and applies to pods without any requests, too.
        let room = i64::try_from(count).unwrap_or(i64::MAX).saturating_add(1) <= all.pods;
        if !room {
            short.push(("Too many pods".into(), false));
        }
        let want = &pod.requests;
        let mut check = |reason: Cow<'static, str>, want: i64, used: i64, all: i64| {
            // A node may be overcommitted after a change of its allocatable. Pods that request
            // nothing still fit.
            if want > 0 && want > all.saturating_sub(used) {
                short.push((reason, want > all));
            }
        };
        check(
            "Insufficient cpu".into(),
            want.milli_cpu,
            used.milli_cpu,
            all.milli_cpu,
        );
        check(
            "Insufficient memory".into(),
            want.memory,
            used.memory,
            all.memory,
        );
        let (wanted, taken) = (want.ephemeral_storage, used.ephemeral_storage);
        check(
            "Insufficient ephemeral-storage".into(),
            wanted,
            taken,
            all.ephemeral_storage,
        );
        for (name, amount) in want
            .scalars
            .iter()
            .filter(|(name, _)| !self.ignores_resource(name))
        {
            check(
                format!("Insufficient {name}").into(),
                *amount,
                used.get(name),
                all.get(name),
            );
        }
        short
    }
}

impl Filter for Fit {
    fn filter(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<(), Rejection> {
        let short =
            self.insufficient_resources(pod, &node.requested, &node.allocatable, node.pods.len());
        if short.is_empty() {
            return Ok(());
        }
        // The request exceeds the whole node: removing pods does not help.
        let hopeless = short.iter().any(|(_, hopeless)| *hopeless);
        // Decides whether preemption tries the node. Without it, a pod larger than any node would
        // evict others for nothing.
        let code = if hopeless {
            Code::UnschedulableAndUnresolvable
        } else {
            Code::Unschedulable
        };
        let reasons = short.into_iter().map(|(reason, _)| reason).collect();
        Err(Rejection {
            code,
            reasons,
            plugin: Self::NAME,
        })
    }
}

impl Score for Fit {
    fn score(&self, _: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Snapshot) -> i64 {
        let by_ratio = matches!(self.strategy, Strategy::RequestedToCapacityRatio(_));
        let (mut sum, mut weights) = (0, 0);
        for (name, weight) in &self.weights {
            let (used, total) = usage_with_pod(pod, node, name);
            // A resource that the pod does not request or the node does not have has no influence.
            if total <= 0
                || !matches!(name.as_str(), "cpu" | "memory") && pod.requests.get(name) == 0
            {
                continue;
            }
            let rate = self.score_utilization(used, total);
            // As upstream: a ratio of zero is left out of the mean, and the mean of ratios is
            // rounded.
            if rate > 0 || !by_ratio {
                sum += rate * weight;
                weights += weight;
            }
        }
        match weights {
            0 => 0,
            _ if by_ratio => (2 * sum + weights) / (2 * weights),
            _ => sum / weights,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::testing::{build_node, empty_cluster, requesting_pod};
    use serde_json::json;

    fn fit(args: Value) -> Fit {
        Fit::new(&args, &empty_cluster()).unwrap()
    }

    #[test]
    fn node_is_rejected_with_each_insufficient_resource() {
        let mut node = build_node(
            "n",
            json!({}),
            json!({}),
            json!({"cpu": "2", "memory": "1000", "pods": "2"}),
        );
        node.add_pod(Arc::new(requesting_pod("a", 1000, 400)));
        let check = |pod: &PodInfo, node: &NodeInfo| {
            let rejection = fit(json!({}))
                .filter(&CycleState::default(), pod, node)
                .err();
            rejection.map(|found| (found.reasons.join("; "), found.code))
        };
        assert_eq!(check(&requesting_pod("b", 1000, 600), &node), None);
        let both = (
            "Insufficient cpu; Insufficient memory".to_owned(),
            Code::Unschedulable,
        );
        assert_eq!(check(&requesting_pod("b", 1001, 601), &node), Some(both));
        let hopeless = (
            "Insufficient cpu".to_owned(),
            Code::UnschedulableAndUnresolvable,
        );
        assert_eq!(check(&requesting_pod("b", 2001, 0), &node), Some(hopeless));
        node.add_pod(Arc::new(requesting_pod("c", 0, 0)));
        assert_eq!(
            check(&requesting_pod("b", 0, 0), &node),
            Some(("Too many pods".to_owned(), Code::Unschedulable))
        );
    }

    #[test]
    fn strategy_maps_utilization_to_a_score() {
        let node = build_node(
            "n",
            json!({}),
            json!({}),
            json!({"cpu": "4", "memory": "1000", "pods": "9"}),
        );
        let pod = requesting_pod("p", 1000, 500);
        let score =
            |args| fit(args).score(&CycleState::default(), &pod, &node, &Snapshot::default());
        assert_eq!(score(json!({})), (75 + 50) / 2);
        assert_eq!(
            score(json!({"scoringStrategy": {"type": "MostAllocated"}})),
            (25 + 50) / 2
        );
        let shape = json!([{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]);
        let ratio = json!({"scoringStrategy": {"type": "RequestedToCapacityRatio",
            "resources": [{"name": "memory", "weight": 2}], "requestedToCapacityRatio": {"shape": shape}}});
        assert_eq!(score(ratio), 50);
        assert!(Fit::new(&json!({"scoringStrategy": {"type": "X"}}), &empty_cluster()).is_err());
    }

    fn by_ratio(shape: Value, resources: Value) -> Value {
        json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "resources": resources,
            "requestedToCapacityRatio": {"shape": shape}}})
    }

    #[test]
    fn requested_to_capacity_ratio_is_precise_to_one_percent() {
        let node = build_node(
            "n",
            json!({}),
            json!({}),
            json!({"cpu": "1", "memory": "1000", "pods": "9"}),
        );
        let shape = json!([{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]);
        let falling = json!([{"utilization": 0, "score": 10}, {"utilization": 100, "score": 0}]);
        let (cpu, both) = (
            json!([{"name": "cpu"}]),
            json!([{"name": "cpu"}, {"name": "memory"}]),
        );
        let cases = [
            (550, 0, shape.clone(), cpu.clone(), 55),
            (550, 0, falling, cpu.clone(), 45),
            // Rounded, not truncated: (55 + 50) / 2.
            (550, 500, shape.clone(), both.clone(), 53),
            // A ratio of zero is left out.
            (550, 1, shape, both, 55),
        ];
        for (cpu, memory, shape, resources, want) in cases {
            let fit = fit(by_ratio(shape.clone(), resources));
            let got = fit.score(
                &CycleState::default(),
                &requesting_pod("p", cpu, memory),
                &node,
                &Snapshot::default(),
            );
            assert_eq!(got, want, "{cpu} {memory} {shape}");
        }
    }

    #[test]
    fn shape_outside_its_range_is_an_error() {
        for point in [
            json!({"utilization": 101, "score": 1}),
            json!({"utilization": 1, "score": 11}),
        ] {
            assert!(
                Fit::new(
                    &by_ratio(json!([point]), json!([{"name": "cpu"}])),
                    &empty_cluster()
                )
                .is_err()
            );
        }
    }

    #[test]
    fn node_update_helps_only_with_more_of_what_the_pod_wants() {
        let sized = |cpu: &str, memory: &str| {
            Arc::new(build_node(
                "n",
                json!({}),
                json!({}),
                json!({"cpu": cpu, "memory": memory, "pods": "9"}),
            ))
        };
        let pod = requesting_pod("p", 1000, 0);
        let cases = [
            ("1", "1Gi", "2", "1Gi", true),
            ("2", "1Gi", "2", "2Gi", false),
            ("100m", "1", "200m", "1", false),
        ];
        for (cpu, memory, new_cpu, new_memory, want) in cases {
            let event = ClusterEvent::NodeUpdated {
                old: sized(cpu, memory),
                new: sized(new_cpu, new_memory),
            };
            assert_eq!(
                fit(json!({})).queueing_hint(&pod, &event),
                want,
                "{cpu} {memory} -> {new_cpu} {new_memory}"
            );
        }
    }

    fn gpu_pod(gpus: &str) -> PodInfo {
        crate::testing::build_pod(json!({"containers": [{"name": "c",
            "resources": {"requests": {"example.com/gpu": gpus}}}]}))
    }

    #[test]
    fn extended_resource_counts_unless_the_profile_ignores_it_or_its_group() {
        let allocatable = json!({"cpu": "1", "memory": "1Gi", "pods": "9", "example.com/gpu": "1"});
        let node = build_node("n", json!({}), json!({}), allocatable);
        let reasons = |args: Value| {
            let got = fit(args).filter(&CycleState::default(), &gpu_pod("2"), &node);
            got.err().map(|rejection| rejection.reasons.join("; "))
        };
        assert_eq!(
            reasons(json!({})).as_deref(),
            Some("Insufficient example.com/gpu")
        );
        assert_eq!(
            reasons(json!({"ignoredResources": ["example.com/gpu"]})),
            None
        );
        assert_eq!(
            reasons(json!({"ignoredResourceGroups": ["example.com"]})),
            None
        );
        assert!(reasons(json!({"ignoredResourceGroups": ["example.org"]})).is_some());
    }

    #[test]
    fn pod_without_requests_fits_an_overcommitted_node() {
        let mut node = build_node("n", json!({}), json!({}), json!({"cpu": "1", "pods": "9"}));
        node.add_pod(Arc::new(requesting_pod("a", 5000, 0)));
        let fits = |pod: &PodInfo| {
            fit(json!({}))
                .filter(&CycleState::default(), pod, &node)
                .is_ok()
        };
        assert!(fits(&requesting_pod("b", 0, 0)));
        assert!(!fits(&requesting_pod("b", 1, 0)));
    }

    #[test]
    fn resources_have_the_weights_of_the_profile() {
        let allocatable = json!({"cpu": "1", "memory": "1000", "pods": "9"});
        let node = build_node("n", json!({}), json!({}), allocatable);
        let pod = requesting_pod("p", 500, 100);
        let score = |resources: Value| {
            let args =
                json!({"scoringStrategy": {"type": "MostAllocated", "resources": resources}});
            fit(args).score(&CycleState::default(), &pod, &node, &Snapshot::default())
        };
        let cpu = |weight: i64| json!({"name": "cpu", "weight": weight});
        let memory = json!({"name": "memory", "weight": 1});
        assert_eq!(score(json!([cpu(3), memory])), (3 * 50 + 10) / 4);
        assert_eq!(score(json!([cpu(1)])), 50);
        // A resource that the pod does not request has no influence.
        assert_eq!(
            score(json!([cpu(1), {"name": "example.com/gpu", "weight": 9}])),
            50
        );
    }

    #[test]
    fn assigned_pod_update_helps_only_if_it_releases_a_requested_resource() {
        let pod = requesting_pod("p", 1000, 0);
        let assigned = |cpu, memory| Arc::new(requesting_pod("a", cpu, memory));
        for (old, new, want) in [
            ((2000, 10), (1000, 10), true),
            ((1000, 10), (2000, 10), false),
            ((1000, 20), (1000, 10), false),
        ] {
            let event = ClusterEvent::AssignedPodUpdated {
                old: assigned(old.0, old.1),
                new: assigned(new.0, new.1),
            };
            assert_eq!(
                fit(json!({})).queueing_hint(&pod, &event),
                want,
                "{old:?} -> {new:?}"
            );
        }
    }
}
