//! ResourcePoolStatusRequests (KEP-5677): a request for the devices of a driver's pools, whose
//! status its controller writes once.

use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use crate::rules::{self, reject_hidden_changes, validate_minimum};
use api_meta::names;
use api_meta::tree::{get, has, int, list, opt_text, text};
use serde_json::Value;

/// Rules of ResourcePoolStatusRequests.
pub const POOL_STATUS: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_spec,
    update: |new, old, errors| reject_hidden_changes(new, old, &["spec"], &Path::ROOT, errors),
    sub: |_, new, old, errors| validate_status(new, old, errors),
};

// Upstream's limits; lengths in bytes.
const MOST_POOLS: i64 = 1000;
const MOST_CONDITIONS: usize = 10;
const LONGEST_POOL: usize = 253;
const LONGEST_ERROR: usize = 256;

fn validate_spec(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_driver(spec, &path, errors);
    if let Some(pool) = opt_text(spec, "poolName") {
        validate_pool(pool, &path.child("poolName"), errors);
    }
    let at = path.child("limit");
    match int(spec, "limit") {
        None => errors.required(&at, ""),
        Some(limit) if limit > MOST_POOLS => {
            errors.invalid(
                &at,
                limit,
                format!("must be less than or equal to {MOST_POOLS}"),
            );
        }
        limit => validate_minimum(limit, 1, &at, errors),
    }
}

fn validate_driver(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match text(value, "driver") {
        "" => errors.required(&path.child("driver"), ""),
        driver => {
            let problems = names::dns1123_subdomain(&driver.to_ascii_lowercase());
            errors.invalid_each(&path.child("driver"), driver, problems);
        }
    }
}

fn validate_pool(name: &str, path: &Path<'_>, errors: &mut Errors) {
    // Unlike upstream, nothing else then: each error would show the name.
    if name.len() > LONGEST_POOL {
        return errors.too_long(path, LONGEST_POOL);
    }
    for (i, part) in name.split('/').enumerate() {
        if part.is_empty() {
            errors.invalid(path, name, format!("segment {i}: must not be empty"));
            continue;
        }
        for problem in names::dns1123_subdomain(part) {
            errors.invalid(path, part, format!("segment {i}: {problem}"));
        }
    }
}

/// Validates a write of the controller. What it has once written does not change.
fn validate_status(new: &Value, old: &Value, errors: &mut Errors) {
    if has(old, "status") {
        return rules::validate_immutable(new, old, "status", &Path::ROOT, errors);
    }
    if !has(new, "status") {
        return;
    }
    let (status, path) = (get(new, "status"), Path::ROOT.child("status"));
    let at = path.child("conditions");
    validate_conditions(status, &at, errors);
    match int(status, "poolCount") {
        None => errors.required(&path.child("poolCount"), ""),
        count => validate_minimum(count, 0, &path.child("poolCount"), errors),
    }
    let (pools, pools_at) = (list(status, "pools"), path.child("pools"));
    match usize::try_from(MOST_POOLS) {
        Ok(most) if pools.len() > most => errors.too_many(&pools_at, pools.len(), most),
        _ => {
            for (i, pool) in pools.iter().enumerate() {
                validate_pool_status(pool, &pools_at.index(i), errors);
            }
        }
    }
    let count = list(status, "conditions").len();
    if count > MOST_CONDITIONS {
        errors.too_many(&at, count, MOST_CONDITIONS);
    }
}

fn validate_pool_status(pool: &Value, path: &Path<'_>, errors: &mut Errors) {
    validate_driver(pool, path, errors);
    match text(pool, "poolName") {
        "" => errors.required(&path.child("poolName"), ""),
        name => validate_pool(name, &path.child("poolName"), errors),
    }
    match int(pool, "generation").unwrap_or(0) {
        0 => errors.required(&path.child("generation"), ""),
        generation => validate_minimum(Some(generation), 0, &path.child("generation"), errors),
    }
    for (field, least) in [
        ("resourceSliceCount", 1),
        ("totalDevices", 0),
        ("allocatedDevices", 0),
        ("availableDevices", 0),
        ("unavailableDevices", 0),
    ] {
        validate_minimum(int(pool, field), least, &path.child(field), errors);
    }
    if let Some(node) = opt_text(pool, "nodeName") {
        errors.invalid_each(
            &path.child("nodeName"),
            node,
            names::dns1123_subdomain(node),
        );
    }
    if text(pool, "validationError").len() > LONGEST_ERROR {
        errors.too_long(&path.child("validationError"), LONGEST_ERROR);
    }
}
