#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use controllers_runtime::testing::serve;
use serde_json::{Value, json};

/// Serves each API of metrics.
fn respond(request: &str) -> Option<String> {
    let body = if request.contains("/apis/metrics.k8s.io") {
        json!({"items": [{"metadata": {"name": "a"}, "timestamp": "1970-01-01T00:00:09Z",
            "window": "1m0.5s", "containers": [{"name": "c", "usage": {"cpu": "250m"}},
            {"name": "d", "usage": {"cpu": "1500000n"}}]},
            {"metadata": {"name": "b"}, "containers": [{"name": "c", "usage": {}}]}]})
    } else if request == "GET /apis/custom.metrics.k8s.io" {
        json!({"preferredVersion": {"version": "v1beta3"}, "versions": [{"version": "v1beta2"}]})
    } else if request.contains("/apis/custom.metrics.k8s.io") {
        json!({"items": [{"describedObject": {"name": "a"}, "timestamp": "1970-01-01T00:00:09Z",
            "windowSeconds": 5, "value": "1500m"}]})
    } else {
        json!({"items": [{"value": "2"}, {"value": "500m"}]})
    };
    Some(body.to_string())
}

#[tokio::test]
async fn every_type_is_read_from_its_api() {
    let sample = |value: i64, window: i64| {
        let (at, window) = (9, jiff::SignedDuration::from_millis(window));
        let at = jiff::Timestamp::from_second(at).unwrap();
        let sample = crate::autoscale::replicas::Sample { value, at, window };
        Reading::Pods([("a".to_owned(), sample)].into())
    };
    let metric = json!({"name": "hits", "selector": {"matchLabels": {"x": "y"}}});
    let service = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let namespace = json!({"kind": "Namespace", "name": "other", "apiVersion": "v1"});
    let root = "GET /apis/custom.metrics.k8s.io/v1beta2/namespaces/n";
    let rows: [(Value, Reading, String); 6] = [
        (
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": ""}}}),
            sample(252, 60500),
            "GET /apis/metrics.k8s.io/v1beta1/namespaces/n/pods?labelSelector=app%3Dx".to_owned(),
        ),
        (
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
            "container": "c", "target": {"type": ""}}}),
            sample(250, 60500),
            "GET /apis/metrics.k8s.io/v1beta1/namespaces/n/pods?labelSelector=app%3Dx".to_owned(),
        ),
        (
            json!({"type": "Pods", "pods": {"metric": metric, "target": {"type": ""}}}),
            sample(1500, 5000),
            format!("{root}/pods/*/hits?labelSelector=app%3Dx&metricLabelSelector=x%3Dy"),
        ),
        (
            json!({"type": "Object", "object": {"metric": metric, "describedObject": service,
            "target": {"type": ""}}}),
            Reading::Total(1500),
            format!("{root}/deployments.apps/d/hits?metricLabelSelector=x%3Dy"),
        ),
        (
            json!({"type": "Object", "object": {"metric": metric, "describedObject": namespace,
            "target": {"type": ""}}}),
            Reading::Total(1500),
            format!("{root}/metrics/hits?metricLabelSelector=x%3Dy"),
        ),
        (
            json!({"type": "External", "external": {"metric": metric, "target": {"type": ""}}}),
            Reading::Total(2500),
            "GET /apis/external.metrics.k8s.io/v1beta1/namespaces/n/hits?labelSelector=x%3Dy"
                .to_owned(),
        ),
    ];
    let (client, requests) = serve(respond).await.unwrap();
    let resources = Resources::default();
    let reader = Reader {
        resources: &resources,
        client: &client,
        namespace: "n",
        selector: "app=x",
    };
    for (spec, expected, request) in rows {
        let spec: MetricSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(reader.read_metric(&spec).await, Ok(expected), "{spec:?}");
        assert_eq!(*requests.lock().last().unwrap(), request);
    }
}

#[test]
fn selectors_are_described_as_by_go() {
    for (selector, expected) in [
        (json!(null), "nil"),
        (
            json!({"matchLabels": {"a": "b"}, "matchExpressions":
                [{"key": "k", "operator": "In", "values": ["x", "y"]}]}),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:\
             []LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}",
        ),
    ] {
        let parsed: Option<LabelSelector> = serde_json::from_value(selector).unwrap();
        assert_eq!(describe_selector(parsed.as_ref()), expected);
    }
}
