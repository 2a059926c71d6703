//! Volume sources of pods and persistent volumes.

use super::disks::validate_source_details;
use super::options::PodOptions;
use super::projected::{
    validate_downward_files, validate_file_mode, validate_key_paths, validate_projected,
};
use crate::field::{Errors, Path};
use crate::metadata;
use crate::pod::relative_path::validate_no_backsteps;
use crate::rules;
use api_meta::names;
use api_meta::tree::{entries, get, has, int, text};
use serde_json::Value;

/// All sources of a pod's volumes, in the order in which further ones are reported.
const POD_SOURCES: [&str; 31] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
    "local",
];
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const ONE_ONLY: &str = "may not specify more than 1 volume type";

/// Required fields of each source.
const REQUIRED: [(&str, &[&str]); 21] = [
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("glusterfs", &["endpoints", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("quobyte", &["registry", "volume"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("portworxVolume", &["volumeID"]),
    ("photonPersistentDisk", &["pdID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &["driver"]),
    ("secret", &["secretName"]),
    ("configMap", &["name"]),
];

/// Returns the sources of a volume. Reports an error for each one after the first.
pub fn count_sources(
    volume: &Value,
    whole: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Vec<&'static str> {
    let found: Vec<&'static str> = POD_SOURCES.into_iter().filter(|s| has(volume, s)).collect();
    // The first source counts, and each further one is an error of its own: clients see which
    // fields to remove.
    for extra in found.iter().skip(1) {
        // Upstream's paths: two sources are spelled differently, and one is not counted in
        // persistent volumes.
        let spelled = match *extra {
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            "flexVolume" if !whole => continue,
            other => other,
        };
        errors.forbidden(&path.child(spelled), ONE_ONLY);
    }
    found.into_iter().take(1).collect()
}

/// Validates a volume of a pod. `pod` is the name of the pod, empty in a template.
pub fn validate_pod_volume(
    volume: &Value,
    pod: &str,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let found = count_sources(volume, true, path, errors);
    let Some(kind) = found.first() else {
        errors.required(path, "must specify a volume type");
        return;
    };
    // Upstream's name of this field differs from that in the object.
    let shown = match *kind {
        "gcePersistentDisk" => "persistentDisk",
        other => other,
    };
    let (source, at) = (get(volume, kind), path.child(shown));
    validate_required_fields(kind, source, &at, errors);
    validate_source_details(kind, source, &at, errors);
    match *kind {
        // A negative limit would read as "over the limit" in every eviction round of the kubelet.
        "emptyDir"
            if rules::read_quantity(source, "sizeLimit").is_some_and(|q| q.is_negative()) =>
        {
            let detail = "SizeLimit field must be a valid resource quantity";
            errors.forbidden(&at.child("sizeLimit"), detail);
        }
        "hostPath" => validate_host_path(source, &at, errors),
        "secret" | "configMap" => {
            validate_file_mode(source, "defaultMode", &at, errors);
            validate_key_paths(source, &at, errors);
        }
        "downwardAPI" => {
            validate_file_mode(source, "defaultMode", &at, errors);
            validate_downward_files(source, &at, errors);
        }
        "projected" => validate_projected(source, options, &at, errors),
        "csi" => validate_csi_volume(source, &at, errors),
        "image" => validate_image_volume(source, options, &at, errors),
        "ephemeral" => {
            validate_ephemeral_volume(source, &at, errors);
            validate_claim_name(pod, text(volume, "name"), path, errors);
        }
        "iscsi" => validate_iscsi_directory(volume, source, path, errors),
        _ => {}
    }
}

/// Checks that the claim of an ephemeral volume gets a valid name.
fn validate_claim_name(pod: &str, volume: &str, path: &Path<'_>, errors: &mut Errors) {
    if pod.is_empty() || volume.is_empty() {
        return;
    }
    let name = format!("{pod}-{volume}");
    for problem in names::dns1123_subdomain(&name) {
        let detail = format!("PVC name {}: {problem}", crate::field::go_quote(&name));
        errors.invalid(&path.child("name"), volume, detail);
    }
}

/// Limits what becomes the name of an interface of open-iscsi.
fn validate_iscsi_directory(volume: &Value, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, portal) = (text(volume, "name"), text(source, "targetPortal"));
    if has(source, "initiatorName") && name.len() + 1 + portal.len() > 64 {
        let detail = "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.";
        errors.invalid(&path.child("name"), name, detail);
    }
}

fn validate_csi_volume(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_driver_name(text(source, "driver"), &path.child("driver"), errors);
    if !has(source, "nodePublishSecretRef") {
        return;
    }
    let name = text(get(source, "nodePublishSecretRef"), "name");
    if name.is_empty() {
        errors.required(&path.child("nodePublishSecretRef").child("name"), "");
    } else {
        // Upstream names the source in this path.
        errors.invalid_each(&path.child("name"), name, names::dns1123_subdomain(name));
    }
}

fn validate_image_volume(
    source: &Value,
    options: &PodOptions,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // A template may leave the image to a later change.
    if options.is_pod && text(source, "reference").is_empty() {
        errors.required(&path.child("reference"), "");
    }
    let known = ["Always", "IfNotPresent", "Never"];
    rules::validate_required_one_of(source, "pullPolicy", &known, path, errors);
}

/// Checks the required fields of a source.
pub fn validate_required_fields(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let fields = REQUIRED
        .iter()
        .find(|(k, _)| *k == kind)
        .map(|(_, f)| *f)
        .unwrap_or_default();
    for field in fields {
        let empty = match get(source, field) {
            Value::String(s) => s.is_empty(),
            Value::Array(a) => a.is_empty(),
            other => other.is_null(),
        };
        if empty {
            let detail = match (kind, *field) {
                ("quobyte", "registry") => {
                    "must be a host:port pair or multiple pairs separated by commas"
                }
                _ => "",
            };
            errors.required(&path.child(field), detail);
        }
    }
    if kind == "nfs" && !text(source, "path").starts_with('/') {
        errors.invalid(
            &path.child("path"),
            text(source, "path"),
            "must be an absolute path",
        );
    }
    if kind == "iscsi" {
        validate_iscsi(source, path, errors);
    }
}

fn validate_iscsi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let iqn = text(source, "iqn");
    // The three forms of iSCSI names (RFC 3720, RFC 3980).
    let good = ["iqn", "eui", "naa"].iter().any(|p| iqn.starts_with(p));
    if !iqn.is_empty() && !good {
        errors.invalid(
            &path.child("iqn"),
            iqn,
            "must be valid format starting with iqn, eui, or naa",
        );
    }
    if let Some(lun) = int(source, "lun").filter(|n| !(0..=255).contains(n)) {
        errors.invalid(
            &path.child("lun"),
            lun,
            "must be between 0 and 255, inclusive",
        );
    }
}

/// Validates a path of the host.
pub fn validate_host_path(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let value = text(source, "path");
    if value.is_empty() {
        errors.required(&path.child("path"), "");
        return;
    }
    // Admission policies compare prefixes of paths, which `/allowed/../etc` would pass.
    validate_no_backsteps(value, &path.child("path"), errors);
    rules::validate_one_of(source, "type", &HOST_PATH_TYPES, path, errors);
}

/// Validates the name of a CSI driver.
pub fn validate_driver_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return;
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.invalid_each(
        path,
        name,
        // A driver name is a domain name, so its case does not matter. The kubelet makes
        // directories of it.
        names::dns1123_subdomain(&name.to_ascii_lowercase()),
    );
}

/// Validates the template of a claim. The controller creates the claim under the name `POD-VOLUME`,
/// but the author of the pod sees an error only here.
fn validate_ephemeral_volume(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("volumeClaimTemplate");
    if !has(source, "volumeClaimTemplate") {
        errors.required(&at, "");
        return;
    }
    let template = get(source, "volumeClaimTemplate");
    let (meta, meta_at) = (get(template, "metadata"), at.child("metadata"));
    metadata::validate_annotations(meta, &meta_at, errors);
    metadata::validate_labels(meta, "labels", &meta_at, errors);
    for (field, value) in entries(template, "metadata") {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        if !matches!(field.as_str(), "annotations" | "labels") && !is_empty {
            errors.forbidden(&meta_at.child(field), "cannot be set");
        }
    }
    crate::claim::validate_claim_spec(get(template, "spec"), &at.child("spec"), errors);
}
