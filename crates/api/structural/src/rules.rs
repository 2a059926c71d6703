//! Checks of `x-kubernetes-validations`.

use crate::model::Schema;
use crate::parse::parse_unchecked;
use crate::path::FieldPath;
use crate::problem::FieldProblem;
use crate::schema_path::{PathSyntax, resolve_field_path};
use api_meta::tree::{list, opt_text, text};
use serde_json::Value;
use std::cell::OnceCell;
use std::sync::Arc;

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// Checks the form of the rules of a node, without compiling them.
pub(crate) fn check_rules(node: &Value, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let all = list(node, "x-kubernetes-validations");
    let path = path.child("x-kubernetes-validations");
    // Parsed at most once: a node may have thousands of rules.
    let schema = OnceCell::new();
    for (i, rule) in all.iter().enumerate() {
        let path = path.index(i);
        check_texts(rule, &path, out);
        if let Some(reason) = opt_text(rule, "reason").filter(|reason| !REASONS.contains(reason)) {
            out.push(FieldProblem::not_supported(
                &path.child("reason"),
                reason,
                REASONS,
            ));
        }
        check_field_path(rule, node, &schema, &path, out);
    }
}

fn check_texts(rule: &Value, path: &FieldPath<'_>, out: &mut Vec<FieldProblem>) {
    let (source, message) = (text(rule, "rule").trim(), text(rule, "message"));
    let at = path.child("message");
    if source.is_empty() {
        out.push(FieldProblem::required(
            &path.child("rule"),
            "rule is not specified",
        ));
    } else if !message.is_empty() && message.trim().is_empty() {
        out.push(FieldProblem::invalid(
            &at,
            message,
            "must be non-empty if specified",
        ));
    } else if has_line_break(message.trim()) {
        out.push(FieldProblem::invalid(
            &at,
            message,
            "must not contain line breaks",
        ));
    } else if has_line_break(source) && message.is_empty() {
        let detail = "message must be specified if rule contains line breaks";
        out.push(FieldProblem::required(&at, detail));
    }
    let expression = text(rule, "messageExpression");
    if !expression.is_empty() && expression.trim().is_empty() {
        let detail = "messageExpression must be non-empty if specified";
        out.push(FieldProblem::required(
            &path.child("messageExpression"),
            detail,
        ));
    }
}

fn check_field_path(
    rule: &Value,
    node: &Value,
    schema: &OnceCell<Option<Arc<Schema>>>,
    path: &FieldPath<'_>,
    out: &mut Vec<FieldProblem>,
) {
    let field = text(rule, "fieldPath");
    let at = path.child("fieldPath");
    if field.is_empty() {
        return;
    }
    if field.trim().is_empty() {
        out.push(FieldProblem::invalid(
            &at,
            field,
            "must be non-empty if specified",
        ));
    }
    if has_line_break(field) {
        out.push(FieldProblem::invalid(
            &at,
            field,
            "must not contain line breaks",
        ));
    }
    // A schema that can't be parsed has problems of its own.
    if let Some(schema) = schema.get_or_init(|| parse_unchecked(node).ok())
        && resolve_field_path(field, schema, PathSyntax::DotsAndBrackets).is_err()
    {
        out.push(FieldProblem::invalid(&at, field, "must be a valid path"));
    }
}

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(rule: Value) -> Vec<String> {
        let node = json!({"type": "object", "properties": {"a": {"type": "string"}},
            "x-kubernetes-validations": [rule]});
        let mut out = Vec::new();
        check_rules(&node, &FieldPath::start("s"), &mut out);
        let prefix = "s.x-kubernetes-validations[0].";
        out.iter()
            .map(|p| p.to_string().replace(prefix, ""))
            .collect()
    }

    #[test]
    fn form_of_rules_is_checked() {
        let cases = [
            (json!({"rule": "true"}), None),
            (
                json!({"rule": " "}),
                Some("rule: Required value: rule is not specified"),
            ),
            (
                json!({"rule": "true", "message": " "}),
                Some("message: Invalid value: \" \": must be non-empty if specified"),
            ),
            (
                json!({"rule": "true", "message": "a\nb"}),
                Some("message: Invalid value: \"a\\nb\": must not contain line breaks"),
            ),
            (
                json!({"rule": "a\n&& b"}),
                Some(
                    "message: Required value: message must be specified if rule contains line breaks",
                ),
            ),
            (json!({"rule": "a\n&& b", "message": "m"}), None),
            (
                json!({"rule": "true", "messageExpression": "\t"}),
                Some(
                    "messageExpression: Required value: messageExpression must be non-empty if specified",
                ),
            ),
            (
                json!({"rule": "true", "reason": "FieldValueRequired", "fieldPath": ".a"}),
                None,
            ),
            (
                json!({"rule": "true", "reason": "Gone"}),
                Some(
                    "reason: Unsupported value: \"Gone\": supported values: \"FieldValueDuplicate\", \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
                ),
            ),
            (
                json!({"rule": "true", "fieldPath": ".b"}),
                Some("fieldPath: Invalid value: \".b\": must be a valid path"),
            ),
            (
                json!({"rule": "true", "fieldPath": "a"}),
                Some("fieldPath: Invalid value: \"a\": must be a valid path"),
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(check(rule.clone()), Vec::from_iter(expected), "{rule}");
        }
    }

    #[test]
    fn path_with_a_line_break_has_two_problems() {
        assert_eq!(check(json!({"rule": "true", "fieldPath": "\n"})).len(), 3);
    }
}
