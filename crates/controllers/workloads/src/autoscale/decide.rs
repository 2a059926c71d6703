//! Computes the target's size and the autoscaler's status.

use std::cmp::Ordering;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
};

use controllers_runtime::{Action, Meta, object_reference, time};

use super::config::Config;
use super::history::{Bounds, History, Rules, limit_without_rules};
use super::proposal::{Failure, Proposal};

/// The part of a decision that needs no metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// The target's size of zero disables autoscaling.
    Disabled,
    /// The size is outside of the bounds, with the new size and the reason.
    Bounded(i32, &'static str),
    /// The metrics decide.
    Metrics,
}

/// The metrics' part of a decision.
#[derive(Clone, Debug)]
pub enum Metrics {
    /// The target's selector can't be used.
    BadSelector {
        /// Reason of the condition and of the event.
        reasons: [&'static str; 2],
        /// Message of the condition and of the event.
        messages: [String; 2],
    },
    /// The result of each metric, in the order of the spec.
    Proposals(Vec<Result<Proposal, Failure>>),
}

/// A change of the target's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rescale {
    /// The new size.
    pub size: i32,
    reason: String,
}

/// A decision whose change of size is not yet written.
pub struct Decision<'a> {
    draft: Draft<'a>,
    current: i32,
    /// The change of size.
    pub rescale: Option<Rescale>,
}

struct Draft<'a> {
    scaler: &'a HorizontalPodAutoscaler,
    status: HorizontalPodAutoscalerStatus,
    now: Timestamp,
    events: Vec<Action>,
}

impl Draft<'_> {
    fn set_condition(&mut self, kind: &str, status: bool, reason: &str, message: &str) {
        let all = self.status.conditions.get_or_insert_default();
        let fresh = HorizontalPodAutoscalerCondition {
            type_: kind.to_owned(),
            status: if status { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_transition_time: Some(time::api_time(self.now)),
        };
        match all.iter_mut().find(|c| c.type_ == kind) {
            Some(old) => {
                let since = if old.status == fresh.status {
                    old.last_transition_time.take()
                } else {
                    fresh.last_transition_time.clone()
                };
                *old = HorizontalPodAutoscalerCondition {
                    last_transition_time: since,
                    ..fresh
                };
            }
            None => all.push(fresh),
        }
    }

    fn into_actions(self) -> Vec<Action> {
        let mut actions = self.events;
        if Some(&self.status) != self.scaler.status.as_ref() {
            actions.push(Action::update_status(&HorizontalPodAutoscaler {
                status: Some(self.status),
                ..self.scaler.clone()
            }));
        }
        actions
    }
}

fn new_draft(scaler: &HorizontalPodAutoscaler, now: Timestamp) -> Draft<'_> {
    let mut status = scaler.status.clone().unwrap_or_default();
    status.observed_generation = scaler.meta().generation;
    Draft {
        scaler,
        status,
        now,
        events: Vec::new(),
    }
}

/// Returns the actions for a target that is missing or has no size.
pub fn no_target(scaler: &HorizontalPodAutoscaler, problem: &str, now: Timestamp) -> Vec<Action> {
    let mut draft = new_draft(scaler, now);
    let text =
        format!("the HPA controller was unable to get the target's current scale: {problem}");
    draft.set_condition("AbleToScale", false, "FailedGetScale", &text);
    draft.events.push(Action::warning(
        &object_reference(scaler),
        "FailedGetScale",
        problem,
    ));
    draft.into_actions()
}

/// Returns the target's size; one that is not set is zero.
pub fn current_size(scale: &Scale) -> i32 {
    scale.spec.as_ref().and_then(|s| s.replicas).unwrap_or(0)
}

/// Decides whether metrics are needed.
pub fn assess_need(scaler: &HorizontalPodAutoscaler, scale: &Scale) -> Need {
    let (current, high) = (current_size(scale), scaler.spec.max_replicas);
    let low = min_size(scaler);
    // Zero replicas disable autoscaling, so that an operator can stop an application without
    // deleting the autoscaler.
    if current == 0 {
        Need::Disabled
    } else if current > high {
        Need::Bounded(high, "Current number of replicas above Spec.MaxReplicas")
    } else if current < low {
        Need::Bounded(low, "Current number of replicas below Spec.MinReplicas")
    } else {
        Need::Metrics
    }
}

fn min_size(scaler: &HorizontalPodAutoscaler) -> i32 {
    scaler.spec.min_replicas.unwrap_or(1)
}

/// Decides on size and status. Without `metrics`, the bounds decide.
pub fn decide_size<'a>(
    scaler: &'a HorizontalPodAutoscaler,
    scale: &Scale,
    metrics: Option<Metrics>,
    history: &mut History,
    config: &Config,
    now: Timestamp,
) -> Decision<'a> {
    let mut draft = new_draft(scaler, now);
    let current = current_size(scale);
    draft.status.current_replicas = Some(current);
    draft.set_condition(
        "AbleToScale",
        true,
        "SucceededGetScale",
        "the HPA controller was able to get the target's current scale",
    );
    history.record_first(current, now);
    // Those of another reconcile would be outdated.
    draft.status.current_metrics = None;
    let rescale = match (assess_need(scaler, scale), metrics) {
        (Need::Bounded(size, reason), _) => Some(Rescale {
            size,
            reason: reason.to_owned(),
        }),
        (Need::Metrics, Some(metrics)) => {
            draft.choose_size(metrics).and_then(|(wanted, metric)| {
                let size = draft.limit_size(current, wanted, history, config);
                let reason = match wanted.cmp(&current) {
                    Ordering::Greater => format!("{metric} above target"),
                    Ordering::Less => "All metrics below target".to_owned(),
                    // Only the stabilization changes the size.
                    Ordering::Equal => String::new(),
                };
                if size == current {
                    draft.status.desired_replicas = current;
                    return None;
                }
                Some(Rescale { size, reason })
            })
        }
        (Need::Metrics, None) => None,
        (Need::Disabled, _) => {
            draft.status.desired_replicas = 0;
            draft.set_condition(
                "ScalingActive",
                false,
                "ScalingDisabled",
                "scaling is disabled since the replica count of the target is zero",
            );
            None
        }
    };
    Decision {
        draft,
        current,
        rescale,
    }
}

impl Draft<'_> {
    fn warn(&mut self, reason: &str, message: impl AsRef<str>) {
        let about = object_reference(self.scaler);
        self.events.push(Action::warning(&about, reason, message));
    }

    /// Returns the size that the metrics need, with the metric that decides.
    fn choose_size(&mut self, metrics: Metrics) -> Option<(i32, String)> {
        let proposals = match metrics {
            Metrics::Proposals(proposals) => proposals,
            Metrics::BadSelector { reasons, messages } => {
                self.set_condition("ScalingActive", false, reasons[0], &messages[0]);
                self.warn(reasons[1], &messages[1]);
                self.warn("FailedComputeMetricsReplicas", &messages[1]);
                return None;
            }
        };
        let status = |p: &Result<Proposal, Failure>| {
            p.as_ref().map(|p| p.status.clone()).unwrap_or_default()
        };
        // A metric without a value has an empty entry, so that the order is that of the spec.
        self.status.current_metrics =
            Some(proposals.iter().map(status).collect()).filter(|all: &Vec<_>| !all.is_empty());
        let count = proposals.len();
        let mut failures = Vec::new();
        let mut largest: Option<Proposal> = None;
        for proposal in proposals {
            match proposal {
                // The metric that needs the most replicas wins.
                Ok(p)
                    if largest
                        .as_ref()
                        .is_none_or(|l| l.replicas == 0 || p.replicas > l.replicas) =>
                {
                    largest = Some(p);
                }
                Ok(_) => {}
                Err(failure) => {
                    self.warn(failure.reason, &failure.problem);
                    failures.push(failure);
                }
            }
        }
        let current = self.status.current_replicas.unwrap_or_default();
        if let Some(first) = failures.first() {
            // The metric that has failed could need more replicas.
            let Some(found) = largest.as_ref().filter(|p| p.replicas >= current) else {
                let text = format!(
                    "the HPA was unable to compute the replica count: {}",
                    first.problem
                );
                self.set_condition("ScalingActive", false, first.reason, &text);
                let text = format!(
                    "invalid metrics ({} invalid out of {count}), first error is: {}",
                    failures.len(),
                    first.summary
                );
                self.warn("FailedComputeMetricsReplicas", text);
                return None;
            };
            return Some(self.activate(found));
        }
        largest.map(|found| self.activate(&found))
    }

    fn activate(&mut self, found: &Proposal) -> (i32, String) {
        let text = format!(
            "the HPA was able to successfully calculate a replica count from {}",
            found.metric
        );
        self.set_condition("ScalingActive", true, "ValidMetricFound", &text);
        (found.replicas, found.metric.clone())
    }

    /// Returns the size within the recommendations, the rates and the bounds.
    fn limit_size(
        &mut self,
        current: i32,
        wanted: i32,
        history: &mut History,
        config: &Config,
    ) -> i32 {
        let (low, high) = (min_size(self.scaler), self.scaler.spec.max_replicas);
        let bounds = Bounds { low, high, current };
        let window = config.stabilization_seconds();
        let (stable, limited) = match &self.scaler.spec.behavior {
            None => {
                let stable = history.stabilize(wanted, window, self.now);
                (stable, limit_without_rules(stable.0, bounds))
            }
            Some(behavior) => {
                let (up, down) = Rules::of_behavior(behavior, window);
                let rules = (&up, &down);
                let stable = history.stabilize_by_rules(wanted, current, rules, self.now);
                (
                    stable,
                    history.limit_by_rules(stable.0, bounds, rules, self.now),
                )
            }
        };
        let (size, reason, message) = stable;
        let (reason, message) = match size == wanted {
            true => ("ReadyForNewScale", "recommended size matches current size"),
            false => (reason, message),
        };
        self.set_condition("AbleToScale", true, reason, message);
        self.set_condition("ScalingLimited", limited.0 != size, limited.1, limited.2);
        limited.0
    }
}

impl Decision<'_> {
    /// Returns status and events; `written` is the result of writing the new size.
    pub fn into_actions(
        self,
        written: Result<(), String>,
        history: &mut History,
        config: &Config,
    ) -> Vec<Action> {
        let (mut draft, current) = (self.draft, self.current);
        let Some(Rescale { size, reason }) = self.rescale else {
            return draft.into_actions();
        };
        if let Err(problem) = written {
            let text =
                format!("the HPA controller was unable to update the target scale: {problem}");
            draft.set_condition("AbleToScale", false, "FailedUpdateScale", &text);
            let text = format!("New size: {size}; reason: {reason}; error: {problem}");
            draft.warn("FailedRescale", text);
            return draft.into_actions();
        }
        draft.status.desired_replicas = size;
        draft.status.last_scale_time = Some(time::api_time(draft.now));
        let text = format!("the HPA controller was able to update the target scale to {size}");
        draft.set_condition("AbleToScale", true, "SucceededRescale", &text);
        draft.events.push(Action::event(
            &object_reference(draft.scaler),
            "SuccessfulRescale",
            format!("New size: {size}; reason: {reason}"),
        ));
        if let Some(behavior) = &draft.scaler.spec.behavior {
            let (up, down) = Rules::of_behavior(behavior, config.stabilization_seconds());
            history.record_change([current, size], (&up, &down), draft.now);
        }
        draft.into_actions()
    }
}

#[cfg(test)]
mod tests;
