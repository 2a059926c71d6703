//! PodDisruptionBudgets: the number of pods that may be disrupted now.
//!
//! The API server decrements the budget when it evicts, and records the pod in `disruptedPods`;
//! this controller removes the record when the pod is deleted or the time for it has passed.

mod sizes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use client::{Client, Error, Event};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use k8s_openapi::api::policy::v1::{
    PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use controllers_runtime::{
    Action, Cache, Drive, Executor, Meta, Queue, Setup, conditions, labels, object_reference, pods,
    split_key, time, wake,
};

use crate::deployment::scale_value;
use sizes::{ControllerSize, ScaleReader, split_version};

/// Seconds for the deletion of a pod after its eviction was allowed.
const GRANTED_FOR: i64 = 120;
const CONDITION: &str = "DisruptionAllowed";
/// Reason of the condition if the budget can't be calculated.
const SYNC_FAILED: &str = "SyncFailed";
/// Wait before the next attempt to read the sizes of controllers.
const RETRY_AFTER: Duration = Duration::from_secs(30);
const UNMANAGED: &str = "some of the selected pods have no controller, and do not count for the budget; \
     set \".spec.minAvailable\" to a number to include them";

/// Returns the status update of one budget. `covered` are its pods, `expected` is the number of
/// pods that their controllers ask for.
pub fn reconcile_budget(
    budget: &PodDisruptionBudget,
    covered: &[Arc<Pod>],
    expected: i32,
    now: Timestamp,
) -> Vec<Action> {
    let Some(spec) = &budget.spec else {
        return Vec::new();
    };
    let old = budget.status.clone().unwrap_or_default();
    let desired = desired_healthy(spec, expected);
    let (disrupted, recheck) = still_disrupted(&old, covered, now);
    // A pod whose eviction was granted counts as lost at once. Its deletion may reach the cache
    // later than the next eviction.
    let healthy = covered
        .iter()
        .filter(|p| pods::is_ready(p) && !p.is_deleting() && !disrupted.contains_key(p.name()));
    let healthy = count_pods(healthy);
    // Without pods there is nothing to disrupt, so no disruption is allowed even if minAvailable is
    // 0.
    let allowed = if expected <= 0 {
        0
    } else {
        (healthy - desired).max(0)
    };
    let reason = if allowed > 0 {
        "SufficientPods"
    } else {
        "InsufficientPods"
    };
    let conditions = update_conditions(budget, budget.generation(), (reason, ""), now);
    let status = PodDisruptionBudgetStatus {
        conditions: Some(conditions),
        current_healthy: Some(healthy),
        desired_healthy: Some(desired),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        disruptions_allowed: Some(allowed),
        expected_pods: Some(expected),
        observed_generation: Some(budget.generation()),
    };
    let mut actions: Vec<Action> = write_status(budget, status).into_iter().collect();
    actions.extend(recheck.map(Action::Requeue));
    actions
}

/// Returns the status update of a budget whose controllers' sizes are unknown: no disruption is
/// allowed, because the last known number may be too large by now.
fn fail_safe(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> Option<Action> {
    let mut status = budget.status.clone().unwrap_or_default();
    let observed = status.observed_generation.unwrap_or_default();
    let condition = (SYNC_FAILED, why);
    status.conditions = Some(update_conditions(budget, observed, condition, now));
    status.disruptions_allowed = Some(0);
    write_status(budget, status)
}

fn write_status(budget: &PodDisruptionBudget, status: PodDisruptionBudgetStatus) -> Option<Action> {
    let old = budget.status.clone().unwrap_or_default();
    let before = PodDisruptionBudgetStatus {
        disrupted_pods: old.disrupted_pods.clone().filter(|d| !d.is_empty()),
        ..old
    };
    (status != before).then(|| {
        Action::update_status(&PodDisruptionBudget {
            status: Some(status),
            ..budget.clone()
        })
    })
}

/// Returns whether a budget counts the pods that controllers ask for. An absolute `minAvailable`
/// counts the existing pods, so that it also works for pods without a scalable controller.
fn counts_controllers(spec: &PodDisruptionBudgetSpec) -> bool {
    // API validation rejects budgets with both fields.
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// Returns the number of pods that must be healthy.
fn desired_healthy(spec: &PodDisruptionBudgetSpec, expected: i32) -> i32 {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(max), _) => (expected - scale_value(max, expected, true)).max(0),
        (None, Some(min)) => scale_value(min, expected, true),
        (None, None) => 0,
    }
}

fn count_pods<'a>(pods: impl Iterator<Item = &'a Arc<Pod>>) -> i32 {
    i32::try_from(pods.count()).unwrap_or(i32::MAX)
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
    observed: i64,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> Vec<Condition> {
    let status = budget.status.as_ref();
    let mut all = status
        .and_then(|s| s.conditions.clone())
        .unwrap_or_default();
    let status = if reason == "SufficientPods" {
        "True"
    } else {
        "False"
    };
    let condition = Condition {
        type_: CONDITION.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: Some(observed),
        last_transition_time: time::api_time(now),
    };
    conditions::set_condition(&mut all, condition);
    all
}

struct Disruption {
    budgets: Cache<PodDisruptionBudget>,
    pods: Cache<Pod>,
    deployments: Cache<Deployment>,
    sets: Cache<ReplicaSet>,
    controllers: Cache<ReplicationController>,
    stateful: Cache<StatefulSet>,
    scales: ScaleReader,
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
            // The old object counts too: a change of labels may take the pod out of a budget.
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
        scales: ScaleReader::default(),
    };
    setup.add_driver("disruption-controller", workers, queue, controller);
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
    /// Returns the size of a built-in controller, with its UID; None if another kind controls the
    /// pod, or if the cache does not have the controller.
    fn find_size(&self, owner: &OwnerReference, namespace: &str) -> Option<ControllerSize> {
        let (group, _) = split_version(&owner.api_version);
        let sized = |uid: &str, size: Option<i32>| ControllerSize::new(uid, size.unwrap_or(1));
        let same = |uid: &str| uid == owner.uid;
        match (group, owner.kind.as_str()) {
            ("apps" | "extensions", "ReplicaSet") => {
                let set = self.sets.get_by_name(namespace, &owner.name)?;
                // Budgets count the Deployment, whose size does not change while pods move between
                // its sets.
                let above = set.controller().filter(|r| r.kind == "Deployment");
                let above = above.and_then(|r| {
                    let found = self.deployments.get_by_name(namespace, &r.name);
                    found.filter(|d| d.uid() == r.uid)
                });
                match above {
                    _ if !same(set.uid()) => None,
                    Some(d) => Some(sized(d.uid(), d.spec.as_ref().and_then(|s| s.replicas))),
                    None => Some(sized(set.uid(), set.spec.as_ref().and_then(|s| s.replicas))),
                }
            }
            ("apps", "StatefulSet") => {
                let set = self.stateful.get_by_name(namespace, &owner.name)?;
                let size = set.spec.as_ref().and_then(|s| s.replicas);
                same(set.uid()).then(|| sized(set.uid(), size))
            }
            ("", "ReplicationController") => {
                let set = self.controllers.get_by_name(namespace, &owner.name)?;
                let size = set.spec.as_ref().and_then(|s| s.replicas);
                same(set.uid()).then(|| sized(set.uid(), size))
            }
            _ => None,
        }
    }

    /// Returns the number of pods that the controllers of pods ask for, and the event for pods
    /// without a controller, which do not count.
    ///
    /// # Errors
    /// A controller that can't be found, or that has no scale.
    async fn expected_pods(
        &self,
        client: &Client,
        covered: &[Arc<Pod>],
    ) -> Result<(i32, bool), String> {
        // By UID: the pods of one controller count its size once.
        let mut sizes: BTreeMap<String, i32> = BTreeMap::new();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut has_unmanaged = false;
        for pod in covered {
            let Some(owner) = pod.controller() else {
                has_unmanaged = true;
                continue;
            };
            if !seen.insert(&owner.uid) {
                continue;
            }
            let found = match self.find_size(owner, pod.namespace()) {
                Some(size) => Some(size),
                None => {
                    let read = self.scales.read_size(client, owner, pod.namespace());
                    read.await.map_err(|error| error.to_string())?
                }
            };
            let Some(size) = found else {
                return Err(format!("found no controllers for pod {:?}", pod.name()));
            };
            sizes.insert(size.uid, size.replicas);
        }
        let expected = sizes
            .values()
            .fold(0i32, |sum, size| sum.saturating_add(*size));
        Ok((expected, has_unmanaged))
    }
}

#[async_trait]
impl Drive for Disruption {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(budget) = self.budgets.get(key) else {
            return Ok(Vec::new());
        };
        let all = self.pods.in_namespace(split_key(key).0);
        let covered: Vec<_> = all
            .into_iter()
            .filter(|p| is_covered(&budget, p) && !pods::is_terminal(p))
            .collect();
        let regarding = object_reference(budget.as_ref());
        let mut actions = Vec::new();
        if covered.is_empty() && budget.status.is_none() {
            let message = "No matching pods found";
            actions.push(Action::event(&regarding, "NoPods", message));
        }
        let expected = if budget.spec.as_ref().is_some_and(counts_controllers) {
            let client = executor.client().await?;
            self.expected_pods(&client, &covered).await
        } else {
            Ok((count_pods(covered.iter()), false))
        };
        let now = Timestamp::now();
        match expected {
            Ok((expected, has_unmanaged)) => {
                let status = reconcile_budget(&budget, &covered, expected, now);
                // With the change of the status alone, not again for each event of a pod.
                if has_unmanaged && !status.is_empty() {
                    actions.push(Action::warning(&regarding, "UnmanagedPods", UNMANAGED));
                }
                actions.extend(status);
            }
            Err(why) => {
                if let Some(status) = fail_safe(&budget, &why, now) {
                    let message = format!("Failed to calculate the number of expected pods: {why}");
                    let reason = "CalculateExpectedPodCountFailed";
                    actions.extend([Action::warning(&regarding, reason, message), status]);
                }
                // No event follows when a definition is served, or when its server answers again.
                actions.push(Action::Requeue(RETRY_AFTER));
            }
        }
        Ok(actions)
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
            let expected = match counts_controllers(budget.spec.as_ref().unwrap()) {
                true => 2,
                false => count_pods(pods.iter()),
            };
            let got = reconcile_budget(&budget, &pods, expected, now);
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
            assert!(reconcile_budget(&done, &pods, expected, now).is_empty());
        }
    }

    fn status_of(budget: Value, pods: &[Arc<Pod>], now: &str) -> (Value, Vec<Action>) {
        let budget: PodDisruptionBudget = serde_json::from_value(budget).unwrap();
        let expected = if pods.is_empty() { 0 } else { 3 };
        let got = reconcile_budget(&budget, pods, expected, now.parse().unwrap());
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

    #[test]
    fn budget_of_unknown_size_allows_no_disruption() {
        let mut budget = json!({"metadata": {"name": "b", "generation": 2}, "spec": {"maxUnavailable": 1},
            "status": {"disruptionsAllowed": 1, "currentHealthy": 3, "observedGeneration": 1}});
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let parsed = serde_json::from_value(budget.clone()).unwrap();
        let action = fail_safe(&parsed, "no scale", now).unwrap();
        let status = &action.as_write().unwrap().body["status"];
        assert_eq!(status["disruptionsAllowed"], 0);
        assert_eq!(status["currentHealthy"], 3);
        let condition = &status["conditions"][0];
        assert_eq!(condition["reason"], "SyncFailed");
        assert_eq!(condition["message"], "no scale");
        assert_eq!(condition["observedGeneration"], 1);
        budget["status"] = status.clone();
        let parsed = serde_json::from_value(budget).unwrap();
        assert_eq!(fail_safe(&parsed, "no scale", now), None, "unchanged");
    }
}
