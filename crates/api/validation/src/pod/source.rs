//! Volume sources of pods and persistent volumes.

use crate::field::{Errors, Path};
use crate::pod::field_ref::{validate_resource_field_ref, validate_volume_field_ref};
use crate::pod::relative_path::{validate_descending_path, validate_no_backsteps};
use crate::rules;
use api_meta::names;
use api_meta::tree::{get, has, int, list, text};
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
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "configMap",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "storageos",
    "portworxVolume",
    "photonPersistentDisk",
    "scaleIO",
    "projected",
    "csi",
    "ephemeral",
    "image",
    "local",
];
const HOST_PATH_TYPES: [&str; 8] = [
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
];
const ONE_ONLY: &str = "may not specify more than 1 volume type";

/// Required fields of each source.
const REQUIRED: [(&str, &[&str]); 20] = [
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

/// Validates a volume of a pod.
pub fn validate_pod_volume(volume: &Value, path: &Path<'_>, errors: &mut Errors) {
    let found = count_sources(volume, true, path, errors);
    let Some(kind) = found.first() else {
        errors.required(path, "must specify a volume type");
        return;
    };
    let (source, at) = (get(volume, kind), path.child(kind));
    // Sources of removed in-tree plugins (Glusterfs, Flocker, ...) are still validated: stored
    // objects have them, and they stay readable.
    validate_required_fields(kind, source, &at, errors);
    match *kind {
        // A negative limit would read as "over the limit" in every eviction round of the kubelet.
        "emptyDir"
            if rules::read_quantity(source, "sizeLimit").is_some_and(|q| q.is_negative()) =>
        {
            errors.forbidden(
                &at.child("sizeLimit"),
                "SizeLimit field must be a valid resource quantity",
            );
        }
        "hostPath" => validate_host_path(source, &at, errors),
        "secret" | "configMap" => {
            validate_file_mode(source, "defaultMode", &at, errors);
            validate_key_paths(source, &at, errors);
        }
        "downwardAPI" => {
            validate_file_mode(source, "defaultMode", &at, errors);
            validate_downward_api(source, &at, errors);
        }
        "projected" => validate_projected(source, &at, errors),
        "csi" => validate_driver_name(text(source, "driver"), &at.child("driver"), errors),
        // The controller creates a claim from the template, under the name `POD-VOLUME`. An invalid
        // claim is rejected here, where the author of the pod sees it.
        "ephemeral" => validate_ephemeral_volume(source, &at, errors),
        _ => {}
    }
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
            errors.required(&path.child(field), "");
        }
    }
    if kind == "nfs" && !text(source, "path").is_empty() && !text(source, "path").starts_with('/') {
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

fn validate_file_mode(source: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int(source, field).filter(|n| !(0..=0o777).contains(n)) {
        errors.invalid(
            &path.child(field),
            n,
            "must be a number between 0 and 0777 (octal), both inclusive",
        );
    }
}

fn validate_key_paths(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (i, item) in list(source, "items").iter().enumerate() {
        // Upstream's paths differ between sources; this one names the item.
        let at = path.child("items");
        let at = at.index(i);
        // The key need not exist: the pod waits for it unless the source is optional.
        if text(item, "key").is_empty() {
            errors.required(&at.child("key"), "");
        }
        validate_relative_path(item, &at, errors);
        validate_file_mode(item, "mode", &at, errors);
    }
}

fn validate_relative_path(item: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (value, at) = (text(item, "path"), path.child("path"));
    if value.is_empty() {
        errors.required(&at, "");
        return;
    }
    // The kubelet creates the file with this name below the volume's directory, as root.
    validate_descending_path(value, &at, errors);
    // The atomic writer of the kubelet keeps its own links in names that start with `..` (`..data`,
    // `..2024_01_01`).
    if value.starts_with("..") && !value.starts_with("../") && value != ".." {
        errors.invalid(&at, value, "must not start with '..'");
    }
}

fn validate_downward_api(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for item in list(source, "items") {
        validate_relative_path(item, path, errors);
        validate_file_mode(item, "mode", path, errors);
        match (has(item, "fieldRef"), has(item, "resourceFieldRef")) {
            // Each file has one content: a field of the pod or an amount of a container.
            (true, true) => {
                errors.invalid(
                    path,
                    "resource",
                    "fieldRef and resourceFieldRef can not be specified simultaneously",
                );
            }
            (true, false) => {
                validate_volume_field_ref(get(item, "fieldRef"), &path.child("fieldRef"), errors)
            }
            (false, true) => validate_resource_field_ref(
                get(item, "resourceFieldRef"),
                true,
                &path.child("resourceFieldRef"),
                errors,
            ),
            (false, false) => {
                errors.required(path, "one of fieldRef and resourceFieldRef is required")
            }
        }
    }
}

fn validate_projected(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_file_mode(source, "defaultMode", path, errors);
    let at = path.child("sources");
    for (i, one) in list(source, "sources").iter().enumerate() {
        let at = at.index(i);
        let mut found = 0;
        for (kind, part) in entries_of(one) {
            let at = at.child(kind);
            // Each element of `sources` is a union; the volume is the union of the elements.
            if found > 0 {
                errors.forbidden(&at, ONE_ONLY);
                continue;
            }
            found += 1;
            match kind {
                "secret" | "configMap" => {
                    if text(part, "name").is_empty() {
                        errors.required(&at.child("name"), "");
                    }
                    validate_key_paths(part, &at, errors);
                }
                "downwardAPI" => validate_downward_api(part, &at, errors),
                "serviceAccountToken" => validate_token_projection(part, &at, errors),
                _ => {}
            }
        }
        if found == 0 {
            errors.required(&at, "must specify a projection type");
        }
    }
}

const PROJECTIONS: [&str; 6] = [
    "secret",
    "downwardAPI",
    "configMap",
    "serviceAccountToken",
    "clusterTrustBundle",
    "podCertificate",
];

fn entries_of(source: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    PROJECTIONS
        .into_iter()
        .filter(|p| has(source, p))
        .map(|p| (p, get(source, p)))
}

fn validate_token_projection(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let seconds = int(source, "expirationSeconds").unwrap_or(3600);
    let at = path.child("expirationSeconds");
    // The kubelet renews a token after 80 % of its life. Shorter tokens would load the API server
    // with every pod that has one.
    if seconds < 600 {
        errors.invalid(
            &at,
            seconds,
            "may not specify a duration less than 10 minutes",
        );
    } else if seconds > 1 << 32 {
        errors.invalid(
            &at,
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        );
    }
    if text(source, "path").is_empty() {
        errors.required(&path.child("path"), "");
    } else {
        validate_descending_path(text(source, "path"), &path.child("path"), errors);
    }
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

fn validate_ephemeral_volume(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("volumeClaimTemplate");
    if !has(source, "volumeClaimTemplate") {
        errors.required(&at, "");
        return;
    }
    let template = get(source, "volumeClaimTemplate");
    let at = at.child("spec");
    crate::claim::validate_claim_spec(get(template, "spec"), &at, errors);
}
