//! The restricted level: baseline, plus hardening against known building blocks of escapes.

use super::baseline;
use super::finding::Finding;
use super::view::{View, choose_plural, containers_text, distinct_values, is_bool, quote_names};
use crate::context::{list_at, string_at};
use serde_json::Value;

// A list of allowed types instead of forbidden ones, so that a type which a later release adds is
// restricted until it has been judged.
const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn some_finding(reason: &str, detail: String) -> Option<Finding> {
    Some(Finding {
        reason: reason.into(),
        detail,
    })
}

/// Returns all violations.
pub fn check_restricted(view: &View<'_>) -> Vec<Finding> {
    // The restricted level contains the baseline one: a pod has to pass the checks of both.
    let mut all = baseline::check_baseline(view, true);
    let own = [
        check_escalation(view),
        check_capabilities(view),
        proc_mount(view),
        check_volumes(view),
        non_root(view),
        root_user(view),
        check_seccomp(view),
    ];
    all.extend(own.into_iter().flatten());
    all
}

fn linux_only(view: &View<'_>) -> bool {
    // Windows pods reject these Linux fields, so since 1.25 they need not set them.
    view.version.is_at_least(25) && view.is_windows()
}

fn check_escalation(view: &View<'_>) -> Option<Finding> {
    if linux_only(view) || !view.version.is_at_least(8) {
        return None;
    }
    let names =
        view.container_names(|c| !is_bool(c, "/securityContext/allowPrivilegeEscalation", false));
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        containers_text(&names)
    );
    some_finding("allowPrivilegeEscalation != false", detail)
}

fn check_capabilities(view: &View<'_>) -> Option<Finding> {
    if linux_only(view) || !view.version.is_at_least(22) {
        return None;
    }
    let mut details = Vec::new();
    let keeps = |c: &Value| {
        !list_at(c, "/securityContext/capabilities/drop")
            .iter()
            // Only the literal ALL counts. A list of every known capability would miss those of a
            // newer kernel.
            .any(|d| d == "ALL")
    };
    let names = view.container_names(keeps);
    if !names.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            containers_text(&names)
        ));
    }
    // Servers without root need NET_BIND_SERVICE for ports below 1024.
    let (names, extra) = baseline::added_capabilities(view, &["NET_BIND_SERVICE"]);
    if !names.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers_text(&names),
            quote_names(&extra)
        ));
    }
    if details.is_empty() {
        None
    } else {
        some_finding("unrestricted capabilities", details.join("; "))
    }
}

/// Checks `procMount`, whatever `hostUsers` is. The stricter check of all levels does it before
/// 1.35.
fn proc_mount(view: &View<'_>) -> Option<Finding> {
    if view.version.is_at_least(35) {
        baseline::unmasked_proc(view)
    } else {
        None
    }
}

fn check_volumes(view: &View<'_>) -> Option<Finding> {
    let kind = |v: &Value| -> Option<String> {
        // A volume has one source, whose key is the type.
        let mut sources = v
            .as_object()?
            .iter()
            .filter(|(k, s)| *k != "name" && !s.is_null());
        sources
            .find(|(k, _)| !VOLUMES.contains(&k.as_str()))
            .map(|(k, _)| k.clone())
    };
    let all = list_at(view.spec, "/volumes");
    let names: Vec<&str> = all
        .iter()
        .filter(|v| kind(v).is_some())
        .map(|v| string_at(v, "/name"))
        .collect();
    if names.is_empty() {
        return None;
    }
    let kinds = distinct_values(all.iter().filter_map(kind));
    let detail = format!(
        "{} {} {} restricted volume {} {}",
        choose_plural("volume", "volumes", names.len()),
        quote_names(&names),
        choose_plural("uses", "use", names.len()),
        choose_plural("type", "types", kinds.len()),
        quote_names(&kinds)
    );
    some_finding("restricted volume types", detail)
}

fn non_root(view: &View<'_>) -> Option<Finding> {
    const FIELD: &str = "/securityContext/runAsNonRoot";
    let mut setters = Vec::new();
    // An explicit false is reported alone; absent values matter only without one.
    if is_bool(view.spec, FIELD, false) {
        setters.push("pod".to_owned());
    }
    let explicit = view.container_names(|c| is_bool(c, FIELD, false));
    if !explicit.is_empty() {
        setters.push(containers_text(&explicit));
    }
    if !setters.is_empty() {
        let detail = format!(
            "{} must not set securityContext.runAsNonRoot=false",
            setters.join(" and ")
        );
        return some_finding("runAsNonRoot != true", detail);
    }
    // A container without a value inherits the pod's.
    if is_bool(view.spec, FIELD, true) {
        return None;
    }
    let unset = view.container_names(|c| c.pointer(FIELD).is_none_or(Value::is_null));
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.runAsNonRoot=true",
        containers_text(&unset)
    );
    some_finding("runAsNonRoot != true", detail)
}

fn root_user(view: &View<'_>) -> Option<Finding> {
    if !view.version.is_at_least(23) {
        return None;
    }
    // An absent user is no finding: with runAsNonRoot, the kubelet rejects images that run as root.
    let root = |v: &Value| {
        v.pointer("/securityContext/runAsUser")
            .and_then(Value::as_i64)
            == Some(0)
    };
    let mut setters = Vec::new();
    if root(view.spec) {
        setters.push("pod".to_owned());
    }
    let names = view.container_names(root);
    if !names.is_empty() {
        setters.push(containers_text(&names));
    }
    if setters.is_empty() {
        None
    } else {
        some_finding(
            "runAsUser=0",
            format!("{} must not set runAsUser=0", setters.join(" and ")),
        )
    }
}

fn check_seccomp(view: &View<'_>) -> Option<Finding> {
    if linux_only(view) || !view.version.is_at_least(19) {
        return None;
    }
    if let Some(detail) = baseline::explicit_seccomp(view) {
        return some_finding("seccompProfile", detail);
    }
    const TYPE: &str = "/securityContext/seccompProfile/type";
    // A profile of the pod covers containers without one.
    if !string_at(view.spec, TYPE).is_empty() {
        return None;
    }
    let unset = view.container_names(|c| string_at(c, TYPE).is_empty());
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers_text(&unset)
    );
    some_finding("seccompProfile", detail)
}
