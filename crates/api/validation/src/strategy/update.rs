//! Strategies for changed objects.

use super::create::template_generation;
use super::{Generation, Status, generation, status};
use crate::dispatch::Kind;
use crate::tree::{each_mut, equal, fill, get, has, int, list, make, remove, same, set, text};
use serde_json::Value;

/// Implements `prepare_update`.
pub fn prepare(kind: Kind<'_>, subresource: &str, new: &mut Value, old: &Value) {
    match (kind.group, kind.kind, subresource) {
        (_, _, "status") => of_status(kind, new, old),
        ("certificates.k8s.io", _, "approval") => approval(new, old),
        ("", "Namespace", "finalize") => keep(new, old, "status"),
        ("", "Pod", "ephemeralcontainers") => only_ephemeral_containers(new, old),
        ("", "Pod", "resize") => only_resources(new, old),
        _ => of_object(kind, new, old),
    }
    count_generation(kind, subresource, new, old);
}

fn keep(new: &mut Value, old: &Value, field: &str) {
    match old.get(field) {
        Some(value) => set(new, field, value.clone()),
        None => {
            remove(new, field);
        }
    }
}

fn of_object(kind: Kind<'_>, new: &mut Value, old: &Value) {
    if status(kind) != Status::Open {
        keep(new, old, "status");
    }
    match (kind.group, kind.kind) {
        ("", "Namespace") => {
            let finalizers = get(get(old, "spec"), "finalizers").clone();
            if let Some(spec) = make(new, "spec") {
                set(spec, "finalizers", finalizers);
            }
        }
        ("", "Secret") if text(new, "type").is_empty() => keep(new, old, "type"),
        ("", "Service") => service(new, old),
        ("apps", "DaemonSet") => daemon_set(new, old),
        ("certificates.k8s.io", "CertificateSigningRequest") => keep(new, old, "spec"),
        _ => {}
    }
}

fn of_status(kind: Kind<'_>, new: &mut Value, old: &Value) {
    let written = new.get("status").cloned();
    let metadata = new.get("metadata").cloned();
    let mut result = old.clone();
    match written {
        Some(status) => set(&mut result, "status", status),
        None => {
            remove(&mut result, "status");
        }
    }
    if status(kind) != Status::Alone
        && let Some(metadata) = metadata
    {
        set(&mut result, "metadata", metadata);
    }
    match (kind.group, kind.kind) {
        ("", "PersistentVolume") => phase_change(&mut result, old),
        ("apps", "Deployment") => keep_metadata(&mut result, old, "labels"),
        ("", "Pod") => {
            keep_metadata(&mut result, old, "ownerReferences");
            let class = get(get(old, "status"), "qosClass").clone();
            if let Some(status) = make(&mut result, "status")
                && !class.is_null()
            {
                fill(status, "qosClass", class);
            }
        }
        ("certificates.k8s.io", _) => {
            keep_decisions(&mut result, old);
            condition_times(&mut result, old);
        }
        _ => {}
    }
    *new = result;
}

/// Resets a field of the metadata for status writes of some kinds, because old clients send it
/// incompletely.
fn keep_metadata(new: &mut Value, old: &Value, field: &str) {
    if let Some(metadata) = make(new, "metadata") {
        keep(metadata, get(old, "metadata"), field);
    }
}

/// Sets the time of a volume's last phase change, unless the writer has set it.
fn phase_change(new: &mut Value, old: &Value) {
    let (after, before) = (get(new, "status"), get(old, "status"));
    let moved = text(after, "phase") != text(before, "phase");
    let said = text(after, "lastPhaseTransitionTime");
    if moved && (said.is_empty() || said == text(before, "lastPhaseTransitionTime")) {
        let now = api_meta::time::now();
        if let Some(status) = make(new, "status") {
            set(status, "lastPhaseTransitionTime", now);
        }
    }
}

fn is_decision(condition: &Value) -> bool {
    matches!(text(condition, "type"), "Approved" | "Denied")
}

/// Resets Approved and Denied, which are only written by `approval`.
fn keep_decisions(new: &mut Value, old: &Value) {
    let before = list(get(old, "status"), "conditions")
        .iter()
        .filter(|c| is_decision(c))
        .cloned();
    let after = list(get(new, "status"), "conditions")
        .iter()
        .filter(|c| !is_decision(c))
        .cloned();
    let all: Vec<Value> = before.chain(after).collect();
    if let Some(status) = make(new, "status")
        && (!all.is_empty() || has(status, "conditions"))
    {
        set(status, "conditions", all);
    }
}

fn approval(new: &mut Value, old: &Value) {
    let conditions = get(get(new, "status"), "conditions").clone();
    let metadata = new.get("metadata").cloned();
    let mut result = old.clone();
    if let Some(metadata) = metadata {
        set(&mut result, "metadata", metadata);
    }
    if let Some(status) = make(&mut result, "status") {
        match conditions.is_null() {
            true => drop(remove(status, "conditions")),
            false => set(status, "conditions", conditions),
        }
    }
    condition_times(&mut result, old);
    *new = result;
}

/// Sets the times of conditions that the writer omitted.
fn condition_times(new: &mut Value, old: &Value) {
    let before = list(get(old, "status"), "conditions").to_vec();
    let now = api_meta::time::now();
    let Some(status) = make(new, "status") else {
        return;
    };
    for condition in each_mut(status, "conditions") {
        let same = before
            .iter()
            .find(|c| {
                text(c, "type") == text(condition, "type")
                    && text(c, "status") == text(condition, "status")
            })
            .map(|c| text(c, "lastTransitionTime").to_owned());
        fill(condition, "lastUpdateTime", now.as_str());
        fill(
            condition,
            "lastTransitionTime",
            same.filter(|t| !t.is_empty())
                .unwrap_or_else(|| now.clone()),
        );
    }
}

fn only_ephemeral_containers(new: &mut Value, old: &Value) {
    let containers = get(get(new, "spec"), "ephemeralContainers").clone();
    *new = old.clone();
    if let Some(spec) = make(new, "spec") {
        set(spec, "ephemeralContainers", containers);
    }
}

fn only_resources(new: &mut Value, old: &Value) {
    let mut result = old.clone();
    for field in ["containers", "initContainers"] {
        let wanted: Vec<(String, Value, Value)> = list(get(new, "spec"), field)
            .iter()
            .map(|c| {
                (
                    text(c, "name").to_owned(),
                    get(c, "resources").clone(),
                    get(c, "resizePolicy").clone(),
                )
            })
            .collect();
        let Some(spec) = make(&mut result, "spec") else {
            continue;
        };
        for container in each_mut(spec, field) {
            let found = wanted
                .iter()
                .find(|(name, _, _)| name == text(container, "name"));
            if let Some((_, resources, policy)) = found {
                set(container, "resources", resources.clone());
                if !policy.is_null() {
                    set(container, "resizePolicy", policy.clone());
                }
            }
        }
    }
    *new = result;
}

/// Keeps a service's allocated addresses if an update omits them.
fn service(new: &mut Value, old: &Value) {
    let before = get(old, "spec").clone();
    let Some(spec) = make(new, "spec") else {
        return;
    };
    let type_ = text(spec, "type").to_owned();
    if type_ == "ExternalName" || text(&before, "type") == "ExternalName" {
        return;
    }
    if text(spec, "clusterIP").is_empty() {
        for field in ["clusterIP", "clusterIPs"] {
            if has(&before, field) {
                fill(spec, field, get(&before, field).clone());
                if text(spec, field).is_empty() && !has(spec, "clusterIPs") {
                    set(spec, field, get(&before, field).clone());
                }
            }
        }
        if text(spec, "clusterIP").is_empty() && has(&before, "clusterIP") {
            set(spec, "clusterIP", get(&before, "clusterIP").clone());
        }
    }
    for field in ["ipFamilies", "ipFamilyPolicy"] {
        if has(&before, field) {
            fill(spec, field, get(&before, field).clone());
        }
    }
    keep_node_ports(spec, &before, &type_);
    if type_ == "LoadBalancer"
        && int(spec, "healthCheckNodePort").unwrap_or(0) == 0
        && has(&before, "healthCheckNodePort")
    {
        set(
            spec,
            "healthCheckNodePort",
            get(&before, "healthCheckNodePort").clone(),
        );
    }
}

fn keep_node_ports(spec: &mut Value, before: &Value, type_: &str) {
    let both = matches!(type_, "NodePort" | "LoadBalancer")
        && matches!(text(before, "type"), "NodePort" | "LoadBalancer");
    if !both {
        return;
    }
    for port in each_mut(spec, "ports").filter(|p| int(p, "nodePort").unwrap_or(0) == 0) {
        let (number, protocol) = (int(port, "port"), text(port, "protocol").to_owned());
        let old = list(before, "ports")
            .iter()
            .find(|p| int(p, "port") == number && text(p, "protocol") == protocol);
        if let Some(node_port) = old.and_then(|p| int(p, "nodePort")).filter(|n| *n != 0) {
            set(port, "nodePort", node_port);
        }
    }
}

fn daemon_set(new: &mut Value, old: &Value) {
    let key = "/metadata/annotations/deprecated.daemonset.template.generation";
    let before = old
        .pointer(key)
        .and_then(Value::as_str)
        .and_then(|t| t.parse::<i64>().ok())
        .unwrap_or(1);
    let changed = !same(get(new, "spec"), get(old, "spec"), "template");
    template_generation(new, before + i64::from(changed));
}

fn count_generation(kind: Kind<'_>, subresource: &str, new: &mut Value, old: &Value) {
    let before = int(get(old, "metadata"), "generation").unwrap_or(0);
    let changed = match generation(kind) {
        Generation::None => return,
        Generation::Fixed => false,
        Generation::Field(field) => !same(new, old, field),
        Generation::Late => !same(new, old, "spec"),
        Generation::Any => !same_but_version(new, old),
    };
    // A Deployment's controller observes its annotations too. The controller's own annotations are
    // written with the status.
    let noted = kind.group == "apps"
        && kind.kind == "Deployment"
        && subresource.is_empty()
        && !same(get(new, "metadata"), get(old, "metadata"), "annotations");
    let changed = changed || noted;
    let deleting = has(get(new, "metadata"), "deletionTimestamp")
        && !has(get(old, "metadata"), "deletionTimestamp");
    let next = before + i64::from(changed || (deleting && kind.kind == "Pod"));
    if next > 0
        && let Some(meta) = make(new, "metadata")
    {
        set(meta, "generation", next);
    }
}

fn same_but_version(new: &Value, old: &Value) -> bool {
    let stripped = |v: &Value| {
        let mut v = v.clone();
        if let Some(meta) = make(&mut v, "metadata") {
            for field in ["resourceVersion", "generation", "managedFields"] {
                remove(meta, field);
            }
        }
        v
    };
    equal(&stripped(new), &stripped(old))
}
