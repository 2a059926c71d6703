//! Rules of single values that many kinds share, with upstream's messages.

use crate::field::{Errors, Path};
use api_meta::tree::get;
use api_meta::{Quantity, names};
use api_semantics::quantities::parse_quantity;
use serde_json::Value;

pub use crate::ip::{cidr_problems, ip_problems, parse_ip};

/// Returns the problems of a name.
pub type NameCheck = fn(&str) -> Vec<String>;

/// Message for negative numbers.
pub const NEGATIVE: &str = "must be greater than or equal to 0";
/// Message for numbers that are not positive.
pub const NOT_POSITIVE: &str = "must be greater than 0";
/// Message for sizes that are not positive.
pub const NOT_ABOVE_ZERO: &str = "must be greater than zero";
/// Message for changes of immutable fields.
pub const IMMUTABLE: &str = "field is immutable";
/// Message for invalid port numbers.
pub const PORT_RANGE: &str = "must be between 1 and 65535, inclusive";

/// Validates an optional number that must not be negative.
pub fn validate_non_negative(parent: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = get(parent, field).as_i64()
        && n < 0
    {
        errors.invalid(&path.child(field), n, NEGATIVE);
    }
}

/// Validates an optional number that has a minimum.
pub fn validate_minimum(value: Option<i64>, least: i64, path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = value.filter(|value| *value < least) {
        let detail = format!("must be greater than or equal to {least}");
        errors.invalid(path, value, detail);
    }
}

/// Rejects changes of fields, without their values in the errors, as upstream.
pub fn reject_hidden_changes(
    new: &Value,
    old: &Value,
    fields: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for field in fields
        .iter()
        .filter(|field| !api_meta::tree::same(new, old, field))
    {
        errors.invalid(&path.child(field), Value::Null, IMMUTABLE);
    }
}

/// Validates an optional number that must be positive.
pub fn validate_positive(parent: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(n) = get(parent, field).as_i64()
        && n <= 0
    {
        errors.invalid(&path.child(field), n, NOT_POSITIVE);
    }
}

/// Validates a string that may be absent, or else must be in `known`.
pub fn validate_one_of(
    parent: &Value,
    field: &str,
    known: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // An empty text is reported with the list of known values, as upstream does for pointer fields.
    if let Some(value) = get(parent, field).as_str()
        && !known.contains(&value)
    {
        errors.not_supported(&path.child(field), value, known);
    }
}

/// Validates a required string that must be in `known`.
pub fn validate_required_one_of(
    parent: &Value,
    field: &str,
    known: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // Upstream distinguishes a missing from an unknown value by the error's type, and clients show
    // it.
    match get(parent, field).as_str().unwrap_or_default() {
        "" => errors.required(&path.child(field), ""),
        value if !known.contains(&value) => errors.not_supported(&path.child(field), value, known),
        _ => {}
    }
}

/// Checks that an immutable field has not changed.
pub fn validate_immutable(
    new: &Value,
    old: &Value,
    field: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    // The whole value is shown, not the difference, as upstream does.
    if !api_meta::tree::same(new, old, field) {
        errors.invalid(&path.child(field), get(new, field).clone(), IMMUTABLE);
    }
}

/// Returns the problem of a port number.
pub fn port_number_problem(n: i64) -> Option<&'static str> {
    (!(1..=65535).contains(&n)).then_some(PORT_RANGE)
}

/// Returns the problems of a port's name (IANA service name).
pub fn port_name_problems(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    // The limit of IANA service names (RFC 6335).
    if text.len() > 15 {
        out.push("must be no more than 15 characters".to_owned());
    }
    if text.is_empty()
        || !text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    {
        out.push(
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned(),
        );
    }
    // Without a letter the name of a `targetPort` could not be distinguished from a number.
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        out.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        out.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        out.push("must not begin or end with a hyphen".to_owned());
    }
    out
}

/// Validates a port given by number or name (`targetPort`, ports of probes).
pub fn validate_port_number_or_name(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(name) => errors.invalid_each(path, name, port_name_problems(name)),
        other => {
            // A missing port is zero for upstream, so it has the error for the range.
            let n = other.as_i64().unwrap_or(0);
            if let Some(problem) = port_number_problem(n) {
                errors.invalid(path, n, problem);
            }
        }
    }
}

/// Returns the problems of a key of a ConfigMap or Secret.
pub fn config_key_problems(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    // The limit of a DNS subdomain, which keys once had to be.
    if text.len() > 253 {
        out.push("must be no more than 253 characters".to_owned());
    }
    if text.is_empty()
        || !text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    {
        out.push("a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')".to_owned());
    }
    match text {
        // Keys become names of files in volumes.
        "." | ".." => out.push(format!("must not be '{text}'")),
        // The kubelet replaces the files of a volume atomically by way of `..data`.
        t if t.starts_with("..") => out.push("must not start with '..'".to_owned()),
        _ => {}
    }
    out
}

/// Validates a path with a domain: `example.com/thing`.
pub fn validate_domain_prefixed_path(text: &str, path: &Path<'_>, errors: &mut Errors) {
    if text.is_empty() {
        return errors.required(path, "");
    }
    // Only the first slash separates: the path may contain more.
    let (domain, rest) = text.split_once('/').unwrap_or_default();
    if domain.is_empty() || rest.is_empty() {
        let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        return errors.invalid(path, text, detail);
    }
    errors.invalid_each(path, domain, names::dns1123_subdomain(domain));
    // The characters of a path in RFC 3986 except `@`, so that the text can be a part of a URL
    // unchanged.
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(is_allowed) {
        let detail =
            "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.invalid(path, rest, detail);
    }
}

/// Returns a quantity of a resource list.
pub fn read_quantity(list: &Value, name: &str) -> Option<Quantity> {
    list.get(name).and_then(parse_quantity)
}

/// Validates a percentage (`25%`).
pub fn validate_percentage(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Value::String(text) = value
        // Signs and fractions are excluded: upstream parses the digits as an integer.
        && !is_percent(text)
    {
        errors.invalid(path, text.as_str(), PERCENT);
    }
}

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

/// Returns whether a text is a percentage.
pub fn is_percent(text: &str) -> bool {
    text.strip_suffix('%')
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// Validates a non-negative number or a percentage.
pub fn validate_non_negative_or_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(_) => validate_percentage(value, path, errors),
        other => {
            if other.as_i64().is_some_and(|n| n < 0) {
                errors.invalid(path, other.clone(), NEGATIVE);
            }
        }
    }
}

/// Checks that a percentage is at most 100.
pub fn validate_at_most_100_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Value::String(text) = value
        // A number with too many digits to parse passes here, as upstream.
        && let Some(n) = text.strip_suffix('%').and_then(|n| n.parse::<i64>().ok())
        && n > 100
    {
        errors.invalid(path, text.as_str(), "must not be greater than 100%");
    }
}

/// Returns the number of a number or percentage; of a percentage, its digits (only for comparison
/// with zero).
pub fn whole_number(value: &Value) -> i64 {
    match value {
        Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(0),
        other => other.as_i64().unwrap_or(0),
    }
}
