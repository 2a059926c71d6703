//! Environment variables.

use super::context::visit_containers;
use super::relative_path::validate_no_backsteps;
use crate::field::{Errors, Path};
use crate::metadata::NameRule;
use crate::pod::field_ref::{ENV_FIELDS, validate_field_ref, validate_resource_field_ref};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, list, text};
use serde_json::Value;

const SOURCES: [&str; 5] = [
    "fieldRef",
    "resourceFieldRef",
    "configMapKeyRef",
    "secretKeyRef",
    "fileKeyRef",
];

/// Validates `env` and `envFrom` of a container.
pub fn validate_env(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("env");
    for (i, variable) in list(container, "env").iter().enumerate() {
        let at = at.index(i);
        let name = text(variable, "name");
        // Names that a shell could not read (`my.var`, `1A`) are allowed since 1.32 (KEP-4369): the
        // container may not have a shell.
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        } else {
            errors.invalid_each(&at.child("name"), name, validate_variable_name(name));
        }
        if has(variable, "valueFrom") {
            validate_env_source(variable, &at.child("valueFrom"), errors);
        }
    }
    let at = path.child("envFrom");
    for (i, from) in list(container, "envFrom").iter().enumerate() {
        validate_env_from(from, &at, i, errors);
    }
}

fn validate_variable_name(name: &str) -> Vec<String> {
    if name.bytes().all(|b| (0x20..0x7f).contains(&b) && b != b'=') {
        return Vec::new();
    }
    vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".into()]
}

fn validate_env_source(variable: &Value, path: &Path<'_>, errors: &mut Errors) {
    let from = get(variable, "valueFrom");
    let mut sources = 0;
    for field in SOURCES.into_iter().filter(|field| has(from, field)) {
        // Each source is validated even if there are several, so that all mistakes are reported at
        // once.
        sources += 1;
        let (part, at) = (get(from, field), path.child(field));
        match field {
            "fieldRef" => validate_field_ref(part, &ENV_FIELDS, &at, errors),
            "resourceFieldRef" => validate_resource_field_ref(part, false, &at, errors),
            "fileKeyRef" => validate_file_key_ref(part, &at, errors),
            _ => validate_key_ref(part, &at, errors),
        }
    }
    if sources == 0 {
        let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
        errors.invalid(path, "", detail);
    // Which of both wins would depend on the order in which a client reads the fields.
    } else if !text(variable, "value").is_empty() {
        errors.invalid(path, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(
            path,
            "",
            "may not have more than one field specified at a time",
        );
    }
}

fn validate_file_key_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, problems) in [
        ("key", validate_variable_name as fn(&str) -> Vec<String>),
        ("volumeName", names::dns1123_label),
    ] {
        let value = text(reference, field);
        if value.is_empty() {
            errors.required(&path.child(field), "");
        } else {
            errors.invalid_each(&path.child(field), value, problems(value));
        }
    }
    let file = text(reference, "path");
    if file.is_empty() {
        errors.required(&path.child("path"), "");
    }
    validate_no_backsteps(file, &path.child("path"), errors);
}

/// Checks the volumes of variables that are read from files: an init container writes the file into
/// an emptyDir of the pod (KEP-3721).
pub fn validate_file_key_volumes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    visit_containers(spec, path, &mut |container, at| {
        let at = at.child("env");
        for (i, variable) in list(container, "env").iter().enumerate() {
            let from = get(variable, "valueFrom");
            if has(from, "fileKeyRef") {
                let at = at.index(i);
                let at = at.child("valueFrom");
                let name = text(get(from, "fileKeyRef"), "volumeName");
                let at = at.child("fileKeyRef");
                validate_file_key_volume(spec, name, &at.child("volumeName"), errors);
            }
        }
    });
}

fn validate_file_key_volume(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut volumes = list(spec, "volumes").iter();
    match volumes.rfind(|volume| text(volume, "name") == name) {
        None => errors.not_found(path, name),
        Some(volume) if !has(volume, "emptyDir") => {
            errors.invalid(path, name, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}

fn validate_key_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A name is required here, unlike in references of the pod such as `imagePullSecrets`.
    let name = text(reference, "name");
    let at = path.child("name");
    errors.invalid_each(&at, name, names::dns1123_subdomain(name));
    let key = text(reference, "key");
    if key.is_empty() {
        errors.required(&path.child("key"), "");
    } else {
        errors.invalid_each(&path.child("key"), key, rules::config_key_problems(key));
    }
}

fn validate_env_from(from: &Value, list_path: &Path<'_>, index: usize, errors: &mut Errors) {
    let path = list_path.index(index);
    // A key that is no valid name after the prefix is skipped by the kubelet with an event, since
    // keys may change later.
    let prefix = text(from, "prefix");
    if !prefix.is_empty() {
        errors.invalid_each(
            &path.child("prefix"),
            prefix,
            validate_variable_name(prefix),
        );
    }
    let sources: Vec<&str> = ["configMapRef", "secretRef"]
        .into_iter()
        .filter(|f| has(from, f))
        .collect();
    for field in &sources {
        let name = text(get(from, field), "name");
        if name.is_empty() {
            errors.required(&path.child(field).child("name"), "");
        }
        if !name.is_empty() {
            // Upstream reads the name as a prefix of names here, which may end with a dash.
            let problems = NameRule::Subdomain.problems(name, true);
            errors.invalid_each(&path.child(field).child("name"), name, problems);
        }
    }
    match sources.len() {
        // Upstream reports the list here, not the element. Clients match the path.
        0 => errors.invalid(
            list_path,
            "",
            "must specify one of: `configMapRef` or `secretRef`",
        ),
        1 => {}
        _ => errors.invalid(
            list_path,
            "",
            "may not have more than one field specified at a time",
        ),
    }
}
