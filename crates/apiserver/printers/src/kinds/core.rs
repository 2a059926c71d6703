//! Pods, nodes, namespaces, events and what else lives in the core group.

use super::Row;
use crate::cells::*;
use crate::pods;
use crate::table::{AGE, Cell, NAME, integer, text, wide};
use api_meta::Meta;
use api_meta::meta::{at, str_at};
use jiff::Timestamp;
use serde_json::{Map, Value};

const EVENT: &[Cell] = &[
    text("Last Seen", last_seen),
    text("Type", |o, _| Value::from(str_at(o, &["type"]))),
    text("Reason", |o, _| Value::from(str_at(o, &["reason"]))),
    text("Object", involved),
    wide("Subobject", |o, _| Value::from(str_at(about(o), &["fieldPath"]))),
    wide("Source", source),
    text("Message", message),
    wide("First Seen", first_seen),
    Cell { heading: "Count", ty: "string", priority: 1, value: count },
    Cell { heading: "Name", ty: "string", priority: 1, value: name },
];

pub(super) const ROWS: &[Row] = &[
    (
        "",
        "pods",
        &[
            NAME,
            text("Ready", pods::ready),
            text("Status", pods::status),
            text("Restarts", pods::restarts),
            text("Age", pods::age),
            wide("IP", pods::ip),
            wide("Node", pods::node),
            wide("Nominated Node", pods::nominated),
            wide("Readiness Gates", pods::gates),
        ],
    ),
    (
        "",
        "podtemplates",
        &[
            NAME,
            text("Containers", |o, _| each(o, &["template", "spec", "containers"], &["name"], "")),
            text("Images", |o, _| each(o, &["template", "spec", "containers"], &["image"], "")),
            text("Pod Labels", |o, _| map_labels(o, &["template", "metadata", "labels"])),
        ],
    ),
    (
        "",
        "nodes",
        &[
            NAME,
            text("Status", node_status),
            text("Roles", node_roles),
            AGE,
            text("Version", |o, _| Value::from(str_at(o, &["status", "nodeInfo", "kubeletVersion"]))),
            wide("Internal-IP", |o, _| node_address(o, "InternalIP")),
            wide("External-IP", |o, _| node_address(o, "ExternalIP")),
            wide("OS-Image", |o, _| or(str_at(o, &["status", "nodeInfo", "osImage"]), "<unknown>")),
            wide("Kernel-Version", |o, _| or(str_at(o, &["status", "nodeInfo", "kernelVersion"]), "<unknown>")),
            wide("Container-Runtime", |o, _| {
                or(str_at(o, &["status", "nodeInfo", "containerRuntimeVersion"]), "<unknown>")
            }),
        ],
    ),
    ("", "namespaces", &[NAME, text("Status", |o, _| Value::from(str_at(o, &["status", "phase"]))), AGE]),
    ("", "configmaps", &[NAME, text("Data", data_count), AGE]),
    ("", "secrets", &[NAME, text("Type", |o, _| Value::from(str_at(o, &["type"]))), text("Data", data_count), AGE]),
    ("", "serviceaccounts", &[NAME, AGE]),
    ("", "events", EVENT),
    ("events.k8s.io", "events", EVENT),
    (
        "",
        "replicationcontrollers",
        &[
            NAME,
            integer("Desired", |o, _| Value::from(number(o, &["spec", "replicas"]))),
            integer("Current", |o, _| Value::from(number(o, &["status", "replicas"]))),
            integer("Ready", |o, _| Value::from(number(o, &["status", "readyReplicas"]))),
            AGE,
            wide("Containers", containers),
            wide("Images", images),
            wide("Selector", |o, _| map_labels(o, &["spec", "selector"])),
        ],
    ),
    ("", "resourcequotas", &[NAME, text("Request", |o, _| quota(o, false)), text("Limit", |o, _| quota(o, true)), AGE]),
    (
        "",
        "componentstatuses",
        &[
            NAME,
            text("Status", |o, _| {
                let healthy = items(o, &["conditions"]).iter().any(|c| str_at(c, &["status"]) == "True");
                Value::from(if healthy { "Healthy" } else { "Unhealthy" })
            }),
            text("Message", |o, _| each(o, &["conditions"], &["message"], "")),
            text("Error", |o, _| each(o, &["conditions"], &["error"], "")),
        ],
    ),
];

fn node_status(node: &Value, _: Timestamp) -> Value {
    let conditions = items(node, &["status", "conditions"]);
    let ready = conditions.iter().find(|c| str_at(c, &["type"]) == "Ready").map(|c| str_at(c, &["status"]));
    let mut text = match ready {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if truth(node, &["spec", "unschedulable"]) {
        text.push_str(",SchedulingDisabled");
    }
    Value::from(text)
}

fn node_roles(node: &Value, _: Timestamp) -> Value {
    let labels = node.labels().into_iter().flatten();
    let roles = labels.filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role).filter(|r| !r.is_empty()),
        None if key == "kubernetes.io/role" => value.as_str().filter(|r| !r.is_empty()),
        None => None,
    });
    joined(roles, "<none>")
}

fn node_address(node: &Value, kind: &str) -> Value {
    let addresses = items(node, &["status", "addresses"]);
    let found = addresses.iter().find(|a| str_at(a, &["type"]) == kind).map(|a| str_at(a, &["address"]));
    or(found.unwrap_or_default(), "<none>")
}

/// `regarding` in events.k8s.io, `involvedObject` in core.
fn about(event: &Value) -> &Value {
    event.get("regarding").or_else(|| event.get("involvedObject")).unwrap_or(&Value::Null)
}

fn either<'a>(event: &'a Value, new: &[&str], old: &[&str]) -> &'a str {
    let first = str_at(event, new);
    if first.is_empty() { str_at(event, old) } else { first }
}

fn involved(event: &Value, _: Timestamp) -> Value {
    let kind = str_at(about(event), &["kind"]).to_lowercase();
    let name = str_at(about(event), &["name"]);
    Value::from(if name.is_empty() { kind } else { format!("{kind}/{name}") })
}

fn message(event: &Value, _: Timestamp) -> Value {
    Value::from(either(event, &["note"], &["message"]).trim())
}

fn source(event: &Value, _: Timestamp) -> Value {
    let component = either(event, &["reportingController"], &["reportingComponent"]);
    let instance = str_at(event, &["reportingInstance"]);
    let (old, host) = match event.get("source").or_else(|| event.get("deprecatedSource")) {
        Some(source) => (str_at(source, &["component"]), str_at(source, &["host"])),
        None => ("", ""),
    };
    let (component, place) = if old.is_empty() { (component, instance) } else { (old, host) };
    Value::from(if place.is_empty() { component.to_owned() } else { format!("{component}, {place}") })
}

fn event_count(event: &Value) -> i64 {
    let series = number(event, &["series", "count"]);
    let counted = number(event, &["count"]).max(number(event, &["deprecatedCount"]));
    if series > 0 { series } else { counted.max(1) }
}

fn count(event: &Value, _: Timestamp) -> Value {
    Value::from(event_count(event))
}

fn first_time(event: &Value) -> &str {
    let first = either(event, &["deprecatedFirstTimestamp"], &["firstTimestamp"]);
    if first.is_empty() { str_at(event, &["eventTime"]) } else { first }
}

fn first_seen(event: &Value, now: Timestamp) -> Value {
    since(first_time(event), now)
}

fn last_seen(event: &Value, now: Timestamp) -> Value {
    let series = str_at(event, &["series", "lastObservedTime"]);
    let old = either(event, &["deprecatedLastTimestamp"], &["lastTimestamp"]);
    let last = [series, old].into_iter().find(|t| !t.is_empty()).unwrap_or_else(|| first_time(event));
    let interval = since(last, now);
    if event_count(event) > 1 && event.get("series").is_some() {
        let text = format!(
            "{} (x{} over {})",
            shown(Some(&interval), ""),
            event_count(event),
            shown(Some(&first_seen(event, now)), "")
        );
        return Value::from(text);
    }
    interval
}

fn quota(quota: &Value, limits: bool) -> Value {
    let empty = Map::new();
    let hard = at(quota, &["status", "hard"]).and_then(Value::as_object).unwrap_or(&empty);
    let used = |key: &str| shown(at(quota, &["status", "used"]).and_then(|u| u.get(key)), "0");
    let chosen = hard.iter().filter(|(key, _)| key.starts_with("limits.") == limits);
    let texts: Vec<String> = chosen.map(|(key, v)| format!("{key}: {}/{}", used(key), shown(Some(v), ""))).collect();
    Value::from(texts.join(", "))
}
