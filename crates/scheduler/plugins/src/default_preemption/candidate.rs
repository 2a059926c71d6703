//! A candidate node of a preemption: its victims, cost, and violated budgets.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;
use std::sync::Arc;

use api_semantics::selectors::labels_match;
use k8s_openapi::jiff::Timestamp;
use scheduler_framework::{Cluster, PodInfo};

/// Returns the start time of a pod; a pod without one counts as started now.
fn start_time(pod: &PodInfo) -> Timestamp {
    let start = pod
        .pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    // As upstream: a pod that has not started yet loses least by an eviction.
    start.map_or(Timestamp::MAX, |time| time.0)
}

/// Orders by importance, descending: by priority, then by running time.
pub(super) fn compare_importance(a: &PodInfo, b: &PodInfo) -> Ordering {
    b.priority()
        .cmp(&a.priority())
        // Of equal priority, the pod that runs longest is the more important one.
        .then_with(|| start_time(a).cmp(&start_time(b)))
}

pub(super) struct Candidate {
    pub(super) node: Arc<str>,
    /// Victims, most important first.
    pub(super) victims: Vec<Arc<PodInfo>>,
    pub(super) violations: usize,
}

impl Candidate {
    pub(super) fn new(node: &Arc<str>) -> Self {
        Self {
            node: node.clone(),
            victims: Vec::new(),
            violations: 0,
        }
    }

    /// Returns the cost; the lowest is best: violated budgets, highest priority, sum of priorities,
    /// number of victims, and then the node whose most important victims were started last.
    pub(super) fn cost(&self) -> (usize, i32, i64, usize, Reverse<Timestamp>) {
        let highest = self
            .victims
            .first()
            .map_or(i32::MIN, |victim| victim.priority());
        // Priorities can be negative. Without the offset, more victims of negative priority would
        // lower the cost.
        let offset = i64::from(i32::MAX) + 1;
        let sum = self
            .victims
            .iter()
            .map(|victim| i64::from(victim.priority()) + offset)
            .sum();
        let top = self
            .victims
            .iter()
            .filter(|victim| victim.priority() == highest);
        // Only the most important victims decide: evicting a pod that just started costs least.
        let earliest = top
            .map(|victim| start_time(victim))
            .min()
            .unwrap_or(Timestamp::MAX);
        (
            self.violations,
            highest,
            sum,
            self.victims.len(),
            Reverse(earliest),
        )
    }
}

/// Remaining allowed disruptions of budgets.
pub(super) struct Budgets {
    budgets: Vec<(Arc<k8s_openapi::api::policy::v1::PodDisruptionBudget>, i32)>,
}

impl Budgets {
    pub(super) fn new(cluster: &dyn Cluster, pods: &[Arc<PodInfo>]) -> Self {
        let namespaces: HashMap<&str, ()> = pods.iter().map(|pod| (pod.namespace(), ())).collect();
        let budgets = namespaces
            .into_keys()
            .flat_map(|namespace| cluster.disruption_budgets(namespace));
        let allowed = |budget: &k8s_openapi::api::policy::v1::PodDisruptionBudget| {
            budget
                .status
                .as_ref()
                .and_then(|status| status.disruptions_allowed)
                .unwrap_or(0)
        };
        Self {
            budgets: budgets
                .map(|budget| {
                    let left = allowed(&budget);
                    (budget, left)
                })
                .collect(),
        }
    }

    /// Counts a disruption of the pod; returns true if it violates a budget.
    pub(super) fn count_disruption(&mut self, pod: &PodInfo) -> bool {
        let mut broken = false;
        for (budget, left) in &mut self.budgets {
            let here = budget.metadata.namespace.as_deref() == Some(pod.namespace());
            let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref());
            let disrupted = budget
                .status
                .as_ref()
                .and_then(|status| status.disrupted_pods.as_ref());
            // The budget's controller has already counted an eviction of this pod; it must not be
            // counted twice.
            let counted = disrupted.is_some_and(|pods| pods.contains_key(pod.name()));
            // A pod without labels belongs to no budget, even to one that selects everything, as
            // upstream.
            if here && pod.labels().is_some() && labels_match(selector, pod.labels()) && !counted {
                *left -= 1;
                broken |= *left < 0;
            }
        }
        broken
    }
}
