//! Walks over expressions.

use crate::ast::{Expr, ExprId, ExprKind};

/// Gives an expression and all its parts new ids.
pub fn copy_expr(expr: &mut Expr, new_id: &mut dyn FnMut(ExprId) -> ExprId) {
    expr.id = new_id(expr.id);
    match &mut expr.kind {
        ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        ExprKind::Select(select) => copy_expr(&mut select.operand, new_id),
        ExprKind::Call(call) => {
            if let Some(target) = &mut call.target {
                copy_expr(target, new_id);
            }
            call.arguments
                .iter_mut()
                .for_each(|argument| copy_expr(argument, new_id));
        }
        ExprKind::List(list) => {
            list.elements
                .iter_mut()
                .for_each(|element| copy_expr(element, new_id));
        }
        ExprKind::Map(entries) => {
            for entry in entries {
                entry.id = new_id(entry.id);
                copy_expr(&mut entry.key, new_id);
                copy_expr(&mut entry.value, new_id);
            }
        }
        ExprKind::Struct(literal) => {
            for field in &mut literal.fields {
                field.id = new_id(field.id);
                copy_expr(&mut field.value, new_id);
            }
        }
        ExprKind::Comprehension(fold) => {
            copy_expr(&mut fold.range, new_id);
            copy_expr(&mut fold.init, new_id);
            copy_expr(&mut fold.condition, new_id);
            copy_expr(&mut fold.step, new_id);
            copy_expr(&mut fold.result, new_id);
        }
    }
}

/// Visits an expression and its parts.
pub fn visit<'x>(expr: &'x Expr, visitor: &mut dyn FnMut(&'x Expr)) {
    visitor(expr);
    match &expr.kind {
        ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
        ExprKind::Select(select) => visit(&select.operand, visitor),
        ExprKind::Call(call) => {
            call.target
                .as_deref()
                .into_iter()
                .chain(&call.arguments)
                .for_each(|part| {
                    visit(part, visitor);
                });
        }
        ExprKind::List(list) => list.elements.iter().for_each(|part| visit(part, visitor)),
        ExprKind::Map(entries) => {
            for entry in entries {
                visit(&entry.key, visitor);
                visit(&entry.value, visitor);
            }
        }
        ExprKind::Struct(literal) => {
            literal
                .fields
                .iter()
                .for_each(|field| visit(&field.value, visitor));
        }
        ExprKind::Comprehension(fold) => {
            for part in [
                &fold.range,
                &fold.init,
                &fold.condition,
                &fold.step,
                &fold.result,
            ] {
                visit(part, visitor);
            }
        }
    }
}
