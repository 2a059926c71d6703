#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::autoscale::tests::{default_config, scaler};
use k8s_openapi::api::autoscaling::v2::MetricStatus;
use serde_json::{Value, json};

fn found(replicas: i32) -> Result<Proposal, Failure> {
    Ok(Proposal {
        replicas,
        metric: format!("m{replicas}"),
        status: MetricStatus {
            type_: replicas.to_string(),
            ..MetricStatus::default()
        },
    })
}

fn failed() -> Result<Proposal, Failure> {
    Err(Failure {
        reason: "FailedGetResourceMetric",
        problem: "none".to_owned(),
        summary: "failed: none".to_owned(),
    })
}

fn scale(replicas: i32) -> Scale {
    serde_json::from_value(json!({"spec": {"replicas": replicas}, "status": {"replicas": 0}}))
        .unwrap()
}

/// Decides at a second; returns the new size and the actions.
fn decide(
    scaler: &HorizontalPodAutoscaler,
    history: &mut History,
    replicas: i32,
    proposals: Vec<Result<Proposal, Failure>>,
    written: Result<(), String>,
) -> (Option<i32>, Vec<Action>) {
    let (config, now) = (default_config(), Timestamp::from_second(1_000_000).unwrap());
    let metrics = Some(Metrics::Proposals(proposals));
    let decision = decide_size(scaler, &scale(replicas), metrics, history, &config, now);
    let size = decision.rescale.as_ref().map(|r| r.size);
    (size, decision.into_actions(written, history, &config))
}

fn status_of(actions: &[Action]) -> &Value {
    &actions.iter().find_map(Action::as_write).unwrap().body["status"]
}

/// Returns type, status and reason of each condition.
fn conditions(status: &Value) -> String {
    let text = |c: &Value, name: &str| c[name].as_str().unwrap().to_owned();
    let all = status["conditions"].as_array().unwrap().iter();
    all.map(|c| format!("{}={} ", text(c, "type"), text(c, "reason")))
        .collect()
}

#[test]
fn bounds_and_metrics_decide() {
    let able = "AbleToScale=SucceededGetScale ";
    let active = "ScalingActive=ValidMetricFound ";
    for (size, proposals, expected, reasons) in [
        (
            0,
            vec![found(9)],
            None,
            format!("{able}ScalingActive=ScalingDisabled "),
        ),
        (
            1,
            vec![failed()],
            Some(2),
            "AbleToScale=SucceededRescale ".to_owned(),
        ),
        (
            12,
            vec![failed()],
            Some(10),
            "AbleToScale=SucceededRescale ".to_owned(),
        ),
        (
            3,
            vec![failed()],
            None,
            format!("{able}ScalingActive=FailedGetResourceMetric "),
        ),
        (
            3,
            vec![failed(), found(2)],
            None,
            format!("{able}ScalingActive=FailedGetResourceMetric "),
        ),
        (
            3,
            vec![failed(), found(5)],
            Some(5),
            format!("AbleToScale=SucceededRescale {active}ScalingLimited=DesiredWithinRange "),
        ),
        (
            3,
            vec![found(2), found(5), found(4)],
            Some(5),
            format!("AbleToScale=SucceededRescale {active}ScalingLimited=DesiredWithinRange "),
        ),
        (
            3,
            vec![found(50)],
            Some(6),
            format!("AbleToScale=SucceededRescale {active}ScalingLimited=ScaleUpLimit "),
        ),
        (
            3,
            vec![found(3)],
            None,
            format!("AbleToScale=ReadyForNewScale {active}ScalingLimited=DesiredWithinRange "),
        ),
        (
            4,
            vec![found(2)],
            None,
            format!("AbleToScale=ScaleDownStabilized {active}ScalingLimited=DesiredWithinRange "),
        ),
    ] {
        let scaler = scaler(json!([]), json!(null));
        let case = format!("{size} {proposals:?}");
        let mut history = History::default();
        let (got, actions) = decide(&scaler, &mut history, size, proposals, Ok(()));
        assert_eq!(got, expected, "{case}");
        let status = status_of(&actions);
        assert_eq!(conditions(status), reasons, "{case}");
        // currentReplicas is the target's desired size, not its progress.
        assert_eq!(status["currentReplicas"], size, "{case}");
    }
}

#[test]
fn status_of_each_metric_has_its_place() {
    let scaler = scaler(json!([]), json!(null));
    let proposals = vec![found(3), failed(), found(4)];
    let (_, actions) = decide(&scaler, &mut History::default(), 3, proposals, Ok(()));
    let current = &status_of(&actions)["currentMetrics"];
    assert_eq!(
        *current,
        json!([{"type": "3"}, {"type": ""}, {"type": "4"}])
    );
}

#[test]
fn rejected_size_is_reported_and_not_counted() {
    let one = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}});
    let scaler = scaler(json!([]), one);
    let mut history = History::default();
    let rejected = Err("conflict".to_owned());
    let (size, actions) = decide(&scaler, &mut history, 3, vec![found(9)], rejected);
    assert_eq!(size, Some(4));
    let status = status_of(&actions);
    assert!(
        conditions(status).contains("AbleToScale=FailedUpdateScale"),
        "{status}"
    );
    assert!(status["lastScaleTime"].is_null(), "{status}");
    let (size, _) = decide(&scaler, &mut history, 3, vec![found(9)], Ok(()));
    assert_eq!(size, Some(4));
    let (size, actions) = decide(&scaler, &mut history, 4, vec![found(9)], Ok(()));
    assert_eq!(size, None);
    let status = status_of(&actions);
    assert!(
        conditions(status).contains("ScalingLimited=ScaleUpLimit"),
        "{status}"
    );
}
