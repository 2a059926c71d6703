//! Estimated and actual costs.
//!
//! The estimates are those that Kubernetes computes for rules of custom resources; they decide
//! which rules a definition may have, so they must not change.
#![allow(clippy::unwrap_used, missing_docs)]

use api_cel::cost::Range;
use api_cel::{Budget, Environment, SizeEstimates, Type, Value};
use serde_json::json;

/// Sizes by path; a scalar has none, as in Kubernetes.
struct Sizes(&'static [(&'static str, u64)]);

impl SizeEstimates for Sizes {
    fn estimate_size(&self, path: &[String], _: &Type) -> Option<Range> {
        let path = path.join(".");
        self.0
            .iter()
            .find(|(found, _)| *found == path)
            .map(|(_, max)| Range::new(0, *max))
    }
}

#[test]
fn estimates_are_those_of_kubernetes() {
    let numbers = || Type::list(Type::Double);
    type Case = (Type, &'static str, &'static [(&'static str, u64)], u64);
    let cases: [Case; 17] = [
        (numbers(), "self.all(x, true)", &[("self", 10)], 32),
        (
            numbers(),
            "self.all(x, true)",
            &[("self", 1_572_863)],
            4_718_591,
        ),
        (
            Type::list(Type::String),
            "self.all(x, true)",
            &[("self", 20)],
            62,
        ),
        (
            Type::map(Type::String, Type::Double),
            "self.all(x, true)",
            &[("self", 3)],
            11,
        ),
        (
            numbers(),
            "self.all(x, self.all(y, true))",
            &[("self", 10)],
            352,
        ),
        (
            numbers(),
            "self.all(x, self.all(y, self.all(z, true)))",
            &[("self", 10)],
            3_552,
        ),
        (
            numbers(),
            "self.all(x, x == 0.0)",
            &[("self", 6_291_456), ("self.@items", 0)],
            25_165_826,
        ),
        (Type::String, "self.contains('test')", &[("self", 40)], 5),
        (Type::String, "self.startsWith('test')", &[("self", 60)], 2),
        (Type::String, "self.endsWith('test')", &[("self", 120)], 2),
        (
            Type::String,
            "size(self + 'hello') > size('hello')",
            &[("self", 16)],
            7,
        ),
        (
            numbers(),
            "self[1] == 0.0",
            &[("self", 5_000), ("self.@items", 0)],
            2,
        ),
        (
            Type::list(Type::String),
            "self[1] == self[1]",
            &[("self", 8), ("self.@items", 3_145_726)],
            314_577,
        ),
        (Type::String, "self.matches('x')", &[("self", 200)], 22),
        (
            Type::String,
            "''.matches('(((((((((())))))))))[0-9]')",
            &[("self", 40)],
            7,
        ),
        (Type::String, "self.matches('')", &[("self", 400)], 1),
        (
            Type::map(Type::String, Type::Int),
            "self.size() == self.size()",
            &[("self", 100)],
            5,
        ),
    ];
    for (self_type, rule, sizes, expected) in cases {
        let environment = Environment::new(36, []).with_variable("self", self_type);
        let program = environment.compile(rule).unwrap();
        assert_eq!(program.estimate_cost(&Sizes(sizes)).max, expected, "{rule}");
    }
}

#[test]
fn estimate_without_bounds_is_unlimited() {
    let environment = Environment::new(36, []).with_variable("self", Type::list(Type::String));
    let program = environment.compile("self.all(x, x.contains(x))").unwrap();
    assert_eq!(program.estimate_cost(&Sizes(&[])).max, u64::MAX);
}

#[test]
fn actual_costs_count_steps() {
    let object = json!({"a": {"b": [1, 2, 3]}, "s": "0123456789abcdef", "m": {"k": "v"}});
    let cases = [
        ("1 + 2", 1),
        ("object.s == object.s", 6),
        ("object.a.b[0]", 4),
        ("object.a.b[object.a.b[0]]", 7),
        ("has(object.a)", 1),
        ("has(object.a.b)", 2),
        ("[1, 2, 3][0]", 2),
        ("[1, 2, 3]", 0),
        ("[object.a]", 12),
        ("{'k': object.a}", 32),
        ("object.m.k in ['v', 'w']", 3),
        ("object.m.k in [object.m.k]", 17),
        // Only bool, numbers and text are put into a set, whose search is free.
        ("object.m.k in [null]", 4),
        ("object.m.k in [null, null]", 5),
        ("object.s.contains('cde')", 4),
        ("object.s.matches('^[0-9a-f]+$')", 8),
        ("object.s + object.s", 5),
        ("true ? object : object", 0),
        ("true ? object.s : object.s", 1),
        ("object.a.b.all(x, x > 0)", 19),
        ("object.a.b.exists(x, x == 1)", 13),
        ("object.a.b.map(x, x)", 43),
        ("object.a.b.filter(x, x > 2)", 23),
        ("object.?a.?b.orValue([])", 3),
        ("duration('1h') > duration('1m')", 1),
        ("int('5') + 1", 1),
    ];
    let environment = Environment::new(36, []).with_variable("object", Type::Dyn);
    for (source, expected) in cases {
        let program = environment.compile(source).unwrap();
        let mut budget = Budget::new(1_000);
        let variables = [("object", Value::from_json(&object, None))];
        program.evaluate(&variables, &mut budget).unwrap();
        assert_eq!(budget.used(), expected, "{source}");
    }
}
