//! Messages and types of the checker.
#![allow(clippy::unwrap_used, missing_docs)]

use api_cel::{Environment, Type};

fn environment() -> Environment {
    Environment::new(36, [])
        .with_variable("s", Type::String)
        .with_variable("i", Type::Int)
        .with_variable("d", Type::Dyn)
        .with_variable("list", Type::list(Type::Int))
        .with_variable("variables.x", Type::Int)
}

#[test]
fn errors_are_those_of_cel_go() {
    let cases = [
        (
            "x",
            "ERROR: <input>:1:1: undeclared reference to 'x' (in container '')\n | x\n | ^",
        ),
        (
            "f(1)",
            "ERROR: <input>:1:2: undeclared reference to 'f' (in container '')\n | f(1)\n | .^",
        ),
        (
            "i + s",
            "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n \
             | i + s\n | ..^",
        ),
        (
            "s.startsWith(1)",
            "ERROR: <input>:1:13: found no matching overload for 'startsWith' applied to \
             'string.(int)'\n | s.startsWith(1)\n | ............^",
        ),
        (
            "i.foo",
            "ERROR: <input>:1:2: type 'int' does not support field selection\n | i.foo\n | .^",
        ),
        (
            "i && true",
            "ERROR: <input>:1:1: expected type 'bool' but found 'int'\n | i && true\n | ^",
        ),
        (
            "[1, 'a']",
            "ERROR: <input>:1:5: expected type 'int' but found 'string'\n | [1, 'a']\n | ....^",
        ),
        (
            "i.all(x, true)",
            "ERROR: <input>:1:1: expression of type 'int' cannot be range of a comprehension (must \
             be list, map, or dynamic)\n | i.all(x, true)\n | ^",
        ),
        (
            "duration('x') > duration('1h')",
            "ERROR: <input>:1:10: invalid duration argument\n | duration('x') > duration('1h')\n \
             | .........^",
        ),
        (
            "s.matches('(')",
            "ERROR: <input>:1:11: invalid matches argument\n | s.matches('(')\n | ..........^",
        ),
    ];
    for (source, expected) in cases {
        let text = environment().compile(source).unwrap_err().to_string();
        assert_eq!(text, expected, "{source}");
    }
}

#[test]
fn literals_that_do_not_convert_fail_at_once() {
    let error = environment().compile("int('x') == 1").unwrap_err();
    assert!(error.is_instantiation);
    assert_eq!(
        error.to_string(),
        "type conversion error from 'string' to 'int'"
    );
}

#[test]
fn results_have_types() {
    let cases = [
        ("list.map(x, string(x))", "list(string)"),
        ("list.exists(x, x > 1)", "bool"),
        ("{'a': i}", "map(string, int)"),
        ("[]", "list(dyn)"),
        ("d.foo", "dyn"),
        ("list[?0]", "optional_type(int)"),
        ("optional.none()", "optional_type(dyn)"),
        ("list[?0].orValue(1)", "int"),
        ("list.transformMap(k, v, string(v))", "map(int, string)"),
        ("type(i)", "type(int)"),
        ("i > 0 ? s : null", "!"),
        ("variables.x + 1", "int"),
        (
            "timestamp('2026-01-31T00:00:00Z') - duration('1h')",
            "timestamp",
        ),
    ];
    for (source, expected) in cases {
        match environment().compile(source) {
            Ok(program) => assert_eq!(program.output_type().to_string(), expected, "{source}"),
            Err(error) => assert_eq!(expected, "!", "{error}"),
        }
    }
}

#[test]
fn older_versions_lack_newer_syntax() {
    let cases = [
        (27, "list[?0]"),
        (31, "list.transformList(i, v, v)"),
        (27, "optional.of(1)"),
    ];
    for (minor, source) in cases {
        let list = || Type::list(Type::Int);
        let old = Environment::new(minor, []).with_variable("list", list());
        assert!(old.compile(source).is_err(), "{source}");
        let new = Environment::new(36, []).with_variable("list", list());
        assert!(new.compile(source).is_ok(), "{source}");
    }
}

#[test]
fn programs_know_their_variables() {
    let program = environment().compile("list.all(s, s > i)").unwrap();
    assert!(program.uses_variable("i"));
    assert!(!program.uses_variable("s"));
}
