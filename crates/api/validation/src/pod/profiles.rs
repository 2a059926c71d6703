//! Seccomp and AppArmor profiles, as fields and as the annotations before them.

use super::context::visit_containers;
use super::relative_path::validate_descending_path;
use crate::field::{Errors, Path};
use api_meta::tree::{get, has, opt_text, text};
use serde_json::Value;

const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
pub(crate) const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
pub(crate) const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
pub(crate) const APPARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCAL: &str = "localhost/";
/// Longest path of Linux (`PATH_MAX`), without the end of the string.
const LONGEST_PATH: usize = 4095;
const PROFILE_TYPE: &str = "type in annotation and field must match";
const PROFILE_NAME: &str = "profile in annotation and field must match";

/// Validates `seccompProfile`.
pub fn validate_seccomp_profile(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(context, "seccompProfile") {
        return;
    }
    let (profile, at) = (get(context, "seccompProfile"), path.child("seccompProfile"));
    let file = opt_text(profile, "localhostProfile");
    validate_profile_type(profile, "seccompProfile", &at, errors);
    let local = at.child("localhostProfile");
    match (text(profile, "type"), file) {
        ("Localhost", None) => {
            errors.required(&local, "must be set when seccomp type is Localhost");
        }
        // The kubelet joins the name to its profile directory and reads the file as root.
        ("Localhost", Some(file)) => validate_descending_path(file, &local, errors),
        (_, Some(_)) => {
            let detail = "can only be set when seccomp type is Localhost";
            errors.invalid(&local, profile.clone(), detail);
        }
        (_, None) => {}
    }
}

/// Validates `appArmorProfile`.
pub fn validate_apparmor_profile(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(context, "appArmorProfile") {
        return;
    }
    let (profile, at) = (
        get(context, "appArmorProfile"),
        path.child("appArmorProfile"),
    );
    let local = at.child("localhostProfile");
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    match (text(profile, "type"), opt_text(profile, "localhostProfile")) {
        ("Localhost", None) => errors.required(&local, MISSING),
        ("Localhost", Some(name)) => {
            if name.trim() != name {
                errors.invalid(&local, name, "must not be padded with whitespace");
            } else if name.is_empty() {
                errors.required(&local, MISSING);
            }
            if name.len() > LONGEST_PATH {
                errors.too_long(&local, LONGEST_PATH);
            }
        }
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let detail = "can only be set when AppArmor type is Localhost";
            errors.invalid(&local, name, detail);
        }
        ("RuntimeDefault" | "Unconfined", None) => {}
        _ => validate_profile_type(profile, "appArmorProfile", &at, errors),
    }
}

fn validate_profile_type(profile: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("type");
    match text(profile, "type") {
        "" => errors.required(&at, format!("type is required when {field} is set")),
        other if !TYPES.contains(&other) => errors.not_supported(&at, other, &TYPES),
        _ => {}
    }
}

/// Validates the annotations that named profiles before the fields. `path` is that of the
/// annotations.
pub fn validate_profile_annotations(
    annotations: &Value,
    spec: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if let Some(profile) = opt_text(annotations, SECCOMP_POD) {
        validate_seccomp_annotation(profile, &path.child(SECCOMP_POD), errors);
    }
    for (key, value) in annotations.as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if key.starts_with(SECCOMP_CONTAINER) {
            validate_seccomp_annotation(value, &path.child(key), errors);
        }
        if let Some(container) = key.strip_prefix(APPARMOR_CONTAINER) {
            if !has_container(spec, container) {
                errors.invalid(&path.key(key), container, "container not found");
            }
            let is_known = matches!(value, "" | "runtime/default" | "unconfined");
            if !is_known && !value.starts_with(LOCAL) {
                let quoted = crate::field::go_quote(value);
                let detail = format!("invalid AppArmor profile name: {quoted}");
                errors.invalid(&path.key(key), value, detail);
            }
        }
    }
}

fn validate_seccomp_annotation(profile: &str, path: &Path<'_>, errors: &mut Errors) {
    match profile {
        "runtime/default" | "docker/default" | "unconfined" => {}
        other => match other.strip_prefix(LOCAL) {
            Some(file) => validate_descending_path(file, path, errors),
            None => errors.invalid(path, profile, "must be a valid seccomp profile"),
        },
    }
}

fn has_container(spec: &Value, name: &str) -> bool {
    let mut found = false;
    visit_containers(spec, &Path::ROOT, &mut |container, _| {
        found |= text(container, "name") == name;
    });
    found
}

/// Checks that profiles which are given as annotation and as field are the same. `path` is that of
/// the spec.
pub fn validate_profiles_match(
    metadata: &Value,
    spec: &Value,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let annotations = get(metadata, "annotations");
    if annotations.as_object().is_none_or(|all| all.is_empty()) {
        return;
    }
    let of_pod = get(spec, "securityContext");
    let at = path.child("securityContext");
    if let Some(annotation) = opt_text(annotations, SECCOMP_POD) {
        let at = at.child("seccompProfile");
        compare_profiles(
            annotation,
            get(of_pod, "seccompProfile"),
            "seccomp",
            &at,
            errors,
        );
    }
    visit_containers(spec, path, &mut |container, at| {
        let own = get(get(container, "securityContext"), "seccompProfile");
        let key = format!("{SECCOMP_CONTAINER}{}", text(container, "name"));
        if let Some(annotation) = opt_text(annotations, &key) {
            let at = at.child("securityContext");
            compare_profiles(
                annotation,
                own,
                "seccomp",
                &at.child("seccompProfile"),
                errors,
            );
        }
    });
    // A pod of Windows has no AppArmor, and its fields are rejected by another rule.
    if text(get(spec, "os"), "name") == "windows" {
        return;
    }
    visit_containers(spec, path, &mut |container, at| {
        let own = get(get(container, "securityContext"), "appArmorProfile");
        let profile = match own {
            Value::Null => get(of_pod, "appArmorProfile"),
            own => own,
        };
        let key = format!("{APPARMOR_CONTAINER}{}", text(container, "name"));
        if let Some(annotation) = opt_text(annotations, &key) {
            let at = at.child("securityContext");
            compare_profiles(
                annotation,
                profile,
                "apparmor",
                &at.child("appArmorProfile"),
                errors,
            );
        }
    });
}

fn compare_profiles(
    annotation: &str,
    profile: &Value,
    what: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let is_default =
        annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default");
    let is_same_type = match text(profile, "type") {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => is_default,
        "Localhost" => annotation.starts_with(LOCAL),
        _ => return,
    };
    if !is_same_type {
        errors.forbidden(&path.child("type"), format!("{what} {PROFILE_TYPE}"));
        return;
    }
    let file = annotation.strip_prefix(LOCAL);
    if text(profile, "type") == "Localhost" && file != opt_text(profile, "localhostProfile") {
        let at = path.child("localhostProfile");
        errors.forbidden(&at, format!("{what} {PROFILE_NAME}"));
    }
}
