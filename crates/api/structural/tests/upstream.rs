//! Compares with results of upstream's library of v1.36: formats and patterns on tables of texts,
//! and random schemas and values.
//!
//! `data/` was written by a Go program that calls apiextensions-apiserver v0.36.2. Cases with the
//! differences that `docs/compatibility.md` lists are left out.
#![allow(clippy::unwrap_used)]

use api_structural::{
    FieldPath, FieldProblem, Pattern, StringFormat, apply_defaults, check_structure,
    parse_unchecked, prune, prune_nulls, validate_lists, validate_value,
};
use serde_json::Value;

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .map(|text| text.as_str().unwrap())
        .collect()
}

fn sorted(problems: &[FieldProblem]) -> Vec<String> {
    let mut all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    all.sort();
    all
}

#[test]
fn formats_accept_the_texts_that_upstream_accepts() {
    let data: Value = serde_json::from_str(include_str!("data/formats.json")).unwrap();
    let mut wrong = Vec::new();
    for (name, accepted) in data["accepted"].as_object().unwrap() {
        let format = StringFormat::for_type(name, "string").unwrap();
        let accepted = texts(accepted);
        for text in texts(&data["texts"]) {
            if format.matches(text) != accepted.contains(&text) {
                wrong.push(format!(
                    "{name} {text:?}: upstream accepts: {}",
                    accepted.contains(&text)
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn patterns_match_the_texts_that_go_matches() {
    let data: Value = serde_json::from_str(include_str!("data/patterns.json")).unwrap();
    let mut wrong = Vec::new();
    for (source, expected) in data["patterns"].as_object().unwrap() {
        let pattern = Pattern::new(source);
        let matches = texts(&expected["matches"]);
        match (pattern.check(), expected["error"].as_str()) {
            (Err(error), Some(expected)) if error.to_string() == expected => {}
            (Ok(()), None) => {
                for text in texts(&data["texts"]) {
                    if pattern.is_match(text).unwrap() != matches.contains(&text) {
                        wrong.push(format!(
                            "{source} on {text:?}: Go matches: {}",
                            matches.contains(&text)
                        ));
                    }
                }
            }
            (found, expected) => wrong.push(format!("{source}: {found:?}, Go: {expected:?}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Numbers without a fraction are equal, however they are written.
fn normalize(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_i64() => {
            let float = number.as_f64().unwrap();
            if float.fract() == 0.0 && float.abs() < 1e15 {
                *value = (float as i64).into();
            }
        }
        Value::Array(all) => all.iter_mut().for_each(normalize),
        Value::Object(map) => map.values_mut().for_each(normalize),
        _ => {}
    }
}

#[test]
fn random_values_have_the_problems_that_upstream_reports() {
    for line in include_str!("data/values.jsonl").lines() {
        let mut case: Value = serde_json::from_str(line).unwrap();
        normalize(&mut case);
        let schema = parse_unchecked(&case["schema"]).unwrap();
        let (new, expected) = (&case["new"], &case["upstream"]);
        let root = FieldPath::ROOT;
        let found = [
            (
                "structural",
                check_structure(&schema, &FieldPath::start("s")),
            ),
            ("validate", validate_value(&schema, new, None)),
            ("update", validate_value(&schema, new, Some(&case["old"]))),
            ("lists", validate_lists(&schema, new, &root)),
        ];
        for (what, problems) in found {
            assert_eq!(sorted(&problems), texts(&expected[what]), "{what}: {line}");
        }
        let mut defaulted = new.clone();
        prune_nulls(&schema, &mut defaulted);
        apply_defaults(&schema, &mut defaulted);
        assert_eq!(defaulted, expected["defaulted"], "{line}");
        let mut pruned = new.clone();
        let removed = prune(&schema, &mut pruned, false);
        assert_eq!(pruned, expected["pruned"], "{line}");
        assert_eq!(removed, texts(&expected["removed"]), "{line}");
    }
}
