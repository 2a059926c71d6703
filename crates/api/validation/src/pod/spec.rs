//! `PodSpec`.

use super::{affinity, container, scheduling, security, volume};
use crate::field::{Errors, Path};
use crate::metadata;
use crate::rules;
use api_meta::names;
use api_meta::tree::{entries, get, has, int, list, opt_text, text};
use serde_json::Value;

const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Validates the spec of a pod or template. `_metadata` is reserved for downward references.
pub fn validate_pod_spec(spec: &Value, _metadata: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Volumes come first: containers refer to them by name, and a mount of an invalid volume is not
    // reported a second time.
    let volumes = volume::validate_volumes(spec, &path.child("volumes"), errors);
    container::validate_containers(spec, &volumes, path, errors);
    validate_required_choice(spec, "restartPolicy", &RESTART, path, errors);
    validate_required_choice(spec, "dnsPolicy", &DNS, path, errors);
    metadata::validate_labels(spec, "nodeSelector", path, errors);
    security::validate_pod_security_context(spec, path, errors);
    validate_pull_secrets(spec, &path.child("imagePullSecrets"), errors);
    if has(spec, "affinity") {
        affinity::validate_affinity(get(spec, "affinity"), &path.child("affinity"), errors);
    }
    validate_dns_config(spec, &path.child("dnsConfig"), errors);
    scheduling::validate_readiness_gates(spec, &path.child("readinessGates"), errors);
    scheduling::validate_scheduling_gates(spec, &path.child("schedulingGates"), errors);
    scheduling::validate_spread_constraints(spec, &path.child("topologySpreadConstraints"), errors);
    scheduling::validate_tolerations(
        list(spec, "tolerations"),
        &path.child("tolerations"),
        errors,
    );
    validate_names(spec, path, errors);
    validate_deadlines(spec, path, errors);
    validate_host_aliases(spec, &path.child("hostAliases"), errors);
    super::resources::validate_overhead(spec, &path.child("overhead"), errors);
    validate_resource_claims(spec, &path.child("resourceClaims"), errors);
    validate_operating_system(spec, path, errors);
    if has(spec, "resources") {
        super::resources::validate_requirements(
            get(spec, "resources"),
            true,
            &path.child("resources"),
            errors,
        );
    }
    if let Some(policy) = opt_text(spec, "preemptionPolicy") {
        let known = ["PreemptLowerPriority", "Never"];
        if !known.contains(&policy) {
            errors.not_supported(&path.child("preemptionPolicy"), policy, &known);
        }
    }
}

fn validate_required_choice(
    spec: &Value,
    field: &str,
    known: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    rules::validate_required_one_of(spec, field, known, path, errors);
}

/// Validates names of referenced objects.
fn validate_names(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in [
        // These names become parts of paths and of other objects' names. The objects need not exist
        // yet: the kubelet and the scheduler wait for them.
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.invalid_each(&path.child(field), name, names::dns1123_subdomain(name));
        }
    }
    let own = text(spec, "hostnameOverride");
    if !own.is_empty() {
        let at = path.child("hostnameOverride");
        errors.invalid_each(&at, own, names::dns1123_subdomain(own));
        for field in ["setHostnameAsFQDN", "hostNetwork"] {
            if api_meta::tree::flag(spec, field) {
                errors.forbidden(&at, format!("may not be specified when `{field}` is true"));
            }
        }
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

fn validate_deadlines(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(seconds) = int(spec, "activeDeadlineSeconds")
        && !(1..=i64::from(i32::MAX)).contains(&seconds)
    {
        errors.invalid(
            &path.child("activeDeadlineSeconds"),
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
}

fn validate_pull_secrets(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, secret) in list(spec, "imagePullSecrets").iter().enumerate() {
        // Only names are checked: a secret that does not exist is reported as an event when an
        // image is pulled.
        if text(secret, "name").is_empty() {
            errors.required(&path.index(i).child("name"), "");
        }
    }
}

fn validate_host_aliases(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, alias) in list(spec, "hostAliases").iter().enumerate() {
        let at = path.index(i);
        let ip = text(alias, "ip");
        errors.invalid_each(&at.child("ip"), ip, rules::ip_problems(ip));
        let hosts = at.child("hostnames");
        for (j, name) in list(alias, "hostnames").iter().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.invalid_each(&hosts.index(j), name, names::dns1123_subdomain(name));
        }
    }
}

fn validate_dns_config(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let config = get(spec, "dnsConfig");
    let servers = list(config, "nameservers");
    if text(spec, "dnsPolicy") == "None" {
        if config.is_null() {
            errors.required(path, "must provide `dnsConfig` when `dnsPolicy` is None");
            return;
        }
        if servers.is_empty() {
            errors.required(
                &path.child("nameservers"),
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
            return;
        }
    }
    let at = path.child("nameservers");
    // The C library of the containers reads three `nameserver` lines of resolv.conf and ignores the
    // rest.
    if servers.len() > 3 {
        errors.invalid(
            &at,
            servers.to_vec(),
            "must not have more than 3 nameservers",
        );
    }
    for (i, server) in servers.iter().enumerate() {
        let server = server.as_str().unwrap_or_default();
        errors.invalid_each(&at.index(i), server, rules::ip_problems(server));
    }
    validate_search_paths(list(config, "searches"), &path.child("searches"), errors);
    let at = path.child("options");
    for (i, option) in list(config, "options").iter().enumerate() {
        if text(option, "name").is_empty() {
            errors.required(&at.index(i), "must not be empty");
        }
    }
}

fn validate_search_paths(searches: &[Value], at: &Path<'_>, errors: &mut Errors) {
    // glibc up to 2.25 reads 6 domains and 256 characters. Kubernetes allows more since 1.28
    // (KEP-2595), because later versions have no limit.
    if searches.len() > 32 {
        errors.invalid(
            at,
            searches.to_vec(),
            "must not have more than 32 search paths",
        );
    }
    let length: usize = searches
        .iter()
        .filter_map(Value::as_str)
        .map(|s| s.len() + 1)
        .sum();
    if length > 2049 {
        errors.invalid(
            at,
            searches.to_vec(),
            "must not have more than 2048 characters (including spaces) in the search list",
        );
    }
    for (i, search) in searches.iter().enumerate() {
        let search = search.as_str().unwrap_or_default();
        // A trailing dot is the usual form of an absolute name, and `_` occurs in SRV records. A
        // single dot means no search list.
        let name = search.trim_end_matches('.');
        if !name.is_empty() {
            errors.invalid_each(
                &at.index(i),
                search,
                names::dns1123_subdomain(&name.replace('_', "a")),
            );
        }
    }
}

fn validate_resource_claims(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, claim) in list(spec, "resourceClaims").iter().enumerate() {
        let at = path.index(i);
        let name = text(claim, "name");
        if seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        } else if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            errors.invalid_each(&at.child("name"), name, names::dns1123_label(name));
            seen.push(name);
        }
        // A claim by name is shared between pods. A template makes one claim for each pod, which is
        // deleted with it.
        let fields = ["resourceClaimName", "resourceClaimTemplateName"];
        let sources = fields.iter().filter(|f| has(claim, f)).count();
        for field in fields.into_iter().filter(|f| has(claim, f)) {
            let name = text(claim, field);
            errors.invalid_each(&at.child(field), name, names::dns1123_subdomain(name));
        }
        let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
        if sources != 1 {
            errors.invalid(&at, claim.clone(), detail);
        }
    }
}

/// Message for fields that only exist on the other operating system.
const WINDOWS_ONLY: &str = "windows options cannot be set for a linux pod";
const LINUX_ONLY_POD: [&str; 3] = ["hostPID", "hostIPC", "shareProcessNamespace"];

fn validate_operating_system(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let Some(os) = opt_text(get(spec, "os"), "name") else {
        return;
    };
    let security = path.child("securityContext");
    match os {
        "" => errors.required(&path.child("os").child("name"), "cannot be empty"),
        // The field `os` is what the pod claims about its node. Only fields of the other system are
        // rejected; a pod without `os` may set all of them (KEP-2802).
        "linux" => {
            if has(get(spec, "securityContext"), "windowsOptions") {
                errors.forbidden(&security.child("windowsOptions"), WINDOWS_ONLY);
            }
            for field in ["initContainers", "containers", "ephemeralContainers"] {
                let at = path.child(field);
                for (i, c) in list(spec, field).iter().enumerate() {
                    if has(get(c, "securityContext"), "windowsOptions") {
                        errors.forbidden(
                            &at.index(i).child("securityContext").child("windowsOptions"),
                            WINDOWS_ONLY,
                        );
                    }
                }
            }
        }
        "windows" => {
            for field in LINUX_ONLY_POD {
                if api_meta::tree::flag(spec, field) {
                    errors.forbidden(&path.child(field), "cannot be set for a windows pod");
                }
            }
            for (field, _) in entries(spec, "securityContext") {
                // Both are the only fields of the context that the kubelet reads on Windows.
                if !matches!(field.as_str(), "windowsOptions" | "runAsNonRoot") {
                    errors.forbidden(&security.child(field), "cannot be set for a windows pod");
                }
            }
        }
        other => errors.not_supported(&path.child("os"), other, &["linux", "windows"]),
    }
}
