//! Comparison with Kubernetes v1.36: types, messages, estimated and actual costs of expressions.
//!
//! `data/upstream.jsonl` holds one expression per line with the facts that a Kubernetes v1.36
//! environment printed for it. The variables are those of `environment`.
#![allow(clippy::unwrap_used, missing_docs)]

use api_cel::estimate::UnknownSizes;
use api_cel::{Budget, Environment, Type, Value};
use serde_json::{Value as Json, json};

/// Expressions that differ, with the reason.
const DIFFERENT: &[(&str, &str)] = &[(
    "object{a: 1}",
    "a second error for a type that does not exist",
)];

fn environment() -> Environment {
    Environment::new(36, [])
        .with_variable("object", Type::Dyn)
        .with_variable("i", Type::Int)
        .with_variable("s", Type::String)
        .with_variable("items", Type::list(Type::Int))
        .with_variable("m", Type::map(Type::String, Type::String))
}

/// Returns the facts of this crate in the form of the data.
fn describe(source: &str) -> Json {
    let mut facts = json!({"expr": source});
    let program = match environment().compile(source) {
        Ok(program) => program,
        Err(error) if error.is_instantiation => {
            facts["program"] = error.to_string().into();
            return facts;
        }
        Err(error) => {
            facts["issues"] = error.to_string().into();
            return facts;
        }
    };
    facts["type"] = program.output_type().to_string().into();
    let estimate = program.estimate_cost(&UnknownSizes);
    facts["min"] = estimate.min.to_string().into();
    facts["max"] = estimate.max.to_string().into();
    let object = json!({"a": {"b": [1, 2, 3]}, "s": "0123456789abcdef", "m": {"k": "v"}});
    let (list, map) = (json!([1, 2, 3]), json!({"k": "v"}));
    let variables = [
        ("object", Value::from_json(&object, None)),
        ("i", Value::Int(5)),
        ("s", Value::string("hello")),
        ("items", Value::from_json(&list, None)),
        ("m", Value::from_json(&map, None)),
    ];
    let mut budget = Budget::new(1_000_000);
    match program.evaluate(&variables, &mut budget) {
        Ok(_) => facts["cost"] = budget.used().to_string().into(),
        Err(error) => facts["error"] = error.to_string().into(),
    }
    facts
}

#[test]
fn facts_are_those_of_kubernetes() {
    let mut failures = Vec::new();
    for line in include_str!("data/upstream.jsonl").lines() {
        let expected: Json = serde_json::from_str(line).unwrap();
        let source = expected["expr"].as_str().unwrap();
        let found = describe(source);
        let is_excepted = DIFFERENT.iter().any(|(excepted, _)| *excepted == source);
        if (found == expected) == is_excepted {
            failures.push(format!("expected {expected}\n   found {found}"));
        }
    }
    assert!(
        failures.is_empty(),
        "{} differ:\n{}",
        failures.len(),
        failures.join("\n")
    );
}
