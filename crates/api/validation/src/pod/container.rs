//! Containers of the three kinds.

use super::{environment, probe, resources, security, volume::Volumes};
use crate::field::{Errors, Path};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt, opt_text, text};
use serde_json::Value;
use std::collections::HashSet;

const PULL: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGES: [&str; 2] = ["File", "FallbackToLogsOnError"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// The list that contains a container.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    App,
    Init,
    Ephemeral,
}

/// Validates all containers of a spec.
pub fn validate_containers(
    spec: &Value,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let apps = list(spec, "containers");
    let at = path.child("containers");
    if apps.is_empty() {
        errors.required(&at, "");
    }
    let mut names: HashSet<&str> = HashSet::new();
    let mut host_ports = HashSet::new();
    for (i, one) in apps.iter().enumerate() {
        validate_container_name(one, &mut names, &at.index(i), errors);
        validate_container(one, Role::App, volumes, &at.index(i), errors);
        validate_host_port_conflicts(one, &mut host_ports, &at.index(i), errors);
    }
    let at = path.child("initContainers");
    // Names are unique over both lists: statuses, logs and metrics are found by name alone.
    for (i, one) in list(spec, "initContainers").iter().enumerate() {
        let at = at.index(i);
        validate_container_name(one, &mut names, &at, errors);
        validate_container(one, Role::Init, volumes, &at, errors);
        validate_init_container_fields(one, &at, errors);
    }
    let at = path.child("ephemeralContainers");
    for (i, one) in list(spec, "ephemeralContainers").iter().enumerate() {
        let at = at.index(i);
        validate_container_name(one, &mut names, &at, errors);
        // Only fields on a list are allowed, so that a new field of Container is not accepted here
        // by accident.
        validate_ephemeral_container(one, apps, list(spec, "initContainers"), &at, errors);
        validate_container(one, Role::Ephemeral, volumes, &at, errors);
    }
}

fn validate_container_name<'a>(
    container: &'a Value,
    names: &mut HashSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(container, "name");
    let at = path.child("name");
    if name.is_empty() {
        errors.required(&at, "");
        return;
    }
    errors.invalid_each(&at, name, names::dns1123_label(name));
    if !names.insert(name) {
        errors.duplicate(&at, name);
    }
}

fn validate_container(
    container: &Value,
    role: Role,
    volumes: &Volumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let image = text(container, "image");
    let at = path.child("image");
    if image.is_empty() {
        errors.required(&at, "");
    } else if image.trim() != image {
        // The reference itself is parsed by the kubelet: its grammar depends on the registry and
        // changes between releases.
        errors.invalid(&at, image, "must not have leading or trailing whitespace");
    }
    rules::validate_required_one_of(
        container,
        "terminationMessagePolicy",
        &MESSAGES,
        path,
        errors,
    );
    rules::validate_required_one_of(container, "imagePullPolicy", &PULL, path, errors);
    validate_ports(container, &path.child("ports"), errors);
    environment::validate_env(container, volumes, path, errors);
    volumes.validate_mounts(container, path, errors);
    resources::validate_container_resources(container, path, errors);
    resources::validate_resize_policy(container, &path.child("resizePolicy"), errors);
    if role != Role::Ephemeral {
        validate_restart_rules(container, &path.child("restartPolicyRules"), errors);
    }
    if has(container, "securityContext") {
        security::validate_container_security_context(
            get(container, "securityContext"),
            &path.child("securityContext"),
            errors,
        );
    }
    // An init container that restarts is a sidecar (KEP-753): it runs beside the others, so it may
    // have probes and hooks.
    let sidecar = text(container, "restartPolicy") == "Always";
    if role == Role::App || sidecar {
        probe::validate_probes(container, path, errors);
        probe::validate_lifecycle(container, &path.child("lifecycle"), errors);
    }
    validate_restart_policy(container, role, path, errors);
}

fn validate_restart_policy(container: &Value, role: Role, path: &Path<'_>, errors: &mut Errors) {
    let Some(policy) = opt_text(container, "restartPolicy") else {
        return;
    };
    let known: &[&str] = match role {
        Role::Init | Role::App => &["Always", "Never", "OnFailure"],
        Role::Ephemeral => &[],
    };
    if role == Role::Ephemeral {
        errors.forbidden(
            &path.child("restartPolicy"),
            "cannot be set for an Ephemeral Container",
        );
    } else if !known.contains(&policy) {
        errors.not_supported(&path.child("restartPolicy"), policy, known);
    }
}

fn validate_restart_rules(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, rule) in list(container, "restartPolicyRules").iter().enumerate() {
        let at = path.index(i);
        rules::validate_required_one_of(
            rule,
            "action",
            &["Restart", "RestartAllContainers"],
            &at,
            errors,
        );
        let codes = get(rule, "exitCodes");
        rules::validate_required_one_of(
            codes,
            "operator",
            &["In", "NotIn"],
            &at.child("exitCodes"),
            errors,
        );
    }
}

fn validate_init_container_fields(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(container, "restartPolicy") == "Always" {
        return;
    }
    for field in [
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "startupProbe",
    ] {
        if has(container, field) {
            errors.forbidden(
                &path.child(field),
                "may not be set for init containers without restartPolicy=Always",
            );
        }
    }
}

/// Allowed fields of an ephemeral container.
const EPHEMERAL: [&str; 14] = [
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
    "targetContainerName",
];

fn validate_ephemeral_container(
    container: &Value,
    apps: &[Value],
    inits: &[Value],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // The target shares its process namespace with the debugger. A name that no container has can
    // be no target.
    let target = text(container, "targetContainerName");
    if !target.is_empty() && !apps.iter().chain(inits).any(|c| text(c, "name") == target) {
        errors.not_found(&path.child("targetContainerName"), target);
    }
    for (field, value) in container.as_object().into_iter().flatten() {
        let streams = ["stdin", "stdinOnce", "tty", "restartPolicy"].contains(&field.as_str());
        let empty = value.is_null()
            || value.as_object().is_some_and(|o| o.is_empty())
            || value.as_array().is_some_and(Vec::is_empty);
        if !EPHEMERAL.contains(&field.as_str()) && !streams && !empty {
            errors.forbidden(
                &path.child(field),
                "cannot be set for an Ephemeral Container",
            );
        }
    }
    let mounts = path.child("volumeMounts");
    for (i, mount) in list(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !text(mount, field).is_empty() {
                errors.forbidden(
                    &mounts.index(i).child(field),
                    "cannot be set for an Ephemeral Container",
                );
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

fn validate_host_port_conflicts(
    container: &Value,
    taken: &mut HashSet<String>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("ports");
    for (i, port) in list(container, "ports").iter().enumerate() {
        // Only within the pod: the scheduler keeps two pods with the same host port apart.
        let Some(number) = int(port, "hostPort").filter(|n| *n != 0) else {
            continue;
        };
        let key = format!(
            "{}/{}/{number}",
            text(port, "protocol"),
            opt(port, "hostIP")
                .and_then(Value::as_str)
                .unwrap_or_default()
        );
        if !taken.insert(key.clone()) {
            errors.duplicate(&at.index(i).child("hostPort"), key);
        }
    }
}
