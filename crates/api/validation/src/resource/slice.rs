//! ResourceSlices: location and sharing of devices.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod;
use api_meta::names;
use api_meta::tree::{entries, flag, get, has, list, text};
use serde_json::Value;

pub const SLICE: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_resource_slice,
    update: |new, _, e| validate_resource_slice(new, e),
    sub: accept_subresource,
};

const WHERE: [&str; 4] = [
    "nodeName",
    "nodeSelector",
    "allNodes",
    "perDeviceNodeSelection",
];
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];

/// Returns how many of the fields are set.
fn count_set_fields(object: &Value, fields: &[&str]) -> usize {
    let set =
        |f: &&&str| has(object, f) && get(object, f) != &Value::Bool(false) && get(object, f) != "";
    fields.iter().filter(set).count()
}

fn validate_resource_slice(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    if text(spec, "driver").is_empty() {
        errors.required(&path.child("driver"), "");
    }
    pod::validate_driver_name(text(spec, "driver"), &path.child("driver"), errors);
    let pool = text(get(spec, "pool"), "name");
    let at = path.child("pool");
    if pool.is_empty() {
        errors.required(&at.child("name"), "");
    }
    // Drivers put the node's name into the name of the pool, with segments for the rest.
    for part in pool.split('/').filter(|p| !p.is_empty()) {
        errors.invalid_each(&at.child("name"), pool, names::dns1123_subdomain(part));
    }
    // The scheduler must know for every device on which nodes it can be used.
    match count_set_fields(spec, &WHERE) {
        0 => errors.required(
            &path,
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
        1 => {}
        _ => errors.invalid(
            &path,
            "",
            "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required",
        ),
    }
    let (devices, counters) = (list(spec, "devices"), list(spec, "sharedCounters"));
    // Counters are shared by all slices of a pool and have one of their own (KEP-4815).
    if !devices.is_empty() && !counters.is_empty() {
        errors.invalid(
            &path,
            "",
            "only one of `sharedCounters` or `devices` is allowed",
        );
    }
    validate_node_choice(spec, &path, errors);
    let at = path.child("devices");
    for (i, device) in devices.iter().enumerate() {
        validate_device(
            device,
            flag(spec, "perDeviceNodeSelection"),
            &at.index(i),
            errors,
        );
    }
    let at = path.child("sharedCounters");
    for (i, set) in counters.iter().enumerate() {
        validate_counter_set(set, "name", &at.index(i), errors);
    }
}

fn validate_node_choice(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    let node = text(object, "nodeName");
    if !node.is_empty() {
        errors.invalid_each(
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        );
    }
    if has(object, "nodeSelector") {
        pod::validate_node_selector(
            get(object, "nodeSelector"),
            &path.child("nodeSelector"),
            errors,
        );
    }
}

fn validate_counter_set(set: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let name = text(set, field);
    errors.invalid_each(&path.child(field), name, names::dns1123_label(name));
    for (key, _) in entries(set, "counters") {
        errors.invalid_each(&path.child("counters"), key, names::dns1123_label(key));
    }
}

fn validate_device(device: &Value, placed: bool, path: &Path<'_>, errors: &mut Errors) {
    let name = text(device, "name");
    errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
    let at = path.child("attributes");
    for (key, value) in entries(device, "attributes") {
        validate_attribute(value, &at.key(key), errors);
    }
    let at = path.child("capacity");
    for (key, value) in entries(device, "capacity") {
        let policy = get(value, "requestPolicy");
        if count_set_fields(policy, &["validValues", "validRange"]) > 1 {
            errors.forbidden(
                &at.key(key).child("requestPolicy"),
                "exactly one policy can be specified",
            );
        }
    }
    let at = path.child("consumesCounters");
    for (i, set) in list(device, "consumesCounters").iter().enumerate() {
        validate_counter_set(set, "counterSet", &at.index(i), errors);
    }
    // With a choice of nodes for each device, that of the slice does not apply.
    if placed && count_set_fields(device, &WHERE[..3]) > 1 {
        errors.invalid(
            path,
            "",
            "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set",
        );
    }
    validate_node_choice(device, path, errors);
    let at = path.child("taints");
    for (i, taint) in list(device, "taints").iter().enumerate() {
        crate::rules::validate_required_one_of(taint, "effect", &EFFECTS, &at.index(i), errors);
    }
}

fn validate_attribute(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    const KINDS: [&str; 8] = [
        "int", "bool", "string", "version", "ints", "bools", "strings", "versions",
    ];
    let kinds = KINDS.iter().filter(|k| has(value, k)).count();
    if kinds != 1 {
        errors.invalid(path, value.clone(), "exactly one value must be specified");
    }
    let version = text(value, "version");
    if has(value, "version") && !is_version(version) {
        errors.invalid(
            &path.child("version"),
            version,
            "must be a string compatible with semver.org spec 2.0.0",
        );
    }
}

fn is_version(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let parts: Vec<&str> = core.split('.').collect();
    parts.len() == 3
        && parts
            .iter()
            .all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}
