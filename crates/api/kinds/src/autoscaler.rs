//! Converts autoscalers between v1 and v2.
//!
//! v1 has a field for the CPU target only. Upstream keeps the rest of v2 in annotations, so that a
//! client that reads v1 and writes the object again loses nothing. Metrics and conditions are there
//! in types of v1 that exist for this purpose, and the behavior has the names of Go's internal
//! type. A text that is not of these types is ignored, as upstream: the result of a conversion is
//! not checked again, and other clients decode it.

use api_codec::json as codec;
use api_meta::tree::get;
use api_schema::Message;
use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
/// All annotations that a conversion removes. As upstream, those of tolerances are never written.
const ANNOTATIONS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    BEHAVIOR,
    CONDITIONS,
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
];
/// Upstream's `DefaultCPUUtilization` in percent.
const DEFAULT_CPU_TARGET: i32 = 80;

/// The half of an autoscaler that has a metric.
#[derive(Clone, Copy)]
enum Half {
    Spec,
    Status,
}

impl Half {
    /// Returns the object of v2 that has the values of a metric.
    const fn values(self) -> &'static str {
        match self {
            Half::Spec => "target",
            Half::Status => "current",
        }
    }
}

/// A member of a metric.
struct Member {
    /// The object of v2 that has the member.
    holder: Holder,
    /// Its name in v2.
    name: &'static str,
    /// Its names in v1, in a spec and in a status.
    v1: (&'static str, &'static str),
}

enum Holder {
    /// The source itself.
    Source,
    /// The identifier of the metric.
    Metric,
    /// The target or the current values.
    Values,
}

impl Member {
    const fn same(holder: Holder, name: &'static str, v1: &'static str) -> Self {
        Self {
            holder,
            name,
            v1: (v1, v1),
        }
    }

    const fn value(name: &'static str, spec: &'static str, status: &'static str) -> Self {
        Self {
            holder: Holder::Values,
            name,
            v1: (spec, status),
        }
    }

    /// Returns the name of the object of v2 that has the member; empty for the source itself.
    fn holder_name(&self, half: Half) -> &'static str {
        match self.holder {
            Holder::Source => "",
            Holder::Metric => "metric",
            Holder::Values => half.values(),
        }
    }

    fn v1_name(&self, half: Half) -> &'static str {
        match half {
            Half::Spec => self.v1.0,
            Half::Status => self.v1.1,
        }
    }
}

const METRIC_NAME: Member = Member::same(Holder::Metric, "name", "metricName");
const UTILIZATION: Member = Member::value(
    "averageUtilization",
    "targetAverageUtilization",
    "currentAverageUtilization",
);
const AVERAGE: Member = Member::value("averageValue", "targetAverageValue", "currentAverageValue");
const VALUE: Member = Member::value("value", "targetValue", "currentValue");

/// The sources of a metric with their members.
const SOURCES: [(&str, &[Member]); 5] = [
    (
        "object",
        &[
            Member::same(Holder::Source, "describedObject", "target"),
            METRIC_NAME,
            Member::same(Holder::Metric, "selector", "selector"),
            VALUE,
            Member::value("averageValue", "averageValue", "averageValue"),
        ],
    ),
    (
        "pods",
        &[
            METRIC_NAME,
            Member::same(Holder::Metric, "selector", "selector"),
            AVERAGE,
        ],
    ),
    (
        "resource",
        &[
            Member::same(Holder::Source, "name", "name"),
            UTILIZATION,
            AVERAGE,
        ],
    ),
    (
        "containerResource",
        &[
            Member::same(Holder::Source, "name", "name"),
            Member::same(Holder::Source, "container", "container"),
            UTILIZATION,
            AVERAGE,
        ],
    ),
    (
        "external",
        &[
            METRIC_NAME,
            Member::same(Holder::Metric, "selector", "metricSelector"),
            VALUE,
            AVERAGE,
        ],
    ),
];

/// Converts the members of an autoscaler from v1 to v2.
pub fn convert_to_v2(map: &mut Map<String, Value>) {
    // All are removed: one that stays behind would override the fields of v2 at the next read as
    // v1.
    let taken = take_annotations(map);
    let text = |name: &str| taken.get(name).and_then(Value::as_str);
    let decode = |name: &str, type_name: &str| decode_list(type_name, text(name)?);

    let kept = decode(METRICS, "v1.MetricSpec").unwrap_or_default();
    let mut metrics: Vec<Value> = kept.iter().map(parse_spec_metric).collect();
    if let Some(percent) = take_nested(map, "spec", "targetCPUUtilizationPercentage") {
        // Upstream puts the CPU target after the metrics of the annotation. If they have another
        // one, it would be the first from then on, and the two would change places at each write.
        let first = |metric: &Value| find_cpu_utilization(metric, "target").is_some();
        let at = metrics.iter().position(first).unwrap_or(metrics.len());
        metrics.insert(at, build_cpu_target(&percent));
    }
    // Defaults give v1 no target if it has the annotation, and that one may have no metric.
    if metrics.is_empty() && taken.contains_key(METRICS) {
        metrics.push(build_cpu_target(&DEFAULT_CPU_TARGET.into()));
    }
    put_list(map, "spec", "metrics", metrics);
    if let Some(behavior) = text(BEHAVIOR).and_then(decode_behavior) {
        put_nested(map, "spec", "behavior", behavior);
    }
    let percent = take_nested(map, "status", "currentCPUUtilizationPercentage");
    let current = match (decode(CURRENT_METRICS, "v1.MetricStatus"), percent) {
        // This list has the CPU's utilization, too.
        (Some(kept), _) => kept
            .iter()
            .map(|metric| parse_metric(Half::Status, metric))
            .collect(),
        (None, Some(percent)) => vec![json!({"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": percent}}})],
        (None, None) => Vec::new(),
    };
    put_list(map, "status", "currentMetrics", current);
    let conditions = decode(CONDITIONS, "v1.HorizontalPodAutoscalerCondition");
    put_list(map, "status", "conditions", conditions.unwrap_or_default());
}

/// Converts the members of an autoscaler from v2 to v1.
pub fn convert_to_v1(map: &mut Map<String, Value>) {
    // A user may have written them. v2 has its fields instead.
    take_annotations(map);
    let mut metrics = take_list(map, "spec", "metrics");
    // Only the first one fits into the field. More of them remain in the annotation.
    let is_target = |metric: &Value| find_cpu_utilization(metric, "target").is_some();
    if let Some(at) = metrics.iter().position(is_target)
        && let Some(percent) = find_cpu_utilization(&metrics.remove(at), "target")
    {
        put_nested(map, "spec", "targetCPUUtilizationPercentage", percent);
    }
    set_annotation(
        map,
        METRICS,
        "v1.MetricSpec",
        &format_metrics(Half::Spec, &metrics),
    );
    let current = take_list(map, "status", "currentMetrics");
    let percents = current.iter().rev();
    if let Some(percent) = percents
        .clone()
        .find_map(|m| find_cpu_utilization(m, "current"))
    {
        put_nested(map, "status", "currentCPUUtilizationPercentage", percent);
    }
    // The list includes the metric of the CPU, whose raw value has no field in v1.
    let current = format_metrics(Half::Status, &current);
    set_annotation(map, CURRENT_METRICS, "v1.MetricStatus", &current);
    if let Some(behavior) = take_nested(map, "spec", "behavior") {
        put_annotation(map, BEHAVIOR, encode_behavior(&behavior));
    }
    let conditions = take_list(map, "status", "conditions");
    let type_name = "v1.HorizontalPodAutoscalerCondition";
    set_annotation(map, CONDITIONS, type_name, &conditions);
}

fn build_cpu_target(percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

/// Returns the utilization of a CPU metric in its member `holder`.
fn find_cpu_utilization(metric: &Value, holder: &str) -> Option<Value> {
    let resource = get(metric, "resource");
    let is_cpu = get(metric, "type") == "Resource" && get(resource, "name") == "cpu";
    let percent = get(resource, holder).get("averageUtilization")?;
    is_cpu.then(|| percent.clone())
}

fn format_metrics(half: Half, metrics: &[Value]) -> Vec<Value> {
    let convert = |metric: &Value| {
        let mut converted = json!({"type": get(metric, "type")});
        for (source, members) in SOURCES {
            let Some(from) = metric.get(source) else {
                continue;
            };
            let mut into = Map::new();
            for member in members {
                let holder = match member.holder_name(half) {
                    "" => from,
                    name => get(from, name),
                };
                if let Some(value) = holder.get(member.name) {
                    into.insert(member.v1_name(half).to_owned(), value.clone());
                }
            }
            converted[source] = into.into();
        }
        converted
    };
    metrics.iter().map(convert).collect()
}

fn parse_metric(half: Half, metric: &Value) -> Value {
    let mut converted = json!({"type": get(metric, "type")});
    for (source, members) in SOURCES {
        let Some(from) = metric.get(source) else {
            continue;
        };
        let mut into = Map::new();
        for member in members {
            let Some(value) = from.get(member.v1_name(half)).cloned() else {
                continue;
            };
            match member.holder_name(half) {
                "" => drop(into.insert(member.name.to_owned(), value)),
                holder => put_nested(&mut into, holder, member.name, value),
            }
        }
        converted[source] = into.into();
    }
    converted
}

/// Converts a metric of a spec. v1 has no type of a target: the value that is present decides.
fn parse_spec_metric(metric: &Value) -> Value {
    let mut converted = parse_metric(Half::Spec, metric);
    for (source, _) in SOURCES {
        let Some(Value::Object(spec)) = converted.get_mut(source) else {
            continue;
        };
        let target = spec.entry("target").or_insert_with(|| json!({}));
        let has = |name: &str| target.get(name).is_some();
        let target_type = match source {
            "object" if !has("averageValue") => "Value",
            "external" if has("value") => "Value",
            "resource" | "containerResource" if has("averageUtilization") => "Utilization",
            _ => "AverageValue",
        };
        // v1 can't omit the value of an object, and v2 does not allow a zero beside an average.
        if source == "object"
            && target_type == "AverageValue"
            && get(target, "value") == "0"
            && let Some(target) = target.as_object_mut()
        {
            target.remove("value");
        }
        target["type"] = target_type.into();
    }
    converted
}

/// Names of the behavior's members, which Go writes with a capital letter and reads in any case.
const BEHAVIOR_NAMES: [&str; 9] = [
    "scaleUp",
    "scaleDown",
    "stabilizationWindowSeconds",
    "selectPolicy",
    "policies",
    "tolerance",
    "type",
    "value",
    "periodSeconds",
];

fn decode_behavior(text: &str) -> Option<Value> {
    let tree = rename_members(serde_json::from_str(text).ok()?);
    let message = find_message("v2.HorizontalPodAutoscalerBehavior")?;
    let (behavior, _) = codec::check(message, tree).ok()?;
    let is_empty = behavior.as_object()?.is_empty();
    (!is_empty).then_some(behavior)
}

// serde_json limits the nesting of the text.
fn rename_members(tree: Value) -> Value {
    match tree {
        Value::Object(map) => {
            let rename = |(name, value): (String, Value)| {
                let mut names = BEHAVIOR_NAMES.iter();
                let known = names.find(|known| known.eq_ignore_ascii_case(&name));
                let name = known.map_or(name, |known| (*known).to_owned());
                (name, rename_members(value))
            };
            Value::Object(map.into_iter().map(rename).collect())
        }
        Value::Array(list) => list.into_iter().map(rename_members).collect(),
        other => other,
    }
}

fn encode_behavior(behavior: &Value) -> String {
    let (up, down) = (get(behavior, "scaleUp"), get(behavior, "scaleDown"));
    let (up, down) = (encode_rules(up), encode_rules(down));
    format!(r#"{{"ScaleUp":{up},"ScaleDown":{down}}}"#)
}

/// Encodes scaling rules in the order of Go's type, with nulls.
fn encode_rules(rules: &Value) -> String {
    if !rules.is_object() {
        return "null".to_owned();
    }
    let policy = |policy: &Value| {
        format!(
            r#"{{"Type":{},"Value":{},"PeriodSeconds":{}}}"#,
            get(policy, "type"),
            get(policy, "value"),
            get(policy, "periodSeconds")
        )
    };
    let policies = match get(rules, "policies") {
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(policy).collect();
            format!("[{}]", all.join(","))
        }
        _ => "null".to_owned(),
    };
    let (window, select) = (
        get(rules, "stabilizationWindowSeconds"),
        get(rules, "selectPolicy"),
    );
    let tolerance = get(rules, "tolerance");
    format!(r#"{{"StabilizationWindowSeconds":{window},"SelectPolicy":{select},"#)
        + &format!(r#""Policies":{policies},"Tolerance":{tolerance}}}"#)
}

fn find_message(type_name: &str) -> Option<&'static Message> {
    api_schema::schema().message(&format!("k8s.io.api.autoscaling.{type_name}"))
}

/// Decodes a list of a type; `None` if the text is of another one.
fn decode_list(type_name: &str, text: &str) -> Option<Vec<Value>> {
    let message = find_message(type_name)?;
    let list: Option<Vec<Value>> = serde_json::from_str(text).ok()?;
    let check = |element: Value| {
        let (checked, _) = codec::check(message, element).ok()?;
        checked.is_object().then_some(checked)
    };
    list.unwrap_or_default().into_iter().map(check).collect()
}

/// Sets an annotation to a list of a type, unless the list is empty.
fn set_annotation(map: &mut Map<String, Value>, name: &str, type_name: &str, list: &[Value]) {
    let Some(message) = find_message(type_name).filter(|_| !list.is_empty()) else {
        return;
    };
    let mut text = Vec::new();
    for element in list {
        text.push(if text.is_empty() { b'[' } else { b',' });
        codec::encode_to(message, element, &mut text);
    }
    text.push(b']');
    put_annotation(map, name, String::from_utf8_lossy(&text).into_owned());
}

fn put_annotation(map: &mut Map<String, Value>, name: &str, text: String) {
    if let Value::Object(metadata) = map.entry("metadata").or_insert_with(|| json!({})) {
        put_nested(metadata, "annotations", name, text.into());
    }
}

/// Removes the annotations of conversions and returns them.
fn take_annotations(map: &mut Map<String, Value>) -> Map<String, Value> {
    let mut taken = Map::new();
    let Some(Value::Object(metadata)) = map.get_mut("metadata") else {
        return taken;
    };
    let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
        return taken;
    };
    for name in ANNOTATIONS {
        taken.extend(annotations.remove_entry(name));
    }
    // An empty map is not written, so the object is equal to the one before the conversion.
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    taken
}

fn take_nested(map: &mut Map<String, Value>, outer: &str, name: &str) -> Option<Value> {
    map.get_mut(outer)?.as_object_mut()?.remove(name)
}

fn take_list(map: &mut Map<String, Value>, outer: &str, name: &str) -> Vec<Value> {
    match take_nested(map, outer, name) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn put_nested(map: &mut Map<String, Value>, outer: &str, name: &str, value: Value) {
    if let Value::Object(inner) = map.entry(outer).or_insert_with(|| json!({})) {
        inner.insert(name.to_owned(), value);
    }
}

fn put_list(map: &mut Map<String, Value>, outer: &str, name: &str, list: Vec<Value>) {
    if !list.is_empty() {
        put_nested(map, outer, name, list.into());
    }
}

#[cfg(test)]
mod tests;
