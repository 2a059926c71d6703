//! Library of Kubernetes for semantic versions.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt;

use crate::error::EvalError;
use crate::function::{Function, Implementation, Overload};
use crate::library::Library;
use crate::types::Type;
use crate::value::{Object, Value};

use super::costs::{check_parsed, estimate_once, traverse_once};
use super::error::Error;
use super::semantic_version::SemanticVersion;

/// A version as a value.
struct Semver(SemanticVersion);

impl fmt::Debug for Semver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "semver({})", self.0)
    }
}

fn semver_type() -> Type {
    Type::object("kubernetes.Semver")
}

impl Object for Semver {
    fn object_type(&self) -> Type {
        semver_type()
    }

    fn is_equal(&self, other: &dyn Object) -> bool {
        let other: Option<&Semver> = other.as_any().downcast_ref();
        other.is_some_and(|other| self.0 == other.0)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Creates the value of a version attribute, as of a device.
pub fn create_value(text: &str) -> Result<Value<'static>, EvalError> {
    let version = SemanticVersion::parse(text).map_err(|error| EvalError::message(error.0))?;
    Ok(Value::object(Semver(version)))
}

/// Returns the library.
pub fn library() -> Library {
    let text = || vec![Type::String];
    let text_and_flag = || vec![Type::String, Type::Bool];
    let parser = |id, arguments, result, run: Implementation| {
        Overload::global(id, arguments, result, run).with_cost(traverse_once, estimate_once)
    };
    let getter = |name, id, run: Implementation| {
        Function::new(
            name,
            vec![Overload::receiver(id, vec![semver_type()], Type::Int, run)],
        )
    };
    let comparison = |name, id, result, run: Implementation| {
        let arguments = vec![semver_type(), semver_type()];
        Function::new(name, vec![Overload::receiver(id, arguments, result, run)])
    };
    Library {
        name: "kubernetes.Semver",
        since: 33,
        functions: vec![
            Function::new(
                "semver",
                vec![
                    parser("string_to_semver", text(), semver_type(), semver),
                    parser(
                        "string_bool_to_semver",
                        text_and_flag(),
                        semver_type(),
                        semver,
                    ),
                ],
            ),
            Function::new(
                "isSemver",
                vec![
                    parser("is_semver_string", text(), Type::Bool, is_semver),
                    parser(
                        "is_semver_string_bool",
                        text_and_flag(),
                        Type::Bool,
                        is_semver,
                    ),
                ],
            ),
            comparison(
                "isGreaterThan",
                "semver_is_greater_than",
                Type::Bool,
                is_greater,
            ),
            comparison("isLessThan", "semver_is_less_than", Type::Bool, is_less),
            comparison("compareTo", "semver_compare_to", Type::Int, compare_to),
            getter("major", "semver_major", major),
            getter("minor", "semver_minor", minor),
            getter("patch", "semver_patch", patch),
        ],
        ..Library::default()
    }
}

fn parse(values: &[Value<'_>]) -> Result<Result<SemanticVersion, Error>, EvalError> {
    // Later calls read the version at a cost of 1, so a long text is rejected first.
    if let Some(Err(error)) = values.first().and_then(Value::as_str).map(check_parsed) {
        return Ok(Err(Error(error.to_string())));
    }
    match values {
        [Value::String(text)] | [Value::String(text), Value::Bool(false)] => {
            Ok(SemanticVersion::parse(text))
        }
        [Value::String(text), Value::Bool(true)] => Ok(SemanticVersion::parse_normalized(text)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn semver<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    let version = parse(values)?.map_err(|error| EvalError::message(error.0))?;
    Ok(Value::object(Semver(version)))
}

fn is_semver<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(parse(values)?.is_ok()))
}

fn take_version<'a>(values: &'a [Value<'_>], at: usize) -> Result<&'a SemanticVersion, EvalError> {
    let version: Option<&Semver> = values.get(at).and_then(Value::downcast);
    version
        .map(|version| &version.0)
        .ok_or(EvalError::NoSuchOverload)
}

fn compare(values: &[Value<'_>]) -> Result<Ordering, EvalError> {
    Ok(take_version(values, 0)?.cmp(take_version(values, 1)?))
}

fn is_greater<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(compare(values)?.is_gt()))
}

fn is_less<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Bool(compare(values)?.is_lt()))
}

fn compare_to<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(compare(values)? as i64))
}

fn major<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    // Numbers beyond 63 bits become negative, as upstream.
    Ok(Value::Int(take_version(values, 0)?.major.cast_signed()))
}

fn minor<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(take_version(values, 0)?.minor.cast_signed()))
}

fn patch<'v>(values: &[Value<'v>]) -> Result<Value<'v>, EvalError> {
    Ok(Value::Int(take_version(values, 0)?.patch.cast_signed()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn versions_are_compared_and_taken_apart() {
        let old = create_value("1.2.3-a").unwrap();
        let new = create_value("1.2.3").unwrap();
        let order = |values: [&Value<'static>; 2]| match compare_to(&values.map(Clone::clone)) {
            Ok(Value::Int(order)) => order,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (
                order([&old, &new]),
                order([&new, &old]),
                order([&old, &old])
            ),
            (-1, 1, 0)
        );
        assert!(matches!(minor(&[new]).unwrap(), Value::Int(2)));
    }

    #[test]
    fn numbers_beyond_63_bits_are_negative() {
        let version = create_value("18446744073709551615.0.0").unwrap();
        assert!(matches!(major(&[version]).unwrap(), Value::Int(-1)));
    }

    #[test]
    fn long_versions_are_rejected() {
        let long = Value::string(format!("1.0.0-{}", "a".repeat(70_000)));
        assert!(semver(std::slice::from_ref(&long)).is_err());
        assert!(matches!(is_semver(&[long]).unwrap(), Value::Bool(false)));
    }

    #[test]
    fn lenient_form_needs_the_flag() {
        let parse = |flag| semver(&[Value::string("v1"), Value::Bool(flag)]);
        assert!(parse(true).is_ok());
        assert!(parse(false).is_err());
        assert!(semver(&[Value::string("v1")]).is_err());
    }
}
