//! DeviceTaintRules.

use super::device::validate_taint;
use super::values::{validate_driver, validate_pool};
use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use api_meta::names;
use api_meta::tree::{get, list, opt_text, text};
use serde_json::Value;

/// Rules of DeviceTaintRules.
pub const TAINT_RULE: Rules = Rules {
    name: NameRule::Subdomain,
    create: |new, errors| validate_spec(new, None, errors),
    update: |new, old, errors| validate_spec(new, Some(old), errors),
    sub: |_, new, _, errors| validate_status(get(new, "status"), errors),
};

const MOST_CONDITIONS: usize = 8;

fn validate_spec(new: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(new, "spec"), Path::ROOT.child("spec"));
    let (selector, at) = (get(spec, "deviceSelector"), path.child("deviceSelector"));
    if let Some(driver) = opt_text(selector, "driver") {
        validate_driver(driver, &at.child("driver"), errors);
    }
    if let Some(pool) = opt_text(selector, "pool") {
        validate_pool(pool, &at.child("pool"), errors);
    }
    if let Some(device) = opt_text(selector, "device") {
        errors.invalid_each(&at.child("device"), device, names::dns1123_label(device));
    }
    let taint = get(spec, "taint");
    let before = old.map(|old| get(get(old, "spec"), "taint"));
    // An unchanged effect may be one that a later release knows.
    let is_kept = before.is_some_and(|before| text(before, "effect") == text(taint, "effect"));
    validate_taint(taint, !is_kept, &path.child("taint"), errors);
}

fn validate_status(status: &Value, errors: &mut Errors) {
    let path = Path::ROOT.child("status");
    let path = path.child("conditions");
    validate_conditions(status, &path, errors);
    let count = list(status, "conditions").len();
    if count > MOST_CONDITIONS {
        errors.too_many(&path, count, MOST_CONDITIONS);
    }
}
