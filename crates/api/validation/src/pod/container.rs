//! Containers of the three kinds.

use super::{environment, probe, resources, security, volume::Volumes};
use crate::field::{Errors, Path};
use crate::rules;
use crate::tree::{get, has, int, list, opt, opt_text, text};
use api_meta::names;
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
pub fn all(spec: &Value, volumes: &Volumes<'_>, path: &Path<'_>, errors: &mut Errors) {
    let apps = list(spec, "containers");
    let at = path.child("containers");
    if apps.is_empty() {
        errors.required(&at, "");
    }
    let mut names: HashSet<&str> = HashSet::new();
    let mut host_ports = HashSet::new();
    for (i, one) in apps.iter().enumerate() {
        named(one, &mut names, &at.index(i), errors);
        container(one, Role::App, volumes, &at.index(i), errors);
        host_port_clash(one, &mut host_ports, &at.index(i), errors);
    }
    let at = path.child("initContainers");
    for (i, one) in list(spec, "initContainers").iter().enumerate() {
        let at = at.index(i);
        named(one, &mut names, &at, errors);
        container(one, Role::Init, volumes, &at, errors);
        init_only(one, &at, errors);
    }
    let at = path.child("ephemeralContainers");
    for (i, one) in list(spec, "ephemeralContainers").iter().enumerate() {
        let at = at.index(i);
        named(one, &mut names, &at, errors);
        ephemeral(one, apps, list(spec, "initContainers"), &at, errors);
        container(one, Role::Ephemeral, volumes, &at, errors);
    }
}

fn named<'a>(
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

fn container(
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
        errors.invalid(&at, image, "must not have leading or trailing whitespace");
    }
    rules::required_one_of(
        container,
        "terminationMessagePolicy",
        &MESSAGES,
        path,
        errors,
    );
    rules::required_one_of(container, "imagePullPolicy", &PULL, path, errors);
    ports(container, &path.child("ports"), errors);
    environment::env(container, volumes, path, errors);
    volumes.mounts(container, path, errors);
    resources::container(container, path, errors);
    resources::resize_policy(container, &path.child("resizePolicy"), errors);
    if role != Role::Ephemeral {
        restart_rules(container, &path.child("restartPolicyRules"), errors);
    }
    if has(container, "securityContext") {
        security::container(
            get(container, "securityContext"),
            &path.child("securityContext"),
            errors,
        );
    }
    let sidecar = text(container, "restartPolicy") == "Always";
    if role == Role::App || sidecar {
        probe::probes(container, path, errors);
        probe::lifecycle(container, &path.child("lifecycle"), errors);
    }
    restart_policy(container, role, path, errors);
}

fn restart_policy(container: &Value, role: Role, path: &Path<'_>, errors: &mut Errors) {
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

fn restart_rules(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, rule) in list(container, "restartPolicyRules").iter().enumerate() {
        let at = path.index(i);
        rules::required_one_of(
            rule,
            "action",
            &["Restart", "RestartAllContainers"],
            &at,
            errors,
        );
        let codes = get(rule, "exitCodes");
        rules::required_one_of(
            codes,
            "operator",
            &["In", "NotIn"],
            &at.child("exitCodes"),
            errors,
        );
    }
}

fn init_only(container: &Value, path: &Path<'_>, errors: &mut Errors) {
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

fn ephemeral(
    container: &Value,
    apps: &[Value],
    inits: &[Value],
    path: &Path<'_>,
    errors: &mut Errors,
) {
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

fn ports(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut names: HashSet<&str> = HashSet::new();
    for (i, port) in list(container, "ports").iter().enumerate() {
        let at = path.index(i);
        let name = text(port, "name");
        if !name.is_empty() {
            let problems = rules::port_name(name);
            if problems.is_empty() && !names.insert(name) {
                errors.duplicate(&at.child("name"), name);
            }
            errors.invalid_each(&at.child("name"), name, problems);
        }
        match int(port, "containerPort").unwrap_or(0) {
            0 => errors.required(&at.child("containerPort"), ""),
            n => {
                if let Some(problem) = rules::port_number(n) {
                    errors.invalid(&at.child("containerPort"), n, problem);
                }
            }
        }
        if let Some(n) = int(port, "hostPort").filter(|n| *n != 0)
            && let Some(problem) = rules::port_number(n)
        {
            errors.invalid(&at.child("hostPort"), n, problem);
        }
        rules::required_one_of(port, "protocol", &PROTOCOLS, &at, errors);
    }
}

fn host_port_clash(
    container: &Value,
    taken: &mut HashSet<String>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("ports");
    for (i, port) in list(container, "ports").iter().enumerate() {
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
