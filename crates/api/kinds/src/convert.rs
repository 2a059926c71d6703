//! Converts objects between the versions of a kind.
//!
//! Most versions of a kind differ in name only. Two kinds differ in content: events (core and
//! events.k8s.io, stored as core) and autoscalers (v1 and v2, stored as v2; fields that v1 lacks
//! are kept in annotations).

use serde_json::{Map, Value, json};

use crate::Resource;

/// Converts an object to another version (`apps/v1`) and sets `apiVersion`.
pub fn convert(resource: &Resource, object: &mut Value, target: &str) {
    let source = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let Value::Object(map) = object else { return };
    match (&*resource.kind, source.as_str(), target) {
        _ if source == target => return,
        ("Event", "v1", "events.k8s.io/v1") => rename_fields(map, false),
        ("Event", "events.k8s.io/v1", "v1") => rename_fields(map, true),
        ("HorizontalPodAutoscaler", "autoscaling/v1", "autoscaling/v2") => to_v2(map),
        ("HorizontalPodAutoscaler", "autoscaling/v2", "autoscaling/v1") => to_v1(map),
        _ => {}
    }
    map.insert("apiVersion".to_owned(), Value::from(target));
}

/// Names of an event's members in core and in events.k8s.io.
const EVENT: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

fn rename_fields(map: &mut Map<String, Value>, to_core: bool) {
    for (core, new) in EVENT {
        let (from, to) = if to_core { (new, core) } else { (core, new) };
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";

fn find_members<'a>(
    map: &'a mut Map<String, Value>,
    name: &str,
) -> Option<&'a mut Map<String, Value>> {
    map.get_mut(name)?.as_object_mut()
}

fn take_nested(map: &mut Map<String, Value>, outer: &str, name: &str) -> Option<Value> {
    find_members(map, outer)?.remove(name)
}

fn put_nested(map: &mut Map<String, Value>, outer: &str, name: &str, value: Value) {
    if let Value::Object(inner) = map
        .entry(outer)
        .or_insert_with(|| Value::Object(Map::new()))
    {
        inner.insert(name.to_owned(), value);
    }
}

/// Removes an annotation and parses its JSON.
fn take_annotation(map: &mut Map<String, Value>, name: &str) -> Option<Value> {
    let annotations = find_members(find_members(map, "metadata")?, "annotations")?;
    let text = annotations.remove(name)?;
    // An empty map is not written, so the object is equal to the one before the conversion.
    let empty = annotations.is_empty();
    if empty && let Some(metadata) = find_members(map, "metadata") {
        metadata.remove("annotations");
    }
    // A user may have edited the annotation. Upstream drops text that it cannot parse, too.
    serde_json::from_str(text.as_str()?).ok()
}

fn set_annotation(map: &mut Map<String, Value>, name: &str, value: &Value) {
    if let Value::Object(metadata) = map
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()))
    {
        put_nested(
            metadata,
            "annotations",
            name,
            Value::from(value.to_string()),
        );
    }
}

fn cpu_target(percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

fn to_v2(map: &mut Map<String, Value>) {
    let mut metrics = match take_annotation(map, METRICS) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    if let Some(percent) = take_nested(map, "spec", "targetCPUUtilizationPercentage") {
        // v1 has a field for the CPU target. Upstream puts it after the metrics of the annotation.
        metrics.push(cpu_target(&percent));
    }
    if !metrics.is_empty() {
        put_nested(map, "spec", "metrics", Value::Array(metrics));
    }
    // Each annotation is removed when it is read: a copy that stays behind would override the
    // fields of v2 at the next read as v1.
    for (name, outer, member) in [
        (BEHAVIOR, "spec", "behavior"),
        (CONDITIONS, "status", "conditions"),
    ] {
        if let Some(value) = take_annotation(map, name) {
            put_nested(map, outer, member, value);
        }
    }
    let mut current = match take_annotation(map, CURRENT_METRICS) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    };
    if let Some(percent) = take_nested(map, "status", "currentCPUUtilizationPercentage") {
        current.insert(
            0,
            json!({"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": percent}}}),
        );
    }
    if !current.is_empty() {
        put_nested(map, "status", "currentMetrics", Value::Array(current));
    }
}

fn to_v1(map: &mut Map<String, Value>) {
    let (cpu, rest) = split_cpu(
        take_nested(map, "spec", "metrics"),
        "/resource/target/averageUtilization",
    );
    if let Some(percent) = cpu {
        put_nested(map, "spec", "targetCPUUtilizationPercentage", percent);
    }
    let (current, current_rest) = split_cpu(
        take_nested(map, "status", "currentMetrics"),
        "/resource/current/averageUtilization",
    );
    if let Some(percent) = current {
        put_nested(map, "status", "currentCPUUtilizationPercentage", percent);
    }
    // A client that reads v1 and writes the object again must not lose metrics that v1 cannot
    // express.
    for (name, list) in [(METRICS, rest), (CURRENT_METRICS, current_rest)] {
        if !list.is_empty() {
            set_annotation(map, name, &Value::Array(list));
        }
    }
    for (name, outer, member) in [
        (BEHAVIOR, "spec", "behavior"),
        (CONDITIONS, "status", "conditions"),
    ] {
        if let Some(value) = take_nested(map, outer, member) {
            set_annotation(map, name, &value);
        }
    }
}

/// Splits a list of metrics into the first CPU utilisation and the others.
fn split_cpu(metrics: Option<Value>, pointer: &str) -> (Option<Value>, Vec<Value>) {
    let Some(Value::Array(mut list)) = metrics else {
        return (None, Vec::new());
    };
    // Only the first metric fits into the field of v1; more of them remain in the annotation.
    let is_cpu = |metric: &Value| {
        metric.pointer("/resource/name").and_then(Value::as_str) == Some("cpu")
            && metric.pointer(pointer).is_some()
    };
    match list.iter().position(is_cpu) {
        Some(at) => (list.remove(at).pointer(pointer).cloned(), list),
        None => (None, list),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::find;

    #[test]
    fn events_convert_between_core_and_events_k8s_io() {
        let resource = find("events.k8s.io", "v1", "events").unwrap();
        let new = json!({"kind": "Event", "apiVersion": "events.k8s.io/v1", "regarding": {"name": "p"}, "note": "n", "reason": "r"});
        let mut object = new.clone();
        convert(resource, &mut object, "v1");
        assert_eq!(
            object,
            json!({"kind": "Event", "apiVersion": "v1", "involvedObject": {"name": "p"}, "message": "n", "reason": "r"})
        );
        convert(resource, &mut object, "events.k8s.io/v1");
        assert_eq!(object, new);
    }

    #[test]
    fn autoscalers_convert_between_v1_and_v2() {
        let resource = find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let old = json!({"apiVersion": "autoscaling/v1", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "targetCPUUtilizationPercentage": 80}});
        let mut object = old.clone();
        convert(resource, &mut object, "autoscaling/v2");
        assert_eq!(
            object.pointer("/spec/metrics/0/resource/target/averageUtilization"),
            Some(&json!(80))
        );
        convert(resource, &mut object, "autoscaling/v1");
        assert_eq!(object, old);
        let mut object = json!({"apiVersion": "autoscaling/v2", "metadata": {"name": "h"}, "spec": {"maxReplicas": 3,
            "metrics": [{"type": "Pods"}], "behavior": {"scaleUp": {}}}});
        let new = object.clone();
        convert(resource, &mut object, "autoscaling/v1");
        assert_eq!(object.pointer("/spec/metrics"), None);
        let mut both = object.clone();
        both["spec"]["targetCPUUtilizationPercentage"] = json!(80);
        convert(resource, &mut both, "autoscaling/v2");
        assert_eq!(both.pointer("/spec/metrics/0/type"), Some(&json!("Pods")));
        assert_eq!(
            both.pointer("/spec/metrics/1/resource/name"),
            Some(&json!("cpu"))
        );
        convert(resource, &mut object, "autoscaling/v2");
        assert_eq!(object, new);
    }
}
