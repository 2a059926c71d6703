//! Specs of claims and of templates of claims.

use crate::field::{Errors, Path};
use crate::rules::{self, read_quantity};
use crate::selector;
use api_meta::names;
use api_meta::tree::{get, has, opt_text, same, text, texts};
use serde_json::Value;

const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
pub(crate) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

/// Rules that an old claim lifts.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub allows_values: bool,
    pub allows_groups: bool,
}

/// Validates the values of access modes of a claim or volume.
pub(crate) fn validate_mode_values(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // Unknown modes are reported for the list, without an index, as upstream.
    let modes = texts(spec, "accessModes");
    for mode in modes.iter().filter(|m| !ACCESS_MODES.contains(m)) {
        errors.not_supported(path, *mode, &ACCESS_MODES);
    }
    let other = |mode: &&str| ACCESS_MODES.contains(mode) && *mode != "ReadWriteOncePod";
    // The mode means exclusive use by one pod (KEP-2485), which any other mode contradicts.
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(other) {
        errors.forbidden(path, "may not use ReadWriteOncePod with other access modes");
    }
}

/// Validates the spec of a claim or of a template of one.
pub(crate) fn validate_claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let options = Options {
        allows_values: false,
        allows_groups: false,
    };
    validate_spec(spec, options, path, errors);
}

/// Validates the spec of a StatefulSet's claim template.
pub(crate) fn validate_claim_template_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_claim_spec(spec, path, errors);
}

pub(super) fn validate_spec(spec: &Value, options: Options, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("accessModes");
    // The binder compares modes as sets. An empty set would match each volume.
    if texts(spec, "accessModes").is_empty() {
        errors.required(&at, "at least 1 access mode is required");
    }
    selector::validate_selector_leniently(
        get(spec, "selector"),
        options.allows_values,
        &path.child("selector"),
        errors,
    );
    validate_mode_values(spec, &at, errors);
    validate_size(spec, &path.child("resources"), errors);
    for field in ["storageClassName", "volumeAttributesClassName"] {
        // The empty class is valid and differs from none: it asks for a volume without a class.
        if let Some(class) = opt_text(spec, field).filter(|class| !class.is_empty()) {
            errors.invalid_each(&path.child(field), class, names::dns1123_subdomain(class));
        }
        // Upstream has these checks between the two classes. The order decides about the first
        // message.
        if field == "storageClassName" {
            rules::validate_one_of(spec, "volumeMode", &VOLUME_MODES, path, errors);
            validate_data_sources(spec, options, path, errors);
        }
    }
}

fn validate_size(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let requests = get(get(spec, "resources"), "requests");
    // Upstream's path leaves out `requests`.
    let at = path.key("storage");
    match read_quantity(requests, "storage") {
        None => errors.required(&at, ""),
        Some(size) if size.is_zero() || size.is_negative() => {
            errors.invalid(&at, get(requests, "storage").clone(), rules::NOT_ABOVE_ZERO);
        }
        Some(_) => {}
    }
}

fn validate_data_sources(spec: &Value, options: Options, path: &Path<'_>, errors: &mut Errors) {
    let (source, reference) = (get(spec, "dataSource"), get(spec, "dataSourceRef"));
    for (field, value) in [("dataSource", source), ("dataSourceRef", reference)] {
        if !value.is_null() {
            validate_data_source(value, options.allows_groups, &path.child(field), errors);
        }
    }
    if reference.is_null() {
        return;
    }
    let shown = || path.child("dataSource").to_string();
    let namespace = text(reference, "namespace");
    if !namespace.is_empty() {
        let at = path.child("dataSourceRef");
        let at = at.child("namespace");
        errors.invalid_each(&at, namespace, names::dns1123_label(namespace));
        // The older field has no namespace, so both could not name one object.
        if !source.is_null() {
            let detail = "may not be specified when dataSourceRef.namespace is specified";
            errors.invalid(path, shown(), detail);
        }
    } else if !source.is_null() {
        // Both fields are synchronized on creation, so a difference is a contradiction by the
        // client.
        let is_same = ["apiGroup", "kind", "name"]
            .iter()
            .all(|field| same(source, reference, field));
        if !is_same {
            errors.invalid(path, shown(), "must match dataSourceRef");
        }
    }
}

fn validate_data_source(source: &Value, allows_groups: bool, path: &Path<'_>, errors: &mut Errors) {
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    for field in ["name", "kind"] {
        // Upstream reports the name before the kind.
        if text(source, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    // The core group has no other object that contains data. Snapshots are in a group of their own.
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(
            path,
            kind,
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    // Upstream checked groups only later, so old claims may have any. The spec is immutable, so
    // they keep it.
    if !group.is_empty() && !allows_groups {
        let at = path.child("apiGroup");
        errors.invalid_each(&at, group, names::dns1123_subdomain(group));
    }
}

pub(super) fn has_source_group(spec: &Value) -> bool {
    ["dataSource", "dataSourceRef"]
        .iter()
        .any(|field| has(get(spec, field), "apiGroup"))
}
