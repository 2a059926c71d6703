//! The check of literal formats with literal lists of arguments.

use crate::ast::{Call, Expr, ExprId, ExprKind};
use crate::check::Checked;
use crate::library::string_format::{FormatArgument, check_format};
use crate::source::Issue;
use crate::value::Value;
use crate::walk::visit;

const FORMAT: &str = "format";

/// Returns the literal formats that fail for their literal list of arguments.
pub fn check_formats(checked: &Checked) -> Vec<Issue> {
    let mut issues = Vec::new();
    visit(&checked.expr, &mut |expr| {
        let ExprKind::Call(call) = &expr.kind else {
            return;
        };
        let Some((format, arguments)) = literal_format(checked, call) else {
            return;
        };
        if let Err(problem) = check_format(format, &arguments) {
            // Without a wrong argument, for instance for a missing one, the error points at the
            // call.
            let id = problem.id.unwrap_or(expr.id);
            issues.push(create_issue(checked, id, problem.message));
        }
    });
    issues
}

fn create_issue(checked: &Checked, id: ExprId, message: String) -> Issue {
    Issue {
        offset: checked.positions.get(id as usize).copied(),
        message,
    }
}

fn literal_format<'c>(checked: &Checked, call: &'c Call) -> Option<(&'c str, Vec<FormatArgument>)> {
    let ([arguments], Some(target), FORMAT) = (
        call.arguments.as_slice(),
        &call.target,
        call.function.as_str(),
    ) else {
        return None;
    };
    // Only literals are known now. All other formats are checked when they are evaluated.
    let (ExprKind::Literal(Value::String(format)), ExprKind::List(list)) =
        (&target.kind, &arguments.kind)
    else {
        return None;
    };
    let arguments = list
        .elements
        .iter()
        .map(|element| describe(checked, element))
        .collect();
    Some((format, arguments))
}

fn describe(checked: &Checked, expr: &Expr) -> FormatArgument {
    // The clause `%s` also shows the elements of lists and maps, so their types count.
    let children = match &expr.kind {
        ExprKind::List(list) => list.elements.iter().map(|e| describe(checked, e)).collect(),
        ExprKind::Map(entries) => entries
            .iter()
            .flat_map(|entry| [&entry.key, &entry.value])
            .map(|part| describe(checked, part))
            .collect(),
        _ => Vec::new(),
    };
    let result_type = checked.type_of(expr.id).clone();
    FormatArgument {
        id: expr.id,
        result_type,
        children,
    }
}
