//! Warnings about pods and pod templates.

use super::placement::{warn_about_placement, warn_about_pod_affinity};
use super::ports::warn_about_ports;
use super::volumes::{warn_about_fraction, warn_about_volumes};
use crate::field::{Path, go_quote};
use crate::ip::ip_warning;
use crate::pod::{APPARMOR_CONTAINER, SECCOMP_CONTAINER, SECCOMP_POD, visit_containers};
use api_meta::tree::{get, has, int, list, text, texts};
use serde_json::Value;
use std::collections::HashSet;

const ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
const APPARMOR: &str = "deprecated since v1.30; use the \"appArmorProfile\" field instead";
const BYTES: [&str; 2] = ["memory", "ephemeral-storage"];

/// Adds the warnings about a pod, or the template at `path`.
pub(super) fn warn_about_pod(pod: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let (spec, spec_path) = (get(pod, "spec"), path.child("spec"));
    warn_about_placement(spec, &spec_path, warnings);
    let meta = path.child("metadata");
    let annotations = meta.child("annotations");
    let given = get(get(pod, "metadata"), "annotations");
    for (key, message) in ANNOTATIONS {
        if has(given, key) {
            warnings.push(format!("{}: {message}", annotations.key(key)));
        }
    }
    warn_about_volumes(spec, &spec_path, warnings);
    warn_about_repeated_entries(spec, &spec_path, warnings);
    for name in BYTES {
        warn_about_fraction(
            get(spec, "overhead"),
            name,
            &spec_path.child("overhead"),
            warnings,
        );
    }
    if has(given, SECCOMP_POD) && !has(get(spec, "securityContext"), "seccompProfile") {
        warnings.push(format!("{}: {SECCOMP}", annotations.key(SECCOMP_POD)));
    }
    visit_containers(spec, &spec_path, &mut |container, at| {
        warn_about_profiles(container, spec, given, &annotations, warnings);
        warn_about_container(container, at, warnings);
    });
    warn_about_ports(spec, &spec_path, warnings);
    if int(spec, "terminationGracePeriodSeconds").is_some_and(|n| n < 0) {
        let at = spec_path.child("terminationGracePeriodSeconds");
        warnings.push(format!(
            "{at}: must be >= 0; negative values are invalid and will be treated as 1"
        ));
    }
    warn_about_pod_affinity(spec, &spec_path, warnings);
    let at = spec_path.child("dnsConfig");
    let at = at.child("nameservers");
    for (i, server) in texts(get(spec, "dnsConfig"), "nameservers")
        .into_iter()
        .enumerate()
    {
        warnings.extend(ip_warning(&at.index(i), server));
    }
    let at = spec_path.child("hostAliases");
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        warnings.extend(ip_warning(&at.index(i).child("ip"), text(alias, "ip")));
    }
}

/// Warns about entries of lists that are merged by a key, of which `kubectl apply` keeps only one.
fn warn_about_repeated_entries(spec: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    for (field, key) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let at = path.child(field);
        let mut seen = HashSet::new();
        for (i, item) in list(spec, field).iter().enumerate() {
            let value = text(item, key);
            if !seen.insert(value) {
                let at = at.index(i);
                let value = go_quote(value);
                warnings.push(format!("{}: duplicate {key} {value}", at.child(key)));
            }
        }
    }
    let at = path.child("imagePullSecrets");
    for (i, item) in list(spec, "imagePullSecrets").iter().enumerate() {
        if text(item, "name").is_empty() {
            let at = at.index(i);
            warnings.push(format!("{}: invalid empty name \"\"", at.child("name")));
        }
    }
}

fn warn_about_profiles(
    container: &Value,
    spec: &Value,
    annotations: &Value,
    path: &Path<'_>,
    warnings: &mut Vec<String>,
) {
    let (name, context) = (text(container, "name"), get(container, "securityContext"));
    let key = format!("{SECCOMP_CONTAINER}{name}");
    if has(annotations, &key) && !has(context, "seccompProfile") {
        warnings.push(format!("{}: {SECCOMP}", path.key(&key)));
    }
    let key = format!("{APPARMOR_CONTAINER}{name}");
    let annotation = text(annotations, &key);
    // The strategy of pods has copied the annotation to the field, so here the field of a pod does
    // not tell whether its author knows it.
    let of_pod = get(get(spec, "securityContext"), "appArmorProfile");
    let is_known = match text(of_pod, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => annotation == "runtime/default",
        "Localhost" => {
            annotation.strip_prefix("localhost/") == Some(text(of_pod, "localhostProfile"))
        }
        _ => false,
    };
    let is_template = path.to_string().contains("template.");
    let has_field = is_template && has(context, "appArmorProfile");
    if has(annotations, &key) && !is_known && !has_field {
        warnings.push(format!("{}: {APPARMOR}", path.key(&key)));
    }
}

fn warn_about_container(container: &Value, path: &Path<'_>, warnings: &mut Vec<String>) {
    let at = path.child("resources");
    for name in BYTES {
        for part in ["limits", "requests"] {
            let amounts = get(get(container, "resources"), part);
            warn_about_fraction(amounts, name, &at.child(part), warnings);
        }
    }
    let at = path.child("env");
    let mut seen = HashSet::new();
    for (i, variable) in list(container, "env").iter().enumerate() {
        let (name, value) = (text(variable, "name"), text(variable, "value"));
        // A second value may extend the first one: `$(PATH):/more`.
        let reference = format!("$({name})");
        let is_extension = value.contains(&reference) && value != reference;
        if !seen.insert(name) && (has(variable, "valueFrom") || !is_extension) {
            let (at, name) = (at.index(i), go_quote(name));
            warnings.push(format!(
                "{at}: hides previous definition of {name}, which may be dropped when using apply"
            ));
        }
    }
}
