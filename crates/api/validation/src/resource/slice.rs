//! ResourceSlices: pool, place and shared counters.

use super::device::{validate_counters, validate_device};
use super::values::{exceeds, validate_driver, validate_pool, validate_unique};
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::pod;
use crate::rules;
use api_meta::names;
use api_meta::tree::{entries, flag, get, has, int, list, opt_text, text};
use serde_json::Value;

pub const SLICE: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_resource_slice(object, None, errors),
    update: |new, old, errors| validate_resource_slice(new, Some(old), errors),
    sub: accept_subresource,
};

const ONE_PLACE: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
const MOST_DEVICES: usize = 128;
/// Most devices if any of them has taints, counters or list attributes.
const MOST_ADVANCED_DEVICES: usize = 64;
const MOST_COUNTER_SETS: usize = 8;
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

fn validate_resource_slice(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_driver(text(spec, "driver"), &path.child("driver"), errors);
    validate_resource_pool(get(spec, "pool"), &path.child("pool"), errors);
    if let Some(old) = old.map(|old| get(old, "spec")) {
        let at = path.child("pool");
        rules::validate_immutable(get(spec, "pool"), get(old, "pool"), "name", &at, errors);
        for field in ["driver", "nodeName"] {
            rules::validate_immutable(spec, old, field, &path, errors);
        }
    }
    validate_place(spec, &path, errors);
    // Counters are shared by all slices of a pool and have one of their own (KEP-4815).
    if has(spec, "sharedCounters") && has(spec, "devices") {
        let detail = "only one of `sharedCounters` or `devices` is allowed";
        errors.invalid(&path, "", detail);
    }
    validate_devices(spec, old, &path.child("devices"), errors);
    let sets = list(spec, "sharedCounters");
    let at = path.child("sharedCounters");
    if !exceeds(sets, MOST_COUNTER_SETS, &at, errors) {
        for (i, set) in sets.iter().enumerate() {
            validate_counters(set, "name", &at.index(i), errors);
        }
        validate_unique(sets.iter().map(|set| text(set, "name").into()), &at, errors);
    }
}

fn validate_resource_pool(pool: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_pool(text(pool, "name"), &path.child("name"), errors);
    let count = int(pool, "resourceSliceCount").unwrap_or(0);
    if count <= 0 {
        let detail = "must be greater than zero";
        errors.invalid(&path.child("resourceSliceCount"), count, detail);
    }
    let generation = int(pool, "generation").unwrap_or(0);
    if generation < 0 {
        let detail = "must be greater than or equal to zero";
        errors.invalid(&path.child("generation"), generation, detail);
    }
}

/// The scheduler must know for every device on which nodes it can be used.
fn validate_place(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let mut set: Vec<&str> = Vec::new();
    let at = path.child("nodeName");
    match opt_text(spec, "nodeName") {
        None => {}
        Some("") => errors.invalid(&at, "", "must be either unset or set to a non-empty string"),
        Some(node) => {
            set.push("`nodeName`");
            errors.invalid_each(&at, node, names::dns1123_subdomain(node));
        }
    }
    if has(spec, "nodeSelector") {
        set.push("`nodeSelector`");
        let (selector, at) = (get(spec, "nodeSelector"), path.child("nodeSelector"));
        pod::validate_node_selector(selector, false, &at, errors);
        let terms = list(selector, "nodeSelectorTerms");
        // The scheduler intersects the selectors of a claim's devices.
        if terms.len() != 1 {
            let detail = "must have exactly one node selector term";
            errors.invalid(&at.child("nodeSelectorTerms"), terms.to_vec(), detail);
        }
    }
    for (field, name) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        if flag(spec, field) {
            set.push(name);
        } else if has(spec, field) {
            let detail = "must be either unset or set to true";
            errors.invalid(&path.child(field), false, detail);
        }
    }
    match set.len() {
        0 => errors.required(path, ONE_PLACE),
        1 => {}
        _ => errors.invalid(
            path,
            format!("{{{}}}", set.join(", ")),
            format!("{ONE_PLACE}, but multiple fields are set"),
        ),
    }
}

fn is_advanced(device: &Value) -> bool {
    let has_list = |(_, attribute): (&String, &Value)| LISTS.iter().any(|f| has(attribute, f));
    !list(device, "taints").is_empty()
        || !list(device, "consumesCounters").is_empty()
        || entries(device, "attributes").any(has_list)
}

fn validate_devices(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    let devices = list(spec, "devices");
    let max = match devices.iter().any(is_advanced) {
        true => MOST_ADVANCED_DEVICES,
        false => MOST_DEVICES,
    };
    if exceeds(devices, max, path, errors) {
        return;
    }
    let before = old.map(|old| list(get(old, "spec"), "devices"));
    let is_placed = flag(spec, "perDeviceNodeSelection");
    for (i, device) in devices.iter().enumerate() {
        let name = text(device, "name");
        let old = before.and_then(|all| all.iter().find(|d| text(d, "name") == name));
        validate_device(device, old, is_placed, &path.index(i), errors);
    }
    validate_unique(devices.iter().map(|d| text(d, "name").into()), path, errors);
}
