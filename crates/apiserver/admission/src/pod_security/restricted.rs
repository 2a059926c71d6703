//! The restricted level: baseline, plus hardening against known building blocks of escapes.

use super::Finding;
use super::baseline;
use super::view::{View, containers, distinct, is, plural, quoted};
use crate::context::{list, text};
use serde_json::Value;

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

fn finding(reason: &str, detail: String) -> Option<Finding> {
    Some(Finding {
        reason: reason.into(),
        detail,
    })
}

/// Returns all violations.
pub fn check(view: &View<'_>) -> Vec<Finding> {
    let mut all = baseline::check(view, true);
    let own = [
        escalation(view),
        capabilities(view),
        volumes(view),
        non_root(view),
        root_user(view),
        seccomp(view),
    ];
    all.extend(own.into_iter().flatten());
    all
}

fn linux_only(view: &View<'_>) -> bool {
    view.version.since(25) && view.windows()
}

fn escalation(view: &View<'_>) -> Option<Finding> {
    if linux_only(view) || !view.version.since(8) {
        return None;
    }
    let names = view.named(|c| !is(c, "/securityContext/allowPrivilegeEscalation", false));
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        containers(&names)
    );
    finding("allowPrivilegeEscalation != false", detail)
}

fn capabilities(view: &View<'_>) -> Option<Finding> {
    if linux_only(view) || !view.version.since(22) {
        return None;
    }
    let mut details = Vec::new();
    let keeps = |c: &Value| {
        !list(c, "/securityContext/capabilities/drop")
            .iter()
            .any(|d| d == "ALL")
    };
    let names = view.named(keeps);
    if !names.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            containers(&names)
        ));
    }
    let (names, extra) = baseline::added(view, &["NET_BIND_SERVICE"]);
    if !names.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&names),
            quoted(&extra)
        ));
    }
    if details.is_empty() {
        None
    } else {
        finding("unrestricted capabilities", details.join("; "))
    }
}

fn volumes(view: &View<'_>) -> Option<Finding> {
    let kind = |v: &Value| -> Option<String> {
        let mut sources = v
            .as_object()?
            .iter()
            .filter(|(k, s)| *k != "name" && !s.is_null());
        sources
            .find(|(k, _)| !VOLUMES.contains(&k.as_str()))
            .map(|(k, _)| k.clone())
    };
    let all = list(view.spec, "/volumes");
    let names: Vec<&str> = all
        .iter()
        .filter(|v| kind(v).is_some())
        .map(|v| text(v, "/name"))
        .collect();
    if names.is_empty() {
        return None;
    }
    let kinds = distinct(all.iter().filter_map(kind));
    let detail = format!(
        "{} {} {} restricted volume {} {}",
        plural("volume", "volumes", names.len()),
        quoted(&names),
        plural("uses", "use", names.len()),
        plural("type", "types", kinds.len()),
        quoted(&kinds)
    );
    finding("restricted volume types", detail)
}

fn non_root(view: &View<'_>) -> Option<Finding> {
    const FIELD: &str = "/securityContext/runAsNonRoot";
    let mut setters = Vec::new();
    if is(view.spec, FIELD, false) {
        setters.push("pod".to_owned());
    }
    let explicit = view.named(|c| is(c, FIELD, false));
    if !explicit.is_empty() {
        setters.push(containers(&explicit));
    }
    if !setters.is_empty() {
        let detail = format!(
            "{} must not set securityContext.runAsNonRoot=false",
            setters.join(" and ")
        );
        return finding("runAsNonRoot != true", detail);
    }
    if is(view.spec, FIELD, true) {
        return None;
    }
    let unset = view.named(|c| c.pointer(FIELD).is_none_or(Value::is_null));
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.runAsNonRoot=true",
        containers(&unset)
    );
    finding("runAsNonRoot != true", detail)
}

fn root_user(view: &View<'_>) -> Option<Finding> {
    if !view.version.since(23) {
        return None;
    }
    let root = |v: &Value| {
        v.pointer("/securityContext/runAsUser")
            .and_then(Value::as_i64)
            == Some(0)
    };
    let mut setters = Vec::new();
    if root(view.spec) {
        setters.push("pod".to_owned());
    }
    let names = view.named(root);
    if !names.is_empty() {
        setters.push(containers(&names));
    }
    if setters.is_empty() {
        None
    } else {
        finding(
            "runAsUser=0",
            format!("{} must not set runAsUser=0", setters.join(" and ")),
        )
    }
}

fn seccomp(view: &View<'_>) -> Option<Finding> {
    if linux_only(view) || !view.version.since(19) {
        return None;
    }
    if let Some(detail) = baseline::explicit_seccomp(view) {
        return finding("seccompProfile", detail);
    }
    const TYPE: &str = "/securityContext/seccompProfile/type";
    if !text(view.spec, TYPE).is_empty() {
        return None;
    }
    let unset = view.named(|c| text(c, TYPE).is_empty());
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&unset)
    );
    finding("seccompProfile", detail)
}
