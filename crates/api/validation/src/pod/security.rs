//! Security contexts.

use super::options::PodOptions;
use super::{profiles, windows};
use crate::field::{Errors, Path};
use crate::rules;
use api_meta::tree::{flag, get, has, list, text};
use serde_json::Value;
use std::collections::HashSet;

const POLICIES: [(&str, [&str; 2]); 2] = [
    ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
    ("supplementalGroupsPolicy", ["Merge", "Strict"]),
];
const SELINUX_POLICIES: [&str; 2] = ["MountOption", "Recursive"];
const ID_RANGE: &str = "must be between 0 and 2147483647, inclusive";
const CONTEXT: &str = "securityContext";
/// Sysctls of System V semaphores, messages and shared memory.
const IPC_SYSCTLS: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// Validates the pod's security context and its host namespaces.
pub fn validate_pod_security_context(
    spec: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (context, at) = (get(spec, CONTEXT), path.child(CONTEXT));
    // The kernel's ids have 32 bits, and Linux treats the largest as "no change". Kubernetes keeps
    // to 31 bits.
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        validate_user_or_group_id(get(context, field), &at.child(field), errors);
    }
    let groups = at.child("supplementalGroups");
    for (i, group) in list(context, "supplementalGroups").iter().enumerate() {
        validate_user_or_group_id(group, &groups.index(i), errors);
    }
    // A container has one PID namespace: that of the pod's sandbox or that of the host.
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&at.child("shareProcessNamespace"), true, detail);
    }
    validate_sysctls(spec, options, &at.child("sysctls"), errors);
    for (field, known) in POLICIES {
        rules::validate_one_of(context, field, &known, &at, errors);
    }
    profiles::validate_seccomp_profile(context, &at, errors);
    windows::validate_windows_options(context, &at, errors);
    profiles::validate_apparmor_profile(context, &at, errors);
    // Mounting with a label needs SELinuxMount, which is off by default in v1.36.
    let known = if options.any_selinux_change_policy {
        &SELINUX_POLICIES[..]
    } else {
        &["Recursive"]
    };
    rules::validate_one_of(context, "seLinuxChangePolicy", known, &at, errors);
}

/// Validates an id of a user or group.
pub fn validate_user_or_group_id(id: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = id.as_i64()
        && !(0..=i64::from(i32::MAX)).contains(&n)
    {
        errors.invalid(path, n, ID_RANGE);
    }
}

fn validate_sysctls(spec: &Value, options: &PodOptions, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, sysctl) in list(get(spec, CONTEXT), "sysctls").iter().enumerate() {
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
        // Old pods may have both, and the kubelet has rejected or started them long ago.
        if !options.host_sysctls {
            validate_host_sysctl(name, spec, &at, errors);
        }
        seen.insert(name);
    }
}

/// Checks that a sysctl of a namespace is not set where that namespace is the host's.
pub fn validate_host_sysctl(name: &str, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Both spellings of a name are the same file below /proc/sys.
    let dotted = match name.chars().find(|c| matches!(c, '.' | '/')) {
        Some('/') => name.replace('/', "."),
        _ => name.to_owned(),
    };
    let dotted = dotted.split('*').next().unwrap_or_default();
    let is_below = |prefix: &str| {
        dotted
            .strip_prefix(prefix)
            .is_some_and(|r| r.starts_with('.'))
    };
    let is_ipc = IPC_SYSCTLS.contains(&dotted) || is_below("fs.mqueue");
    for (field, is_of_namespace) in [("hostNetwork", is_below("net")), ("hostIPC", is_ipc)] {
        if flag(spec, field) && is_of_namespace {
            errors.invalid(
                path,
                name,
                format!("may not be specified when '{field}' is true"),
            );
            return;
        }
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

/// Validates a container's security context.
pub fn validate_container_security_context(
    container: &Value,
    has_host_users: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !has(container, CONTEXT) {
        return;
    }
    let (context, path) = (get(container, CONTEXT), path.child(CONTEXT));
    for field in ["runAsUser", "runAsGroup"] {
        validate_user_or_group_id(get(context, field), &path.child(field), errors);
    }
    rules::validate_one_of(
        context,
        "procMount",
        &["Default", "Unmasked"],
        &path,
        errors,
    );
    // Root of a user namespace has no rights over the host's /proc. Without one, an unmasked /proc
    // lets the container change the kernel's settings (KEP-4265).
    if has_host_users && text(context, "procMount") == "Unmasked" {
        let detail = "`hostUsers` must be false to use `Unmasked`";
        errors.invalid(&path.child("procMount"), "Unmasked", detail);
    }
    profiles::validate_seccomp_profile(context, &path, errors);
    validate_escalation(context, &path, errors);
    windows::validate_windows_options(context, &path, errors);
    profiles::validate_apparmor_profile(context, &path, errors);
}

fn validate_escalation(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    // The flag becomes `no_new_privs`. A privileged container, or one with CAP_SYS_ADMIN, has what
    // the flag should withhold, so the combination is a mistake.
    if get(context, "allowPrivilegeEscalation") != &Value::Bool(false) {
        return;
    }
    if flag(context, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(path, context.clone(), detail);
    }
    let added = list(get(context, "capabilities"), "add");
    // Only this spelling, as upstream: the one without the prefix, which runtimes use, passes.
    if added.iter().any(|c| c == "CAP_SYS_ADMIN") {
        let detail =
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(path, context.clone(), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unmasked_proc_needs_a_user_namespace() {
        let container = json!({"name": "c", "securityContext": {"procMount": "Unmasked"}});
        for (has_host_users, expect) in [(true, 1), (false, 0)] {
            let mut errors = Errors::default();
            let path = Path::ROOT.child("spec");
            validate_container_security_context(&container, has_host_users, &path, &mut errors);
            assert_eq!(errors.0.len(), expect, "{has_host_users}: {:?}", errors.0);
        }
    }

    #[test]
    fn sysctls_of_shared_namespaces_are_found() {
        for (name, spec, expect) in [
            ("net.core.somaxconn", json!({"hostNetwork": true}), 1),
            (
                "net/ipv4/conf/eno2.100/rp_filter",
                json!({"hostNetwork": true}),
                1,
            ),
            ("net.core.somaxconn", json!({"hostIPC": true}), 0),
            ("kernel.sem", json!({"hostIPC": true}), 1),
            ("kernel.semx", json!({"hostIPC": true}), 0),
            ("fs.mqueue.msg_max", json!({"hostIPC": true}), 1),
        ] {
            let mut errors = Errors::default();
            validate_host_sysctl(name, &spec, &Path::ROOT.child("name"), &mut errors);
            assert_eq!(errors.0.len(), expect, "{name} {spec}");
        }
    }
}
