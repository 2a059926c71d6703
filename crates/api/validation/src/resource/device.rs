//! Devices of ResourceSlices.

use super::capacity::validate_request_policy;
use super::values::{
    exceeds, shorten_key, validate_binding_conditions, validate_qualified_name, validate_unique,
};
use crate::field::{Errors, Path};
use crate::pod;
use crate::rules;
use api_meta::tree::{entries, flag, get, has, list, opt_text, same, text, texts};
use api_meta::{Quantity, names};
use serde_json::Value;

// The limits are upstream's: a slice with many devices has to fit into the store and into the
// scheduler's memory.
const MOST_ENTRIES: usize = 32;
const MOST_ATTRIBUTE_VALUES: usize = 48;
const MOST_TAINTS: usize = 16;
const MOST_COUNTERS: usize = 32;
const MOST_CONSUMED_SETS: usize = 2;
const LONGEST_VALUE: usize = 64;
/// A domain, a slash and a name.
const LONGEST_KEY: usize = 63 + 1 + 32;
const EFFECTS: [&str; 3] = ["NoExecute", "NoSchedule", "None"];
const SCALARS: [&str; 4] = ["bool", "int", "string", "version"];
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];
const ONE_PLACE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

pub(super) fn validate_device(
    device: &Value,
    old: Option<&Value>,
    is_placed: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let name = text(device, "name");
    errors.invalid_each(&path.child("name"), name, names::dns1123_label(name));
    validate_entry_counts(device, path, errors);
    let at = path.child("attributes");
    for (key, value) in entries(device, "attributes") {
        validate_qualified_name(key, &at, errors);
        validate_attribute(value, &at.key(&shorten_key(key, LONGEST_KEY)), errors);
    }
    validate_capacities(device, &path.child("capacity"), errors);
    // Taints that an older release accepted may stay.
    if !old.is_some_and(|old| same(old, device, "taints")) {
        validate_taints(device, &path.child("taints"), errors);
    }
    let consumed = list(device, "consumesCounters");
    let at = path.child("consumesCounters");
    if !exceeds(consumed, MOST_CONSUMED_SETS, &at, errors) {
        for (i, set) in consumed.iter().enumerate() {
            validate_counters(set, "counterSet", &at.index(i), errors);
        }
        let keys = consumed.iter().map(|set| text(set, "counterSet").into());
        validate_unique(keys, &at, errors);
    }
    validate_device_place(device, is_placed, path, errors);
    validate_binding_conditions(device, path, errors);
    validate_mappings(
        device,
        &path.child("nodeAllocatableResourceMappings"),
        errors,
    );
}

/// Validates how a device counts against resources of its node (KEP-5517).
fn validate_mappings(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (resource, mapping) in entries(device, "nodeAllocatableResourceMappings") {
        let at = path.key(resource);
        if !pod::is_native_resource(resource) {
            errors.invalid(
                &at,
                resource.as_str(),
                "must be a node allocatable resource name",
            );
        }
        let (factor, key) = (
            rules::read_quantity(mapping, "allocationMultiplier"),
            opt_text(mapping, "capacityKey"),
        );
        if factor.is_none() && key.is_none() {
            let detail = "at least one of allocationMultiplier or capacityKey must be set";
            errors.invalid(&at, "", detail);
        }
        if factor.is_some_and(|factor| factor <= Quantity::ZERO) {
            errors.invalid(
                &at.child("allocationMultiplier"),
                get(mapping, "allocationMultiplier").clone(),
                "must be positive",
            );
        }
        let at = at.child("capacityKey");
        match key {
            Some("") => errors.invalid(&at, "", "capacityKey must not be an empty string"),
            Some(key) if !has(get(device, "capacity"), key) => errors.not_found(&at, key),
            _ => {}
        }
    }
}

fn validate_entry_counts(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let count = |field| entries(device, field).count();
    let total = count("attributes") + count("capacity");
    if total > MOST_ENTRIES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MOST_ENTRIES}");
        errors.invalid(path, total, detail);
    }
    // A list counts with each of its values, so that a limit on attributes can't be bypassed with
    // lists.
    let values: usize = entries(device, "attributes")
        .map(|(_, value)| {
            LISTS
                .iter()
                .map(|f| list(value, f).len())
                .sum::<usize>()
                .max(1)
        })
        .sum();
    if values > MOST_ATTRIBUTE_VALUES {
        let detail =
            format!("the total number of attribute values must not exceed {MOST_ATTRIBUTE_VALUES}");
        errors.invalid(path, values, detail);
    }
}

fn validate_attribute(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(text) = opt_text(value, "string") {
        validate_length(text, &path.child("string"), errors);
    }
    if let Some(version) = opt_text(value, "version") {
        validate_version(version, &path.child("version"), errors);
    }
    for field in LISTS.iter().filter(|field| has(value, field)) {
        let at = path.child(field);
        if list(value, field).is_empty() {
            errors.invalid(
                &at,
                get(value, field).clone(),
                "must not be empty if specified",
            );
        }
        for (i, item) in texts(value, field).iter().enumerate() {
            match *field {
                "versions" => validate_version(item, &at.index(i), errors),
                _ => validate_length(item, &at.index(i), errors),
            }
        }
    }
    // An older server drops types that it doesn't know, so an attribute without a value is an
    // error.
    let kinds = SCALARS
        .iter()
        .chain(&LISTS)
        .filter(|k| has(value, k))
        .count();
    if kinds != 1 {
        let shown = if kinds == 0 { "".into() } else { value.clone() };
        errors.invalid(path, shown, "exactly one value must be specified");
    }
}

fn validate_length(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.len() > LONGEST_VALUE {
        errors.too_long(path, LONGEST_VALUE);
    }
}

fn validate_version(version: &str, path: &Path<'_>, errors: &mut Errors) {
    if !is_semantic_version(version) {
        let detail = "must be a string compatible with semver.org spec 2.0.0";
        errors.invalid(path, version, detail);
    }
    validate_length(version, path, errors);
}

/// Returns whether a text is `MAJOR.MINOR.PATCH[-PRERELEASE][+BUILD]`.
fn is_semantic_version(text: &str) -> bool {
    let (text, build) = match text.split_once('+') {
        Some((text, build)) => (text, Some(build)),
        None => (text, None),
    };
    let (core, release) = match text.split_once('-') {
        Some((core, release)) => (core, Some(release)),
        None => (text, None),
    };
    let is_word = |part: &str| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let is_number = |part: &str| {
        !part.is_empty() && is_all_digits(part) && (part == "0" || !part.starts_with('0'))
    };
    let is_release = |part: &str| is_word(part) && (!is_all_digits(part) || is_number(part));
    core.split('.').count() == 3
        && core.split('.').all(is_number)
        && release.is_none_or(|release| release.split('.').all(is_release))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

fn validate_capacities(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let is_shared = flag(device, "allowMultipleAllocations");
    for (key, capacity) in entries(device, "capacity") {
        validate_qualified_name(key, path, errors);
        if !has(capacity, "requestPolicy") {
            continue;
        }
        let key = shorten_key(key, LONGEST_KEY);
        let at = path.key(&key);
        let at = at.child("requestPolicy");
        // Only a device with several consumers is divided (KEP-5075).
        if is_shared {
            validate_request_policy(capacity, &at, errors);
        } else {
            errors.forbidden(&at, "allowMultipleAllocations must be true");
        }
    }
}

fn validate_taints(device: &Value, path: &Path<'_>, errors: &mut Errors) {
    let all = list(device, "taints");
    if exceeds(all, MOST_TAINTS, path, errors) {
        return;
    }
    for (i, taint) in all.iter().enumerate() {
        validate_taint(taint, true, &path.index(i), errors);
    }
}

/// Validates a taint, with or without its effect.
pub(super) fn validate_taint(
    taint: &Value,
    with_effect: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (key, value) = (text(taint, "key"), text(taint, "value"));
    errors.invalid_each(&path.child("key"), key, names::qualified_name(key));
    errors.invalid_each(&path.child("value"), value, names::label_value(value));
    if with_effect {
        rules::validate_required_one_of(taint, "effect", &EFFECTS, path, errors);
    }
}

/// Validates a set of counters that its field `field` names.
pub(super) fn validate_counters(set: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    match text(set, field) {
        "" => errors.required(&path.child(field), ""),
        name => errors.invalid_each(&path.child(field), name, names::dns1123_label(name)),
    }
    let at = path.child("counters");
    let count = entries(set, "counters").count();
    if count == 0 {
        return errors.required(&at, "");
    }
    if count > MOST_COUNTERS {
        return errors.too_many(&at, count, MOST_COUNTERS);
    }
    for (key, _) in entries(set, "counters") {
        errors.invalid_each(&at, key, names::dns1123_label(key));
    }
}

fn validate_device_place(device: &Value, is_placed: bool, path: &Path<'_>, errors: &mut Errors) {
    const FIELDS: [&str; 3] = ["nodeName", "nodeSelector", "allNodes"];
    if !is_placed {
        if FIELDS.iter().any(|field| has(device, field)) {
            errors.invalid(path, Value::Null, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec");
        }
        return;
    }
    let mut set: Vec<&str> = Vec::new();
    let at = path.child("nodeName");
    match opt_text(device, "nodeName") {
        None => {}
        Some("") => errors.invalid(&at, "", "must not be empty"),
        Some(node) => {
            set.push("`nodeName`");
            errors.invalid_each(&at, node, names::dns1123_subdomain(node));
        }
    }
    if has(device, "nodeSelector") {
        set.push("`nodeSelector`");
        let at = path.child("nodeSelector");
        pod::validate_node_selector(get(device, "nodeSelector"), false, &at, errors);
    }
    if flag(device, "allNodes") {
        set.push("`allNodes`");
    } else if has(device, "allNodes") {
        let detail = "must be either unset or set to true";
        errors.invalid(&path.child("allNodes"), false, detail);
    }
    match set.len() {
        0 => errors.required(path, ONE_PLACE),
        1 => {}
        _ => errors.invalid(path, format!("{{{}}}", set.join(", ")), ONE_PLACE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_follow_semver() {
        for (text, expect) in [
            ("1.2.3", true),
            ("0.0.0", true),
            ("1.2.3-alpha.1+build.05", true),
            ("1.2.3--", true),
            ("1.2", false),
            ("01.2.3", false),
            ("1.2.3-01", false),
            ("1.2.3-", false),
            ("1.2.3+", false),
            ("v1.2.3", false),
        ] {
            assert_eq!(is_semantic_version(text), expect, "{text}");
        }
    }
}
