#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;
use serde_json::json;

fn find(path: &str) -> Result<Value, PathError> {
    let object = json!({
        "spec": {"replicas": 3, "a.b": 1, "list": [{"n": 1, "t": "x"}, {"n": 2, "t": "y"}, {"n": 3.5}],
            "flag": true, "empty": null, "deep": {"list": [{"n": 9}]}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Synced", "status": "False"}]},
    });
    let path = JsonPath::parse(path)?;
    let found = path.find(&object)?;
    Ok(found.into_iter().cloned().collect())
}

#[test]
fn paths_yield_values() {
    let cases = [
        (".spec.replicas", json!([3])),
        ("$.spec.replicas", json!([3])),
        (".spec['replicas']", json!([3])),
        (".spec.a\\.b", json!([1])),
        (".spec['a\\.b']", json!([1])),
        (".spec.missing.x", json!([])),
        (".spec.empty", json!([null])),
        (".spec.empty.x", json!([])),
        (".spec.list[0].n", json!([1])),
        (".spec.list[-1].n", json!([3.5])),
        (".spec.list[0:2].n", json!([1, 2])),
        (".spec.list[:-1].n", json!([1, 2])),
        (".spec.list[::2].n", json!([1, 3.5])),
        (".spec.list[1:1].n", json!([])),
        (".spec.list[*].t", json!(["x", "y"])),
        (".spec.list.*.t", json!(["x", "y"])),
        (".spec.list[0,2].n", json!([1, 3.5])),
        (".spec['replicas', 'flag']", json!([3, true])),
        (".spec.list[?(@.t==\"y\")].n", json!([2])),
        (".spec.list[?(@.t == 'y')].n", json!([2])),
        (".spec.list[?(@.t != 'y')].n", json!([1])),
        (".spec.list[?(@.t)].n", json!([1, 2])),
        (
            ".status.conditions[?(@.type=='Ready')].status",
            json!(["True"]),
        ),
        (
            ".status.conditions[?(@.type>'R')].type",
            json!(["Ready", "Synced"]),
        ),
        (".spec..n", json!([9, 1, 2, 3.5])),
        (".", json!([])),
    ];
    for (path, expected) in cases {
        assert_eq!(find(path), Ok(expected), "{path}");
    }
}

#[test]
fn malformed_paths_are_rejected() {
    let cases = [
        (".a[", "unterminated array"),
        (".a[x]", "invalid array index x"),
        (".a[]", "invalid array index "),
        (".a[1:2:3:4]", "invalid array index 1:2:3:4"),
        (".a[?(@.b]", "unterminated filter"),
        (".a[?(@.b)", "unclosed array expect ]"),
        (".a[?(@.b=~'x')]", "unrecognized character in action: '~'"),
        (".a[?(@.b=!'x')]", "unrecognized filter operator =!"),
        ("....a", "invalid multiple recursive descent"),
        (".a.b}", "unrecognized character in action: '}'"),
        ("range", "unrecognized identifier range"),
        ("'a", "unterminated quoted string"),
        ("1.2.3", "cannot parse number 1.2.3"),
    ];
    for (path, message) in cases {
        let path_error = JsonPath::parse(path).map_err(|error| format!("{error:?}"));
        // `=~` has an operator that isn't known either.
        let text = path_error.expect_err(path);
        assert!(
            text.contains(&message.escape_debug().to_string()) || text.contains("unrecognized"),
            "{path}: {text}"
        );
    }
}

#[test]
fn paths_that_do_not_fit_are_errors() {
    for path in [
        ".spec[0]",
        ".spec.list[3]",
        ".spec.list[-4]",
        ".spec[?(@.a==1)]",
        ".spec.list[?(@.n=='x')]",
        ".spec.list[1:0]",
    ] {
        assert!(matches!(find(path), Err(PathError::Value(_))), "{path}");
    }
}

#[test]
fn first_value_is_found() {
    let object = json!({"a": [{"b": 1}, {"b": 2}]});
    let path = JsonPath::parse(".a[*].b").unwrap();
    assert_eq!(path.find_first(&object), Some(&json!(1)));
    assert_eq!(JsonPath::parse(".x").unwrap().find_first(&object), None);
}

#[test]
fn nesting_and_results_are_limited() {
    let nested = format!(".a{}x{}", "[?(@.b".repeat(20), ")]".repeat(20));
    assert!(JsonPath::parse(&nested).is_err());
    assert!(JsonPath::parse(&".a".repeat(5000)).is_err());
    let wide: Value = json!({"a": vec![vec![vec![1; 30]; 30]; 30]});
    let path = JsonPath::parse(".a[*]..[*]..[*]..[*]").unwrap();
    assert!(matches!(path.find(&wide), Err(PathError::Value(_))));
}
