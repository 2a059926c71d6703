//! PersistentVolumeClaims and templates of claims.
//!
//! A module beside `storage`, because pods embed claim templates and volumes embed sources of pods.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules::{self, read_quantity};
use crate::selector;
use api_meta::names;
use api_meta::tree::{equal, get, has, opt_text, remove, set, text, texts};
use serde_json::Value;

pub(crate) const CLAIM: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_claim,
    update: validate_claim_update,
    sub: accept_subresource,
};
const ACCESS_MODES: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
pub(crate) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];

fn validate_claim(object: &Value, errors: &mut Errors) {
    validate_claim_spec(get(object, "spec"), &Path::ROOT.child("spec"), errors);
}

/// Validates the access modes of a claim or volume.
pub(crate) fn validate_access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes = texts(spec, "accessModes");
    let at = path.child("accessModes");
    if modes.is_empty() {
        errors.required(&at, "at least 1 access mode is required");
    }
    for mode in modes.iter().filter(|m| !ACCESS_MODES.contains(m)) {
        errors.not_supported(&at, *mode, &ACCESS_MODES);
    }
    // The mode means exclusive use by one pod (KEP-2485), which any other mode contradicts.
    if modes.contains(&"ReadWriteOncePod") && modes.len() > 1 {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

pub(crate) fn validate_attributes_class(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let class = text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        errors.invalid_each(
            &path.child("volumeAttributesClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
}

/// Validates the spec of a claim or of a template of one.
pub(crate) fn validate_claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_access_modes(spec, path, errors);
    if has(spec, "selector") {
        selector::validate_label_selector(get(spec, "selector"), &path.child("selector"), errors);
    }
    let at = path.child("resources");
    let requests = get(get(spec, "resources"), "requests");
    match read_quantity(requests, "storage") {
        None => errors.required(&at.key("storage"), ""),
        Some(size) if size.is_zero() || size.is_negative() => {
            errors.invalid(
                &at.key("storage"),
                requests.get("storage").cloned().unwrap_or_default(),
                rules::NOT_POSITIVE,
            );
        }
        Some(_) => {}
    }
    if let Some(class) = opt_text(spec, "storageClassName").filter(|c| !c.is_empty()) {
        errors.invalid_each(
            &path.child("storageClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
    rules::validate_one_of(spec, "volumeMode", &VOLUME_MODES, path, errors);
    validate_attributes_class(spec, path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        if has(spec, field) {
            let (reference, at) = (get(spec, field), path.child(field));
            for part in ["name", "kind"] {
                if text(reference, part).is_empty() {
                    errors.required(&at.child(part), "");
                }
            }
            // The core group has no other object that contains data. Snapshots are in a group of
            // their own.
            if text(reference, "apiGroup").is_empty()
                && text(reference, "kind") != "PersistentVolumeClaim"
            {
                errors.invalid(
                    &at,
                    text(reference, "kind"),
                    "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                );
            }
        }
    }
}

/// Validates the spec of a StatefulSet's claim template, which keeps fields that a claim drops.
pub(crate) fn validate_claim_template_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_claim_spec(spec, path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        let (reference, at) = (get(spec, field), path.child(field));
        let (group, namespace) = (text(reference, "apiGroup"), text(reference, "namespace"));
        if !group.is_empty() {
            errors.invalid_each(
                &at.child("apiGroup"),
                group,
                names::dns1123_subdomain(group),
            );
        }
        if !namespace.is_empty() {
            errors.invalid_each(
                &at.child("namespace"),
                namespace,
                names::dns1123_label(namespace),
            );
        }
    }
    let (source, reference) = (get(spec, "dataSource"), get(spec, "dataSourceRef"));
    if !source.is_null() && !reference.is_null() && !equal(source, reference) {
        errors.invalid(path, "", "must match dataSourceRef");
    }
}

const CLAIM_UPDATE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

fn validate_claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_claim(new, errors);
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    let mut munged = n.clone();
    // The binder sets the volume's name, a bound claim may grow, and a claim without a class gets
    // the default one later.
    if text(o, "volumeName").is_empty() {
        set(&mut munged, "volumeName", get(o, "volumeName").clone());
    }
    let bound = text(get(old, "status"), "phase") == "Bound";
    if bound {
        set(&mut munged, "resources", get(o, "resources").clone());
        set(
            &mut munged,
            "volumeAttributesClassName",
            get(o, "volumeAttributesClassName").clone(),
        );
    }
    if !has(o, "storageClassName") {
        remove(&mut munged, "storageClassName");
    }
    if !equal(&munged, o) {
        errors.forbidden(&path, format!("{CLAIM_UPDATE}\n"));
    }
    let size = |spec: &Value| read_quantity(get(get(spec, "resources"), "requests"), "storage");
    if let (true, Some(after), Some(before)) = (bound, size(n), size(o))
        && after < before
    {
        let at = path.child("resources");
        let at = at.child("requests");
        errors.forbidden(
            &at.child("storage"),
            "field can not be less than previous value",
        );
    }
}
