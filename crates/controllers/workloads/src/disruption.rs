//! PodDisruptionBudgets: the number of pods that may be disrupted now.
//!
//! The API server decrements the budget when it evicts, and records the pod in `disruptedPods`;
//! this controller removes the record when the pod is deleted or the time for it has passed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::Event;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, labels, object_reference, pods, split_key, time,
    wake,
};

use crate::deployment::scale_value;

/// Seconds for the deletion of a pod after its eviction was allowed.
const GRANTED_FOR: i64 = 120;
const CONDITION: &str = "DisruptionAllowed";

/// Returns the status update of one budget. `covered` are its pods, `scale` the desired size of a
/// pod's controller, with the controller's UID.
pub fn reconcile_budget(
    budget: &PodDisruptionBudget,
    covered: &[Arc<Pod>],
    scale: &dyn Fn(&Pod) -> Option<(String, i32)>,
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &budget.spec else {
        return Vec::new();
    };
    let old = budget.status.clone().unwrap_or_default();
    let (expected, desired) = required_pods(spec, covered, scale);
    let (disrupted, recheck) = still_disrupted(&old, covered, now);
    // A pod whose eviction was granted counts as lost at once. Its deletion may reach the cache
    // later than the next eviction.
    let healthy = covered
        .iter()
        .filter(|p| pods::is_ready(p) && !p.is_deleting() && !disrupted.contains_key(p.name()));
    let healthy = i32::try_from(healthy.count()).unwrap_or(i32::MAX);
    // Without pods there is nothing to disrupt, so no disruption is allowed even if minAvailable is
    // 0.
    let allowed = if expected <= 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    let status = PodDisruptionBudgetStatus {
        conditions: Some(update_conditions(
            budget,
            old.conditions.clone(),
            allowed,
            now,
        )),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: Some(budget.generation()),
    };
    let mut actions = Vec::new();
    let before = PodDisruptionBudgetStatus {
        disrupted_pods: old.disrupted_pods.clone().filter(|d| !d.is_empty()),
        ..old
    };
    if status != before {
        actions.push(Action::update_status(&PodDisruptionBudget {
            status: Some(status),
            ..budget.clone()
        }));
    }
    actions.extend(recheck.map(Action::Requeue));
    actions
}

/// Returns the number of pods that should exist, and of those that must be healthy.
fn required_pods(
    spec: &PodDisruptionBudgetSpec,
    covered: &[Arc<Pod>],
    scale: &dyn Fn(&Pod) -> Option<(String, i32)>,
) -> (i32, i32) {
    let count = i32::try_from(covered.len()).unwrap_or(i32::MAX);
    let percent = |v: &IntOrString| matches!(v, IntOrString::String(_));
    match (&spec.max_unavailable, &spec.min_available) {
        // API validation rejects budgets with both fields.
        (Some(max), _) => {
            let expected = expected_pods(covered, scale);
            let desired = (expected - scale_value(max, expected, true)).max(0);
            (expected, desired)
        }
        (None, Some(min)) if percent(min) => {
            let expected = expected_pods(covered, scale);
            (expected, scale_value(min, expected, true))
        }
        // An absolute minAvailable counts the existing pods, so it also works for pods without a
        // scalable controller.
        (None, Some(min)) => (count, scale_value(min, count, true)),
        (None, None) => (count, 0),
    }
}

/// Returns the sum of the controllers' desired pods; a pod without a controller counts as one.
fn expected_pods(covered: &[Arc<Pod>], scale: &dyn Fn(&Pod) -> Option<(String, i32)>) -> i32 {
    let mut sizes: BTreeMap<String, i32> = BTreeMap::new();
    for pod in covered {
        let (uid, size) = scale(pod).unwrap_or_else(|| (pod.uid().to_owned(), 1));
        // By UID: the pods of one controller count its size once.
        sizes.insert(uid, size);
    }
    sizes.values().sum()
}

fn still_disrupted(
    old: &PodDisruptionBudgetStatus,
    covered: &[Arc<Pod>],
    now: Timestamp,
) -> (
    BTreeMap<String, k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    Option<Duration>,
) {
    let mut kept = BTreeMap::new();
    let mut recheck: Option<Duration> = None;
    for (name, since) in old.disrupted_pods.iter().flatten() {
        // A record is dropped when the pod is deleted or when the deletion did not follow in time,
        // otherwise the budget would shrink forever.
        let there = covered.iter().any(|p| p.name() == name && !p.is_deleting());
        let wait = time::duration_until(time::seconds_after(since.0, GRANTED_FOR), now);
        if there && !wait.is_zero() {
            kept.insert(name.clone(), since.clone());
            recheck = Some(recheck.map_or(wait, |r| r.min(wait)));
        }
    }
    (kept, recheck)
}

fn update_conditions(
    budget: &PodDisruptionBudget,
    old: Option<Vec<Condition>>,
    allowed: i32,
    now: Timestamp,
) -> Vec<Condition> {
    let mut all = old.unwrap_or_default();
    let (status, reason) = if allowed > 0 {
        ("True", "SufficientPods")
    } else {
        ("False", "InsufficientPods")
    };
    let fresh = Condition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: String::new(),
        observed_generation: Some(budget.generation()),
        last_transition_time: time::api_time(now),
    };
    match all.iter_mut().find(|c| c.type_ == CONDITION) {
        Some(c) => {
            let since = if c.status == fresh.status {
                c.last_transition_time.clone()
            } else {
                fresh.last_transition_time.clone()
            };
            *c = Condition {
                last_transition_time: since,
                ..fresh
            };
        }
        None => all.push(fresh),
    }
    all
}

struct Disruption {
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<Pod>,
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    controllers: Cache<ReplicationController>,
    stateful: Cache<StatefulSet>,
}

/// Sets up the disruption controller.
pub fn add_disruption_controller(setup: &mut Setup, workers: usize) {
    let queue = Queue::new();
    let budgets = setup
        .informers
        .for_kind::<PodDisruptionBudget>()
        .index_namespace()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let (waiting, known) = (queue.clone(), budgets.clone());
    let pods = setup
        .informers
        .for_kind::<Pod>()
        .index_namespace()
        .on_event(move |event| {
            let (old, new) = match event {
                Event::Applied { old, new } => (old.as_ref(), Some(new)),
                Event::Deleted(last) => (Some(last), None),
            };
            if let (Some(old), Some(new)) = (old, new)
                && disruption_fields(old) == disruption_fields(new)
            {
                return;
            }
            for budget in known.in_namespace(event.object().namespace()) {
                if old.into_iter().chain(new).any(|p| is_covered(&budget, p)) {
                    waiting.add(budget.key());
                }
            }
        });
    let pods = pods.cache();
    let deployments = scaled_kind::<Deployment>(setup, &queue, &budgets, |d| {
        d.spec.as_ref().and_then(|s| s.replicas)
    });
    let sets = scaled_kind::<ReplicaSet>(setup, &queue, &budgets, |d| {
        d.spec.as_ref().and_then(|s| s.replicas)
    });
    let stateful = scaled_kind::<StatefulSet>(setup, &queue, &budgets, |d| {
        d.spec.as_ref().and_then(|s| s.replicas)
    });
    let controllers = scaled_kind::<ReplicationController>(setup, &queue, &budgets, |d| {
        d.spec.as_ref().and_then(|s| s.replicas)
    });
    let controller = Disruption {
        budgets,
        pods,
        deployments,
        sets,
        controllers,
        stateful,
    };
    setup.add_reconciler("disruption-controller", workers, queue, controller);
}

/// Registers a kind; if an object's size changes, the budgets of its namespace are enqueued.
fn scaled_kind<K: controllers_runtime::Object>(
    setup: &mut Setup,
    queue: &Queue,
    budgets: &Cache<PodDisruptionBudget>,
    size: fn(&K) -> Option<i32>,
) -> Cache<K> {
    let (queue, budgets) = (queue.clone(), budgets.clone());
    let kind = setup.informers.for_kind::<K>().on_event(move |event| {
        if let Event::Applied {
            old: Some(old),
            new,
        } = event
            && size(old) != size(new)
        {
            budgets
                .in_namespace(new.namespace())
                .iter()
                .for_each(|b| queue.add(b.key()));
        }
    });
    kind.cache()
}

fn disruption_fields(pod: &Pod) -> impl PartialEq + use<> {
    (
        // Pods change often, and only these fields enter the status of a budget.
        pods::is_ready(pod),
        pod.is_deleting(),
        pods::is_terminal(pod),
        pod.meta().labels.clone(),
    )
}

fn is_covered(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let selector = budget.spec.as_ref().and_then(|s| s.selector.as_ref());
    selector.is_some_and(|s| labels::labels_match(Some(s), pod.meta().labels.as_ref()))
}

impl Disruption {
    fn find_scale(&self, pod: &Pod) -> Option<(String, i32)> {
        let owner = pod.controller()?;
        let named = |uid: &str, size: Option<i32>| Some((uid.to_owned(), size.unwrap_or(1)));
        let ns = pod.namespace();
        match owner.kind.as_str() {
            "ReplicaSet" => {
                let set = self.sets.get_by_name(ns, &owner.name)?;
                // Budgets count the Deployment, whose size does not change while pods move between
                // its sets.
                let above = set.controller().filter(|r| r.kind == "Deployment");
                match above.and_then(|r| self.deployments.get_by_name(ns, &r.name)) {
                    Some(d) => named(d.uid(), d.spec.as_ref().and_then(|s| s.replicas)),
                    None => named(set.uid(), set.spec.as_ref().and_then(|s| s.replicas)),
                }
            }
            "StatefulSet" => {
                let set = self.stateful.get_by_name(ns, &owner.name)?;
                named(set.uid(), set.spec.as_ref().and_then(|s| s.replicas))
            }
            "ReplicationController" => {
                let set = self.controllers.get_by_name(ns, &owner.name)?;
                named(set.uid(), set.spec.as_ref().and_then(|s| s.replicas))
            }
            _ => None,
        }
    }
}

impl Decide for Disruption {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(budget) = self.budgets.get(key) else {
            return Vec::new();
        };
        let all = self.pods.in_namespace(split_key(key).0);
        let covered: Vec<_> = all
            .into_iter()
            .filter(|p| is_covered(&budget, p) && !pods::is_terminal(p))
            .collect();
        let mut actions = reconcile_budget(&budget, &covered, &|p| self.find_scale(p), now);
        if covered.is_empty() && budget.status.is_none() {
            actions.push(Action::event(
                &object_reference(budget.as_ref()),
                "NoPods",
                "No matching pods found",
            ));
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn budgets() {
        let pod = |name: &str, ready: bool| -> Arc<Pod> {
            Arc::new(
                serde_json::from_value(
                    json!({"metadata": {"name": name, "uid": name}, "status": {"phase": "Running",
                "conditions": [{"type": "Ready", "status": if ready {"True"} else {"False"}}]}}),
                )
                .unwrap(),
            )
        };
        let scale = |_: &Pod| Some(("set".to_owned(), 2));
        for (spec, pods, expect) in [
            (
                json!({"minAvailable": 1}),
                vec![pod("a", true), pod("b", true)],
                (2, 1, 2, 1),
            ),
            (
                json!({"maxUnavailable": "40%"}),
                vec![pod("a", true), pod("b", true)],
                (2, 1, 2, 1),
            ),
            (
                json!({"maxUnavailable": 0}),
                vec![pod("a", true), pod("b", true)],
                (2, 2, 2, 0),
            ),
            (
                json!({"minAvailable": 1}),
                vec![pod("a", false)],
                (0, 1, 1, 0),
            ),
            (
                json!({"minAvailable": "100%"}),
                vec![pod("a", true)],
                (1, 2, 2, 0),
            ),
        ] as [(Value, Vec<Arc<Pod>>, (i32, i32, i32, i32)); 5]
        {
            let budget: PodDisruptionBudget = serde_json::from_value(
                json!({"metadata": {"name": "b", "generation": 1}, "spec": spec}),
            )
            .unwrap();
            let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
            let got = reconcile_budget(&budget, &pods, &scale, now);
            let done: PodDisruptionBudget =
                serde_json::from_value(got[0].as_write().unwrap().body.clone()).unwrap();
            let s = done.status.clone().unwrap();
            let have = (
                s.current_healthy.unwrap(),
                s.desired_healthy.unwrap(),
                s.expected_pods.unwrap(),
                s.disruptions_allowed.unwrap(),
            );
            assert_eq!(have, expect, "{spec}");
            assert!(reconcile_budget(&done, &pods, &scale, now).is_empty());
        }
    }

    fn status_of(budget: Value, pods: &[Arc<Pod>], now: &str) -> (Value, Vec<Action>) {
        let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
        let scale = |_: &Pod| Some(("set".to_owned(), 3));
        let got = reconcile_budget(&budget, pods, &scale, now.parse().unwrap());
        (got[0].as_write().unwrap().body["status"].clone(), got)
    }

    fn ready_pod(name: &str, deleting: bool) -> Arc<Pod> {
        let tree = json!({"metadata": {"name": name, "uid": name,
            "deletionTimestamp": deleting.then_some("2026-01-01T00:00:00Z")},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        Arc::new(serde_json::from_value(tree).unwrap())
    }

    #[test]
    fn evicted_pod_is_not_healthy_until_its_record_expires() {
        let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1},
            "status": {"disruptedPods": {"a": "2026-01-01T00:00:00Z"}}});
        let pods = [
            ready_pod("a", false),
            ready_pod("b", false),
            ready_pod("c", false),
        ];
        let (status, actions) = status_of(budget.clone(), &pods, "2026-01-01T00:01:00Z");
        assert_eq!(
            (&status["currentHealthy"], &status["disruptionsAllowed"]),
            (&json!(2), &json!(0))
        );
        assert!(matches!(actions[1], Action::Requeue(wait) if wait.as_secs() == 60));
        let (status, _) = status_of(budget, &pods, "2026-01-01T00:02:00Z");
        assert_eq!(
            (&status["currentHealthy"], &status["disruptionsAllowed"]),
            (&json!(3), &json!(1))
        );
        assert!(status["disruptedPods"].is_null());
    }

    #[test]
    fn pod_in_deletion_is_not_healthy() {
        let budget = json!({"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1}});
        let pods = [
            ready_pod("a", true),
            ready_pod("b", false),
            ready_pod("c", false),
        ];
        let (status, _) = status_of(budget, &pods, "2026-01-01T00:00:00Z");
        assert_eq!(status["currentHealthy"], 2);
        assert_eq!(status["conditions"][0]["reason"], "InsufficientPods");
    }

    #[test]
    fn percentages_are_rounded_up() {
        for (spec, desired) in [
            (json!({"minAvailable": "50%"}), 2),
            (json!({"maxUnavailable": "50%"}), 1),
            (json!({"maxUnavailable": "1%"}), 2),
            (json!({"maxUnavailable": 5}), 0),
        ] {
            let budget = json!({"metadata": {"name": "b"}, "spec": spec});
            let (status, _) = status_of(budget, &[ready_pod("a", false)], "2026-01-01T00:00:00Z");
            assert_eq!(status["desiredHealthy"], desired, "{spec}");
        }
    }

    #[test]
    fn budget_without_pods_allows_no_disruption() {
        let budget = json!({"metadata": {"name": "b"}, "spec": {"minAvailable": 0}});
        let (status, _) = status_of(budget, &[], "2026-01-01T00:00:00Z");
        assert_eq!(status["disruptionsAllowed"], 0);
    }
}
