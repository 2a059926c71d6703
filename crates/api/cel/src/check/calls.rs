//! Overload resolution.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::unify::instantiate;
use super::{Checker, Reference};
use crate::ast::{Call, Expr, ExprId, ExprKind};
use crate::environment::{Declared, qualified_name};
use crate::function::Overload;
use crate::types::Type;

impl Checker<'_> {
    pub(super) fn check_call(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let ExprKind::Call(call) = &mut expr.kind else {
            return Type::Error;
        };
        // The field is a literal in the tree, but names a field and is no operand.
        if call.function == "_?._" {
            return self.check_optional_selection(id, call);
        }
        let mut types: Vec<Type> = call
            .arguments
            .iter_mut()
            .map(|argument| self.check_expr(argument))
            .collect();
        let Some(target) = &mut call.target else {
            return match self.find_function(&call.function) {
                Some(found) => {
                    found.name.as_ref().clone_into(&mut call.function);
                    self.resolve_overload(id, &found, &types, false, &call.arguments)
                }
                None => self.report_undeclared(id, &call.function),
            };
        };
        // `a.b.f(x)` may be the function `a.b.f`, which is preferred to a receiver `a.b`.
        let qualified = qualified_name(target).map(|prefix| format!("{prefix}.{}", call.function));
        let namespaced = qualified.and_then(|name| self.find_function(&name));
        if let Some(found) = namespaced {
            found.name.as_ref().clone_into(&mut call.function);
            // The namespace is part of the name now, and must not be evaluated as a receiver.
            call.target = None;
            return self.resolve_overload(id, &found, &types, false, &call.arguments);
        }
        types.insert(0, self.check_expr(target));
        match self.find_function(&call.function) {
            Some(found) => self.resolve_overload(id, &found, &types, true, &call.arguments),
            None => self.report_undeclared(id, &call.function),
        }
    }

    fn check_optional_selection(&mut self, id: ExprId, call: &mut Call) -> Type {
        let [operand, field] = call.arguments.as_mut_slice() else {
            return Type::Error;
        };
        let name = match &field.kind {
            ExprKind::Literal(value) => value.as_str().map(str::to_owned),
            _ => None,
        };
        let Some(name) = name else {
            self.report(field.id, "unsupported optional field selection".into());
            return Type::Error;
        };
        let operand = self.check_expr(operand);
        self.set_type(field.id, Type::String);
        let found = self.select_field(id, &operand, &name, true);
        self.set_reference(id, Reference::Overloads("_?._".into(), Vec::new()));
        self.substitutions.resolve(&found, false)
    }

    /// Finds all overloads that admit the types; their results join to the type of the call.
    fn resolve_overload(
        &mut self,
        id: ExprId,
        function: &Declared,
        types: &[Type],
        has_receiver: bool,
        arguments: &[Expr],
    ) -> Type {
        if matches!(&*function.name, "_&&_" | "_||_") {
            return self.check_logical(id, function, types, arguments);
        }
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in &function.overloads {
            if overload.receiver != has_receiver || overload.arguments.len() != types.len() {
                continue;
            }
            // Parameters are new for each call: `T` of one call is not `T` of another.
            let (parameters, declared_result) = self.instantiate_overload(overload);
            if !self.substitutions.is_assignable_list(types, &parameters) {
                continue;
            }
            matching.push(overload.clone());
            let found = self.substitutions.resolve(&declared_result, false);
            // If the results differ, only the values decide on the type.
            result = Some(match result {
                None => found,
                Some(Type::Dyn) => Type::Dyn,
                Some(previous) if previous == found => previous,
                Some(_) => Type::Dyn,
            });
        }
        match result {
            Some(found) => {
                self.set_reference(id, Reference::Overloads(function.name.clone(), matching));
                found
            }
            None => self.report_no_overload(id, &function.name, types, has_receiver),
        }
    }

    fn instantiate_overload(&mut self, overload: &Overload) -> (Vec<Type>, Type) {
        let mut fresh: HashMap<Arc<str>, Type> = HashMap::new();
        let parameters = overload
            .arguments
            .iter()
            .map(|declared| instantiate(declared, &mut self.substitutions, &mut fresh))
            .collect();
        (
            parameters,
            instantiate(&overload.result, &mut self.substitutions, &mut fresh),
        )
    }

    fn check_logical(
        &mut self,
        id: ExprId,
        function: &Declared,
        types: &[Type],
        arguments: &[Expr],
    ) -> Type {
        let mut result = Type::Bool;
        for (found, argument) in types.iter().zip(arguments) {
            if !self.substitutions.is_assignable(found, &Type::Bool) {
                self.report_mismatch(argument.id, &Type::Bool, found);
                result = Type::Error;
            }
        }
        let overloads = function.overloads.clone();
        self.set_reference(id, Reference::Overloads(function.name.clone(), overloads));
        result
    }

    fn report_no_overload(
        &mut self,
        id: ExprId,
        name: &str,
        types: &[Type],
        has_receiver: bool,
    ) -> Type {
        let mut signature = String::new();
        let mut types = types
            .iter()
            .map(|found| self.substitutions.resolve(found, true));
        if has_receiver && let Some(receiver) = types.next() {
            let _ = write!(signature, "{receiver}.");
        }
        let arguments: Vec<String> = types.map(|found| found.to_string()).collect();
        let _ = write!(signature, "({})", arguments.join(", "));
        let message = format!("found no matching overload for '{name}' applied to '{signature}'");
        self.report(id, message);
        Type::Error
    }
}
