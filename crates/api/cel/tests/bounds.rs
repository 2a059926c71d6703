//! No expression and no value ends the process or runs without a bound.
#![allow(clippy::unwrap_used, missing_docs)]

use api_cel::source::CompileError;
use api_cel::{Budget, Environment, EvalError, Type, Value};

/// Compiles and evaluates on a small stack.
fn run(source: String) -> Result<Result<String, EvalError>, CompileError> {
    let work = move || {
        let environment = Environment::new(36, []).with_variable("x", Type::Dyn);
        let program = environment.compile(&source)?;
        let mut budget = Budget::new(1_000_000);
        let variables = [("x", Value::list(vec![Value::Int(1); 1_000]))];
        Ok(program
            .evaluate(&variables, &mut budget)
            .map(|value| value.type_of().to_string()))
    };
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap()
}

#[test]
fn deepest_expressions_fit_a_small_stack() {
    let nested = |open: &str, close: &str, count: usize| {
        format!("{}1{}", open.repeat(count), close.repeat(count))
    };
    let cases = [
        nested("(", ")", 249),
        nested("[", "]", 248),
        nested("dyn([", "])", 120),
        nested("{1:", "}", 248),
        nested("string(", ")", 248),
        nested("-(", ")", 248),
        format!("1{}", " + 1".repeat(248)),
        format!("x{}", ".b".repeat(248)),
        format!("x{}", "[0]".repeat(248)),
        format!("{}1", "true ? 1 : ".repeat(248)),
        nested("[1].map(x, ", ")", 60),
        nested("[1].map(x, true, ", ")", 60),
        format!("{}true{}", "[1].all(x, ".repeat(60), ")".repeat(60)),
        format!("{}true{}", "[1].exists_one(x, !".repeat(40), ")".repeat(40)),
        nested("{1: 1}.transformMap(k, v, ", ")", 60),
        format!("optional.of(1){}", ".optMap(y, y + 1)".repeat(40)),
    ];
    for source in cases {
        let text: String = source.chars().take(40).collect();
        assert!(run(source).is_ok(), "{text}");
    }
}

#[test]
fn loops_end_at_the_cost_limit() {
    let cases = [
        "x.all(a, x.all(b, x.all(c, true)))",
        "x.filter(a, x.filter(b, x.filter(c, false) == []) != []) == []",
        "x.map(a, x.map(b, x.map(c, c)))",
        "x.exists_one(a, x.exists_one(b, x.exists_one(c, true)))",
        "x.transformList(i, a, x.transformList(j, b, x.transformList(k, c, k)))",
        "x.all(a, x.all(b, x + x == x + x))",
    ];
    for source in cases {
        let result = run(source.to_owned()).unwrap();
        assert_eq!(result, Err(EvalError::CostLimitExceeded), "{source}");
    }
}

#[test]
fn no_operator_absorbs_the_cost_limit() {
    let endless = "x.all(a, x.all(b, x.all(c, true)))";
    for source in [
        format!("{endless} || true"),
        format!("[1].exists(y, {endless} || true)"),
    ] {
        assert_eq!(run(source).unwrap(), Err(EvalError::CostLimitExceeded));
    }
}

#[test]
fn doubled_lists_and_types_stay_small() {
    let list = format!("x{}", ".map(y, y)".repeat(10));
    assert!(run(list).unwrap().is_ok());
    let sum = vec!["x"; 200].join(" + ");
    assert!(run(format!("size({sum}) == 200000")).unwrap().is_ok());
    let source = format!(
        "optional.of({{1: 1}}){}",
        ".optMap(a, {1: a, 2: a})".repeat(40)
    );
    assert!(run(source).is_ok());
    let types = format!("optional.of({{1: 1}}){}", ".optMap(a, {a: a})".repeat(40));
    assert!(run(types).is_err());
}

#[test]
fn random_tokens_never_panic() {
    let tokens = [
        "a",
        "x",
        "1",
        "2u",
        "1.5",
        "'s'",
        "b'b'",
        "true",
        "null",
        "in",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        ":",
        "?",
        "&&",
        "||",
        "!",
        "-",
        "+",
        "*",
        "/",
        "%",
        "==",
        "<",
        ">=",
        "map",
        "all",
        "filter",
        "has",
        "size",
        "int",
        "string",
        "timestamp",
        "duration",
        "optional",
        ".map(y, ",
        ".?",
        "[?",
        "[x]",
        "x.all(y, ",
        "type",
        "dyn",
        "matches",
        "'('",
        "\u{1f431}",
        "__a__",
        "\\",
        "\"",
        "`a`",
        "//",
        "\n",
        "0x",
        "1e",
        ".5",
        "r'",
        "'''",
        "optMap",
    ];
    let seed: u64 = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(42);
    let mut state = seed;
    let mut next = |bound: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    let environment = Environment::new(36, []).with_variable("x", Type::Dyn);
    let mut compiled = 0;
    for _ in 0..20_000 {
        let length = 1 + next(12);
        let source: Vec<&str> = (0..length).map(|_| tokens[next(tokens.len())]).collect();
        let source = source.join(if next(2) == 0 { " " } else { "" });
        match environment.compile(&source) {
            Ok(program) => {
                compiled += 1;
                let variables = [("x", Value::list(vec![Value::Int(1)]))];
                let _ = program.evaluate(&variables, &mut Budget::new(10_000));
                let _ = program.estimate_cost(&api_cel::estimate::UnknownSizes);
            }
            Err(error) => assert!(!error.to_string().is_empty(), "{source}"),
        }
    }
    assert!(compiled > 100, "{compiled} of 20000 compile");
}
