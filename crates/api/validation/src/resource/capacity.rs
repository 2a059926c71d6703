//! Policies for requests of a part of a device's capacity (KEP-5075).

use super::values::{exceeds, validate_unique};
use crate::field::{Errors, Path};
use crate::rules::read_quantity;
use api_meta::Quantity;
use api_meta::tree::{get, has, list};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;

const MOST_OPTIONS: usize = 10;

pub(super) fn validate_request_policy(capacity: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = get(capacity, "requestPolicy");
    let Some(max) = read_quantity(capacity, "value") else {
        return;
    };
    let options = list(policy, "validValues");
    let (has_options, has_range) = (!options.is_empty(), has(policy, "validRange"));
    let default = read_quantity(policy, "default");
    match (has_options, has_range, default) {
        (true, true, _) => errors.forbidden(path, "exactly one policy can be specified, cannot specify \"validValues\" and \"validRange\" at the same time"),
        (true, false, Some(default)) => {
            validate_options(options, default, max, &path.child("validValues"), errors);
        }
        (false, true, Some(default)) => {
            let range = get(policy, "validRange");
            validate_range(range, default, max, &path.child("validRange"), errors);
        }
        (true, false, None) => {
            errors.required(&path.child("default"), "required when validValues is defined");
        }
        (false, true, None) => {
            errors.required(&path.child("default"), "required when validRange is defined");
        }
        (false, false, _) => {}
    }
}

fn validate_options(
    options: &[Value],
    default: Quantity,
    max: Quantity,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let amounts: Vec<Quantity> = options.iter().filter_map(parse_quantity).collect();
    for (i, pair) in amounts.windows(2).enumerate() {
        if let [first, second] = pair
            && first > second
        {
            let detail = "values must be sorted in ascending order";
            errors.invalid(&path.index(i + 1), second.to_string(), detail);
        }
    }
    if !exceeds(options, MOST_OPTIONS, path, errors) {
        for (i, option) in amounts.iter().enumerate().filter(|(_, o)| **o > max) {
            let detail = format!("option is larger than capacity value: {max}");
            errors.invalid(&path.index(i), option.to_string(), detail);
        }
        let keys = amounts.iter().map(|o| o.value().to_string().into());
        validate_unique(keys, path, errors);
    }
    // Upstream looks for the default only in a list that is short enough.
    if options.len() > MOST_OPTIONS || !amounts.contains(&default) {
        let detail = "default value is not valid according to the requestPolicy";
        errors.invalid(path, default.to_string(), detail);
    }
}

fn validate_range(
    range: &Value,
    default: Quantity,
    max: Quantity,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let Some(low) = read_quantity(range, "min") else {
        let detail = "required when validRange is defined";
        return errors.required(&path.child("min"), detail);
    };
    let at = path.child("min");
    if low > max {
        let detail = format!("min is larger than capacity value: {max}");
        errors.invalid(&at, low.to_string(), detail);
    }
    if default < low {
        let detail = format!("default is less than min: {low}");
        errors.invalid(&at, default.to_string(), detail);
    }
    let high = read_quantity(range, "max");
    if let Some(high) = high {
        let at = path.child("max");
        for (is_wrong, shown, detail) in [
            (low > high, low, format!("min is larger than max: {high}")),
            (
                high > max,
                high,
                format!("max is larger than capacity value: {max}"),
            ),
            (
                default > high,
                default,
                format!("default is more than max: {high}"),
            ),
        ] {
            if is_wrong {
                errors.invalid(&at, shown.to_string(), detail);
            }
        }
    }
    if let Some(step) = read_quantity(range, "step") {
        validate_step(step, low, high, default, max, &path.child("step"), errors);
    }
}

fn validate_step(
    step: Quantity,
    low: Quantity,
    high: Option<Quantity>,
    default: Quantity,
    max: Quantity,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let first = low.plus(step);
    if first > max {
        let detail = format!("one step {first} is larger than capacity value: {max}");
        errors.invalid(path, step.to_string(), detail);
    }
    for value in [Some(default), high].into_iter().flatten() {
        let distance = value.value().saturating_sub(low.value());
        // Upstream divides by a step of zero and fails; here it is no step of anything.
        if distance.checked_rem(step.value()) != Some(0) {
            let detail = format!("value is not a multiple of a given step ({step}) from ({low})");
            errors.invalid(path, value.to_string(), detail);
        }
    }
}
