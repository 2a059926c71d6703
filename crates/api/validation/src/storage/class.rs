//! StorageClasses and VolumeAttributesClasses.

use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_meta::names;
use api_meta::tree::{entries, has, list, same, text, texts};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashSet};

pub const STORAGE_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_storage_class,
    update: validate_storage_class_update,
    sub: accept_subresource,
};
pub const VOLUME_ATTRIBUTES_CLASS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_attributes_class,
    update: validate_attributes_class_update,
    sub: accept_subresource,
};

const RECLAIM: [&str; 2] = ["Delete", "Retain"];
const BINDING: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];
const MOST_PARAMETERS: usize = 512;
const PARAMETERS_LIMIT: usize = 256 * 1024;

fn validate_storage_class(object: &Value, errors: &mut Errors) {
    let root = Path::ROOT;
    validate_provisioner(object, "provisioner", errors);
    validate_parameters(object, errors);
    if !text(object, "reclaimPolicy").is_empty() {
        rules::validate_one_of(object, "reclaimPolicy", &RECLAIM, &root, errors);
    }
    if has(object, "volumeBindingMode") {
        rules::validate_one_of(object, "volumeBindingMode", &BINDING, &root, errors);
    } else {
        errors.required(&root.child("volumeBindingMode"), "");
    }
    validate_allowed_topologies(object, errors);
}

fn validate_provisioner(object: &Value, field: &str, errors: &mut Errors) {
    let at = Path::ROOT.child(field);
    match text(object, field) {
        "" => errors.required(&at, ""),
        name => {
            let lower = name.to_lowercase();
            errors.invalid_each(&at, &lower, names::qualified_name(&lower));
        }
    }
}

/// Parameters are sent to the provisioner with each claim, so upstream limits their size.
fn validate_parameters(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("parameters");
    if entries(object, "parameters").count() > MOST_PARAMETERS {
        return errors.too_long(&path, MOST_PARAMETERS);
    }
    let mut size = 0;
    for (key, value) in entries(object, "parameters") {
        if key.is_empty() {
            errors.invalid(&path, key.as_str(), "field can not be empty.");
        }
        size += key.len() + value.as_str().map_or(0, str::len);
    }
    if size > PARAMETERS_LIMIT {
        errors.too_long(&path, PARAMETERS_LIMIT);
    }
}

fn validate_allowed_topologies(object: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("allowedTopologies");
    let mut seen: HashSet<BTreeMap<&str, BTreeSet<&str>>> = HashSet::new();
    for (i, term) in list(object, "allowedTopologies").iter().enumerate() {
        let at = path.index(i);
        let at = at.child("matchLabelExpressions");
        let topology = validate_topology_term(term, &at, errors);
        if seen.contains(&topology) {
            errors.duplicate(&at, "");
        }
        seen.insert(topology);
    }
}

fn validate_topology_term<'a>(
    term: &'a Value,
    path: &Path<'_>,
    errors: &mut Errors,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut topology = BTreeMap::new();
    for (i, expression) in list(term, "matchLabelExpressions").iter().enumerate() {
        let at = path.index(i);
        let values = at.child("values");
        let mut set = BTreeSet::new();
        let all = texts(expression, "values");
        if all.is_empty() {
            errors.required(&values, "");
        }
        for (j, value) in all.into_iter().enumerate() {
            if !set.insert(value) {
                errors.duplicate(&values.index(j), value);
            }
        }
        let key = text(expression, "key");
        errors.invalid_each(&at.child("key"), key, names::qualified_name(key));
        if topology.insert(key, set).is_some() {
            errors.duplicate(&at.child("key"), key);
        }
    }
    topology
}

fn validate_storage_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_storage_class(new, errors);
    // Volumes of the class were provisioned with these.
    for field in [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ] {
        rules::validate_immutable(new, old, field, &Path::ROOT, errors);
    }
}

fn validate_attributes_class(object: &Value, errors: &mut Errors) {
    validate_provisioner(object, "driverName", errors);
    validate_parameters(object, errors);
    if entries(object, "parameters").next().is_none() {
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
    validate_attributes_class(new, errors);
}
