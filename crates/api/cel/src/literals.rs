//! Checks of literal arguments, which would fail in every evaluation.

use crate::ast::ExprKind;
use crate::check::Checked;
use crate::format::{MAX_TIMESTAMP, MIN_TIMESTAMP, parse_duration, parse_timestamp};
use crate::regex::compile_pattern;
use crate::source::Issue;
use crate::value::Value;
use crate::walk::visit;

/// Returns the literal durations, timestamps and patterns that are invalid.
pub fn check_literals(checked: &Checked) -> Vec<Issue> {
    let mut issues = Vec::new();
    visit(&checked.expr, &mut |expr| {
        let ExprKind::Call(call) = &expr.kind else {
            return;
        };
        let Some(literal) = call.arguments.last() else {
            return;
        };
        let ExprKind::Literal(value) = &literal.kind else {
            return;
        };
        let is_valid = match (call.function.as_str(), call.arguments.len(), value) {
            ("duration", 1, Value::String(text)) => parse_duration(text).is_some(),
            ("timestamp", 1, Value::String(text)) => parse_timestamp(text).is_some(),
            ("timestamp", 1, Value::Int(seconds)) => {
                (MIN_TIMESTAMP..=MAX_TIMESTAMP).contains(seconds)
            }
            ("matches", _, Value::String(text)) => compile_pattern(text).is_ok(),
            _ => true,
        };
        if !is_valid {
            let offset = checked.positions.get(literal.id as usize).copied();
            issues.push(Issue {
                offset,
                message: format!("invalid {} argument", call.function),
            });
        }
    });
    issues
}
