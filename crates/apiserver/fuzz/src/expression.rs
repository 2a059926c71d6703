//! Target: an expression that is parsed, checked, estimated and evaluated.

use crate::choices::Choices;
use crate::expression_text::build_expression;
use crate::values::{MAX_DEPTH, build_value, measure_depth};
use api_cel::estimate::UnknownSizes;
use api_cel::hosts::patch::{convert_operations, convert_patch_value};
use api_cel::library::catalog::kubernetes_libraries;
use api_cel::{Budget, Environment, Type, Value};
use serde_json::json;
use std::sync::LazyLock;

/// Cost of an evaluation at most. A tenth of that of a validation rule, so that many inputs are
/// evaluated.
const COST_LIMIT: u64 = 100_000;

static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let variables = [
        ("self", Type::Dyn),
        ("s", Type::String),
        ("l", Type::list(Type::Dyn)),
        ("m", Type::map(Type::String, Type::Dyn)),
        ("n", Type::Int),
        ("d", Type::Double),
        ("o", Type::Dyn),
        ("t", Type::Dyn),
    ];
    variables.into_iter().fold(
        Environment::new(36, kubernetes_libraries()),
        |environment, (name, value_type)| environment.with_variable(name, value_type),
    )
});

/// Compiles an expression and evaluates it over a value.
///
/// # Panics
/// If a result of an evaluation is deeper than a JSON document may be, or the same expression has
/// two results.
pub fn run_expression(data: &[u8]) {
    let mut choices = Choices::new(data);
    let text = build_expression(&mut choices);
    let Ok(program) = ENVIRONMENT.compile(&text) else {
        return;
    };
    let _ = program.estimate_cost(&UnknownSizes);
    let object = build_value(&mut choices, 12);
    let list = json!([1, "a", null, {"a": [1]}, object]);
    let map = json!({"a": object, "b": {"c": 1}, "spec": list});
    let variables = [
        ("self", Value::from_json(&object, None)),
        ("s", Value::string("some text, 1.2.3")),
        ("l", Value::from_json(&list, None)),
        ("m", Value::from_json(&map, None)),
        ("n", Value::Int(3)),
        ("d", Value::Double(0.5)),
        ("o", Value::optional(Some(Value::from_json(&object, None)))),
        ("t", Value::Null),
    ];
    let mut budget = Budget::new(COST_LIMIT);
    let result = program.evaluate(&variables, &mut budget);
    let mut again = Budget::new(COST_LIMIT);
    let second = program.evaluate(&variables, &mut again);
    assert_eq!(budget.used(), again.used(), "two costs of {text}");
    match (result, second) {
        (Ok(value), Ok(_)) => check_result(&value, &text),
        (Err(first), Err(second)) => assert_eq!(first, second, "two errors of {text}"),
        _ => panic!("two results of {text}"),
    }
}

fn check_result(value: &Value<'_>, text: &str) {
    if let Ok(converted) = convert_patch_value(value) {
        assert!(measure_depth(&converted) <= MAX_DEPTH, "too deep: {text}");
    }
    let _ = convert_operations(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::random_bytes;

    #[test]
    fn many_expressions_compile_and_evaluate() {
        let (mut compiled, mut evaluated) = (0, 0);
        for seed in 0..1_000 {
            let text = build_expression(&mut Choices::new(&random_bytes(seed)));
            let Ok(program) = ENVIRONMENT.compile(&text) else {
                continue;
            };
            compiled += 1;
            let variables = [("self", Value::Null), ("l", Value::list(Vec::new()))];
            let result = program.evaluate(&variables, &mut Budget::new(COST_LIMIT));
            evaluated += usize::from(result.is_ok());
        }
        assert!(compiled >= 200 && evaluated >= 80, "{compiled} {evaluated}");
    }
}
