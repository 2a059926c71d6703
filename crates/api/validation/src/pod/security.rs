//! Security contexts.

use crate::field::{Errors, Path};
use crate::rules;
use api_meta::tree::{flag, get, has, list, opt_text, text};
use serde_json::Value;

const SECCOMP: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
const POLICIES: [(&str, [&str; 2]); 3] = [
    ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
    ("supplementalGroupsPolicy", ["Merge", "Strict"]),
    ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
];
const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";

/// Validates the pod's security context and its host namespaces.
pub fn validate_pod_security_context(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("securityContext");
    let context = get(spec, "securityContext");
    validate_host_ports(spec, &path.child("containers"), errors);
    // A container has one PID namespace: that of the pod's sandbox or that of the host.
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        errors.invalid(
            &at.child("shareProcessNamespace"),
            true,
            "ShareProcessNamespace and HostPID cannot both be enabled",
        );
    }
    // The kernel lets a user namespace use only namespaces that it owns. Host namespaces belong to
    // the initial one (KEP-127).
    if flag(spec, "hostNetwork") && get(spec, "hostUsers") == &Value::Bool(false) {
        errors.forbidden(&path.child("hostNetwork"), "when `hostUsers` is false");
    }
    for field in ["hostPID", "hostIPC"] {
        if flag(spec, field) && get(spec, "hostUsers") == &Value::Bool(false) {
            errors.forbidden(&path.child(field), "when `hostUsers` is false");
        }
    }
    // Root of a user namespace has no rights over the host's /proc. Without one, an unmasked /proc
    // lets the container change the kernel's settings (KEP-4265).
    if get(spec, "hostUsers") != &Value::Bool(false) {
        validate_proc_mount(spec, path, errors);
    }
    // The kernel's ids have 32 bits, and Linux treats the largest as "no change". Kubernetes keeps
    // to 31 bits.
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        validate_user_or_group_id(context, field, &at, errors);
    }
    let groups = at.child("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        if !group
            .as_i64()
            .is_some_and(|g| (0..=i64::from(i32::MAX)).contains(&g))
        {
            errors.invalid(&groups.index(i), group.clone(), ID_RANGE);
        }
    }
    for (field, known) in POLICIES {
        rules::validate_one_of(context, field, &known, &at, errors);
    }
    validate_sysctls(spec, context, &at.child("sysctls"), errors);
    validate_profiles(context, &at, errors);
    validate_windows_options(context, &at, errors);
}

/// Checks the ports of a pod in the host's network.
fn validate_host_ports(spec: &Value, ports: &Path<'_>, errors: &mut Errors) {
    if !flag(spec, "hostNetwork") {
        return;
    }
    for (i, container) in list(spec, "containers").iter().enumerate() {
        for (j, port) in list(container, "ports").iter().enumerate() {
            let number = |f: &str| get(port, f).as_i64().unwrap_or(0);
            // In the host's network the container listens on the host's port itself: there is
            // nothing that could translate another number.
            if number("hostPort") != 0 && number("hostPort") != number("containerPort") {
                let at = ports.index(i);
                let at = at.child("ports");
                errors.invalid(
                    &at.index(j).child("hostPort"),
                    number("hostPort"),
                    "must match `containerPort` when `hostNetwork` is true",
                );
            }
        }
    }
}

/// Checks that a container without a user namespace does not see all of /proc.
fn validate_proc_mount(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        let at = path.child(field);
        for (i, container) in list(spec, field).iter().enumerate() {
            if text(get(container, "securityContext"), "procMount") == "Unmasked" {
                let at = at.index(i);
                let at = at.child("securityContext");
                errors.invalid(
                    &at.child("procMount"),
                    "Unmasked",
                    "`hostUsers` must be false to use `Unmasked`",
                );
            }
        }
    }
}

fn validate_windows_options(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(get(context, "windowsOptions"), "gmsaCredentialSpecName");
    if !name.is_empty() {
        let at = path.child("windowsOptions");
        errors.invalid_each(
            &at.child("gmsaCredentialSpecName"),
            name,
            api_meta::names::dns1123_subdomain(name),
        );
    }
}

fn validate_user_or_group_id(context: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = get(context, field).as_i64()
        && !(0..=i64::from(i32::MAX)).contains(&n)
    {
        errors.invalid(&path.child(field), n, ID_RANGE);
    }
}

fn validate_sysctls(spec: &Value, context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, sysctl) in list(context, "sysctls").iter().enumerate() {
        let at = path.index(i);
        let at = at.child("name");
        let name = text(sysctl, "name");
        if name.is_empty() {
            errors.required(&at, "");
        } else if !is_sysctl(name) {
            let detail = "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
            errors.invalid(&at, name, detail);
        } else if seen.contains(&name) {
            errors.duplicate(&at, name);
        }
        // name.starts_with("net/")) { || A sysctl of the network is set in the network namespace of
        // the pod, which would be that of the host here.
        if flag(spec, "hostNetwork") && (name.starts_with("net.") || name.starts_with("net/")) {
            errors.invalid(&at, name, "may not be specified when 'hostNetwork' is true");
        }
        seen.push(name);
    }
}

fn is_sysctl(name: &str) -> bool {
    let part = |p: &str| {
        let bytes = p.as_bytes();
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(bytes.first())
            && edge(bytes.last())
            && bytes
                .iter()
                .all(|b| edge(Some(b)) || matches!(b, b'-' | b'_'))
    };
    name.len() <= 253 && name.split(['.', '/']).all(part)
}

fn validate_profiles(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, what) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "apparmor"),
    ] {
        if !has(context, field) {
            continue;
        }
        let at = path.child(field);
        let profile = get(context, field);
        let local = opt_text(profile, "localhostProfile");
        match (text(profile, "type"), local) {
            ("", _) => errors.required(&at.child("type"), "type is required when profile is set"),
            // `Localhost` names a file below the kubelet's seccomp directory or a profile loaded
            // into AppArmor.
            ("Localhost", None | Some("")) => {
                errors.required(
                    &at.child("localhostProfile"),
                    format!("must be set when {what} type is Localhost"),
                );
            }
            ("Localhost", Some(file)) => {
                validate_local_profile(file, &at.child("localhostProfile"), errors)
            }
            // Silently ignoring the file would run the container with a weaker profile than its
            // author sees in the object.
            (known, Some(file)) if SECCOMP.contains(&known) => {
                let detail = format!("can only be set when {what} type is Localhost");
                errors.invalid(&at.child("localhostProfile"), file, detail);
            }
            (known, _) if SECCOMP.contains(&known) => {}
            (other, file) => {
                errors.not_supported(&at.child("type"), other, &SECCOMP);
                if let ("seccompProfile", Some(file)) = (field, file) {
                    let detail = "can only be set when seccomp type is Localhost";
                    errors.invalid(&at.child("localhostProfile"), file, detail);
                }
            }
        }
    }
}

fn validate_local_profile(file: &str, path: &Path<'_>, errors: &mut Errors) {
    // The kubelet joins the name to its profile directory and reads the file as root.
    if file.starts_with('/') {
        errors.invalid(path, file, "must be a relative path");
    }
    if file.split('/').any(|p| p == "..") {
        errors.invalid(path, file, "must not contain '..'");
    }
}

/// Validates a container's security context.
pub fn validate_container_security_context(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["runAsUser", "runAsGroup"] {
        validate_user_or_group_id(context, field, path, errors);
    }
    rules::validate_one_of(context, "procMount", &["Default", "Unmasked"], path, errors);
    validate_profiles(context, path, errors);
    validate_windows_options(context, path, errors);
    let escalation = get(context, "allowPrivilegeEscalation");
    // The flag becomes `no_new_privs`. A privileged container, or one with CAP_SYS_ADMIN, has what
    // the flag should withhold, so the combination is a mistake.
    if escalation == &Value::Bool(false) {
        if flag(context, "privileged") {
            errors.invalid(
                path,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
            );
        }
        let added = list(get(context, "capabilities"), "add");
        if added.iter().any(|c| c == "CAP_SYS_ADMIN") {
            errors.invalid(
                path,
                context.clone(),
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unmasked_proc_needs_a_user_namespace() {
        let unmasked = json!([{"name": "c", "securityContext": {"procMount": "Unmasked"}}]);
        for (spec, expect) in [
            (json!({"containers": unmasked, "hostUsers": false}), 0),
            (json!({"containers": unmasked, "hostUsers": true}), 1),
            (json!({"containers": unmasked}), 1),
            (
                json!({"initContainers": unmasked, "ephemeralContainers": unmasked}),
                2,
            ),
        ] {
            let mut errors = Errors::default();
            validate_pod_security_context(&spec, &Path::ROOT.child("spec"), &mut errors);
            assert_eq!(errors.0.len(), expect, "{spec}: {:?}", errors.0);
        }
    }
}
