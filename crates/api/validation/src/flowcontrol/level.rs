//! PriorityLevelConfigurations.

use super::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::Rules;
use crate::metadata::NameRule;
use api_meta::semantic::{equal, equal_except};
use api_meta::tree::{get, has, int, text};
use serde_json::{Value, json};

pub const PRIORITY_LEVEL: Rules = Rules {
    name: NameRule::Subdomain,
    create: validate_priority_level,
    update: |new, _, errors| validate_priority_level(new, errors),
    sub: |_, new, _, errors| validate_conditions(new, errors),
};

const MOST_QUEUES: i64 = 10_000_000;
/// Bits of the hash that chooses a flow's queues.
const HASH_BITS: i64 = 60;
const ROUND_TRIP: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

fn validate_priority_level(object: &Value, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    let metadata = get(object, "metadata");
    if has(get(metadata, "annotations"), ROUND_TRIP) {
        errors.forbidden(
            &Path::ROOT.child("metadata").child("annotations"),
            format!("annotation '{ROUND_TRIP}' is forbidden"),
        );
    }
    let name = text(metadata, "name");
    validate_level_spec(spec, name, &path, errors);
    validate_mandatory_level(spec, name, &path, errors);
    validate_conditions(object, errors);
}

fn validate_level_spec(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(spec, "type");
    // A second exempt level would lift every limit for the requests that reach it.
    if (name == "exempt") != (kind == "Exempt") {
        errors.invalid(
            &path.child("type"),
            kind,
            "must be 'Exempt' if and only if `name` is 'exempt'",
        );
    }
    match kind {
        "Exempt" => {
            if has(spec, "limited") {
                let detail = "must be nil if the type is not Limited";
                errors.forbidden(&path.child("limited"), detail);
            }
            let (exempt, at) = (get(spec, "exempt"), path.child("exempt"));
            validate_shares(exempt, &at, errors);
            validate_lendable_percent(exempt, &at, errors);
        }
        "Limited" => {
            if has(spec, "exempt") {
                errors.forbidden(&path.child("exempt"), "must be nil if the type is Limited");
            }
            validate_limited(get(spec, "limited"), &path.child("limited"), errors);
        }
        other => errors.not_supported(&path.child("type"), other, &["Exempt", "Limited"]),
    }
}

fn validate_mandatory_level(spec: &Value, name: &str, path: &Path<'_>, errors: &mut Errors) {
    let (is_fixed, what) = match name {
        // Administrators may set how many seats the exempt level lends.
        "exempt" => (
            equal_except(spec, &json!({"type": "Exempt"}), &["exempt"]),
            "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value",
        ),
        "catch-all" => (
            equal(
                spec,
                &json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5,
                    "lendablePercent": 0, "limitResponse": {"type": "Reject"}}}),
            ),
            "spec of 'catch-all' must equal the fixed value",
        ),
        _ => return,
    };
    if !is_fixed {
        errors.invalid(path, spec.clone(), what);
    }
}

fn validate_shares(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(shares) = int(level, "nominalConcurrencyShares").filter(|n| *n < 0) {
        let detail = "must be a non-negative integer";
        errors.invalid(&path.child("nominalConcurrencyShares"), shares, detail);
    }
}

fn validate_lendable_percent(level: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(percent) = int(level, "lendablePercent").filter(|n| !(0..=100).contains(n)) {
        let detail = "must be between 0 and 100, inclusive";
        errors.invalid(&path.child("lendablePercent"), percent, detail);
    }
}

fn validate_limited(limited: &Value, path: &Path<'_>, errors: &mut Errors) {
    if limited.is_null() {
        return errors.required(path, "must not be empty when type is Limited");
    }
    validate_shares(limited, path, errors);
    let response = get(limited, "limitResponse");
    validate_limit_response(response, &path.child("limitResponse"), errors);
    validate_lendable_percent(limited, path, errors);
    if let Some(percent) = int(limited, "borrowingLimitPercent").filter(|n| *n < 0) {
        let detail = "if specified, must be a non-negative integer";
        errors.invalid(&path.child("borrowingLimitPercent"), percent, detail);
    }
}

fn validate_limit_response(response: &Value, path: &Path<'_>, errors: &mut Errors) {
    let at = path.child("queuing");
    match text(response, "type") {
        "Reject" if has(response, "queuing") => errors.forbidden(
            &at,
            "must be nil if limited.limitResponse.type is not Limited",
        ),
        "Reject" => {}
        "Queue" if !has(response, "queuing") => errors.required(
            &at,
            "must not be empty if limited.limitResponse.type is Limited",
        ),
        "Queue" => validate_queuing(get(response, "queuing"), &at, errors),
        other => errors.not_supported(&path.child("type"), other, &["Queue", "Reject"]),
    }
}

fn validate_queuing(queuing: &Value, path: &Path<'_>, errors: &mut Errors) {
    let read = |field| int(queuing, field).unwrap_or(0);
    let (limit, queues, hand) = (read("queueLengthLimit"), read("queues"), read("handSize"));
    if limit <= 0 {
        errors.invalid(&path.child("queueLengthLimit"), limit, "must be positive");
    }
    if queues <= 0 {
        errors.invalid(&path.child("queues"), queues, "must be positive");
    } else if queues > MOST_QUEUES {
        let detail = format!("must not be greater than {MOST_QUEUES}");
        errors.invalid(&path.child("queues"), queues, detail);
    }
    let at = path.child("handSize");
    if hand <= 0 {
        errors.invalid(&at, hand, "must be positive");
    } else if hand > queues {
        let detail = format!("should not be greater than queues ({queues})");
        errors.invalid(&at, hand, detail);
    } else if required_entropy_bits(queues, hand) > HASH_BITS as f64 {
        errors.invalid(&at, hand, format!("required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"));
    }
}

/// Returns the bits that shuffle sharding takes from a flow's hash: one draw from the queues for
/// each card of the hand.
fn required_entropy_bits(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
}
