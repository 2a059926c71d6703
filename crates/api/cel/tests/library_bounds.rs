//! Expressions of a tenant that wants to use up memory or time: each ends when its budget does.
#![allow(clippy::unwrap_used)]

use api_cel::library::catalog::kubernetes_libraries;
use api_cel::{Budget, Environment, EvalError, Type, Value};
use serde_json::json;

/// Repeats `part` as often as the cost limit allows at the least cost of an iteration.
fn repeat(part: &str) -> String {
    format!("lists.range(15000).map(i, {part}).size() > 0")
}

#[test]
fn work_without_a_cost_upstream_ends_with_the_budget() {
    let environment = [
        ("s", Type::String),
        ("d", Type::Dyn),
        ("ls", Type::list(Type::String)),
        ("n", Type::list(Type::list(Type::Int))),
    ]
    .into_iter()
    .fold(
        Environment::new(36, kubernetes_libraries()),
        |environment, (name, value_type)| environment.with_variable(name, value_type),
    );
    let text = "a".repeat(500_000);
    let deep = json!([vec![1; 50_000]]);
    let (empty, nested) = (
        json!(vec![""; 200_000]),
        json!(vec![Vec::<u8>::new(); 200_000]),
    );
    let variables = [
        ("s", Value::string(text.as_str())),
        ("d", Value::from_json(&deep, None)),
        ("ls", Value::from_json(&empty, None)),
        ("n", Value::from_json(&nested, None)),
    ];
    for part in [
        "'aaaaaaaa'.replace('a', s)",
        "'aa'.replace('', s, 2)",
        "s.findAll('')",
        "s.split('')",
        "'%s'.format([s])",
        "'%s'.format([d])",
        "'%s%d'.format([d, dyn('x')]) == '' || true",
        "[s, s].join()",
        "strings.quote(s)",
        "sets.contains([d], [d])",
        "sets.equivalent([d], [d])",
        "[d, d].distinct()",
        "[d].indexOf(d)",
        "ls.indexOf('x')",
        "ls.isSorted()",
        "n.indexOf([1])",
        "ls.sort()",
        "ls.reverse()",
        "ls.slice(0, 200000)",
        "n.flatten()",
        "lists.range(1000000000)",
        "isURL(s)",
        "url('/' + s.substring(0, 60000)).getEscapedPath()",
        "ip.isCanonical(s) || true",
        "semver('1.0.0-' + s.substring(0, 60000)).compareTo(semver('1.0.0')) > 0",
        "format.dns1123Label().validate(s)",
    ] {
        let program = environment.compile(&repeat(part)).unwrap();
        let mut budget = Budget::new(200_000);
        let result = program.evaluate(&variables, &mut budget);
        assert_eq!(result.err(), Some(EvalError::CostLimitExceeded), "{part}");
    }
}
