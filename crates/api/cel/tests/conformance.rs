//! The conformance cases of the CEL specification that apply to Kubernetes.
//!
//! `data/conformance.jsonl` holds one case per line: an expression, its variables, and its value,
//! its deduced type or `error`. The cases come from cel-spec's `tests/simple/testdata`. Left out
//! are:
//!
//! - cases with protocol buffer messages, enumerations or wrappers, which Kubernetes does not have:
//!   the files `dynamic`, `enums`, `proto2`, `proto2_ext`, `proto3` and `wrappers`, and single
//!   cases of the others;
//! - the files `block_ext`, `encoders_ext` and `math_ext`, because no environment of Kubernetes has
//!   these libraries (`baseOpts` of apiserver's `pkg/cel/environment/base.go`);
//! - the file `network_ext`: Kubernetes has libraries of its own for addresses. Their facts are in
//!   `data/library.tsv`.
#![allow(clippy::unwrap_used, missing_docs)]

use std::collections::BTreeMap;

use api_cel::compare::equal;
use api_cel::function::{Function, Overload};
use api_cel::library::Library;
use api_cel::library::catalog::kubernetes_libraries;
use api_cel::value::Key;
use api_cel::{Budget, Environment, EvalError, Type, Value, macros};
use base64::Engine as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value as Json;

/// Cases that do not hold, by prefix of their names, with the reason.
const EXCLUDED: &[(&str, &[&str])] = &[
    (
        "evaluates without a type check; Kubernetes always checks",
        &[
            "basic/variables/unbound_is_runtime_error",
            "basic/functions/unbound_is_runtime_error",
            "comparisons/eq_literal/not_eq_list_length",
            "comparisons/eq_literal/eq_mixed_types",
            "comparisons/eq_literal/eq_list_elem_mixed_types",
            "comparisons/ne_literal/ne_mixed_types",
            "logic/conditional/mixed_type",
            "logic/AND/short_circuit_type_left",
            "logic/AND/short_circuit_type_right",
            "logic/OR/short_circuit_type_left",
            "logic/OR/short_circuit_type_right",
            "parse/receiver_function_names/",
        ],
    ),
    (
        "the time library ends 26 hours before the year 10000",
        &["timestamps/timestamp_conversions/toString_timestamp_nanos"],
    ),
    (
        "Kubernetes has version 2 of the strings library, whose `format` writes other texts and \
         takes fewer types than that of version 4; `data/library.tsv` has its results",
        &[
            "string_ext/format/scientific notation formatting clause",
            "string_ext/format/default precision for fixed-point clause with ",
            "string_ext/format/default precision for scientific notation",
            "string_ext/format/NaN support for scientific notation",
            "string_ext/format/positive infinity support for ",
            "string_ext/format/negative infinity support for ",
            "string_ext/format/NaN support for decimal",
            "string_ext/format/list support for string",
            "string_ext/format/map support ",
            "string_ext/format/dyntype support for scientific notation",
            "string_ext/format/dyntype NaN/infinity support",
            "string_ext/format/dyntype support for lists",
            "string_ext/format/dyntype support for maps",
        ],
    ),
    (
        "Kubernetes has version 2 of the strings library, and `reverse` came with version 3",
        &["string_ext/reverse/"],
    ),
    (
        "in Kubernetes, an index behind the end finds nothing and is no error",
        &[
            "string_ext/value_errors/indexof_out_of_range",
            "string_ext/value_errors/lastindexof_out_of_range",
        ],
    ),
    (
        "in Kubernetes, the milliseconds of a duration are those of the whole duration",
        &["timestamps/duration_converters/get_milliseconds"],
    ),
    (
        "in Kubernetes, the type of such a list is that of its last element, null",
        &["type_deduction/legacy_nullable_types/null_assignable_to_abstract_parameter_candidate"],
    ),
];

fn type_from(json: &Json) -> Type {
    if let Some(element) = json.get("list") {
        return Type::list(type_from(element));
    }
    if let Some(parts) = json.get("map") {
        return Type::map(type_from(&parts[0]), type_from(&parts[1]));
    }
    if let Some(name) = json.get("param") {
        return Type::param(name.as_str().unwrap());
    }
    if let Some(parts) = json.get("opaque") {
        let parts = parts.as_array().unwrap();
        let parameters = parts[1..].iter().map(type_from).collect();
        return Type::Opaque(parts[0].as_str().unwrap().into(), parameters);
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
    let mut environment = Environment::new(36, kubernetes_libraries()).with(|declarations| {
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
    let functions = case["functions"].as_array().into_iter().flatten();
    environment.with_library(Library {
        functions: functions.map(function_from).collect(),
        ..Library::default()
    })
}

/// Declares a function that is checked and never called: a name, an id, arguments and a result.
fn function_from(json: &Json) -> Function {
    let text = |index: usize| -> &'static str { json[index].as_str().unwrap().to_owned().leak() };
    let arguments = json[2].as_array().unwrap().iter().map(type_from).collect();
    let overload = Overload::global(text(1), arguments, type_from(&json[3]), Overload::unbounded);
    Function::new(text(0), vec![overload])
}

fn run(case: &Json) -> Result<Value<'static>, String> {
    let program = environment(case)
        .compile(case["expr"].as_str().unwrap())
        .map_err(|error| error.to_string())?;
    if let Some(expected) = case.get("type").map(type_from)
        && *program.output_type() != expected
    {
        return Err(format!("has the type {}", program.output_type()));
    }
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
        let mut prefixes = EXCLUDED.iter().flat_map(|(_, prefixes)| *prefixes);
        let is_excluded = prefixes.any(|prefix| name.starts_with(prefix));
        match (holds, is_excluded) {
            (true, false) => passed += 1,
            (false, true) => excluded += 1,
            (true, true) => failures.push(format!("{name}: holds but is excluded")),
            (false, false) => {
                let (value, value_type) = (&case["value"], &case["type"]);
                failures.push(format!(
                    "{name}: {}\n  {value} {value_type}\n  {outcome:?}",
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
    assert_eq!((passed, excluded), (1_388, 58));
}
