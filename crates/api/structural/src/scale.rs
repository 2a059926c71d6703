//! The subresource `scale`: paths in the object and their values.

use crate::path::FieldPath;
use crate::problem::FieldProblem;
use api_meta::tree::{opt_text, text};
use serde_json::Value;

/// Paths of the subresource `scale`, such as `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// `specReplicasPath`
    pub spec_replicas: Box<str>,
    /// `statusReplicasPath`
    pub status_replicas: Box<str>,
    /// `labelSelectorPath`
    pub label_selector: Option<Box<str>>,
}

impl ScalePaths {
    /// Reads the paths of a version's `subresources.scale`.
    pub fn parse(scale: &Value) -> Self {
        Self {
            spec_replicas: text(scale, "specReplicasPath").into(),
            status_replicas: text(scale, "statusReplicasPath").into(),
            label_selector: opt_text(scale, "labelSelectorPath")
                .filter(|path| !path.is_empty())
                .map(Into::into),
        }
    }
}

/// Returns the value at a path of dots; nothing if it or one above is absent.
pub fn find_nested<'v>(object: &'v Value, path: &str) -> Result<Option<&'v Value>, String> {
    let fields: Vec<&str> = path.strip_prefix('.').unwrap_or(path).split('.').collect();
    let mut at = object;
    for (i, field) in fields.iter().enumerate() {
        at = match at {
            Value::Null => return Ok(None),
            Value::Object(map) => match map.get(*field) {
                Some(value) => value,
                None => return Ok(None),
            },
            other => {
                let path = fields.get(..=i).unwrap_or_default().join(".");
                return Err(describe_access(&path, other, "map[string]interface {}"));
            }
        };
    }
    Ok(Some(at))
}

fn describe_access(path: &str, value: &Value, wanted: &str) -> String {
    let found = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    };
    format!(".{path} accessor error: {shown} is of the type {found}, expected {wanted}")
}

/// Validates the values at the paths, in the status only if `with_spec` is false.
pub fn validate_scale(paths: &ScalePaths, object: &Value, with_spec: bool) -> Vec<FieldProblem> {
    let mut out = Vec::new();
    if with_spec {
        validate_replicas(&paths.spec_replicas, object, &mut out);
    }
    validate_replicas(&paths.status_replicas, object, &mut out);
    if let Some(path) = &paths.label_selector {
        let problem = match find_nested(object, path) {
            Ok(None | Some(Value::String(_))) => None,
            Ok(Some(other)) => Some(describe_access(
                path.trim_start_matches('.'),
                other,
                "string",
            )),
            Err(message) => Some(message),
        };
        let at = FieldPath::start(path);
        out.extend(problem.map(|message| FieldProblem::invalid(&at, "", message)));
    }
    out
}

fn validate_replicas(path: &str, object: &Value, out: &mut Vec<FieldProblem>) {
    let at = FieldPath::start(path);
    let found = find_nested(object, path).and_then(|value| match value {
        None => Ok(0),
        Some(value) => value
            .as_i64()
            .ok_or_else(|| describe_access(path.trim_start_matches('.'), value, "int64")),
    });
    match found {
        Err(message) => out.push(FieldProblem::invalid(&at, 0, message)),
        Ok(n) if n < 0 => {
            out.push(FieldProblem::invalid(
                &at,
                n,
                "should be a non-negative integer",
            ));
        }
        Ok(n) if n > i64::from(i32::MAX) => {
            let detail = format!("should be less than or equal to {}", i32::MAX);
            out.push(FieldProblem::invalid(&at, n, detail));
        }
        Ok(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_at_the_paths_are_checked() {
        let paths = ScalePaths::parse(&json!({"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}));
        let cases = [
            (
                json!({"spec": {"replicas": 3}, "status": {"replicas": 0, "selector": "a=b"}}),
                vec![],
            ),
            (json!({}), vec![]),
            (json!({"spec": null}), vec![]),
            (
                json!({"spec": {"replicas": -1}}),
                vec![".spec.replicas: Invalid value: -1: should be a non-negative integer"],
            ),
            (
                json!({"spec": {"replicas": 2147483648u64}}),
                vec![
                    ".spec.replicas: Invalid value: 2147483648: should be less than or equal to 2147483647",
                ],
            ),
            (
                json!({"spec": {"replicas": "x"}, "status": {"selector": 1}}),
                vec![
                    ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64",
                    ".status.selector: Invalid value: \"\": .status.selector accessor error: 1 is of the type int64, expected string",
                ],
            ),
        ];
        for (object, expected) in cases {
            let texts: Vec<String> = validate_scale(&paths, &object, true)
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(texts, expected, "{object}");
        }
    }

    #[test]
    fn spec_is_not_checked_with_the_status() {
        let paths = ScalePaths::parse(
            &json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}),
        );
        let object = json!({"spec": {"replicas": -1}, "status": 3});
        let problems = validate_scale(&paths, &object, false);
        assert_eq!(
            problems[0].to_string(),
            ".status.replicas: Invalid value: 0: .status.replicas accessor error: 3 is of the type int64, expected map[string]interface {}"
        );
        assert_eq!((problems.len(), paths.label_selector), (1, None));
    }
}
