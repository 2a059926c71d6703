//! Tables of cases: a valid object, changed in one place, and the errors that upstream reports.
//!
//! A row is `POINTER JSON & POINTER JSON ... -> ERROR | ERROR ...`, or `-> ok`. The value of each
//! JSON pointer is set in a valid object; `null` removes it. Each error begins with the given text.
//! In tables of updates, sets before `;;` change the old object, which need not be valid. Words
//! that begin with `$` stand for places, so that one table serves pods, all kinds of templates and
//! all kinds of containers.

use super::{Name, build, count_case, kind, merge, validate_new};
use api_defaulting::default_object;
use api_strategy::prepare_update;
use api_validation::{FieldError, validate_update};
use serde_json::{Value, json};

const POD: Name = ("", "Pod");
const JOB: Name = ("batch", "Job");
const CRON_JOB: Name = ("batch", "CronJob");
const STATEFUL_SET: Name = ("apps", "StatefulSet");

/// Words and what they stand for, in pointers and in errors.
type Words<'a> = &'a [(&'a str, &'a str, &'a str)];

struct Row {
    text: String,
    old: Vec<(String, Value)>,
    new: Vec<(String, Value)>,
    errors: Vec<String>,
}

fn parse_sets(text: &str, words: Words<'_>) -> Vec<(String, Value)> {
    text.split(" & ")
        .filter(|part| !part.trim().is_empty())
        .map(|part| {
            let (pointer, value) = part.trim().split_once(' ').unwrap();
            let mut pointer = pointer.to_owned();
            for (word, place, _) in words {
                pointer = pointer.replace(word, place);
            }
            let value = serde_json::from_str(&expand(value));
            (pointer, value.unwrap_or_else(|e| panic!("{part}: {e}")))
        })
        .collect()
}

/// Expands `<a*300>` to 300 times `a`, for values at a limit of length.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('<') {
        let (inner, end) = after.split_once('>').unwrap();
        let (piece, count) = inner.rsplit_once('*').unwrap();
        out.push_str(before);
        out.push_str(&piece.repeat(count.parse().unwrap()));
        rest = end;
    }
    out + rest
}

fn parse_rows(table: &str, words: Words<'_>) -> Vec<Row> {
    table
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| {
            let (sets, errors) = line.split_once(" -> ").unwrap_or_else(|| panic!("{line}"));
            let (old, new) = sets.split_once(";;").unwrap_or(("", sets));
            let errors = errors.split(" | ").filter(|error| *error != "ok");
            let place = |error: &str| {
                let mut error = expand(error.trim());
                for (word, _, shown) in words {
                    error = error.replace(word, shown);
                }
                error
            };
            Row {
                text: line.to_owned(),
                old: parse_sets(old, words),
                new: parse_sets(new, words),
                errors: errors.map(place).collect(),
            }
        })
        .collect()
}

/// Sets the value at a JSON pointer. Missing objects and the next element of a list are added.
fn set_at(target: &mut Value, pointer: &str, value: Value) {
    let (parent, last) = pointer.rsplit_once('/').unwrap();
    let mut at = target;
    for key in parent.split('/').skip(1) {
        let key = key.replace("~1", "/");
        at = match at {
            Value::Array(items) => {
                let index: usize = key.parse().unwrap();
                &mut items[index]
            }
            other => &mut other[key.as_str()],
        };
    }
    let last = last.replace("~1", "/");
    match at {
        Value::Array(items) => {
            let index: usize = last.parse().unwrap();
            match items.get_mut(index) {
                Some(item) => *item = value,
                None => items.push(value),
            }
        }
        other if value.is_null() => drop(other.as_object_mut().map(|map| map.remove(&last))),
        other => other[last.as_str()] = value,
    }
}

fn compare(errors: &[FieldError], row: &Row, name: Name, failures: &mut Vec<String>) {
    count_case(name);
    let mut found: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let all = found.clone();
    let missing: Vec<&String> = row
        .errors
        .iter()
        .filter(|expected| {
            let at = found
                .iter()
                .position(|error| error.starts_with(expected.as_str()));
            at.map(|at| found.remove(at)).is_none()
        })
        .collect();
    if !missing.is_empty() || !found.is_empty() {
        failures.push(format!("{} {}\n  found: {all:#?}", name.1, row.text));
    }
}

fn finish(failures: &[String], rows: usize) {
    assert!(rows > 0, "the table is empty");
    let count = failures.len();
    assert!(
        count == 0,
        "{count} of {rows} rows fail:\n{}",
        failures.join("\n")
    );
}

/// Returns whether a value has a field of a feature that is off. Strategies drop it from new
/// objects, but its rules hold for those that have it already.
fn is_gated(value: &Value) -> bool {
    let text = value.to_string();
    let gated = ["clusterTrustBundle", "podCertificate", "stopSignal"];
    gated
        .iter()
        .any(|field| text.contains(&format!("\"{field}\":")))
}

/// Checks creates of `base` with the changes of each row.
fn check_creates(name: Name, base: &Value, table: &str, words: Words<'_>) {
    let rows = parse_rows(table, words);
    let valid = build(name, base.clone());
    let mut failures = Vec::new();
    for row in &rows {
        let mut fields = base.clone();
        for (pointer, value) in &row.new {
            set_at(&mut fields, pointer, value.clone());
        }
        let mut object = build(name, fields);
        for (pointer, value) in row.new.iter().filter(|(_, value)| is_gated(value)) {
            set_at(&mut object, pointer, value.clone());
            default_object(kind(name), &mut object);
        }
        compare(
            &validate_new(name, Some(&valid), &object),
            row,
            name,
            &mut failures,
        );
    }
    finish(&failures, rows.len());
}

/// Checks updates of the object that a create of `base` makes.
fn check_updates(name: Name, subresource: &str, base: &Value, table: &str, words: Words<'_>) {
    let rows = parse_rows(table, words);
    let mut failures = Vec::new();
    for row in &rows {
        let mut old = build(name, base.clone());
        for (pointer, value) in &row.old {
            set_at(&mut old, pointer, value.clone());
        }
        default_object(kind(name), &mut old);
        let mut new = old.clone();
        for (pointer, value) in &row.new {
            set_at(&mut new, pointer, value.clone());
        }
        default_object(kind(name), &mut new);
        prepare_update(kind(name), subresource, &mut new, &old);
        let errors = validate_update(kind(name), subresource, &new, &old);
        super::ratcheting::check_written(name, subresource, &new, &errors);
        compare(&errors, row, name, &mut failures);
    }
    finish(&failures, rows.len());
}

const IN_POD: Words<'static> = &[
    ("$c", "/spec/containers/0", "spec.containers[0]"),
    ("$i", "/spec/initContainers", "spec.initContainers"),
    ("$v", "/spec/volumes/0", "spec.volumes[0]"),
    ("$s", "/spec", "spec"),
    ("$m", "/metadata", "metadata"),
];
const IN_TEMPLATE: Words<'static> = &[
    (
        "$c",
        "/spec/template/spec/containers/0",
        "spec.template.spec.containers[0]",
    ),
    (
        "$i",
        "/spec/template/spec/initContainers",
        "spec.template.spec.initContainers",
    ),
    (
        "$v",
        "/spec/template/spec/volumes/0",
        "spec.template.spec.volumes[0]",
    ),
    ("$s", "/spec/template/spec", "spec.template.spec"),
    ("$m", "/spec/template/metadata", "spec.template"),
];
const IN_CRON_JOB: Words<'static> = &[
    (
        "$c",
        "/spec/jobTemplate/spec/template/spec/containers/0",
        "spec.jobTemplate.spec.template.spec.containers[0]",
    ),
    (
        "$i",
        "/spec/jobTemplate/spec/template/spec/initContainers",
        "spec.jobTemplate.spec.template.spec.initContainers",
    ),
    (
        "$v",
        "/spec/jobTemplate/spec/template/spec/volumes/0",
        "spec.jobTemplate.spec.template.spec.volumes[0]",
    ),
    (
        "$s",
        "/spec/jobTemplate/spec/template/spec",
        "spec.jobTemplate.spec.template.spec",
    ),
    (
        "$m",
        "/spec/jobTemplate/spec/template/metadata",
        "spec.jobTemplate.spec.template",
    ),
];
const OBJECT: Words<'static> = &[];

fn pod_base() -> Value {
    json!({"metadata": {"labels": {"a": "b"}, "annotations": {}}, "spec": {
        "serviceAccountName": "default",
        "containers": [{"name": "c", "image": "i:1", "volumeMounts": []}],
        "initContainers": [], "volumes": []}})
}

fn template(policy: &str) -> Value {
    let mut template = pod_base();
    template["spec"]["restartPolicy"] = policy.into();
    template
}

fn workload_base() -> Value {
    json!({"metadata": {"annotations": {}},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template("Always")}})
}

fn job_base() -> Value {
    json!({"metadata": {"annotations": {}}, "spec": {"template": template("Never")}})
}

fn cron_job_base() -> Value {
    json!({"metadata": {"annotations": {}},
        "spec": {"schedule": "0 * * * *", "jobTemplate": job_base()}})
}

/// Rows for the spec of pods and of all templates.
const SPEC_TABLES: [&str; 4] = [
    include_str!("tables/pod_spec.txt"),
    include_str!("tables/containers.txt"),
    include_str!("tables/volumes.txt"),
    include_str!("tables/security.txt"),
];

#[test]
fn pods_are_checked_on_create() {
    for table in SPEC_TABLES {
        check_creates(POD, &pod_base(), table, IN_POD);
    }
    let table = include_str!("tables/pod_only.txt");
    check_creates(POD, &pod_base(), table, IN_POD);
}

#[test]
fn templates_of_deployments_and_cron_jobs_are_checked_as_pods() {
    for table in SPEC_TABLES {
        check_creates(("apps", "Deployment"), &workload_base(), table, IN_TEMPLATE);
        check_creates(CRON_JOB, &cron_job_base(), table, IN_CRON_JOB);
    }
}

#[test]
fn init_containers_and_sidecars_are_checked_as_containers() {
    let mut base = pod_base();
    let app = json!({"name": "app", "image": "i:1"});
    let words = [
        ("$c", "/spec/initContainers/0", "spec.initContainers[0]"),
        ("$s", "/spec", "spec"),
        ("$m", "/metadata", "metadata"),
        ("$v", "/spec/volumes/0", "spec.volumes[0]"),
    ];
    base["spec"]["initContainers"] = base["spec"]["containers"].clone();
    base["spec"]["containers"] = json!([app]);
    let table = include_str!("tables/common_containers.txt");
    check_creates(POD, &base, table, &words);
    check_creates(POD, &pod_base(), table, IN_POD);
    base["spec"]["initContainers"][0]["restartPolicy"] = "Always".into();
    check_creates(POD, &base, table, &words);
}

#[test]
fn pods_are_checked_on_update() {
    let table = include_str!("tables/pod_update.txt");
    check_updates(POD, "", &pod_base(), table, IN_POD);
}

#[test]
fn statuses_of_pods_are_checked() {
    let mut base = pod_base();
    merge(
        &mut base,
        json!({"spec": {"restartPolicy": "Never", "resourceClaims":
        [{"name": "r", "resourceClaimName": "claim"}]}}),
    );
    base["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"},
        "claims": [{"name": "r", "request": "q"}, {"name": "r", "request": "p"}]});
    let table = include_str!("tables/pod_status.txt");
    check_updates(POD, "status", &base, table, IN_POD);
}

#[test]
fn resizes_of_pods_are_checked() {
    let mut base = pod_base();
    base["spec"]["containers"][0]["resources"] =
        json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}});
    base["spec"]["initContainers"] = json!([{"name": "i", "image": "i:1",
        "resources": {"requests": {"cpu": "1"}}}]);
    let table = include_str!("tables/pod_resize.txt");
    check_updates(POD, "resize", &base, table, IN_POD);
}

#[test]
fn ephemeral_containers_are_checked() {
    let mut base = pod_base();
    base["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let table = include_str!("tables/ephemeral_containers.txt");
    check_updates(POD, "ephemeralcontainers", &base, table, IN_POD);
}

#[test]
fn workloads_are_checked_on_create() {
    for name in ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"] {
        let table = include_str!("tables/workloads.txt");
        check_creates(("apps", name), &workload_base(), table, IN_TEMPLATE);
    }
    for (name, table) in [
        ("Deployment", include_str!("tables/deployments.txt")),
        ("ReplicaSet", include_str!("tables/replica_sets.txt")),
        ("DaemonSet", include_str!("tables/daemon_sets.txt")),
        ("StatefulSet", include_str!("tables/stateful_sets.txt")),
    ] {
        check_creates(("apps", name), &workload_base(), table, IN_TEMPLATE);
    }
}

#[test]
fn replication_controllers_and_pod_templates_are_checked() {
    let base = json!({"spec": {"selector": {"a": "b"}, "template": template("Always")}});
    let table = include_str!("tables/replication_controllers.txt");
    check_creates(("", "ReplicationController"), &base, table, IN_TEMPLATE);
    let base = json!({"template": template("Always")});
    let table = include_str!("tables/pod_templates.txt");
    check_creates(("", "PodTemplate"), &base, table, OBJECT);
}

#[test]
fn workloads_are_checked_on_update() {
    let table = include_str!("tables/deployment_update.txt");
    for name in ["Deployment", "ReplicaSet", "DaemonSet"] {
        check_updates(("apps", name), "", &workload_base(), table, IN_TEMPLATE);
    }
    let table = include_str!("tables/stateful_set_update.txt");
    check_updates(STATEFUL_SET, "", &workload_base(), table, IN_TEMPLATE);
}

#[test]
fn statuses_of_workloads_are_checked() {
    for (name, table) in [
        ("Deployment", include_str!("tables/deployment_status.txt")),
        ("ReplicaSet", include_str!("tables/replica_set_status.txt")),
        ("DaemonSet", include_str!("tables/daemon_set_status.txt")),
        (
            "StatefulSet",
            include_str!("tables/stateful_set_status.txt"),
        ),
    ] {
        check_updates(("apps", name), "status", &workload_base(), table, OBJECT);
    }
    let base = json!({"spec": {"selector": {"a": "b"}, "template": template("Always")}});
    let table = include_str!("tables/replica_set_status.txt")
        .lines()
        .filter(|line| !line.contains("terminatingReplicas"))
        .collect::<Vec<_>>()
        .join("\n");
    check_updates(
        ("", "ReplicationController"),
        "status",
        &base,
        &table,
        OBJECT,
    );
}

#[test]
fn jobs_are_checked_on_create() {
    check_creates(
        JOB,
        &job_base(),
        include_str!("tables/jobs.txt"),
        IN_TEMPLATE,
    );
    let fields = include_str!("tables/job_fields.txt");
    let in_job = [("$j", "/spec", "spec")];
    check_creates(JOB, &job_base(), fields, &in_job);
    let in_cron_job = [("$j", "/spec/jobTemplate/spec", "spec.jobTemplate.spec")];
    check_creates(CRON_JOB, &cron_job_base(), fields, &in_cron_job);
}

#[test]
fn jobs_are_checked_on_update() {
    let table = include_str!("tables/job_update.txt");
    check_updates(JOB, "", &job_base(), table, IN_TEMPLATE);
}

#[test]
fn statuses_of_jobs_are_checked() {
    let table = include_str!("tables/job_status.txt");
    check_updates(JOB, "status", &job_base(), table, OBJECT);
}

#[test]
fn cron_jobs_are_checked() {
    let table = include_str!("tables/cron_jobs.txt");
    check_creates(CRON_JOB, &cron_job_base(), table, OBJECT);
    let table = include_str!("tables/cron_job_update.txt");
    check_updates(CRON_JOB, "", &cron_job_base(), table, OBJECT);
}

#[test]
fn autoscalers_are_checked() {
    let target = json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
    let base = json!({"spec": {"scaleTargetRef": target, "maxReplicas": 5,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    let name = ("autoscaling", "HorizontalPodAutoscaler");
    check_creates(name, &base, include_str!("tables/autoscalers.txt"), OBJECT);
    check_updates(
        name,
        "",
        &base,
        include_str!("tables/autoscaler_update.txt"),
        OBJECT,
    );
    let table = include_str!("tables/autoscaler_status.txt");
    check_updates(name, "status", &base, table, OBJECT);
}

#[test]
fn disruption_budgets_are_checked() {
    let base = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
    let name = ("policy", "PodDisruptionBudget");
    check_creates(name, &base, include_str!("tables/budgets.txt"), OBJECT);
    check_updates(
        name,
        "",
        &base,
        include_str!("tables/budget_update.txt"),
        OBJECT,
    );
    check_updates(
        name,
        "status",
        &base,
        include_str!("tables/budget_status.txt"),
        OBJECT,
    );
}

#[test]
fn controller_revisions_are_checked() {
    let base = json!({"revision": 1, "data": {"a": "b"}});
    let name = ("apps", "ControllerRevision");
    check_creates(name, &base, include_str!("tables/revisions.txt"), OBJECT);
    check_updates(
        name,
        "",
        &base,
        include_str!("tables/revision_update.txt"),
        OBJECT,
    );
}
