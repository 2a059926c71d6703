//! PersistentVolumes, PersistentVolumeClaims, StorageClasses and CSI objects.

mod csi;

pub use csi::{
    CSI_DRIVER, CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT, VOLUME_ATTRIBUTES_CLASS,
};

use crate::dispatch::{Rules, no_sub};
use crate::field::{Errors, Path};
use crate::metadata::NameRule;
use crate::pod;
use crate::rules::{self, amount};
use crate::selector;
use crate::tree::{entries, equal, get, has, list, opt_text, remove, same, set, text, texts};
use api_meta::names;
use serde_json::Value;

pub const VOLUME: Rules = Rules {
    name: NameRule::Subdomain,
    create: volume,
    update: update_volume,
    sub: no_sub,
};
pub const CLAIM: Rules = Rules {
    name: NameRule::Subdomain,
    create: claim,
    update: update_claim,
    sub: no_sub,
};
pub const STORAGE_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: class,
    update: update_class,
    sub: no_sub,
};

const ACCESS: [&str; 4] = [
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const MODES: [&str; 2] = ["Block", "Filesystem"];
const RECLAIM: [&str; 3] = ["Delete", "Recycle", "Retain"];

fn access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let modes = texts(spec, "accessModes");
    let at = path.child("accessModes");
    if modes.is_empty() {
        errors.required(&at, "at least 1 access mode is required");
    }
    for mode in modes.iter().filter(|m| !ACCESS.contains(m)) {
        errors.not_supported(&at, *mode, &ACCESS);
    }
    if modes.contains(&"ReadWriteOncePod") && modes.len() > 1 {
        errors.forbidden(&at, "may not use ReadWriteOncePod with other access modes");
    }
}

fn volume(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    access_modes(spec, &path, errors);
    capacity(spec, &path.child("capacity"), errors);
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    rules::one_of(
        spec,
        "persistentVolumeReclaimPolicy",
        &RECLAIM,
        &path,
        errors,
    );
    if has(spec, "nodeAffinity") {
        let at = path.child("nodeAffinity");
        if has(get(spec, "nodeAffinity"), "required") {
            pod::node_selector(
                get(get(spec, "nodeAffinity"), "required"),
                &at.child("required"),
                errors,
            );
        } else {
            errors.required(
                &at.child("required"),
                "must specify required node constraints",
            );
        }
    }
    source(spec, &path, errors);
    if policy == "Recycle" {
        let at = path.child("persistentVolumeReclaimPolicy");
        if text(get(spec, "hostPath"), "path") == "/" {
            errors.forbidden(&at, "may not be 'recycle' for a hostPath mount of '/'");
        }
    }
    let class = text(spec, "storageClassName");
    if !class.is_empty() {
        errors.invalid_each(
            &path.child("storageClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
    rules::one_of(spec, "volumeMode", &MODES, &path, errors);
    attributes_class(spec, &path, errors);
}

fn attributes_class(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let class = text(spec, "volumeAttributesClassName");
    if !class.is_empty() {
        errors.invalid_each(
            &path.child("volumeAttributesClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
}

fn capacity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all: Vec<&String> = entries(spec, "capacity").map(|(k, _)| k).collect();
    if all.is_empty() {
        errors.required(path, "");
    }
    if all.len() != 1 || !all.iter().any(|n| *n == "storage") {
        errors.not_supported(path, get(spec, "capacity").clone(), &["storage"]);
    }
    for (name, value) in entries(spec, "capacity") {
        if amount(get(spec, "capacity"), name).is_some_and(|q| q.is_negative() || q.is_zero()) {
            errors.invalid(&path.key(name), value.clone(), rules::NOT_POSITIVE);
        }
    }
}

fn source(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let found = pod::count_sources(spec, false, path, errors);
    let Some(kind) = found.first() else {
        errors.required(path, "must specify a volume type");
        return;
    };
    let (source, at) = (get(spec, kind), path.child(kind));
    match *kind {
        "hostPath" => pod::host_path(source, &at, errors),
        "local" => {
            if text(source, "path").is_empty() {
                errors.required(&at.child("path"), "");
            }
            if !has(spec, "nodeAffinity") {
                errors.required(
                    &path.child("nodeAffinity"),
                    "Local volume requires node affinity",
                );
            }
        }
        "csi" => {
            for field in ["driver", "volumeHandle"] {
                if text(source, field).is_empty() {
                    errors.required(&at.child(field), "");
                }
            }
            pod::driver_name(text(source, "driver"), &at.child("driver"), errors);
        }
        kind => pod::needed_by_source(kind, source, &at, errors),
    }
}

const SOURCE_FIELDS_KEPT: [&str; 9] = [
    "capacity",
    "accessModes",
    "claimRef",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "mountOptions",
    "volumeMode",
    "nodeAffinity",
    "volumeAttributesClassName",
];

fn update_volume(new: &Value, old: &Value, errors: &mut Errors) {
    volume(new, errors);
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    let only_source = |spec: &Value| {
        let mut spec = spec.clone();
        for field in SOURCE_FIELDS_KEPT {
            remove(&mut spec, field);
        }
        if let Some(csi) = spec.get_mut("csi") {
            remove(csi, "controllerExpandSecretRef");
        }
        spec
    };
    let path = Path::ROOT.child("spec");
    if !equal(&only_source(n), &only_source(o)) {
        errors.forbidden(
            &path.child("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation\n",
        );
    }
    if !same(n, o, "volumeMode") {
        errors.invalid(
            &Path::ROOT.child("volumeMode"),
            get(n, "volumeMode").clone(),
            rules::IMMUTABLE,
        );
    }
    if has(o, "nodeAffinity") && !same(n, o, "nodeAffinity") {
        let shown = get(n, "nodeAffinity").clone();
        errors.invalid(
            &path.child("nodeAffinity"),
            shown,
            "field is immutable, except for updating from beta label to GA",
        );
    }
}

fn claim(object: &Value, errors: &mut Errors) {
    claim_spec(get(object, "spec"), &Path::ROOT.child("spec"), errors);
}

/// Validates the spec of a claim or of a template of one.
pub fn claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    access_modes(spec, path, errors);
    if has(spec, "selector") {
        selector::validate(get(spec, "selector"), &path.child("selector"), errors);
    }
    let at = path.child("resources");
    let requests = get(get(spec, "resources"), "requests");
    match amount(requests, "storage") {
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
    rules::one_of(spec, "volumeMode", &MODES, path, errors);
    attributes_class(spec, path, errors);
    for field in ["dataSource", "dataSourceRef"] {
        if has(spec, field) {
            let (reference, at) = (get(spec, field), path.child(field));
            for part in ["name", "kind"] {
                if text(reference, part).is_empty() {
                    errors.required(&at.child(part), "");
                }
            }
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
pub fn claim_template(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    claim_spec(spec, path, errors);
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

fn update_claim(new: &Value, old: &Value, errors: &mut Errors) {
    claim(new, errors);
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
    let size = |spec: &Value| amount(get(get(spec, "resources"), "requests"), "storage");
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

fn class(object: &Value, errors: &mut Errors) {
    let root = Path::ROOT;
    let provisioner = text(object, "provisioner");
    if provisioner.is_empty() {
        errors.required(&root.child("provisioner"), "");
    } else {
        let lower = provisioner.to_ascii_lowercase();
        errors.invalid_each(
            &root.child("provisioner"),
            provisioner,
            names::qualified_name(&lower),
        );
    }
    let at = root.child("parameters");
    let mut size = 0;
    for (key, value) in entries(object, "parameters") {
        if key.is_empty() {
            errors.invalid(&at, key.as_str(), "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if entries(object, "parameters").count() > 512 {
        errors.too_long(&at, 512);
    }
    if size > 256 * 1024 {
        errors.too_long(&at, 256 * 1024);
    }
    rules::one_of(
        object,
        "reclaimPolicy",
        &["Delete", "Retain"],
        &root,
        errors,
    );
    rules::one_of(
        object,
        "volumeBindingMode",
        &["Immediate", "WaitForFirstConsumer"],
        &root,
        errors,
    );
    let at = root.child("allowedTopologies");
    for (i, term) in list(object, "allowedTopologies").iter().enumerate() {
        let at = at.index(i);
        let at = at.child("matchLabelExpressions");
        for (j, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
            let at = at.index(j);
            if list(expression, "values").is_empty() {
                errors.required(&at.child("values"), "");
            }
            let key = text(expression, "key");
            errors.invalid_each(&at.child("key"), key, names::qualified_name(key));
        }
    }
}

fn update_class(new: &Value, old: &Value, errors: &mut Errors) {
    for field in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        rules::immutable(new, old, field, &Path::ROOT, errors);
    }
    class(new, errors);
}
