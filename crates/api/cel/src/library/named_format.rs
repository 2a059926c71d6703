//! Library of Kubernetes for named formats of strings.

use std::any::Any;
use std::fmt;

use api_meta::names;

use crate::cost::{CallEstimate, CallSite, REGEX_LENGTH_FACTOR, STRING_TRAVERSAL_FACTOR};
use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{Object, Value};

use super::costs::{argument_size, match_cost, size_at};
use super::web_address::check_request_uri;

/// Length of the longest pattern of a format that the estimate assumes.
const MAX_PATTERN: f64 = 128.0;

/// A format as a value.
#[derive(Clone, Copy)]
struct NamedFormat {
    name: &'static str,
    check: fn(&str) -> Vec<String>,
    /// Length of the format's pattern, or of one that would do the same, for the cost.
    pattern: u64,
}

impl fmt::Debug for NamedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "format({})", self.name)
    }
}

const fn format(name: &'static str, check: fn(&str) -> Vec<String>, pattern: u64) -> NamedFormat {
    NamedFormat {
        name,
        check,
        pattern,
    }
}

const COUNT: usize = 13;

const FORMATS: [NamedFormat; COUNT] = [
    format("dns1123Label", names::dns1123_label, 30),
    format("dns1123Subdomain", names::dns1123_subdomain, 60),
    format("dns1035Label", names::dns1035_label, 30),
    format("qualifiedName", names::qualified_name, 60),
    format(
        "dns1123LabelPrefix",
        |text| names::dns1123_label(&mask_dash(text)),
        30,
    ),
    format(
        "dns1123SubdomainPrefix",
        |text| names::dns1123_subdomain(&mask_dash(text)),
        60,
    ),
    format(
        "dns1035LabelPrefix",
        |text| names::dns1035_label(&mask_dash(text)),
        30,
    ),
    format("labelValue", names::label_value, 40),
    format("uri", check_uri, 1103),
    format(
        "uuid",
        |text| report(is_uuid(text), "does not match the UUID format"),
        70,
    ),
    format("byte", |text| report(is_base64(text), "invalid base64"), 84),
    format("date", |text| report(is_date(text), "invalid date"), 71),
    format(
        "datetime",
        |text| report(is_datetime(text), "invalid datetime"),
        71,
    ),
];

/// Functions that return one format each, with their names. A function has no data of its own.
const CONSTANTS: [(&str, Implementation); COUNT] = [
    ("format.dns1123Label", constant::<0>),
    ("format.dns1123Subdomain", constant::<1>),
    ("format.dns1035Label", constant::<2>),
    ("format.qualifiedName", constant::<3>),
    ("format.dns1123LabelPrefix", constant::<4>),
    ("format.dns1123SubdomainPrefix", constant::<5>),
    ("format.dns1035LabelPrefix", constant::<6>),
    ("format.labelValue", constant::<7>),
    ("format.uri", constant::<8>),
    ("format.uuid", constant::<9>),
    ("format.byte", constant::<10>),
    ("format.date", constant::<11>),
    ("format.datetime", constant::<12>),
];

fn format_type() -> Type {
    Type::object("kubernetes.NamedFormat")
}

impl Object for NamedFormat {
    fn object_type(&self) -> Type {
        format_type()
    }

    fn is_equal(&self, other: &dyn Object) -> bool {
        let other: Option<&NamedFormat> = other.as_any().downcast_ref();
        other.is_some_and(|other| self.name == other.name)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Returns the library.
pub fn library() -> Library {
    let named = Overload::global(
        "format-named",
        vec![Type::String],
        Type::optional(format_type()),
        find_format,
    );
    let validate = Overload::receiver(
        "format-validate",
        vec![format_type(), Type::String],
        Type::optional(Type::list(Type::String)),
        validate,
    );
    let constants = CONSTANTS.map(|(name, run)| {
        Function::new(
            name,
            vec![Overload::global(name, Vec::new(), format_type(), run)],
        )
    });
    let mut functions = vec![
        Function::new("format.named", vec![named]),
        Function::new(
            "validate",
            vec![validate.with_cost(validate_cost, estimate_validate)],
        ),
    ];
    functions.extend(constants);
    Library {
        name: "kubernetes.format",
        since: 31,
        functions,
        ..Library::default()
    }
}

fn constant<'v, const INDEX: usize>(_: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    FORMATS
        .get(INDEX)
        .copied()
        .map(Value::object)
        .ok_or(EvalError::NoSuchOverload)
}

fn find_format<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [Value::String(name)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    let found = FORMATS.iter().find(|format| *format.name == **name);
    Ok(Value::optional(found.copied().map(Value::object)))
}

fn validate<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let [format, Value::String(text)] = values else {
        return Err(EvalError::NoSuchOverload);
    };
    let format: &NamedFormat = format.downcast().ok_or(EvalError::NoSuchOverload)?;
    let problems = (format.check)(text);
    let list = || {
        Value::list(
            problems
                .iter()
                .map(|text| Value::string(text.as_str()))
                .collect(),
        )
    };
    // A valid text has no problems and an absent result: rules test it with `!...hasValue()`.
    Ok(Value::optional((!problems.is_empty()).then(list)))
}

fn validate_cost<'v>(values: &[Value<'v>], _: &Value<'v>) -> Option<u64> {
    let format: &NamedFormat = values.first()?.downcast()?;
    Some(match_cost(size_at(values, 1), format.pattern))
}

fn estimate_validate(site: &CallSite) -> Option<CallEstimate> {
    // Upstream's estimate assumes the longest pattern, and lacks the `+ 1` of the actual cost.
    let text = argument_size(site, 0).scale(STRING_TRAVERSAL_FACTOR);
    Some(CallEstimate::new(
        text.scale(MAX_PATTERN * REGEX_LENGTH_FACTOR),
    ))
}

fn report(is_valid: bool, message: &str) -> Vec<String> {
    if is_valid {
        Vec::new()
    } else {
        vec![message.to_owned()]
    }
}

/// Replaces a trailing dash and the character before it with one that may end a name, because the
/// server appends to a prefix.
fn mask_dash(text: &str) -> String {
    match text.strip_suffix('-') {
        Some(front) if !front.is_empty() => {
            // A character beyond ASCII stays, so that the check still fails on it.
            let kept = front.strip_suffix(|c: char| c.is_ascii()).unwrap_or(front);
            format!("{kept}a")
        }
        _ => text.to_owned(),
    }
}

fn check_uri(text: &str) -> Vec<String> {
    check_request_uri(text)
        .err()
        .map(|error| error.0)
        .into_iter()
        .collect()
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, tail)) = rest.split_at_checked(length) else {
            return false;
        };
        if !group.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        rest = tail;
    }
    rest.is_empty()
}

/// Returns whether a text is padded base64 in the standard alphabet. Unused bits may be set.
fn is_base64(text: &str) -> bool {
    let is_digit = |b: u8| b.is_ascii_alphanumeric() || b == b'+' || b == b'/';
    let body = text
        .strip_suffix("==")
        .or_else(|| text.strip_suffix('='))
        .unwrap_or(text);
    !text.is_empty() && text.len().is_multiple_of(4) && body.bytes().all(is_digit)
}

fn is_date(text: &str) -> bool {
    let is_shaped = text.len() == 10
        && text.bytes().enumerate().all(|(index, byte)| match index {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    let number = |range| text.get(range).and_then(|digits: &str| digits.parse().ok());
    match (
        text.get(..4).and_then(|year| year.parse().ok()),
        number(5..7),
        number(8..10),
    ) {
        (Some(year), Some(month), Some(day)) if is_shaped => {
            jiff::civil::Date::new(year, month, day).is_ok()
        }
        _ => false,
    }
}

/// Returns whether a text is a time as upstream's format library knows it: any character may
/// separate the fraction, an offset is two numbers of two digits, and what follows a second `t` is
/// ignored.
fn is_datetime(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    is_date(date) && is_time(time)
}

fn is_time(text: &str) -> bool {
    let two_digits = |text: &str, max: u8| {
        let is_shaped = text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
        is_shaped && text.parse().is_ok_and(|number: u8| number <= max)
    };
    let Some((clock, zone)) = text.split_at_checked(8) else {
        return false;
    };
    let fields: Vec<&str> = clock.split(':').collect();
    let [hour, minute, second] = fields.as_slice() else {
        return false;
    };
    if !(two_digits(hour, 23) && two_digits(minute, 59) && two_digits(second, 59)) {
        return false;
    }
    let is_zone = |text: &str| {
        text == "z"
            || text
                .strip_prefix(['+', '-'])
                .and_then(|rest| rest.split_once(':'))
                .is_some_and(|(hours, minutes)| two_digits(hours, 99) && two_digits(minutes, 99))
    };
    if is_zone(zone) {
        return true;
    }
    let mut fraction = zone.chars();
    let separates = fraction.next().is_some_and(|c| c != '\n');
    let digits = fraction.as_str();
    let rest = digits.trim_start_matches(|c: char| c.is_ascii_digit());
    separates && rest.len() < digits.len() && is_zone(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_names_are_the_names_of_the_formats() {
        for (index, (name, _)) in CONSTANTS.iter().enumerate() {
            let format = FORMATS.get(index).map(|format| format.name);
            assert_eq!(name.strip_prefix("format."), format);
        }
    }

    #[test]
    fn texts_are_checked_by_their_format() {
        for (name, good, bad) in [
            ("dns1123Label", "a-1", "a.b"),
            ("dns1123Subdomain", "a.b", "A"),
            ("dns1035Label", "a1", "1a"),
            ("qualifiedName", "a.b/C", "a/b/c"),
            ("dns1123LabelPrefix", "a--", "é-"),
            ("dns1123SubdomainPrefix", "a..-", "-"),
            ("dns1035LabelPrefix", "1-", "-a-"),
            ("labelValue", "", "-"),
            ("uri", "mailto:x", "a"),
            ("uuid", "123E4567e89b-12d3a456426614174000", "123e4567"),
            ("byte", "YR==", "a==="),
            ("date", "0000-02-29", "2021-02-29"),
            (
                "datetime",
                "2020-01-01t00:00:00x5+99:99",
                "2020-01-01T24:00:00Z",
            ),
        ] {
            let format = FORMATS.iter().find(|format| format.name == name);
            let check = |text| format.map(|format| (format.check)(text));
            assert_eq!(check(good), Some(Vec::new()), "{name} {good}");
            assert!(
                check(bad).is_some_and(|found| !found.is_empty()),
                "{name} {bad}"
            );
        }
    }
}
