//! PersistentVolumes, and volume specs inside VolumeAttachments.

use super::sources::{take_source, validate_source};
use crate::claim::{VOLUME_MODES, validate_mode_values};
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod;
use crate::rules::{self, read_quantity};
use crate::selector;
use api_meta::names;
use api_meta::tree::{entries, equal, get, has, list, opt_text, remove, same, set, text};
use serde_json::Value;

pub const VOLUME: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_volume(object, None, errors),
    update: validate_volume_update,
    sub: accept_subresource,
};

const RECLAIM: [&str; 3] = ["Delete", "Recycle", "Retain"];
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
/// Sources whose mounts take the options of the annotation.
const MOUNTED: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];
const RENAMED_LABELS: [(&str, &str); 5] = [
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    (
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
    ),
    (
        "failure-domain.beta.kubernetes.io/region",
        "topology.kubernetes.io/region",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "topology.kubernetes.io/zone",
    ),
];

fn validate_volume(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let metadata = get(object, "metadata");
    validate_access_modes(spec, &path, errors);
    validate_capacity(spec, &path.child("capacity"), errors);
    rules::validate_one_of(
        spec,
        "persistentVolumeReclaimPolicy",
        &RECLAIM,
        &path,
        errors,
    );
    // Values that an older release accepted may stay.
    let before = old.map_or(&Value::Null, |old| get(get(old, "spec"), "nodeAffinity"));
    let mut terms = list(get(before, "required"), "nodeSelectorTerms").iter();
    let invalid_values = terms.any(selector::has_invalid_values);
    validate_node_affinity(spec, invalid_values, &path.child("nodeAffinity"), errors);
    validate_source(spec, text(metadata, "name"), &path, errors);
    validate_source_surroundings(spec, &path, errors);
    if let Some(class) = opt_text(spec, "storageClassName").filter(|class| !class.is_empty()) {
        let at = path.child("storageClassName");
        errors.invalid_each(&at, class, names::dns1123_subdomain(class));
    }
    rules::validate_one_of(spec, "volumeMode", &VOLUME_MODES, &path, errors);
    validate_attributes_class_name(spec, &path, errors);
    // Other sources ignore the annotation, which would look to its author as if the options were
    // set.
    let has_options = has(get(metadata, "annotations"), MOUNT_OPTIONS);
    if has_options && !MOUNTED.iter().any(|source| has(spec, source)) {
        errors.forbidden(
            &Path::ROOT
                .child("metadata")
                .child("annotations")
                .child(MOUNT_OPTIONS),
            "may not specify mount options for this volume type",
        );
    }
}

fn validate_access_modes(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("accessModes");
    if list(spec, "accessModes").is_empty() {
        errors.required(&at, "");
    }
    validate_mode_values(spec, &at, errors);
}

fn validate_capacity(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut all = entries(spec, "capacity");
    // An empty capacity has both errors, as upstream.
    if all.next().is_none() {
        errors.required(path, "");
    }
    let capacity = get(spec, "capacity");
    if capacity.get("storage").is_none() || all.next().is_some() {
        errors.not_supported(path, capacity.clone(), &["storage"]);
    }
    for (name, value) in entries(spec, "capacity") {
        let Some(amount) = read_quantity(capacity, name) else {
            continue;
        };
        let at = path.key(name);
        // A negative amount has two errors: as a quantity, and as a size.
        if amount.is_negative() {
            errors.invalid(&at, amount.value(), "must be a valid resource quantity");
        }
        if amount.is_negative() || amount.is_zero() {
            errors.invalid(&at, value.clone(), rules::NOT_ABOVE_ZERO);
        }
    }
}

fn validate_node_affinity(
    spec: &Value,
    invalid_values: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let affinity = get(spec, "nodeAffinity");
    let (required, at) = (get(affinity, "required"), path.child("required"));
    if affinity.is_null() {
        return;
    }
    if required.is_null() {
        errors.required(&at, "must specify required node constraints");
    } else {
        pod::validate_node_selector(required, invalid_values, &at, errors);
    }
}

fn validate_source_surroundings(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    // A local disk exists on one node. Without an affinity the scheduler would place the pod
    // anywhere.
    if has(spec, "local") && !has(spec, "nodeAffinity") {
        errors.required(
            &path.child("nodeAffinity"),
            "Local volume requires node affinity",
        );
    }
    // The recycler empties the directory with `rm -rf`.
    let host_path = text(get(spec, "hostPath"), "path");
    let is_root =
        host_path.starts_with('/') && host_path.split('/').all(|part| matches!(part, "" | "."));
    if is_root && text(spec, "persistentVolumeReclaimPolicy") == "Recycle" {
        errors.forbidden(
            &path.child("persistentVolumeReclaimPolicy"),
            "may not be 'recycle' for a hostPath mount of '/'",
        );
    }
}

fn validate_attributes_class_name(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("volumeAttributesClassName");
    match opt_text(spec, "volumeAttributesClassName") {
        None => return,
        Some("") => errors.required(&at, "an empty string is disallowed"),
        Some(class) => errors.invalid_each(&at, class, names::dns1123_subdomain(class)),
    }
    // Only CSI drivers modify volumes.
    if !has(spec, "csi") {
        errors.required(
            &path.child("csi"),
            "has to be specified when using volumeAttributesClassName",
        );
    }
}

/// Validates the spec of a volume that exists inside a VolumeAttachment only (migrated in-tree
/// volumes of pods).
pub(super) fn validate_inline_volume(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const INLINE: &str = "may not be specified in the context of inline volumes";
    // Such a volume is never bound, so these fields could have no effect.
    for field in ["claimRef", "capacity", "nodeAffinity", "storageClassName"] {
        let is_set = match get(spec, field) {
            Value::Object(map) => field != "capacity" || !map.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => false,
        };
        if is_set {
            errors.forbidden(&path.child(field), INLINE);
        }
    }
    if !has(spec, "csi") {
        let detail = "has to be specified in the context of inline volumes";
        errors.required(&path.child("csi"), detail);
    }
    validate_access_modes(spec, path, errors);
    for (field, only, what) in [
        (
            "persistentVolumeReclaimPolicy",
            "Retain",
            "may only be Retain",
        ),
        (
            "volumeMode",
            "Filesystem",
            "may not specify volumeMode other than Filesystem",
        ),
    ] {
        let value = text(spec, field);
        if !value.is_empty() && value != only {
            let detail = format!("{what} in the context of inline volumes");
            errors.forbidden(&path.child(field), detail);
        }
    }
    validate_source(spec, "", path, errors);
}

fn validate_volume_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_volume(new, Some(old), errors);
    let (n, o) = (get(new, "spec"), get(old, "spec"));
    let path = Path::ROOT.child("spec");
    // Pods have the volume mounted from where it was.
    if !equal(&comparable_source(n, o), &take_source(&mut o.clone())) {
        errors.forbidden(
            &path.child("persistentvolumesource"),
            "spec.persistentvolumesource is immutable after creation\n",
        );
    }
    // Upstream's paths of these two have no `spec`.
    rules::validate_immutable(n, o, "volumeMode", &Path::ROOT, errors);
    if has(o, "nodeAffinity") && !same(&with_renamed_labels(n, o), o, "nodeAffinity") {
        errors.invalid(
            &Path::ROOT.child("nodeAffinity"),
            get(n, "nodeAffinity").clone(),
            "field is immutable, except for updating from beta label to GA",
        );
    }
    let class = |spec| opt_text(spec, "volumeAttributesClassName");
    if class(o).is_some() && class(n).is_none() {
        errors.forbidden(
            &path.child("volumeAttributesClassName"),
            "update from non-nil value to nil is forbidden",
        );
    }
}

/// Returns the source without a secret that may be added once.
fn comparable_source(new: &Value, old: &Value) -> Value {
    const ADDABLE: &str = "controllerExpandSecretRef";
    let mut source = take_source(&mut new.clone());
    if has(old, "csi")
        && !has(get(old, "csi"), ADDABLE)
        && let Some(csi) = source.get_mut("csi")
    {
        remove(csi, ADDABLE);
    }
    source
}

/// Returns the new spec with the old keys of requirements whose label has been renamed.
fn with_renamed_labels(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    let terms = "/nodeAffinity/required/nodeSelectorTerms";
    let before = old.pointer(terms).and_then(Value::as_array);
    let after = spec.pointer_mut(terms).and_then(Value::as_array_mut);
    for (term, old) in after
        .into_iter()
        .flatten()
        .zip(before.into_iter().flatten())
    {
        for field in ["matchExpressions", "matchFields"] {
            let old = list(old, field);
            for (expression, old) in api_meta::tree::each_mut(term, field).zip(old) {
                let pair = (text(old, "key"), text(expression, "key"));
                if RENAMED_LABELS.contains(&pair) {
                    set(expression, "key", pair.0.to_owned());
                }
            }
        }
    }
    spec
}
