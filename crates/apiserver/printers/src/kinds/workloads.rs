//! Deployments, sets, jobs.

use super::Row;
use crate::cells::*;
use crate::table::{AGE, NAME, boolean, integer, text, wide};
use api_meta::meta::{at, str_at};
use api_meta::time::{human_duration, parse};
use jiff::Timestamp;
use serde_json::Value;

pub(super) const ROWS: &[Row] = &[
    (
        "apps",
        "deployments",
        &[
            NAME,
            text("Ready", ready_of_wanted),
            text("Up-to-date", |o, _| Value::from(number(o, &["status", "updatedReplicas"]))),
            text("Available", |o, _| Value::from(number(o, &["status", "availableReplicas"]))),
            AGE,
            wide("Containers", containers),
            wide("Images", images),
            wide("Selector", selector),
        ],
    ),
    (
        "apps",
        "replicasets",
        &[
            NAME,
            integer("Desired", |o, _| Value::from(number(o, &["spec", "replicas"]))),
            integer("Current", |o, _| Value::from(number(o, &["status", "replicas"]))),
            integer("Ready", |o, _| Value::from(number(o, &["status", "readyReplicas"]))),
            AGE,
            wide("Containers", containers),
            wide("Images", images),
            wide("Selector", selector),
        ],
    ),
    (
        "apps",
        "statefulsets",
        &[NAME, text("Ready", ready_of_wanted), AGE, wide("Containers", containers), wide("Images", images)],
    ),
    (
        "apps",
        "daemonsets",
        &[
            NAME,
            integer("Desired", |o, _| Value::from(number(o, &["status", "desiredNumberScheduled"]))),
            integer("Current", |o, _| Value::from(number(o, &["status", "currentNumberScheduled"]))),
            integer("Ready", |o, _| Value::from(number(o, &["status", "numberReady"]))),
            integer("Up-to-date", |o, _| Value::from(number(o, &["status", "updatedNumberScheduled"]))),
            integer("Available", |o, _| Value::from(number(o, &["status", "numberAvailable"]))),
            text("Node Selector", |o, _| map_labels(o, &["spec", "template", "spec", "nodeSelector"])),
            AGE,
            wide("Containers", containers),
            wide("Images", images),
            wide("Selector", selector),
        ],
    ),
    (
        "apps",
        "controllerrevisions",
        &[NAME, text("Controller", controller), text("Revision", |o, _| Value::from(number(o, &["revision"]))), AGE],
    ),
    (
        "batch",
        "jobs",
        &[
            NAME,
            text("Status", job_status),
            text("Completions", completions),
            text("Duration", duration),
            AGE,
            wide("Containers", containers),
            wide("Images", images),
            wide("Selector", selector),
        ],
    ),
    (
        "batch",
        "cronjobs",
        &[
            NAME,
            text("Schedule", |o, _| Value::from(str_at(o, &["spec", "schedule"]))),
            text("Timezone", |o, _| or(str_at(o, &["spec", "timeZone"]), "<none>")),
            boolean("Suspend", |o, _| Value::from(if truth(o, &["spec", "suspend"]) { "True" } else { "False" })),
            integer("Active", |o, _| Value::from(items(o, &["status", "active"]).len())),
            text("Last Schedule", |o, now| match str_at(o, &["status", "lastScheduleTime"]) {
                "" => Value::from("<none>"),
                time => since(time, now),
            }),
            AGE,
            wide("Containers", |o, _| each(o, CRON_CONTAINERS, &["name"], "")),
            wide("Images", |o, _| each(o, CRON_CONTAINERS, &["image"], "")),
            wide("Selector", |o, _| selector_at(o, &["spec", "jobTemplate", "spec", "selector"])),
        ],
    ),
    (
        "autoscaling",
        "horizontalpodautoscalers",
        &[
            NAME,
            text("Reference", |o, _| {
                let target = |field| str_at(o, &["spec", "scaleTargetRef", field]);
                Value::from(format!("{}/{}", target("kind"), target("name")))
            }),
            text("Targets", targets),
            text("MinPods", |o, _| Value::from(shown(at(o, &["spec", "minReplicas"]), "<unset>"))),
            text("MaxPods", |o, _| Value::from(number(o, &["spec", "maxReplicas"]))),
            text("Replicas", |o, _| Value::from(number(o, &["status", "currentReplicas"]))),
            AGE,
        ],
    ),
];

const CRON_CONTAINERS: &[&str] = &["spec", "jobTemplate", "spec", "template", "spec", "containers"];

fn ready_of_wanted(o: &Value, _: Timestamp) -> Value {
    Value::from(format!("{}/{}", number(o, &["status", "readyReplicas"]), number(o, &["spec", "replicas"])))
}

fn controller(o: &Value, _: Timestamp) -> Value {
    let owner = items(o, &["metadata", "ownerReferences"]).iter().find(|r| truth(r, &["controller"]));
    let Some(owner) = owner else { return Value::from("<none>") };
    let group = str_at(owner, &["apiVersion"]).split_once('/').map(|(group, _)| group);
    let kind = str_at(owner, &["kind"]).to_lowercase();
    let kind = group.map_or(kind.clone(), |group| format!("{kind}.{group}"));
    Value::from(format!("{kind}/{}", str_at(owner, &["name"])))
}

fn holds(job: &Value, condition: &str) -> bool {
    let is = |c: &Value| str_at(c, &["type"]) == condition && str_at(c, &["status"]) == "True";
    items(job, &["status", "conditions"]).iter().any(is)
}

fn job_status(job: &Value, _: Timestamp) -> Value {
    let deleted = at(job, &["metadata", "deletionTimestamp"]).is_some();
    let words = [("Complete", "Complete"), ("Failed", "Failed")];
    if let Some((_, word)) = words.iter().find(|(condition, _)| holds(job, condition)) {
        return Value::from(*word);
    }
    Value::from(match () {
        () if deleted => "Terminating",
        () if holds(job, "Suspended") => "Suspended",
        () if holds(job, "FailureTarget") => "FailureTarget",
        () if holds(job, "SuccessCriteriaMet") => "SuccessCriteriaMet",
        () => "Running",
    })
}

fn completions(job: &Value, _: Timestamp) -> Value {
    let succeeded = number(job, &["status", "succeeded"]);
    Value::from(match at(job, &["spec", "completions"]).and_then(Value::as_i64) {
        Some(wanted) => format!("{succeeded}/{wanted}"),
        None => match number(job, &["spec", "parallelism"]) {
            parallel if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
            _ => format!("{succeeded}/1"),
        },
    })
}

fn duration(job: &Value, now: Timestamp) -> Value {
    let Some(start) = parse(str_at(job, &["status", "startTime"])) else { return Value::from("") };
    let end = parse(str_at(job, &["status", "completionTime"])).unwrap_or(now);
    Value::from(human_duration(end.as_second() - start.as_second()))
}

/// `cpu: 10%/80%` for each metric of either version; at most two are shown.
fn targets(hpa: &Value, _: Timestamp) -> Value {
    let mut texts: Vec<String> = items(hpa, &["spec", "metrics"]).iter().map(|m| target(hpa, m)).collect();
    if let Some(wanted) = at(hpa, &["spec", "targetCPUUtilizationPercentage"]) {
        let current = at(hpa, &["status", "currentCPUUtilizationPercentage"]);
        let current = current.map_or("<unknown>".to_owned(), |c| format!("{c}%"));
        texts.push(format!("cpu: {current}/{wanted}%"));
    }
    Value::from(match texts.len() {
        0 => "<none>".to_owned(),
        1 | 2 => texts.join(", "),
        n => format!("{}, {} + {} more...", texts[0], texts[1], n - 2),
    })
}

fn target(hpa: &Value, metric: &Value) -> String {
    let kind = str_at(metric, &["type"]);
    let section = match kind {
        "ContainerResource" => "containerResource",
        "Resource" => "resource",
        "Pods" => "pods",
        "Object" => "object",
        _ => "external",
    };
    let part = metric.get(section).unwrap_or(&Value::Null);
    let name = match str_at(part, &["name"]) {
        "" => str_at(part, &["metric", "name"]),
        name => name,
    };
    let same = |m: &&Value| {
        let other = m.get(section).unwrap_or(&Value::Null);
        str_at(m, &["type"]) == kind && (str_at(other, &["name"]) == name || str_at(other, &["metric", "name"]) == name)
    };
    let current =
        items(hpa, &["status", "currentMetrics"]).iter().find(same).and_then(|m| at(m, &[section, "current"]));
    let value = |v: Option<&Value>, field: &str, unit: &str| {
        let found = v.and_then(|v| v.get(field));
        found.map(|f| format!("{}{unit}", shown(Some(f), "")))
    };
    let (field, unit) = match str_at(part, &["target", "type"]) {
        "Utilization" => ("averageUtilization", "%"),
        "AverageValue" => ("averageValue", ""),
        _ => ("value", ""),
    };
    let now = value(current, field, unit).unwrap_or_else(|| "<unknown>".into());
    let wanted = value(part.get("target"), field, unit).unwrap_or_else(|| "<auto>".into());
    let average = if field == "averageValue" && section != "resource" { " (avg)" } else { "" };
    match section {
        "resource" | "containerResource" => format!("{name}: {now}/{wanted}{average}"),
        _ => format!("{now}/{wanted}{average}"),
    }
}
