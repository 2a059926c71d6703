//! Sources of persistent volumes.
//!
//! Sources of removed in-tree plugins (Glusterfs, Flocker, ...) are still validated: stored objects
//! have them, and they stay readable.

use super::driver_name::validate_csi_name;
use crate::field::{Errors, Path};
use crate::pod;
use crate::rules::NameCheck;
use api_meta::names;
use api_meta::tree::{entries, flag, get, has, int, list, opt_text, text, texts};
use serde_json::Value;

/// Sources in upstream's order; only the first one counts.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// Fields without which a source names no volume.
const REQUIRED: [(&str, &[&str]); 14] = [
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("nfs", &["server", "path"]),
    ("rbd", &["monitors", "image"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
];

/// Removes the source of a volume's spec, and returns it.
pub(super) fn take_source(spec: &mut Value) -> Value {
    let mut source = serde_json::Map::new();
    if let Some(fields) = spec.as_object_mut() {
        for name in SOURCES {
            source.extend(fields.remove_entry(name));
        }
    }
    Value::Object(source)
}

/// Validates the source of a volume named `name`.
pub(super) fn validate_source(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let mut found = SOURCES.iter().filter(|source| has(spec, source));
    let Some(kind) = found.next() else {
        return errors.required(path, "must specify a volume type");
    };
    let source = get(spec, kind);
    // Upstream's name in the path differs for one source.
    let at = path.child(match *kind {
        "gcePersistentDisk" => "persistentDisk",
        other => other,
    });
    validate_required_fields(kind, source, &at, errors);
    validate_source_fields(kind, source, name, &at, errors);
    for extra in found {
        match *extra {
            // Upstream does not count it.
            "flexVolume" => validate_flex(get(spec, extra), &path.child(extra), errors),
            "cephfs" => errors.forbidden(&path.child("cephFS"), ONE_ONLY),
            other => errors.forbidden(&path.child(other), ONE_ONLY),
        }
    }
}

const ONE_ONLY: &str = "may not specify more than 1 volume type";

fn validate_required_fields(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rows = REQUIRED.iter().filter(|(k, _)| *k == kind);
    for field in rows.flat_map(|(_, fields)| fields.iter()) {
        if text(source, field).is_empty() && list(source, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
}

fn validate_source_fields(
    kind: &str,
    source: &Value,
    name: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match kind {
        "hostPath" => pod::validate_host_path(source, path, errors),
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            validate_partition(source, path, errors);
        }
        "glusterfs" => validate_endpoints_namespace(source, path, errors),
        "flocker" => validate_flocker(source, path, errors),
        "nfs" if !text(source, "path").starts_with('/') => errors.invalid(
            &path.child("path"),
            text(source, "path"),
            "must be an absolute path",
        ),
        "quobyte" => validate_quobyte(source, path, errors),
        "iscsi" => validate_iscsi(source, name, path, errors),
        "cinder" => validate_named_secret(source, path, errors),
        "fc" => validate_fibre_channel(source, path, errors),
        "flexVolume" => validate_flex_options(source, path, errors),
        "azureFile" if opt_text(source, "secretNamespace") == Some("") => {
            errors.required(&path.child("secretNamespace"), "");
        }
        "azureDisk" => validate_azure_disk(source, path, errors),
        "local" => validate_local(source, path, errors),
        "storageos" => validate_storageos(source, path, errors),
        "csi" => validate_csi(source, path, errors),
        _ => {}
    }
}

fn validate_partition(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = int(source, "partition").filter(|n| !(0..=255).contains(n)) {
        // Zero is the whole disk, which upstream's message does not say.
        let detail = "must be between 1 and 255, inclusive";
        errors.invalid(&path.child("partition"), n, detail);
    }
}

fn validate_endpoints_namespace(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("endpointsNamespace");
    match opt_text(source, "endpointsNamespace") {
        None => {}
        Some("") => errors.invalid(
            &at,
            "",
            "if the endpointnamespace is set, it must be a valid namespace name",
        ),
        Some(name) => errors.invalid_each(&at, name, names::dns1123_label(name)),
    }
}

fn validate_flocker(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, id) = (text(source, "datasetName"), text(source, "datasetUUID"));
    if name.is_empty() && id.is_empty() {
        errors.required(path, "one of datasetName and datasetUUID is required");
    }
    if !name.is_empty() && !id.is_empty() {
        let detail = "datasetName and datasetUUID can not be specified simultaneously";
        errors.invalid(path, "resource", detail);
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn validate_quobyte(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = text(source, "registry");
    let at = path.child("registry");
    if registry.is_empty() {
        errors.required(&at, PAIRS);
    } else if text(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), detail);
    } else {
        // Each error shows the whole list.
        let wrong = registry.split(',').filter(|pair| !pair.contains(':'));
        for _ in wrong.take(16) {
            errors.invalid(&at, registry, PAIRS);
        }
    }
    if text(source, "volume").is_empty() {
        errors.required(&path.child("volume"), "");
    }
}

fn validate_iscsi(source: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let portal = text(source, "targetPortal");
    if portal.is_empty() {
        errors.required(&path.child("targetPortal"), "");
    }
    let initiator = opt_text(source, "initiatorName");
    // The initiator builds the name of its session from both.
    if initiator.is_some() && name.len() + 1 + portal.len() > 64 {
        errors.invalid(&path.child("targetportal"), portal, "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.");
    }
    match text(source, "iqn") {
        "" => errors.required(&path.child("iqn"), ""),
        iqn if !is_iscsi_name(iqn) => {
            errors.invalid(&path.child("iqn"), iqn, "must be valid format");
        }
        _ => {}
    }
    if let Some(lun) = int(source, "lun").filter(|n| !(0..=255).contains(n)) {
        let detail = "must be between 0 and 255, inclusive";
        errors.invalid(&path.child("lun"), lun, detail);
    }
    let secret = get(source, "secretRef");
    let has_password = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if has_password && secret.is_null() {
        errors.required(&path.child("secretRef"), "");
    }
    if !secret.is_null() && text(secret, "name").is_empty() {
        let at = path.child("secretRef");
        errors.required(&at.child("name"), "");
    }
    if let Some(initiator) = initiator.filter(|name| !is_iscsi_name(name)) {
        let at = path.child("initiatorname");
        errors.invalid(&at, initiator, "must be valid format");
    }
}

/// Returns whether a text is one of the three forms of iSCSI names (RFC 3720, RFC 3980).
fn is_iscsi_name(name: &str) -> bool {
    let is_id = |id: &str, length: usize| {
        id.len() == length && id.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    // The separator of the two numbered forms may be any character, as upstream's patterns.
    let id_after = |prefix: &str| {
        let rest = name.strip_prefix(prefix)?;
        let mut chars = rest.chars();
        chars.next()?;
        Some(chars.as_str())
    };
    match (id_after("eui"), id_after("naa")) {
        (Some(id), _) => is_id(id, 16),
        (_, Some(id)) => is_id(id, 32),
        _ => is_qualified_iscsi_name(name),
    }
}

/// Returns whether a text is `iqn.YEAR-MONTH.AUTHORITY:NAME`.
fn is_qualified_iscsi_name(name: &str) -> bool {
    let Some((date, rest)) = name.strip_prefix("iqn.").and_then(|n| n.split_once('.')) else {
        return false;
    };
    let is_date = date.len() == 7
        && date.bytes().enumerate().all(|(i, b)| match i {
            4 => b == b'-',
            _ => b.is_ascii_digit(),
        });
    let Some((authority, target)) = rest.split_once(':') else {
        return false;
    };
    let is_authority = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    is_date
        && !authority.is_empty()
        && authority.bytes().all(is_authority)
        && !target.is_empty()
        && !target.contains([',', ';', '*', '&', '$', '|'])
        && !target.contains(char::is_whitespace)
}

fn validate_named_secret(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (secret, at) = (get(source, "secretRef"), path.child("secretRef"));
    for field in ["name", "namespace"] {
        if !secret.is_null() && text(secret, field).is_empty() {
            errors.required(&at.child(field), "");
        }
    }
}

fn validate_fibre_channel(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let targets = texts(source, "targetWWNs");
    let at = path.child("targetWWNs");
    match (targets.is_empty(), list(source, "wwids").is_empty()) {
        (true, true) => {
            errors.required(&at, "must specify either targetWWNs or wwids, but not both")
        }
        (false, false) => errors.invalid(
            &at,
            targets.clone(),
            "targetWWNs and wwids can not be specified simultaneously",
        ),
        _ => {}
    }
    if targets.is_empty() {
        return;
    }
    let at = path.child("lun");
    match int(source, "lun") {
        None => errors.required(&at, "lun is required if targetWWNs is specified"),
        Some(lun) if !(0..=255).contains(&lun) => {
            errors.invalid(&at, lun, "must be between 0 and 255, inclusive");
        }
        Some(_) => {}
    }
}

fn validate_flex(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_required_fields("flexVolume", source, path, errors);
    validate_flex_options(source, path, errors);
}

/// Kubelets add options of their own in the reserved namespaces.
fn validate_flex_options(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("options");
    for (key, _) in entries(source, "options") {
        let namespace = key.split_once('/').map_or(key.as_str(), |(first, _)| first);
        let normalized = format!(".{}", namespace.to_lowercase());
        if normalized.ends_with(".kubernetes.io") || normalized.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&path.key(key), key.as_str(), detail);
        }
    }
}

fn validate_azure_disk(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const MODES: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    const KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    const MANAGED: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
    const BLOB: &str =
        "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
    for (field, known) in [("cachingMode", MODES), ("kind", KINDS)] {
        if let Some(value) = opt_text(source, field).filter(|v| !known.contains(v)) {
            errors.not_supported(&path.child(field), value, &known);
        }
    }
    let uri = text(source, "diskURI");
    let at = path.child("diskURI");
    match opt_text(source, "kind") {
        Some("Managed") if !uri.starts_with("/subscriptions/") => {
            errors.not_supported(&at, uri, &[MANAGED]);
        }
        Some(kind) if kind != "Managed" && !uri.starts_with("https://") => {
            errors.not_supported(&at, uri, &[BLOB]);
        }
        _ => {}
    }
}

fn validate_local(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (value, at) = (text(source, "path"), path.child("path"));
    if value.is_empty() {
        errors.required(&at, "");
    } else if value.split('/').any(|part| part == "..") {
        errors.invalid(&at, value, "must not contain '..'");
    }
}

fn validate_storageos(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["volumeName", "volumeNamespace"] {
        match text(source, field) {
            "" if field == "volumeName" => errors.required(&path.child(field), ""),
            "" => {}
            name => errors.invalid_each(&path.child(field), name, names::dns1123_label(name)),
        }
    }
    validate_named_secret(source, path, errors);
}

const CSI_SECRETS: [&str; 4] = [
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
];

fn validate_csi(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_csi_name(text(source, "driver"), &path.child("driver"), errors);
    if text(source, "volumeHandle").is_empty() {
        errors.required(&path.child("volumeHandle"), "");
    }
    let rules: [(&str, NameCheck); 2] = [
        ("name", names::dns1123_subdomain),
        ("namespace", names::dns1123_label),
    ];
    for reference in CSI_SECRETS.iter().filter(|field| has(source, field)) {
        let (secret, at) = (get(source, reference), path.child(reference));
        for (field, problems) in rules {
            match text(secret, field) {
                "" => errors.required(&at.child(field), ""),
                value => errors.invalid_each(&at.child(field), value, problems(value)),
            }
        }
    }
}
