//! `PodSpec`.

use super::context::{PodContext, uses_host_users};
use super::options::PodOptions;
use super::{
    affinity, claims, container, dns, environment, pod_resources, resources, scheduling, security,
    system, volume, windows,
};
use crate::field::{Errors, Path};
use crate::metadata;
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, text};
use serde_json::Value;

const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
const PREEMPTION: [&str; 2] = ["PreemptLowerPriority", "Never"];

/// Validates the spec of a pod or template. `metadata` is that of a pod, and absent for a template,
/// whose pods do not have their names yet.
pub fn validate_pod_spec(
    spec: &Value,
    metadata: Option<&Value>,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !has(spec, "terminationGracePeriodSeconds") {
        errors.required(&path.child("terminationGracePeriodSeconds"), "");
    }
    // Volumes come first: containers refer to them by name.
    let at = path.child("volumes");
    let volumes = volume::validate_volumes(spec, metadata, options, &at, errors);
    let context = PodContext::new(spec, volumes, options);
    claims::validate_pod_claims(spec, metadata, &path.child("resourceClaims"), errors);
    container::validate_containers(spec, &context, path, errors);
    pod_resources::validate_pod_resources(spec, &context, path, errors);
    validate_host_network_ports(spec, options, &path.child("containers"), errors);
    rules::validate_required_one_of(spec, "restartPolicy", &RESTART, path, errors);
    rules::validate_required_one_of(spec, "dnsPolicy", &DNS, path, errors);
    metadata::validate_labels(spec, "nodeSelector", path, errors);
    security::validate_pod_security_context(spec, options, path, errors);
    if has(spec, "affinity") {
        let at = path.child("affinity");
        affinity::validate_affinity(get(spec, "affinity"), options, &at, errors);
    }
    dns::validate_dns_config(spec, &path.child("dnsConfig"), errors);
    validate_scheduling(spec, options, path, errors);
    windows::validate_host_process(spec, path, errors);
    validate_host_users(spec, options, path, errors);
    dns::validate_host_name(spec, path, errors);
    validate_names(spec, path, errors);
    dns::validate_host_aliases(spec, &path.child("hostAliases"), errors);
    resources::validate_overhead(spec, options, &path.child("overhead"), errors);
    system::validate_operating_system(spec, path, errors);
    validate_scheduling_group(spec, &path.child("schedulingGroup"), errors);
    environment::validate_file_key_volumes(spec, path, errors);
}

fn validate_scheduling(spec: &Value, options: &PodOptions, path: &Path<'_>, errors: &mut Errors) {
    scheduling::validate_readiness_gates(spec, &path.child("readinessGates"), errors);
    scheduling::validate_scheduling_gates(spec, &path.child("schedulingGates"), errors);
    let at = path.child("topologySpreadConstraints");
    scheduling::validate_spread_constraints(spec, options, &at, errors);
    scheduling::validate_pod_tolerations(spec, options, path, errors);
    if let Some(policy) = opt_text(spec, "preemptionPolicy") {
        let at = path.child("preemptionPolicy");
        match policy {
            "" => errors.required(&at, ""),
            other if !PREEMPTION.contains(&other) => {
                errors.not_supported(&at, other, &PREEMPTION);
            }
            _ => {}
        }
    }
}

/// Validates names of referenced objects, which need not exist yet: the kubelet and the scheduler
/// wait for them.
fn validate_names(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.invalid_each(&path.child(field), name, names::dns1123_subdomain(name));
        }
    }
    if let Some(name) = opt_text(spec, "runtimeClassName") {
        let at = path.child("runtimeClassName");
        errors.invalid_each(&at, name, names::dns1123_subdomain(name));
    }
    let deadline = int(spec, "activeDeadlineSeconds");
    if let Some(seconds) = deadline.filter(|n| !(1..=i64::from(i32::MAX)).contains(n)) {
        let detail = "must be between 1 and 2147483647, inclusive";
        errors.invalid(&path.child("activeDeadlineSeconds"), seconds, detail);
    }
    // Both become one label of the pod's DNS name (`hostname.subdomain.namespace.svc`), so dots are
    // not allowed as they are in `hostnameOverride`.
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.invalid_each(&path.child(field), name, names::dns1123_label(name));
        }
    }
}

/// Checks the ports of a pod in the host's network.
fn validate_host_network_ports(
    spec: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !api_meta::tree::flag(spec, "hostNetwork") {
        return;
    }
    for (i, container) in list(spec, "containers").iter().enumerate() {
        let at = path.index(i);
        let at = at.child("ports");
        for (j, port) in list(container, "ports").iter().enumerate() {
            let host = int(port, "hostPort").unwrap_or(0);
            // In the host's network the container listens on the host's port itself: nothing could
            // translate another number. A template may omit it, because a pod's is defaulted.
            if (options.is_pod || host != 0) && host != int(port, "containerPort").unwrap_or(0) {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&at.index(j).child("hostPort"), host, detail);
            }
        }
    }
}

/// Checks what a pod with a user namespace may not have.
fn validate_host_users(spec: &Value, options: &PodOptions, path: &Path<'_>, errors: &mut Errors) {
    if uses_host_users(spec) {
        return;
    }
    // The kernel lets a user namespace use only namespaces that it owns. Host namespaces belong to
    // the initial one (KEP-127). The capital letters are upstream's.
    const DETAIL: &str = "when `hostUsers` is false";
    let fields = [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ];
    for (field, shown) in fields {
        let is_tolerated = field == "hostNetwork" && options.user_namespace_in_host_network;
        if api_meta::tree::flag(spec, field) && !is_tolerated {
            errors.forbidden(&path.child(shown), DETAIL);
        }
    }
    // Block devices can't be mounted with other ids, so the container could not open them.
    if !options.user_namespace_with_devices {
        super::context::visit_containers(spec, path, &mut |container, at| {
            if !list(container, "volumeDevices").is_empty() {
                errors.forbidden(&at.child("volumeDevices"), DETAIL);
            }
        });
    }
}

fn validate_scheduling_group(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "schedulingGroup") {
        return;
    }
    let at = path.child("podGroupName");
    match opt_text(get(spec, "schedulingGroup"), "podGroupName") {
        None => errors.invalid(&at, Value::Null, "must specify one of: `podGroupName`"),
        Some(name) => errors.invalid_each(&at, name, names::dns1123_subdomain(name)),
    }
}
