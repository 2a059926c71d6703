//! Containers of the three kinds.

use super::context::{PodContext, is_sidecar};
use super::{environment, probe, resources, restart, security};
use crate::field::{Errors, Path};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, text};
use serde_json::Value;
use std::collections::HashSet;

const PULL: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const WHITE_SPACE: &str = "must not have leading or trailing whitespace";

/// Validates all containers of a spec.
pub fn validate_containers(
    spec: &Value,
    context: &PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // Names are unique over all lists: statuses, logs and metrics are found by name alone.
    let mut names: HashSet<&str> = HashSet::new();
    let at = path.child("containers");
    // Init containers alone would only prepare a pod in which nothing runs.
    if list(spec, "containers").is_empty() {
        errors.required(&at, "");
    }
    validate_app_containers(spec, context, &mut names, &at, errors);
    validate_init_containers(
        spec,
        context,
        &mut names,
        &path.child("initContainers"),
        errors,
    );
    // Another debugger can't be a target, since it may have ended already.
    let targets: HashSet<&str> = ["containers", "initContainers"]
        .iter()
        .flat_map(|field| list(spec, field))
        .map(|container| text(container, "name"))
        .collect();
    let at = path.child("ephemeralContainers");
    for (i, one) in list(spec, "ephemeralContainers").iter().enumerate() {
        validate_ephemeral_container(one, &targets, context, &mut names, &at.index(i), errors);
    }
}

fn validate_app_containers<'a>(
    spec: &'a Value,
    context: &PodContext<'_>,
    names: &mut HashSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let all = list(spec, "containers");
    for (i, one) in all.iter().enumerate() {
        let at = path.index(i);
        validate_container(one, context, &at, errors);
        let name = text(one, "name");
        if !names.insert(name) {
            errors.duplicate(&at.child("name"), name);
        }
        probe::validate_lifecycle(one, context, &at.child("lifecycle"), errors);
        probe::validate_probes(one, context, &at, errors);
        restart::validate_container_restart(one, false, &at, errors);
    }
    // All containers share the network of the pod, so two of them can't listen on one port of the
    // node.
    validate_host_port_conflicts(all, path, errors);
}

fn validate_init_containers<'a>(
    spec: &'a Value,
    context: &PodContext<'_>,
    names: &mut HashSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (i, one) in list(spec, "initContainers").iter().enumerate() {
        let at = path.index(i);
        validate_container(one, context, &at, errors);
        restart::validate_container_restart(one, true, &at, errors);
        let name = text(one, "name");
        if names.contains(name) {
            errors.duplicate(&at.child("name"), name);
        } else if !name.is_empty() {
            names.insert(name);
        }
        // One by one, because init containers run one after the other. The path is upstream's,
        // which counts from the first container each time.
        validate_host_port_conflicts(std::slice::from_ref(one), path, errors);
        validate_init_container(one, context, &at, errors);
    }
}

fn validate_init_container(
    container: &Value,
    context: &PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // A sidecar runs beside the others, so it may have probes and hooks.
    if is_sidecar(container) {
        probe::validate_lifecycle(container, context, &path.child("lifecycle"), errors);
        probe::validate_probes(container, context, path, errors);
        return;
    }
    for field in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ] {
        if has(container, field) {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&path.child(field), detail);
        }
    }
    // An older release accepted the policy, and it is immutable in a pod.
    if context.options.restart_of_init_containers {
        return;
    }
    let at = path.child("resizePolicy");
    for (i, policy) in list(container, "resizePolicy").iter().enumerate() {
        if text(policy, "restartPolicy") == "RestartContainer" {
            let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            let at = at.index(i);
            errors.invalid(&at.child("restartPolicy"), "RestartContainer", detail);
        }
    }
}

/// Validates what all kinds of containers have.
fn validate_container(
    container: &Value,
    context: &PodContext<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (name, at) = (text(container, "name"), path.child("name"));
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        errors.invalid_each(&at, name, names::dns1123_label(name));
    }
    // The reference itself is parsed by the kubelet: its grammar depends on the registry and
    // changes between releases.
    if text(container, "image").is_empty() {
        errors.required(&path.child("image"), "");
    }
    let field = "terminationMessagePolicy";
    rules::validate_required_one_of(container, field, &MESSAGES, path, errors);
    validate_ports(container, &path.child("ports"), errors);
    environment::validate_env(container, path, errors);
    context.volumes.validate_mounts(container, path, errors);
    rules::validate_required_one_of(container, "imagePullPolicy", &PULL, path, errors);
    resources::validate_requirements(
        get(container, "resources"),
        false,
        &context.claims,
        context.options,
        &path.child("resources"),
        errors,
    );
    let at = path.child("resizePolicy");
    resources::validate_resize_policy(container, context.restart_policy, &at, errors);
    let has_host_users = context.has_host_users;
    security::validate_container_security_context(container, has_host_users, path, errors);
}

/// Checks images of a pod, not of a template: `image: " "` was a placeholder in old templates.
pub fn validate_images(spec: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    for field in fields {
        let at = path.child(field);
        for (i, container) in list(spec, field).iter().enumerate() {
            let image = text(container, "image");
            // The kubelet would fail with `InvalidImageName`, long after the pod was accepted.
            if image.trim() != image {
                errors.invalid(&at.index(i).child("image"), image, WHITE_SPACE);
            }
        }
    }
}

/// Allowed fields of an ephemeral container.
const EPHEMERAL: [&str; 17] = [
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "envFrom",
    "env",
    "volumeMounts",
    "volumeDevices",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
    "targetContainerName",
];

fn validate_ephemeral_container<'a>(
    container: &'a Value,
    targets: &HashSet<&str>,
    context: &PodContext<'_>,
    names: &mut HashSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const NOT_HERE: &str = "cannot be set for an Ephemeral Container";
    validate_container(container, context, path, errors);
    let image = text(container, "image");
    if image.trim() != image {
        errors.invalid(&path.child("image"), image, WHITE_SPACE);
    }
    let name = text(container, "name");
    if !names.insert(name) {
        errors.duplicate(&path.child("name"), name);
    }
    // The target shares its process namespace with the debugger. A name that no container has can
    // be no target.
    let target = text(container, "targetContainerName");
    if !target.is_empty() && !targets.contains(target) {
        errors.not_found(&path.child("targetContainerName"), target);
    }
    // Only fields on a list are allowed, so that a new field of Container is not accepted here by
    // accident.
    for (field, value) in container.as_object().into_iter().flatten() {
        let is_empty = value.is_null()
            || value.as_object().is_some_and(|map| map.is_empty())
            || value.as_array().is_some_and(Vec::is_empty);
        if !EPHEMERAL.contains(&field.as_str()) && !is_empty {
            errors.forbidden(&path.child(field), NOT_HERE);
        }
    }
    let mounts = path.child("volumeMounts");
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !text(mount, field).is_empty() {
                errors.forbidden(&mounts.index(i).child(field), NOT_HERE);
            }
        }
    }
}

fn validate_ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names: HashSet<&str> = HashSet::new();
    for (i, port) in list(container, "ports").iter().enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            // A malformed name is not entered into the set, so it has one error only.
            let problems = rules::port_name_problems(name);
            if problems.is_empty() && !names.insert(name) {
                errors.duplicate(&at.child("name"), name);
            }
            errors.invalid_each(&at.child("name"), name, problems);
        }
        match int(port, "containerPort").unwrap_or(0) {
            0 => errors.required(&at.child("containerPort"), ""),
            n => {
                if let Some(problem) = rules::port_number_problem(n) {
                    errors.invalid(&at.child("containerPort"), n, problem);
                }
            }
        }
        if let Some(n) = int(port, "hostPort").filter(|n| *n != 0)
            && let Some(problem) = rules::port_number_problem(n)
        {
            errors.invalid(&at.child("hostPort"), n, problem);
        }
        rules::validate_required_one_of(port, "protocol", &PROTOCOLS, &at, errors);
    }
}

/// Checks host ports within the pod: the scheduler keeps two pods with the same host port apart.
fn validate_host_port_conflicts(containers: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut taken: HashSet<String> = HashSet::new();
    for (i, container) in containers.iter().enumerate() {
        let at = path.index(i);
        let at = at.child("ports");
        for (j, port) in list(container, "ports").iter().enumerate() {
            let Some(number) = int(port, "hostPort").filter(|n| *n != 0) else {
                continue;
            };
            let (protocol, ip) = (text(port, "protocol"), text(port, "hostIP"));
            // Two addresses of one node may have the same port, so the address is a part of the
            // key.
            let key = format!("{protocol}/{ip}/{number}");
            if !taken.insert(key.clone()) {
                errors.duplicate(&at.index(j).child("hostPort"), key);
            }
        }
    }
}
