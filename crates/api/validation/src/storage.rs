//! PersistentVolumes, StorageClasses and CSI objects.

mod csi;

pub use csi::{
    CSI_DRIVER, CSI_NODE, CSI_STORAGE_CAPACITY, VOLUME_ATTACHMENT, VOLUME_ATTRIBUTES_CLASS,
};

use crate::claim::{VOLUME_MODES, validate_access_modes, validate_attributes_class};
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod;
use crate::rules::{self, read_quantity};
use api_meta::names;
use api_meta::tree::{entries, equal, get, has, list, remove, same, text};
use serde_json::Value;

pub const VOLUME: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_volume,
    update: validate_volume_update,
    sub: accept_subresource,
};
pub const STORAGE_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_storage_class,
    update: validate_storage_class_update,
    sub: accept_subresource,
};

const RECLAIM: [&str; 3] = ["Delete", "Recycle", "Retain"];

fn validate_volume(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_access_modes(spec, &path, errors);
    validate_capacity(spec, &path.child("capacity"), errors);
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    rules::validate_one_of(
        spec,
        "persistentVolumeReclaimPolicy",
        &RECLAIM,
        &path,
        errors,
    );
    if has(spec, "nodeAffinity") {
        let at = path.child("nodeAffinity");
        if has(get(spec, "nodeAffinity"), "required") {
            pod::validate_node_selector(
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
    validate_volume_source(spec, &path, errors);
    // The recycler empties the directory with `rm -rf`.
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
    rules::validate_one_of(spec, "volumeMode", &VOLUME_MODES, &path, errors);
    validate_attributes_class(spec, &path, errors);
}

fn validate_capacity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all: Vec<&String> = entries(spec, "capacity").map(|(k, _)| k).collect();
    if all.is_empty() {
        errors.required(path, "");
    }
    if all.len() != 1 || !all.iter().any(|n| *n == "storage") {
        errors.not_supported(path, get(spec, "capacity").clone(), &["storage"]);
    }
    for (name, value) in entries(spec, "capacity") {
        if read_quantity(get(spec, "capacity"), name)
            .is_some_and(|q| q.is_negative() || q.is_zero())
        {
            errors.invalid(&path.key(name), value.clone(), rules::NOT_POSITIVE);
        }
    }
}

fn validate_volume_source(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let found = pod::count_sources(spec, false, path, errors);
    let Some(kind) = found.first() else {
        errors.required(path, "must specify a volume type");
        return;
    };
    let (source, at) = (get(spec, kind), path.child(kind));
    match *kind {
        "hostPath" => pod::validate_host_path(source, &at, errors),
        "local" => {
            if text(source, "path").is_empty() {
                errors.required(&at.child("path"), "");
            }
            // A local disk exists on one node. Without an affinity the scheduler would place the
            // pod anywhere.
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
            pod::validate_driver_name(text(source, "driver"), &at.child("driver"), errors);
        }
        kind => pod::validate_required_fields(kind, source, &at, errors),
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

fn validate_volume_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_volume(new, errors);
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
    // Pods have the volume mounted from where it was.
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

fn validate_storage_class(object: &Value, errors: &mut Errors) {
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
    // Parameters are sent to the provisioner with each claim, so upstream limits their size.
    if entries(object, "parameters").count() > 512 {
        errors.too_long(&at, 512);
    }
    if size > 256 * 1024 {
        errors.too_long(&at, 256 * 1024);
    }
    rules::validate_one_of(
        object,
        "reclaimPolicy",
        &["Delete", "Retain"],
        &root,
        errors,
    );
    rules::validate_one_of(
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

fn validate_storage_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    for field in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        rules::validate_immutable(new, old, field, &Path::ROOT, errors);
    }
    validate_storage_class(new, errors);
}
