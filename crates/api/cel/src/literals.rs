//! Checks of literals: arguments that fail in every evaluation, and lists and maps of mixed types.

use std::collections::HashSet;

use crate::ast::{Expr, ExprId, ExprKind};
use crate::check::Checked;
use crate::format::{MAX_TIMESTAMP, MIN_TIMESTAMP, parse_duration, parse_timestamp};
use crate::regex::compile_pattern;
use crate::source::Issue;
use crate::types::Type;
use crate::value::Value;
use crate::walk::visit;

/// Returns the literal durations, timestamps and patterns that are invalid.
pub fn check_literals(checked: &Checked) -> Vec<Issue> {
    let mut issues = Vec::new();
    visit(&checked.expr, &mut |expr| {
        let ExprKind::Call(call) = &expr.kind else {
            return;
        };
        // Only a literal is known before evaluation. Other arguments fail when they are evaluated.
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

/// A function whose arguments may be lists of mixed types.
const EXEMPT: &str = "format";

/// Returns the elements of list and map literals whose types differ from those of the first.
pub fn check_homogeneous(checked: &Checked) -> Vec<Issue> {
    let mut exempt = HashSet::new();
    let mut issues = Vec::new();
    visit(&checked.expr, &mut |expr| {
        // The whole call is exempt with its nested lists, as in cel-go, since they may be arguments
        // of the format.
        if matches!(&expr.kind, ExprKind::Call(call) if call.function == EXEMPT) {
            visit(expr, &mut |part| {
                exempt.insert(part.id);
            });
        }
        if exempt.contains(&expr.id) {
            return;
        }
        match &expr.kind {
            ExprKind::List(list) => {
                let elements = list.elements.iter().enumerate();
                let elements = elements.map(|(at, part)| (part, list.optional.contains(&at)));
                // cel-go stops at the first element of a list that differs, but reports all entries
                // of a map.
                issues.extend(find_mismatches(checked, elements).take(1));
            }
            ExprKind::Map(entries) => {
                let keys = entries.iter().map(|entry| (&entry.key, false));
                issues.extend(find_mismatches(checked, keys));
                let values = entries.iter().map(|entry| (&entry.value, entry.optional));
                issues.extend(find_mismatches(checked, values));
            }
            _ => {}
        }
    });
    issues
}

fn find_mismatches<'x>(
    checked: &Checked,
    parts: impl Iterator<Item = (&'x Expr, bool)>,
) -> impl Iterator<Item = Issue> {
    let mut parts =
        parts.map(|(part, optional)| (part.id, element_type(checked, part.id, optional)));
    let first = parts.next();
    parts.filter_map(move |(id, found)| {
        let (_, expected) = first.as_ref()?;
        let message = format!("expected type '{expected}' but found '{found}'");
        let offset = checked.positions.get(id as usize).copied();
        (found != *expected).then_some(Issue { offset, message })
    })
}

fn element_type(checked: &Checked, id: ExprId, optional: bool) -> Type {
    let found = checked.type_of(id);
    found
        .optional_inner()
        .filter(|_| optional)
        .unwrap_or(found)
        .clone()
}
