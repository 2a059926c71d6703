//! Computes the target's size and the autoscaler's status.

use std::cmp::Ordering;

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    HorizontalPodAutoscaler, HorizontalPodAutoscalerCondition, HorizontalPodAutoscalerStatus,
};

use controllers_runtime::{Action, Meta, object_reference, time};

use super::metrics::Reading;

/// Ratios this close to 1 do not change the size.
const TOLERANCE: f64 = 0.1;

/// The result of a reconcile.
pub struct Outcome {
    /// The new size.
    pub rescale: Option<i32>,
    /// Status and events.
    pub actions: Vec<Action>,
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

    fn record_rescale(&mut self, desired: i32, why: &str) {
        self.status.last_scale_time = Some(time::api_time(self.now));
        let text = format!("the HPA controller was able to update the target scale to {desired}");
        self.set_condition("AbleToScale", true, "SucceededRescale", &text);
        self.events.push(Action::event(
            &object_reference(self.scaler),
            "SuccessfulRescale",
            format!("New size: {desired}; reason: {why}"),
        ));
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

/// Computes size and status from the target's scale and the metrics.
pub fn decide_size(
    scaler: &HorizontalPodAutoscaler,
    scale: &Scale,
    readings: &[Reading],
    now: Timestamp,
) -> Outcome {
    let mut draft = new_draft(scaler, now);
    let spec = &scaler.spec;
    let (low, high) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
    let current = scale.spec.as_ref().and_then(|s| s.replicas).unwrap_or(0);
    draft.status.current_replicas = Some(current);
    draft.set_condition(
        "AbleToScale",
        true,
        "SucceededGetScale",
        "the HPA controller was able to get the target's current scale",
    );
    // Zero replicas disable autoscaling, so that an operator can stop an application without
    // deleting the autoscaler.
    if current == 0 && low != 0 {
        draft.status.desired_replicas = 0;
        draft.set_condition(
            "ScalingActive",
            false,
            "ScalingDisabled",
            "scaling is disabled since the replica count of the target is zero",
        );
        return Outcome {
            rescale: None,
            actions: draft.into_actions(),
        };
    }
    let (desired, why) = choose_size(&mut draft, current, [low, high], readings);
    draft.status.desired_replicas = desired;
    if desired == current {
        return Outcome {
            rescale: None,
            actions: draft.into_actions(),
        };
    }
    draft.record_rescale(desired, &why);
    Outcome {
        rescale: Some(desired),
        actions: draft.into_actions(),
    }
}

/// Returns the size within the bounds, and the reason for it.
fn choose_size(
    draft: &mut Draft<'_>,
    current: i32,
    [low, high]: [i32; 2],
    readings: &[Reading],
) -> (i32, String) {
    // Bounds are enforced even if metrics can't be read.
    if current > high {
        let why = "Current number of replicas above Spec.MaxReplicas";
        (high, why.to_owned())
    } else if current < low {
        let why = "Current number of replicas below Spec.MinReplicas";
        (low, why.to_owned())
    } else {
        by_metrics(draft, current, low, high, readings)
    }
}

/// The metrics that decide.
#[derive(Default)]
struct Decisive<'a> {
    /// The largest size that a metric needs, with the metric.
    largest: Option<(i32, &'a str)>,
    /// The first metric that can't be read, with the problem.
    failed: Option<(&'a str, &'a str)>,
}

fn find_decisive_metrics(current: i32, readings: &[Reading]) -> Decisive<'_> {
    let mut found = Decisive::default();
    for reading in readings {
        match &reading.ratio {
            Ok(ratio) => {
                let wanted = if (ratio - 1.0).abs() <= TOLERANCE {
                    current
                } else {
                    (ratio * f64::from(current)).ceil() as i32
                };
                // The metric that needs the most replicas wins, as upstream.
                if found.largest.is_none_or(|(n, _)| wanted > n) {
                    found.largest = Some((wanted, &reading.name));
                }
            }
            Err(problem) => found.failed = found.failed.or(Some((&reading.name, problem))),
        }
    }
    found
}

fn by_metrics(
    draft: &mut Draft<'_>,
    current: i32,
    low: i32,
    high: i32,
    readings: &[Reading],
) -> (i32, String) {
    let Decisive { largest, failed } = find_decisive_metrics(current, readings);
    // An error is reported only if no metric could be read.
    if let Some((name, problem)) = failed.filter(|_| largest.is_none()) {
        let text = format!(
            "the HPA was unable to compute the replica count: failed to get {name} utilization: {problem}"
        );
        draft.set_condition("ScalingActive", false, "FailedGetResourceMetric", &text);
        let about = object_reference(draft.scaler);
        draft.events.push(Action::warning(
            &about,
            "FailedGetResourceMetric",
            format!("failed to get {name} utilization: {problem}"),
        ));
        return (current, String::new());
    }
    let Some((wanted, name)) = largest else {
        return (current, String::new());
    };
    let text = format!(
        "the HPA was able to successfully calculate a replica count from {name} resource utilization"
    );
    draft.set_condition("ScalingActive", true, "ValidMetricFound", &text);
    // One step at most doubles the size, but may always reach 4: upstream's limit.
    let desired = wanted
        .clamp(low, high)
        .min(current.saturating_mul(2).max(4));
    let (limited, reason, message) = match desired.cmp(&wanted) {
        Ordering::Less => (
            true,
            "TooManyReplicas",
            "the desired replica count is more than the maximum replica count",
        ),
        Ordering::Greater => (
            true,
            "TooFewReplicas",
            "the desired replica count is less than the minimum replica count",
        ),
        Ordering::Equal => (
            false,
            "DesiredWithinRange",
            "the desired count is within the acceptable range",
        ),
    };
    draft.set_condition("ScalingLimited", limited, reason, message);
    let way = if desired > current { "above" } else { "below" };
    (
        desired,
        format!("{name} resource utilization (percentage of request) {way} target"),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn bounds_and_metrics() {
        let scaler: HorizontalPodAutoscaler =
            serde_json::from_value(json!({"metadata": {"name": "h", "namespace": "n"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "minReplicas": 2, "maxReplicas": 6}}))
            .unwrap();
        let ok = |ratio: f64| {
            vec![Reading {
                name: "cpu".to_owned(),
                ratio: Ok(ratio),
            }]
        };
        let bad = || {
            vec![Reading {
                name: "cpu".to_owned(),
                ratio: Err("none".to_owned()),
            }]
        };
        for (size, readings, expect, active) in [
            (0, ok(9.0), None, Some("ScalingDisabled")),
            (1, bad(), Some(2), None),
            (9, bad(), Some(6), None),
            (3, bad(), None, Some("FailedGetResourceMetric")),
            (3, ok(1.05), None, Some("ValidMetricFound")),
            (3, ok(1.5), Some(5), Some("ValidMetricFound")),
            (4, ok(0.1), Some(2), Some("ValidMetricFound")),
        ] {
            let scale: Scale = serde_json::from_value(
                json!({"spec": {"replicas": size}, "status": {"replicas": 0}}),
            )
            .unwrap();
            let got = decide_size(
                &scaler,
                &scale,
                &readings,
                "2026-01-01T00:00:00Z".parse().unwrap(),
            );
            assert_eq!(got.rescale, expect, "{size}");
            let status = &got.actions.iter().find_map(Action::as_write).unwrap().body["status"];
            // currentReplicas is the target's desired size, not its progress.
            assert_eq!(status["currentReplicas"], size, "{status}");
            let status = status.to_string();
            assert!(
                active.is_none_or(|reason| status.contains(reason)),
                "{status}"
            );
        }
    }
}
