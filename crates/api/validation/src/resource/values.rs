//! Names, limits and raw data that claims and slices share.

use crate::field::{Errors, Path};
use api_meta::names;
use api_meta::tree::{get, has, list, text, texts};
use serde_json::Value;
use std::collections::HashSet;

const C_IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
const LONGEST_ID: usize = 32;
const LONGEST_POOL: usize = 253;
const MOST_BINDING_CONDITIONS: usize = 4;
const LONGEST_PARAMETERS: usize = 10 * 1024;

/// Validates the name of a driver.
pub(super) fn validate_driver(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > 63 {
        errors.too_long(path, 63);
    }
    errors.invalid_each(path, name, names::dns1123_subdomain(&name.to_lowercase()));
}

/// Validates the name of a pool. Drivers put the node's name into it, with segments for the rest.
pub(super) fn validate_pool(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    if name.len() > LONGEST_POOL {
        return errors.too_long(path, LONGEST_POOL);
    }
    for part in name.split('/') {
        errors.invalid_each(path, part, names::dns1123_subdomain(part));
    }
}

/// Validates the name of an attribute or capacity, with or without a domain.
pub(super) fn validate_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => validate_identifier(id, path, errors),
        [domain, id] => {
            match *domain {
                "" => errors.invalid(path, "", "the domain must not be empty"),
                domain => validate_driver(domain, path, errors),
            }
            match *id {
                "" => errors.invalid(path, "", "the name must not be empty"),
                id => validate_identifier(id, path, errors),
            }
        }
        // Upstream accepts more than one slash.
        _ => {}
    }
}

/// Validates the name of an attribute with its domain.
pub(super) fn validate_fully_qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    validate_qualified_name(name, path, errors);
    if !name.contains('/') {
        let detail = "a fully qualified name must be a domain and a name separated by a slash";
        errors.invalid(path, name, detail);
    }
}

fn validate_identifier(id: &str, path: &Path<'_>, errors: &mut Errors) {
    if id.len() > LONGEST_ID {
        errors.too_long(path, LONGEST_ID);
    }
    let first = id.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !first || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        errors.invalid(path, id, C_IDENTIFIER);
    }
}

/// Shortens a key that is shown in a path.
pub(super) fn shorten_key(key: &str, longest: usize) -> String {
    if key.len() <= longest {
        return key.to_owned();
    }
    let remaining = longest.saturating_sub(3);
    let start: String = key.chars().take(remaining.div_ceil(2)).collect();
    let count = key.chars().count();
    let end: String = key.chars().skip(count - remaining / 2).collect();
    format!("{start}...{end}")
}

/// Reports a list that is too long. The caller then skips its items, which bounds the work.
pub(super) fn exceeds(all: &[Value], max: usize, path: &Path<'_>, errors: &mut Errors) -> bool {
    if all.len() > max {
        errors.too_many(path, all.len(), max);
    }
    all.len() > max
}

/// Reports items whose keys occur before them.
pub(super) fn validate_unique(
    keys: impl Iterator<Item = Value>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut seen = HashSet::new();
    for (i, key) in keys.enumerate() {
        if !seen.insert(key.to_string()) {
            errors.duplicate(&path.index(i), key);
        }
    }
}

/// Validates opaque parameters for a driver. The size of stored ones is not checked again.
pub(super) fn validate_device_configuration(
    config: &Value,
    is_stored: bool,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let (opaque, at) = (get(config, "opaque"), path.child("opaque"));
    if opaque.is_null() {
        return errors.required(&at, "");
    }
    validate_driver(text(opaque, "driver"), &at.child("driver"), errors);
    let max = if is_stored {
        usize::MAX
    } else {
        LONGEST_PARAMETERS
    };
    validate_raw_object(
        get(opaque, "parameters"),
        max,
        &at.child("parameters"),
        errors,
    );
}

/// Validates data of any form that must be a JSON object.
pub(super) fn validate_raw_object(value: &Value, max: usize, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::Null => errors.required(path, ""),
        value if value.to_string().len() > max => errors.too_long(path, max),
        Value::Object(_) => {}
        _ => errors.invalid(path, "<value omitted>", "must be a valid JSON object"),
    }
}

/// Validates the conditions that a driver sets before and instead of a binding (KEP-5007).
pub(super) fn validate_binding_conditions(parent: &Value, path: &Path<'_>, errors: &mut Errors) {
    const FIELDS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for field in FIELDS {
        let at = path.child(field);
        if !exceeds(list(parent, field), MOST_BINDING_CONDITIONS, &at, errors) {
            for (i, name) in texts(parent, field).iter().enumerate() {
                errors.invalid_each(&at.index(i), name, names::qualified_name(name));
            }
        }
    }
    let ready: HashSet<&str> = texts(parent, "bindingConditions").into_iter().collect();
    for field in FIELDS {
        let at = path.child(field);
        let all = texts(parent, field);
        let mut seen = HashSet::new();
        for (i, name) in all.iter().enumerate() {
            if !seen.insert(*name) {
                errors.duplicate(&at.index(i), *name);
            }
            if field != "bindingConditions" && ready.contains(name) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.invalid(&at.index(i), *name, detail);
            }
        }
    }
    for (field, other) in [(FIELDS[0], FIELDS[1]), (FIELDS[1], FIELDS[0])] {
        if list(parent, field).is_empty() && !list(parent, other).is_empty() {
            errors.invalid(
                &path.child(field),
                get(parent, field).clone(),
                format!("{field} are required to use {other}"),
            );
        }
    }
}

/// Returns the names of requests, and of the alternatives of each.
pub(super) fn request_names(devices: &Value) -> Vec<(&str, Vec<&str>)> {
    let alternatives = |request| -> Vec<&str> {
        let all = list(request, "firstAvailable").iter();
        all.map(|sub| text(sub, "name")).collect()
    };
    let requests = list(devices, "requests").iter();
    requests
        .map(|request| (text(request, "name"), alternatives(request)))
        .collect()
}

/// Validates a list of references to requests.
pub(super) fn validate_request_references(
    parent: &Value,
    requests: &[(&str, Vec<&str>)],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let at = path.child("requests");
    if exceeds(list(parent, "requests"), 32, &at, errors) {
        return;
    }
    let all = texts(parent, "requests");
    for (i, name) in all.iter().enumerate() {
        validate_request_reference(name, requests, &at.index(i), errors);
    }
    validate_unique(all.into_iter().map(Value::from), &at, errors);
}

/// Validates `request` or `request/alternative`.
pub(super) fn validate_request_reference(
    name: &str,
    requests: &[(&str, Vec<&str>)],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    const UNKNOWN: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let segments: Vec<&str> = name.split('/').collect();
    if segments.len() > 2 {
        return errors.invalid(path, name, UNKNOWN);
    }
    for segment in &segments {
        errors.invalid_each(path, segment, names::dns1123_label(segment));
    }
    let (main, sub) = (segments.first(), segments.get(1));
    let is_known = requests.iter().any(|(request, alternatives)| {
        Some(request) == main && sub.is_none_or(|sub| alternatives.contains(sub))
    });
    if !is_known {
        errors.invalid(path, name, UNKNOWN);
    }
}

/// Validates the UID of a share of a device.
pub(super) fn validate_share_id(parent: &Value, path: &Path<'_>, errors: &mut Errors) {
    if !has(parent, "shareID") {
        return;
    }
    let id = text(parent, "shareID");
    let is_part = |(i, b): (usize, u8)| match i {
        8 | 13 | 18 | 23 => b == b'-',
        _ => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
    };
    if id.len() != 36 || !id.bytes().enumerate().all(is_part) {
        errors.invalid(&path.child("shareID"), id, "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters");
    }
}
