//! CSIDrivers, CSINodes, CSIStorageCapacities, VolumeAttachments and VolumeAttributesClasses.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod::validate_driver_name;
use crate::rules;
use api_meta::tree::{get, has, list, same, text, texts};
use serde_json::Value;

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
    create: validate_storage_capacity,
    update: validate_storage_capacity_update,
    sub: accept_subresource,
};
pub const VOLUME_ATTACHMENT: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_volume_attachment,
    update: validate_volume_attachment_update,
    sub: accept_subresource,
};
pub const VOLUME_ATTRIBUTES_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_attributes_class_object,
    update: validate_attributes_class_update,
    sub: accept_subresource,
};

const FS_GROUP: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLES: [&str; 2] = ["Ephemeral", "Persistent"];

fn validate_csi_driver(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_driver_name(
        text(get(object, "metadata"), "name"),
        &Path::ROOT.child("metadata").child("name"),
        errors,
    );
    // Defaulting sets all three, so their absence means that an object was not defaulted.
    for field in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
        if !has(spec, field) {
            errors.required(&path.child(field), "");
        }
    }
    rules::validate_one_of(spec, "fsGroupPolicy", &FS_GROUP, &path, errors);
    for mode in texts(spec, "volumeLifecycleModes")
        .into_iter()
        .filter(|m| !LIFECYCLES.contains(m))
    {
        errors.not_supported(&path.child("volumeLifecycleModes"), mode, &LIFECYCLES);
    }
    // Each update is a call of the driver and a write to the API.
    if let Some(n) = get(spec, "nodeAllocatableUpdatePeriodSeconds")
        .as_i64()
        .filter(|n| *n < 10)
    {
        errors.invalid(
            &path.child("nodeAllocatableUpdatePeriodSeconds"),
            n,
            "must be greater than or equal to 10",
        );
    }
    let at = path.child("tokenRequests");
    let mut seen: Vec<&str> = Vec::new();
    for (i, request) in list(spec, "tokenRequests").iter().enumerate() {
        let at = at.index(i);
        let audience = text(request, "audience");
        // The kubelet passes tokens to the driver by audience, so each may occur once.
        if seen.contains(&audience) {
            errors.duplicate(&at.child("audience"), audience);
        }
        seen.push(audience);
        // The same minimum as for tokens that pods mount.
        if let Some(n) = get(request, "expirationSeconds")
            .as_i64()
            .filter(|n| *n < 600)
        {
            errors.invalid(
                &at.child("expirationSeconds"),
                n,
                "may not specify a duration less than 10 minutes",
            );
        }
    }
}

fn validate_csi_driver_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_csi_driver(new, errors);
    let path = Path::ROOT.child("spec");
    // Volumes that are attached now would never be detached after a change.
    for field in ["attachRequired", "volumeLifecycleModes"] {
        rules::validate_immutable(get(new, "spec"), get(old, "spec"), field, &path, errors);
    }
}

fn validate_csi_node(object: &Value, errors: &mut Errors) {
    let at = Path::ROOT.child("spec");
    let path = at.child("drivers");
    let mut seen: Vec<&str> = Vec::new();
    for (i, driver) in list(get(object, "spec"), "drivers").iter().enumerate() {
        let at = path.index(i);
        let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
        if name.is_empty() {
            errors.required(&at.child("name"), "");
        }
        validate_driver_name(name, &at.child("name"), errors);
        if id.is_empty() {
            errors.required(&at.child("nodeID"), "");
        }
        if id.len() > 256 {
            errors.invalid(&at.child("nodeID"), id, "must be 256 characters or less");
        }
        if seen.contains(&name) {
            errors.duplicate(&at.child("name"), name);
        }
        seen.push(name);
    }
}

fn validate_csi_node_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_csi_node(new, errors);
    let at = Path::ROOT.child("spec");
    let (after, before) = (
        list(get(new, "spec"), "drivers"),
        list(get(old, "spec"), "drivers"),
    );
    for driver in after {
        let name = text(driver, "name");
        // A driver is registered again by the kubelet as a new entry, not by a change.
        let old = before.iter().find(|d| text(d, "name") == name);
        if old.is_some_and(|o| !api_meta::tree::equal(o, driver)) {
            errors.invalid(&at.child("drivers"), driver.clone(), rules::IMMUTABLE);
        }
    }
}

fn validate_storage_capacity(object: &Value, errors: &mut Errors) {
    let name = text(object, "storageClassName");
    let at = Path::ROOT.child("storageClassName");
    errors.invalid_each(&at, name, api_meta::names::dns1123_subdomain(name));
    crate::selector::validate_label_selector(
        get(object, "nodeTopology"),
        &Path::ROOT.child("nodeTopology"),
        errors,
    );
    for field in ["capacity", "maximumVolumeSize"] {
        if rules::read_quantity(object, field).is_some_and(|q| q.is_negative()) {
            errors.invalid(
                &Path::ROOT.child(field),
                get(object, field).clone(),
                rules::NEGATIVE,
            );
        }
    }
}

fn validate_storage_capacity_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_storage_capacity(new, errors);
    for field in ["nodeTopology", "storageClassName"] {
        rules::validate_immutable(new, old, field, &Path::ROOT, errors);
    }
}

fn validate_volume_attachment(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    for field in ["attacher", "nodeName"] {
        if text(spec, field).is_empty() {
            errors.required(&path.child(field), "");
        }
    }
    validate_driver_name(text(spec, "attacher"), &path.child("attacher"), errors);
    let source = get(spec, "source");
    let at = path.child("source");
    for (parent, field, place) in [
        (spec, "nodeName", &path),
        (source, "persistentVolumeName", &at),
    ] {
        let name = text(parent, field);
        if !name.is_empty() {
            errors.invalid_each(
                &place.child(field),
                name,
                api_meta::names::dns1123_subdomain(name),
            );
        }
    }
    match (
        has(source, "persistentVolumeName"),
        has(source, "inlineVolumeSpec"),
    ) {
        (true, true) => errors.forbidden(
            &at,
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        (false, false) => errors.required(
            &at,
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        _ => {}
    }
}

fn validate_volume_attachment_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_volume_attachment(new, errors);
    rules::validate_immutable(new, old, "spec", &Path::ROOT, errors);
}

fn validate_attributes_class_object(object: &Value, errors: &mut Errors) {
    let name = text(object, "driverName");
    if name.is_empty() {
        errors.required(&Path::ROOT.child("driverName"), "");
    }
    validate_driver_name(name, &Path::ROOT.child("driverName"), errors);
    if get(object, "parameters")
        .as_object()
        .is_none_or(|m| m.is_empty())
    {
        errors.required(
            &Path::ROOT.child("parameters"),
            "must contain at least one key/value pair",
        );
    }
}

fn validate_attributes_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    for field in ["driverName", "parameters"] {
        if !same(new, old, field) {
            errors.forbidden(
                &Path::ROOT.child(field),
                format!("updates to {field} are forbidden."),
            );
        }
    }
    validate_attributes_class_object(new, errors);
}
