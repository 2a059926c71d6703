//! The conformance cases of the CEL specification that apply to Kubernetes.
//!
//! `data/conformance.jsonl` holds one case per line: an expression, its variables, and its value or
//! `error`. The cases come from cel-spec's `tests/simple/testdata`; those with protocol buffer
//! messages, enumerations or wrappers are left out, because Kubernetes has none.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;

use api_cel::compare::equal;
use api_cel::value::Key;
use api_cel::{Budget, Environment, EvalError, Type, Value, macros};
use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

/// Cases that do not hold, with the reason.
const EXCLUDED: &[(&str, &str)] = &[
    ("basic/variables/unbound_is_runtime_error", UNCHECKED),
    ("basic/functions/unbound_is_runtime_error", UNCHECKED),
    ("comparisons/eq_literal/not_eq_list_length", UNCHECKED),
    ("comparisons/eq_literal/eq_mixed_types", UNCHECKED),
    ("comparisons/eq_literal/eq_list_elem_mixed_types", UNCHECKED),
    ("comparisons/ne_literal/ne_mixed_types", UNCHECKED),
    ("logic/conditional/mixed_type", UNCHECKED),
    ("logic/AND/short_circuit_type_left", UNCHECKED),
    ("logic/AND/short_circuit_type_right", UNCHECKED),
    ("logic/OR/short_circuit_type_left", UNCHECKED),
    ("logic/OR/short_circuit_type_right", UNCHECKED),
    ("parse/receiver_function_names/", UNCHECKED),
    (
        "timestamps/timestamp_conversions/toString_timestamp_nanos",
        LAST_DAY,
    ),
];

const LAST_DAY: &str = "the time library ends 26 hours before the year 10000";
const UNCHECKED: &str = "evaluates without a type check; Kubernetes always checks";

fn type_from(json: &Json) -> Type {
    if let Some(element) = json.get("list") {
        return Type::list(type_from(element));
    }
    if let Some(parts) = json.get("map") {
        return Type::map(type_from(&parts[0]), type_from(&parts[1]));
    }
    match json.as_str().unwrap() {
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "bool" => Type::Bool,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null" => Type::Null,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        _ => Type::Dyn,
    }
}

fn value_from(json: &Json) -> Value<'static> {
    let (kind, value) = json.as_object().unwrap().iter().next().unwrap();
    let text = value.as_str().unwrap_or_default();
    let number = |index: usize| value[index].as_i64().unwrap();
    match kind.as_str() {
        "int" => Value::Int(text.parse().unwrap()),
        "uint" => Value::Uint(text.parse().unwrap()),
        "double" => Value::Double(text.parse().unwrap()),
        "bool" => Value::Bool(value.as_bool().unwrap()),
        "string" => Value::string(text),
        "bytes" => {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(text)
                .unwrap();
            Value::Bytes(bytes.into())
        }
        "null" => Value::Null,
        "type" => Value::Type(Type::object(text)),
        "duration" => Value::Duration(SignedDuration::new(number(0), number(1) as i32)),
        "timestamp" => Value::Timestamp(Timestamp::new(number(0), number(1) as i32).unwrap()),
        "list" => Value::list(value.as_array().unwrap().iter().map(value_from).collect()),
        "map" => {
            let entry = |entry: &Json| {
                (
                    Key::from_value(&value_from(&entry[0])).unwrap(),
                    value_from(&entry[1]),
                )
            };
            Value::map(value.as_array().unwrap().iter().map(entry).collect())
        }
        other => panic!("kind {other}"),
    }
}

fn environment(case: &Json) -> Environment {
    let mut environment = Environment::new(36, []).with(|declarations| {
        declarations.homogeneous_literals = false;
        declarations.checks_literals = false;
        declarations.settings.escaped_identifiers = true;
        declarations.settings.macros.push(macros::BIND);
        case["container"]
            .as_str()
            .unwrap_or_default()
            .clone_into(&mut declarations.container);
        if case["disable_macros"] == true {
            declarations.settings.macros.clear();
        }
    });
    for declared in case["types"].as_array().into_iter().flatten() {
        let name = declared[0].as_str().unwrap();
        environment = environment.with_variable(name, type_from(&declared[1]));
    }
    environment
}

fn run(case: &Json) -> Result<Value<'static>, String> {
    let program = environment(case)
        .compile(case["expr"].as_str().unwrap())
        .map_err(|error| error.to_string())?;
    if case["check_only"] == true {
        return Ok(Value::Null);
    }
    let variables: BTreeMap<String, Value<'static>> = case["vars"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value_from(value)))
        .collect();
    let result: Result<_, EvalError> = program.evaluate(&variables, &mut Budget::new(10_000_000));
    result.map_err(|error| error.to_string())
}

/// Equality, except that NaN equals itself and that numbers must have the same type.
fn is_expected(found: &Value<'_>, expected: &Value<'_>) -> bool {
    match (found, expected) {
        (Value::Double(found), Value::Double(expected)) if expected.is_nan() => found.is_nan(),
        (Value::Optional(Some(found)), expected) => is_expected(found, expected),
        (Value::List(_) | Value::Map(_), _) => equal(found, expected),
        _ => found.type_of() == expected.type_of() && equal(found, expected),
    }
}

#[test]
fn specification_cases_hold() {
    let (mut passed, mut excluded, mut failures) = (0, 0, Vec::new());
    for line in include_str!("data/conformance.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        let outcome = run(&case);
        let holds = match &outcome {
            _ if case["check_only"] == true => outcome.is_ok(),
            Ok(found) => case["error"] != true && is_expected(found, &value_from(&case["value"])),
            Err(_) => case["error"] == true,
        };
        let is_excluded = EXCLUDED.iter().any(|(prefix, _)| name.starts_with(prefix));
        match (holds, is_excluded) {
            (true, false) => passed += 1,
            (false, true) => excluded += 1,
            (true, true) => failures.push(format!("{name}: holds but is excluded")),
            (false, false) => {
                let expected = if case["error"] == true {
                    &Json::Null
                } else {
                    &case["value"]
                };
                failures.push(format!(
                    "{name}: {}\n  {expected}\n  {outcome:?}",
                    case["expr"]
                ));
            }
        }
    }

    assert!(
        failures.is_empty(),
        "{} fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert_eq!((passed, excluded), (1_177, 29));
}
