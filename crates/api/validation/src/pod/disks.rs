//! Rules of volume sources beyond their required fields, equal for pods and persistent volumes.

use super::relative_path::validate_descending_path;
use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::{entries, flag, get, has, int, list, opt_text, text};
use serde_json::Value;

const AZURE_CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
const AZURE_KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
const MANAGED_DISK: &str = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}";
const BLOB_DISK: &str =
    "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd";
const REGISTRY: &str = "must be a host:port pair or multiple pairs separated by commas";

/// Validates the fields of a source. Sources of removed in-tree plugins (Flocker, Quobyte, ...) are
/// still validated: stored objects have them, and they stay readable.
pub fn validate_source_details(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    match kind {
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = int(source, "partition");
            if let Some(n) = partition.filter(|n| !(0..=255).contains(n)) {
                let detail = "must be between 1 and 255, inclusive";
                errors.invalid(&path.child("partition"), n, detail);
            }
        }
        "gitRepo" => {
            let at = path.child("directory");
            validate_descending_path(text(source, "directory"), &at, errors);
        }
        "iscsi" => validate_iscsi_details(source, path, errors),
        "fc" => validate_fibre_channel(source, path, errors),
        "flocker" => validate_flocker(source, path, errors),
        "quobyte" => validate_quobyte(source, path, errors),
        "flexVolume" => validate_flex_options(source, &path.child("options"), errors),
        "azureDisk" => validate_azure_disk(source, path, errors),
        "storageos" => validate_storage_os(source, path, errors),
        "cinder" => validate_secret_name(source, path, errors),
        _ => {}
    }
}

fn validate_secret_name(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has(source, "secretRef") && text(get(source, "secretRef"), "name").is_empty() {
        errors.required(&path.child("secretRef").child("name"), "");
    }
}

fn validate_iscsi_details(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let is_known = |name: &str| ["iqn", "eui", "naa"].iter().any(|p| name.starts_with(p));
    let name = text(source, "iqn");
    if is_known(name) && !is_iscsi_name(name) {
        errors.invalid(&path.child("iqn"), name, "must be valid format");
    }
    let needs_secret = flag(source, "chapAuthDiscovery") || flag(source, "chapAuthSession");
    if needs_secret && !has(source, "secretRef") {
        errors.required(&path.child("secretRef"), "");
    }
    if let Some(name) = opt_text(source, "initiatorName") {
        let at = path.child("initiatorname");
        if !is_known(name) {
            let detail = "must be valid format starting with iqn, eui, or naa";
            errors.invalid(&at, name, detail);
        } else if !is_iscsi_name(name) {
            errors.invalid(&at, name, "must be valid format");
        }
    }
}

/// Returns whether a name has one of the three forms of iSCSI (RFC 3720, RFC 3980).
fn is_iscsi_name(name: &str) -> bool {
    let is_identifier = |rest: &str, length: usize| {
        let mut chars = rest.chars();
        chars.next().is_some()
            && chars.as_str().len() == length
            && chars.all(|c| c.is_ascii_alphanumeric())
    };
    if let Some(rest) = name.strip_prefix("eui") {
        return is_identifier(rest, 16);
    }
    if let Some(rest) = name.strip_prefix("naa") {
        return is_identifier(rest, 32);
    }
    let Some((authority, unit)) = name.strip_prefix("iqn.").and_then(|n| n.split_once(':')) else {
        return false;
    };
    let is_month = |text: &str| {
        let shape: Vec<bool> = text.bytes().map(|b| b.is_ascii_digit()).collect();
        shape == [true, true, true, true, false, true, true]
            && text.as_bytes().get(4) == Some(&b'-')
    };
    let is_domain = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.'))
    };
    authority
        .split_once('.')
        .is_some_and(|(month, domain)| is_month(month) && is_domain(domain))
        && !unit.is_empty()
        && !unit.contains(|c: char| ",;*&$|".contains(c) || c.is_ascii_whitespace())
}

fn validate_fibre_channel(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (names, ids) = (list(source, "targetWWNs"), list(source, "wwids"));
    let at = path.child("targetWWNs");
    if names.is_empty() && ids.is_empty() {
        errors.required(&at, "must specify either targetWWNs or wwids, but not both");
    }
    if names.is_empty() {
        return;
    }
    if !ids.is_empty() {
        let detail = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&at, names.to_vec(), detail);
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

fn validate_flocker(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(source, "datasetName");
    match (name.is_empty(), text(source, "datasetUUID").is_empty()) {
        (true, true) => errors.required(path, "one of datasetName and datasetUUID is required"),
        (false, false) => {
            let detail = "datasetName and datasetUUID can not be specified simultaneously";
            errors.invalid(path, "resource", detail);
        }
        _ => {}
    }
    if name.contains('/') {
        errors.invalid(&path.child("datasetName"), name, "must not contain '/'");
    }
}

fn validate_quobyte(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (registry, at) = (text(source, "registry"), path.child("registry"));
    if registry.is_empty() {
        return;
    }
    if text(source, "tenant").len() >= 65 {
        let detail = "must be a UUID and may not exceed a length of 64 characters";
        errors.required(&path.child("tenant"), detail);
        return;
    }
    let is_pair = |pair: &str| match pair.rsplit_once(':') {
        Some((host, _)) => !host.contains(':') || (host.starts_with('[') && host.ends_with(']')),
        None => false,
    };
    for _ in registry.split(',').filter(|pair| !is_pair(pair)) {
        errors.invalid(&at, registry, REGISTRY);
    }
}

fn validate_flex_options(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (key, _) in entries(source, "options") {
        let domain = key.split('/').next().unwrap_or_default();
        let domain = format!(".{}", domain.to_ascii_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            let detail = "kubernetes.io and k8s.io namespaces are reserved";
            errors.invalid(&path.key(key), key.as_str(), detail);
        }
    }
}

fn validate_azure_disk(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    crate::rules::validate_one_of(source, "cachingMode", &AZURE_CACHING, path, errors);
    crate::rules::validate_one_of(source, "kind", &AZURE_KINDS, path, errors);
    let Some(kind) = opt_text(source, "kind") else {
        return;
    };
    let (disk, at) = (text(source, "diskURI"), path.child("diskURI"));
    if kind == "Managed" && !disk.starts_with("/subscriptions/") {
        errors.not_supported(&at, disk, &[MANAGED_DISK]);
    }
    if kind != "Managed" && !disk.starts_with("https://") {
        errors.not_supported(&at, disk, &[BLOB_DISK]);
    }
}

fn validate_storage_os(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, at) = (text(source, "volumeName"), path.child("volumeName"));
    if name.is_empty() {
        errors.required(&at, "");
    } else {
        errors.invalid_each(&at, name, names::dns1123_label(name));
    }
    let namespace = text(source, "volumeNamespace");
    if !namespace.is_empty() {
        let at = path.child("volumeNamespace");
        errors.invalid_each(&at, namespace, names::dns1123_label(namespace));
    }
    validate_secret_name(source, path, errors);
}
