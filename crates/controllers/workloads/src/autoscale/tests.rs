#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::time::Duration;

use super::*;
use controllers_runtime::testing::serve;
use serde_json::{Value, json};

/// Returns upstream's defaults.
pub fn default_config() -> Config {
    Config {
        workers: 5,
        period: Duration::from_secs(15),
        downscale_stabilization: Duration::from_secs(300),
        tolerance: 0.1,
        cpu_initialization_period: Duration::from_secs(300),
        initial_readiness_delay: Duration::from_secs(30),
    }
}

/// Returns an autoscaler of 2 to 10 replicas.
pub fn scaler(metrics: Value, behavior: Value) -> HorizontalPodAutoscaler {
    serde_json::from_value(
        json!({"metadata": {"name": "h", "namespace": "n", "uid": "u"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "minReplicas": 2, "maxReplicas": 10, "metrics": metrics, "behavior": behavior}}),
    )
    .unwrap()
}

fn autoscaler(pods: Vec<Pod>) -> Autoscaler {
    let by_namespace = |pod: &Pod| vec![pod.namespace().to_owned()];
    Autoscaler {
        scalers: Cache::with_objects(Vec::new()),
        pods: Cache::with_indexes(
            pods,
            vec![(
                controllers_runtime::NAMESPACE,
                Box::new(by_namespace) as Box<_>,
            )],
        ),
        config: default_config(),
        memories: Mutex::default(),
        resources: Resources::default(),
    }
}

#[test]
fn only_changes_of_the_spec_start_a_reconcile() {
    let old = Arc::new(scaler(json!([]), json!(null)));
    let mut reported = scaler(json!([]), json!(null));
    reported.status.get_or_insert_default().current_replicas = Some(3);
    let mut changed = scaler(json!([]), json!(null));
    changed.spec.max_replicas = 11;
    let mut replaced = scaler(json!([]), json!(null));
    replaced.metadata.uid = Some("v".to_owned());
    for (old, new, expected) in [
        (None, scaler(json!([]), json!(null)), true),
        (Some(old.clone()), reported, false),
        (Some(old.clone()), changed, true),
        (Some(old), replaced, true),
    ] {
        let new = Arc::new(new);
        let case = format!("{old:?} {new:?}");
        assert_eq!(
            needs_reconcile(&Event::Applied { old, new }),
            expected,
            "{case}"
        );
    }
}

/// The controller may write the scales of all namespaces, so the author must not choose the path.
#[tokio::test]
async fn text_of_the_author_does_not_change_the_path_of_the_target() {
    for (version, name, expected) in [
        (
            "apps/v1",
            "d",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
        ),
        (
            "apps/v9",
            "d",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
        ),
        (
            "apps/v1%2Fnamespaces%2Fvictim%2Fdeployments%2Fx%2Fscale?a=",
            "d",
            "/apis/apps/v1/namespaces/n/deployments/d/scale",
        ),
        (
            "apps/v1",
            "../../victim?",
            "/apis/apps/v1/namespaces/n/deployments/..%2F..%2Fvictim%3F/scale",
        ),
    ] {
        let answer = |_: &str| Some("{}".to_owned());
        let (client, _requests) = serve(answer).await.unwrap();
        let mut scaler = scaler(json!([]), json!(null));
        let target = &mut scaler.spec.scale_target_ref;
        target.api_version = Some(version.to_owned());
        target.name = name.to_owned();
        let found = autoscaler(Vec::new()).find_target(&client, &scaler).await;
        assert_eq!(found.unwrap().unwrap().0, expected, "{version} {name}");
    }
}

#[tokio::test]
async fn target_is_scaled_and_the_metric_reported() {
    let scale = r#"{"metadata":{"name":"d","namespace":"n"},"spec":{"replicas":2},
        "status":{"replicas":2,"selector":"app=x"}}"#;
    let (client, requests) = serve(move |request| {
        let usage = r#"{"items":[
            {"metadata":{"name":"a"},"timestamp":"2026-01-01T00:01:00Z","window":"15.5s",
            "containers":[{"name":"c","usage":{"memory":"300Mi"}}]},
            {"metadata":{"name":"b"},"timestamp":"2026-01-01T00:01:00Z","window":"15.5s",
            "containers":[{"name":"c","usage":{"memory":"100Mi"}}]}]}"#;
        Some(
            if request.contains("metrics.k8s.io") {
                usage
            } else {
                scale
            }
            .to_owned(),
        )
    })
    .await
    .unwrap();
    let pod = |name: &str| {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "n",
            "labels": {"app": "x"}}, "status": {"phase": "Running"}}))
        .unwrap()
    };
    let autoscaler = autoscaler(vec![pod("a"), pod("b")]);
    let target = json!({"type": "AverageValue", "averageValue": "100Mi"});
    let scaler = scaler(
        json!([{"type": "Resource", "resource": {"name": "memory", "target": target}}]),
        json!(null),
    );
    let (path, read) = autoscaler
        .find_target(&client, &scaler)
        .await
        .unwrap()
        .unwrap();
    let actions = autoscaler
        .scale_target("n/h", &client, &scaler, &path, read)
        .await;
    let status = &actions.iter().find_map(Action::as_write).unwrap().body["status"];
    assert_eq!(
        status["currentMetrics"],
        json!([{"type": "Resource", "resource":
        {"name": "memory", "current": {"averageValue": "200Mi"}}}])
    );
    assert_eq!(
        (&status["currentReplicas"], &status["desiredReplicas"]),
        (&json!(2), &json!(4))
    );
    assert_eq!(
        *requests.lock(),
        [
            "GET /apis/apps/v1/namespaces/n/deployments/d/scale",
            "GET /apis/metrics.k8s.io/v1beta1/namespaces/n/pods?labelSelector=app%3Dx",
            "PUT /apis/apps/v1/namespaces/n/deployments/d/scale",
        ]
    );
}

#[test]
fn selector_must_match_pods_of_one_autoscaler() {
    let pod = |name: &str, tier: &str| -> Pod {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "n",
            "labels": {"tier": tier}}}))
        .unwrap()
    };
    let all = autoscaler(vec![pod("a", "web"), pod("b", "db"), pod("c", "cache")]);
    let scaler = scaler(json!([]), json!(null));
    let select = |key: &str, selector: &str| match all.select_pods(key, &scaler, selector) {
        Ok(pods) => {
            let mut names: Vec<_> = pods.iter().map(|pod| pod.name()).collect();
            names.sort_unstable();
            names.join(" ")
        }
        Err(Metrics::BadSelector { reasons, .. }) => reasons[0].to_owned(),
        Err(Metrics::Proposals(_)) => unreachable!(),
    };
    for (key, selector, expected) in [
        ("n/h", "tier in (web,db)", "a b"),
        ("n/h", "tier=web", "a"),
        ("n/i", "tier notin (web)", "b c"),
        ("n/i", "tier,tier!=cache", "AmbiguousSelector"),
        ("n/i", "!tier", ""),
        ("n/i", "", "InvalidSelector"),
        ("n/i", "tier in (", "InvalidSelector"),
    ] {
        assert_eq!(select(key, selector), expected, "{key} {selector}");
    }
}
