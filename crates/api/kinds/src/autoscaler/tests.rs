#![allow(clippy::unwrap_used)]
use super::*;
use crate::{convert, find};

const PREFIX: &str = "autoscaling.alpha.kubernetes.io/";

fn convert_to(object: &Value, version: &str) -> Value {
    let resource = find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
    let mut object = object.clone();
    convert(resource, &mut object, &format!("autoscaling/{version}"));
    object
}

fn annotation<'a>(object: &'a Value, name: &str) -> Option<&'a str> {
    let annotations = object.pointer("/metadata/annotations")?;
    annotations.get(format!("{PREFIX}{name}"))?.as_str()
}

/// Returns an object of v1 with these annotations.
fn annotated(annotations: &[(&str, &str)]) -> Value {
    let annotations: Map<String, Value> = annotations
        .iter()
        .map(|(name, text)| (format!("{PREFIX}{name}"), Value::from(*text)))
        .collect();
    json!({"apiVersion": "autoscaling/v1", "metadata": {"annotations": annotations},
        "spec": {"maxReplicas": 3}})
}

fn pods_v2() -> Value {
    json!({"type": "Pods", "pods": {
        "metric": {"name": "rps", "selector": {"matchLabels": {"a": "b"}}},
        "target": {"type": "AverageValue", "averageValue": "10"}}})
}

#[test]
fn cpu_target_is_a_field_of_v1() {
    let old = json!({"apiVersion": "autoscaling/v1", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}});
    let new = convert_to(&old, "v2");
    assert_eq!(
        new["spec"]["metrics"],
        json!([build_cpu_target(&json!(80))])
    );
    assert_eq!(convert_to(&new, "v1"), old);
    let mut both = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "metrics": [build_cpu_target(&json!(50)), pods_v2()]}});
    let v1 = convert_to(&both, "v1");
    assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 50);
    // Upstream puts the target behind the metrics of the annotation.
    both["spec"]["metrics"].as_array_mut().unwrap().swap(0, 1);
    assert_eq!(convert_to(&v1, "v2"), both);
}

/// The target that v1 shows is the same after each write.
#[test]
fn two_cpu_targets_do_not_change_places() {
    let v2 = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"}, "spec": {"maxReplicas": 3,
        "metrics": [pods_v2(), build_cpu_target(&json!(50)), build_cpu_target(&json!(80))]}});
    let v1 = convert_to(&v2, "v1");
    assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 50);
    assert_eq!(convert_to(&v1, "v2"), v2);
    assert_eq!(convert_to(&convert_to(&v1, "v2"), "v1"), v1);
}

#[test]
fn metrics_are_kept_in_the_form_of_v1() {
    let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    let cases = [
        (
            pods_v2(),
            r#"{"type":"Pods","pods":{"metricName":"rps","targetAverageValue":"10","selector":{"matchLabels":{"a":"b"}}}}"#,
        ),
        (
            json!({"type": "Object", "object": {"describedObject": reference,
                "metric": {"name": "m"}, "target": {"type": "Value", "value": "2"}}}),
            r#"{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"m","targetValue":"2"}}"#,
        ),
        (
            json!({"type": "Object", "object": {"describedObject": reference,
                "metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "3"}}}),
            r#"{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"m","targetValue":"0","averageValue":"3"}}"#,
        ),
        (
            json!({"type": "Resource", "resource": {"name": "memory",
                "target": {"type": "Utilization", "averageUtilization": 60}}}),
            r#"{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":60}}"#,
        ),
        (
            json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "AverageValue", "averageValue": "500m"}}}),
            r#"{"type":"Resource","resource":{"name":"cpu","targetAverageValue":"500m"}}"#,
        ),
        (
            json!({"type": "ContainerResource", "containerResource": {"name": "cpu",
                "container": "c", "target": {"type": "Utilization", "averageUtilization": 60}}}),
            r#"{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":60,"container":"c"}}"#,
        ),
        (
            json!({"type": "External", "external": {"metric": {"name": "q",
                "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "7"}}}),
            r#"{"type":"External","external":{"metricName":"q","metricSelector":{"matchLabels":{"a":"b"}},"targetValue":"7"}}"#,
        ),
        (
            json!({"type": "External", "external": {"metric": {"name": "q"},
                "target": {"type": "AverageValue", "averageValue": "7"}}}),
            r#"{"type":"External","external":{"metricName":"q","targetAverageValue":"7"}}"#,
        ),
    ];
    for (metric, text) in cases {
        let new = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "metrics": [metric]}});
        let old = convert_to(&new, "v1");
        assert_eq!(annotation(&old, "metrics"), Some(&*format!("[{text}]")));
        assert_eq!(old["spec"], json!({"maxReplicas": 3}), "{metric}");
        assert_eq!(convert_to(&old, "v2"), new, "{metric}");
    }
}

#[test]
fn status_keeps_all_current_metrics() {
    let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "s"});
    let cpu = json!({"averageValue": "200m", "averageUtilization": 40});
    let current = json!([
        {"type": "Resource", "resource": {"name": "cpu", "current": cpu}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "current": cpu}},
        {"type": "Pods", "pods": {"metric": {"name": "p"}, "current": {"averageValue": "1"}}},
        {"type": "Object", "object": {"metric": {"name": "o"}, "describedObject": reference,
            "current": {"value": "2", "averageValue": "1"}}},
        {"type": "External", "external": {"metric": {"name": "e"}, "current": {"value": "3"}}}]);
    let conditions = json!([{"type": "AbleToScale", "status": "True", "reason": "r",
        "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
    let new = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "metrics": [build_cpu_target(&json!(50))]},
        "status": {"currentMetrics": current, "conditions": conditions}});
    let old = convert_to(&new, "v1");
    assert_eq!(
        old["status"],
        json!({"currentCPUUtilizationPercentage": 40})
    );
    let first = r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":40,"currentAverageValue":"200m"}},"#;
    let text = annotation(&old, "current-metrics").unwrap();
    assert!(text.starts_with(first), "{text}");
    assert!(
        text.contains(r#"{"metricName":"p","currentAverageValue":"1"}"#),
        "{text}"
    );
    let condition = r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"r","message":"m"}]"#;
    assert_eq!(annotation(&old, "conditions"), Some(condition));
    assert_eq!(convert_to(&old, "v2"), new);
    let alone = json!({"apiVersion": "autoscaling/v1", "spec": {"maxReplicas": 3},
        "status": {"currentCPUUtilizationPercentage": 40}});
    let current = convert_to(&alone, "v2")["status"]["currentMetrics"].clone();
    assert_eq!(
        current[0]["resource"]["current"],
        json!({"averageUtilization": 40})
    );
}

#[test]
fn behavior_is_kept_in_the_form_of_the_internal_type() {
    let behavior = json!({"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
        "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}], "tolerance": "50m"}});
    let new = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"},
        "spec": {"maxReplicas": 3, "metrics": [pods_v2()], "behavior": behavior}});
    let old = convert_to(&new, "v1");
    let text = r#"{"ScaleUp":{"StabilizationWindowSeconds":0,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":"50m"},"ScaleDown":null}"#;
    assert_eq!(annotation(&old, "behavior"), Some(text));
    assert_eq!(convert_to(&old, "v2"), new);
    // Go decodes names in any case, so that users may have written those of v2.
    for (text, expect) in [
        (
            r#"{"scaleDown":{"selectPolicy":"Min"}}"#,
            json!({"scaleDown": {"selectPolicy": "Min"}}),
        ),
        (
            r#"{"ScaleDown":{"Policies":null,"SelectPolicy":"Disabled"},"other":1}"#,
            json!({"scaleDown": {"selectPolicy": "Disabled"}}),
        ),
        (r#"{"ScaleDown":{"SelectPolicy":1}}"#, Value::Null),
        (r#"{"ScaleUp":null,"ScaleDown":null}"#, Value::Null),
        ("{}", Value::Null),
        ("[", Value::Null),
    ] {
        let found = convert_to(&annotated(&[("behavior", text)]), "v2");
        assert_eq!(found["spec"]["behavior"], expect, "{text}");
    }
}

#[test]
fn annotation_of_another_form_is_ignored() {
    let cpu = json!([build_cpu_target(&json!(80))]);
    for (text, expect) in [
        (
            r#"[{"type":"Pods","pods":{"metricName":"a","targetAverageValue":"1000m"}}]"#,
            json!([{"type": "Pods", "pods": {"metric": {"name": "a"},
                "target": {"type": "AverageValue", "averageValue": "1"}}}]),
        ),
        (
            r#"[{"type":"Resource","resource":{"name":"cpu"}}]"#,
            json!([{"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "AverageValue"}}}]),
        ),
        (r#"[{"type":5}]"#, cpu.clone()),
        (
            r#"[{"type":"Resource","resource":{"name":"cpu","targetAverageUtilization":"x"}}]"#,
            cpu.clone(),
        ),
        (
            r#"[{"type":"Pods","pods":{"metricName":"a","targetAverageValue":"ten"}}]"#,
            cpu.clone(),
        ),
        ("{}", cpu.clone()),
        ("not JSON", cpu.clone()),
        ("null", cpu.clone()),
        ("[]", cpu),
    ] {
        let found = convert_to(&annotated(&[("metrics", text)]), "v2");
        assert_eq!(found["spec"]["metrics"], expect, "{text}");
        assert_eq!(found.pointer("/metadata/annotations"), None, "{text}");
    }
    for text in [r#"[{"type":1}]"#, "{}", "["] {
        let object = annotated(&[("conditions", text), ("current-metrics", text)]);
        assert_eq!(convert_to(&object, "v2").get("status"), None, "{text}");
    }
}

#[test]
fn annotations_that_a_user_wrote_do_not_survive_the_conversion() {
    let names = [
        "metrics",
        "current-metrics",
        "conditions",
        "behavior",
        "scale-up-tolerance",
        "scale-down-tolerance",
    ];
    let text = r#"[{"type":"Pods","pods":{"metricName":"a","targetAverageValue":"1"}}]"#;
    let mut object = annotated(&names.map(|name| (name, text)));
    object["metadata"]["annotations"]["own"] = json!("x");
    object["apiVersion"] = json!("autoscaling/v2");
    object["spec"]["metrics"] = json!([build_cpu_target(&json!(50))]);
    let old = convert_to(&object, "v1");
    assert_eq!(old["metadata"]["annotations"], json!({"own": "x"}));
    object["apiVersion"] = json!("autoscaling/v1");
    let new = convert_to(&object, "v2");
    assert_eq!(new["metadata"]["annotations"], json!({"own": "x"}));
}
