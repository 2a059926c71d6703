//! CSIDrivers, CSINodes, CSIStorageCapacities and VolumeAttachments.

use super::driver_name::validate_csi_name;
use super::volume::validate_inline_volume;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use crate::selector;
use api_meta::names;
use api_meta::semantic::equal_except;
use api_meta::tree::{entries, get, has, int, list, opt_text, same, text, texts};
use serde_json::Value;
use std::collections::HashSet;

pub const CSI_DRIVER: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_csi_driver,
    update: validate_csi_driver_update,
    sub: accept_subresource,
};
pub const CSI_NODE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_csi_node,
    update: validate_csi_node_update,
    sub: accept_subresource,
};
pub const CSI_STORAGE_CAPACITY: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_storage_capacity(object, false, errors),
    update: validate_storage_capacity_update,
    sub: accept_subresource,
};
pub const VOLUME_ATTACHMENT: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_volume_attachment,
    update: validate_volume_attachment_update,
    sub: |_, new, old, errors| validate_volume_attachment_update(new, old, errors),
};

const FS_GROUP: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLES: [&str; 2] = ["Persistent", "Ephemeral"];
const LONGEST_TOKEN: i64 = 1 << 32;
// The same size as for annotations. The driver returns the data, and the object has to fit into the
// store.
const METADATA_LIMIT: usize = 256 * 1024;
const MESSAGE_LIMIT: usize = 1024;

fn validate_csi_driver(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    // Defaulting sets them all, so their absence means that an object was not defaulted.
    for (field, name) in [
        // Upstream's path differs from the field.
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !has(spec, field) {
            errors.required(&path.child(name), "");
        }
    }
    rules::validate_one_of(spec, "fsGroupPolicy", &FS_GROUP, &path, errors);
    validate_token_requests(spec, &path.child("tokenRequests"), errors);
    for mode in texts(spec, "volumeLifecycleModes") {
        if !LIFECYCLES.contains(&mode) {
            errors.not_supported(&path.child("volumeLifecycleModes"), mode, &LIFECYCLES);
        }
    }
    if !has(spec, "seLinuxMount") {
        errors.required(&path.child("seLinuxMount"), "");
    }
    // Each update is a call of the driver and a write to the API.
    let period = int(spec, "nodeAllocatableUpdatePeriodSeconds");
    if let Some(seconds) = period.filter(|n| *n < 10) {
        errors.invalid(
            &path.child("nodeAllocatableUpdatePeriodSeconds"),
            seconds,
            "must be greater than or equal to 10 seconds",
        );
    }
    // Without tokens, the field would have no effect.
    if has(spec, "serviceAccountTokenInSecrets") && list(spec, "tokenRequests").is_empty() {
        errors.invalid(
            &path.child("serviceAccountTokenInSecrets"),
            get(spec, "serviceAccountTokenInSecrets").clone(),
            "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
        );
    }
}

fn validate_token_requests(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, request) in list(spec, "tokenRequests").iter().enumerate() {
        let at = path.index(i);
        let audience = text(request, "audience");
        // The kubelet passes tokens to the driver by audience, so each may occur once.
        if seen.contains(&audience) {
            errors.duplicate(&at.child("audience"), audience);
            continue;
        }
        seen.insert(audience);
        let at = at.child("expirationSeconds");
        let seconds = int(request, "expirationSeconds");
        // The same minimum as for tokens that pods mount.
        if let Some(n) = seconds.filter(|n| *n < 600) {
            errors.invalid(&at, n, "may not specify a duration less than 10 minutes");
        }
        if let Some(n) = seconds.filter(|n| *n > LONGEST_TOKEN) {
            errors.invalid(
                &at,
                n,
                "may not specify a duration larger than 2^32 seconds",
            );
        }
    }
}

fn validate_csi_driver_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_csi_driver(new, errors);
    let (n, o, path) = (get(new, "spec"), get(old, "spec"), Path::ROOT.child("spec"));
    // Volumes that are attached now would never be detached after a change.
    for (field, name) in [
        ("attachRequired", "attachedRequired"),
        ("volumeLifecycleModes", "volumeLifecycleModes"),
    ] {
        if !same(n, o, field) {
            errors.invalid(&path.child(name), get(n, field).clone(), rules::IMMUTABLE);
        }
    }
}

fn validate_csi_node(object: &Value, errors: &mut Errors) {
    let spec = Path::ROOT.child("spec");
    let path = spec.child("drivers");
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, driver) in list(get(object, "spec"), "drivers").iter().enumerate() {
        validate_node_driver(driver, &mut seen, &path.index(i), errors);
    }
}

fn validate_node_driver<'a>(
    driver: &'a Value,
    seen: &mut HashSet<&'a str>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
    validate_csi_name(name, &path.child("name"), errors);
    if id.is_empty() {
        errors.required(&path.child("nodeID"), "");
    }
    // The limit for identifiers of nodes in the CSI specification.
    if id.len() > 256 {
        errors.invalid(&path.child("nodeID"), id, "must be 256 characters or less");
    }
    let allocatable = get(driver, "allocatable");
    rules::validate_non_negative(allocatable, "count", &path.child("allocatable"), errors);
    if seen.contains(&name) {
        errors.duplicate(&path.child("name"), name);
    }
    seen.insert(name);
    let keys = texts(driver, "topologyKeys");
    let mut known = HashSet::new();
    for key in &keys {
        // Upstream reports keys at the driver.
        if key.is_empty() {
            errors.required(path, "");
        }
        if !known.insert(*key) {
            errors.duplicate(path, *key);
        }
        errors.invalid_each(path, key, names::qualified_name(key));
    }
}

fn validate_csi_node_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_csi_node(new, errors);
    let spec = Path::ROOT.child("spec");
    // Drivers may be added and removed, so only those in both lists are compared.
    let drivers = |object| list(get(object, "spec"), "drivers");
    for before in drivers(old) {
        for driver in drivers(new) {
            // A driver is registered again by the kubelet as a new entry, not by a change. Only the
            // number of volumes that fit may change (KEP-4876).
            let is_same = text(driver, "name") == text(before, "name");
            if is_same && !equal_except(driver, before, &["allocatable"]) {
                let mut shown = driver.clone();
                api_meta::tree::remove(&mut shown, "allocatable");
                errors.invalid(&spec.child("drivers"), shown, rules::IMMUTABLE);
            }
        }
    }
}

fn validate_storage_capacity(object: &Value, allows_values: bool, errors: &mut Errors) {
    let root = Path::ROOT;
    let topology = get(object, "nodeTopology");
    selector::validate_selector_leniently(
        topology,
        allows_values,
        &root.child("nodeTopology"),
        errors,
    );
    let class = text(object, "storageClassName");
    let at = root.child("storageClassName");
    errors.invalid_each(&at, class, names::dns1123_subdomain(class));
    if rules::read_quantity(object, "capacity").is_some_and(|q| q.is_negative()) {
        let shown = get(object, "capacity").clone();
        errors.invalid(&root.child("capacity"), shown, rules::NEGATIVE);
    }
}

fn validate_storage_capacity_update(new: &Value, old: &Value, errors: &mut Errors) {
    // Old topologies are exempt from the rule for values, because they can't be changed.
    let allows_values = selector::has_invalid_values(get(old, "nodeTopology"));
    validate_storage_capacity(new, allows_values, errors);
    // The scheduler indexes capacities by both. Another topology or class is another object.
    for field in ["nodeTopology", "storageClassName"] {
        rules::validate_immutable(new, old, field, &Path::ROOT, errors);
    }
}

fn validate_volume_attachment(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_csi_name(text(spec, "attacher"), &path.child("attacher"), errors);
    let source = get(spec, "source");
    validate_attachment_source(source, &path.child("source"), errors);
    let node = text(spec, "nodeName");
    let at = path.child("nodeName");
    errors.invalid_each(&at, node, names::dns1123_subdomain(node));
    validate_attachment_status(get(object, "status"), errors);
    if let Some(name) = opt_text(source, "persistentVolumeName") {
        let at = path.child("source");
        let at = at.child("persistentVolumeName");
        errors.invalid_each(&at, name, names::dns1123_subdomain(name));
    }
}

fn validate_attachment_source(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let name = opt_text(source, "persistentVolumeName");
    match (name, has(source, "inlineVolumeSpec")) {
        (None, false) => errors.required(path, ONE),
        (Some(_), true) => errors.forbidden(path, ONE),
        (Some(""), false) => errors.required(
            &path.child("persistentVolumeName"),
            "must specify non empty persistentVolumeName",
        ),
        (Some(_), false) => {}
        (None, true) => {
            let at = path.child("inlineVolumeSpec");
            validate_inline_volume(get(source, "inlineVolumeSpec"), &at, errors);
        }
    }
}

fn validate_attachment_status(status: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    let size: usize = entries(status, "attachmentMetadata")
        .map(|(key, value)| key.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > METADATA_LIMIT {
        errors.too_long(&path.child("attachmentMetadata"), METADATA_LIMIT);
    }
    for field in ["attachError", "detachError"] {
        let (error, at) = (get(status, field), path.child(field));
        if text(error, "message").len() > MESSAGE_LIMIT {
            // Upstream names the limit of the metadata here.
            errors.too_long(&at.child("message"), METADATA_LIMIT);
        }
        if let Some(code) = int(error, "errorCode").filter(|n| *n < 0) {
            let detail = format!("must be between 0 and {}, inclusive", i32::MAX);
            errors.invalid(&at.child("errorCode"), code, detail);
        }
    }
}

fn validate_volume_attachment_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_volume_attachment(new, errors);
    // The driver has perhaps attached the volume already, and would not detach it from the old
    // node.
    rules::validate_immutable(new, old, "spec", &Path::ROOT, errors);
}
