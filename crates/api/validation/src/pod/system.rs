//! The operating system that a pod is for.

use super::context::visit_containers;
use crate::field::{Errors, Path};
use api_meta::tree::{flag, get, has, list, opt_text, text};
use serde_json::Value;

const WINDOWS_OPTIONS: &str = "windows options cannot be set for a linux pod";
const LINUX_FIELD: &str = "cannot be set for a windows pod";
/// Fields of a pod's security context that only Linux has.
const OF_POD_CONTEXT: [&str; 11] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
];
/// Fields of a container's security context that only Linux has.
const OF_CONTAINER_CONTEXT: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

/// Validates `os` and the fields that the other system does not have (KEP-2802). A pod without `os`
/// may set all of them.
pub fn validate_operating_system(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(spec, "os") {
        return;
    }
    let at = path.child("os");
    match text(get(spec, "os"), "name") {
        "" => errors.required(&at.child("name"), ""),
        "linux" => validate_linux_pod(spec, path, errors),
        "windows" => validate_windows_pod(spec, path, errors),
        other => errors.not_supported(&at, other, &["linux", "windows"]),
    }
}

fn validate_linux_pod(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut check = |parent: &Value, path: &Path<'_>| {
        if has(get(parent, "securityContext"), "windowsOptions") {
            let at = path.child("securityContext");
            errors.forbidden(&at.child("windowsOptions"), WINDOWS_OPTIONS);
        }
    };
    check(spec, path);
    visit_containers(spec, path, &mut check);
}

fn validate_windows_pod(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, is_set) in [
        ("hostUsers", has(spec, "hostUsers")),
        ("hostPID", flag(spec, "hostPID")),
        ("hostIPC", flag(spec, "hostIPC")),
        ("shareProcessNamespace", has(spec, "shareProcessNamespace")),
    ] {
        if is_set {
            errors.forbidden(&path.child(field), LINUX_FIELD);
        }
    }
    forbid_fields(spec, &OF_POD_CONTEXT, path, errors);
    visit_containers(spec, path, &mut |container, at| {
        forbid_fields(container, &OF_CONTAINER_CONTEXT, at, errors);
    });
}

fn forbid_fields(parent: &Value, fields: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let (context, at) = (
        get(parent, "securityContext"),
        path.child("securityContext"),
    );
    for field in fields {
        // An empty list of sysctls says nothing, as upstream reads it.
        let is_empty = *field == "sysctls" && list(context, field).is_empty();
        if has(context, field) && !is_empty {
            errors.forbidden(&at.child(field), LINUX_FIELD);
        }
    }
}

const LINUX_SIGNALS: &str = "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGRTMAX SIGRTMAX-1 SIGRTMAX-10 SIGRTMAX-11 SIGRTMAX-12 SIGRTMAX-13 SIGRTMAX-14 SIGRTMAX-2 SIGRTMAX-3 SIGRTMAX-4 SIGRTMAX-5 SIGRTMAX-6 SIGRTMAX-7 SIGRTMAX-8 SIGRTMAX-9 SIGRTMIN SIGRTMIN+1 SIGRTMIN+10 SIGRTMIN+11 SIGRTMIN+12 SIGRTMIN+13 SIGRTMIN+14 SIGRTMIN+15 SIGRTMIN+2 SIGRTMIN+3 SIGRTMIN+4 SIGRTMIN+5 SIGRTMIN+6 SIGRTMIN+7 SIGRTMIN+8 SIGRTMIN+9 SIGSEGV SIGSTKFLT SIGSTOP SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM SIGWINCH SIGXCPU SIGXFSZ";
const WINDOWS_SIGNALS: [&str; 2] = ["SIGKILL", "SIGTERM"];

/// Validates `stopSignal`, whose names depend on the system.
pub fn validate_stop_signal(
    lifecycle: &Value,
    system: Option<&str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(signal) = opt_text(lifecycle, "stopSignal") else {
        return;
    };
    let at = path.child("stopSignal");
    let known: Vec<&str> = match system {
        None => {
            let detail = "may not be set for containers with empty `spec.os.name`";
            errors.forbidden(&at, detail);
            return;
        }
        Some("windows") => WINDOWS_SIGNALS.to_vec(),
        Some("linux") => LINUX_SIGNALS.split(' ').collect(),
        Some(_) => return,
    };
    if !known.contains(&signal) {
        errors.not_supported(&at, signal, &known);
    }
}
