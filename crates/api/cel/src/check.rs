//! The type checker: resolves names and overloads, and gives every expression a type.

mod calls;
mod unify;

use std::sync::Arc;

use crate::ast::{Comprehension, Expr, ExprId, ExprKind, ListLiteral, MapEntry, StructLiteral};
use crate::environment::{Declarations, Declared, qualified_name};
use crate::function::Overload;
use crate::parser::Parsed;
use crate::source::{CompileError, Issue, MAX_ISSUES};
use crate::types::Type;
use crate::value::Value;
use unify::{Substitutions, choose_most_general, count_nodes, unwrap_optional};

/// A type with more parts than this is an error, because a short expression can nest exponentially.
const MAX_TYPE_NODES: usize = 1_000;

/// The target of a name or a call.
#[derive(Debug, Clone)]
pub enum Reference {
    /// A variable of the environment, by its qualified name.
    Variable(String),
    /// A constant or a type.
    Constant(Value<'static>),
    /// The overloads that the types of the arguments admit.
    Overloads(Arc<str>, Vec<Arc<Overload>>),
}

/// A checked expression. Names are qualified, and calls have lost a receiver that was a namespace.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The expression.
    pub expr: Expr,
    /// The types by id.
    types: Vec<Type>,
    /// The references by id.
    references: Vec<Option<Reference>>,
    /// The offsets by id.
    pub positions: Vec<u32>,
}

impl Checked {
    /// Returns the type of an expression.
    pub fn type_of(&self, id: ExprId) -> &Type {
        self.types.get(id as usize).unwrap_or(&Type::Dyn)
    }

    /// Reports whether the expression refers to a variable.
    pub fn uses_variable(&self, name: &str) -> bool {
        let is_name = |reference: &Reference| matches!(reference, Reference::Variable(variable) if variable == name);
        self.references.iter().flatten().any(is_name)
    }

    /// Returns the reference of an expression.
    pub fn reference(&self, id: ExprId) -> Option<&Reference> {
        self.references.get(id as usize)?.as_ref()
    }
}

/// Checks a parsed expression.
pub fn check(
    source: &str,
    parsed: Parsed,
    declarations: &Declarations,
) -> Result<Checked, CompileError> {
    let mut checker = Checker {
        declarations,
        types: vec![None; parsed.positions.len()],
        references: vec![None; parsed.positions.len()],
        positions: parsed.positions,
        substitutions: Substitutions::default(),
        locals: Vec::new(),
        issues: Vec::new(),
    };
    let mut expr = parsed.expr;
    checker.check_expr(&mut expr);
    if !checker.issues.is_empty() {
        return Err(CompileError::new(source, checker.issues));
    }
    // A parameter that is still free stands for any type.
    let resolve = |found: Option<Type>| {
        found.map_or(Type::Dyn, |found| {
            checker.substitutions.resolve(&found, true)
        })
    };
    let types = checker.types.into_iter().map(resolve).collect();
    let (references, positions) = (checker.references, checker.positions);
    Ok(Checked {
        expr,
        types,
        references,
        positions,
    })
}

struct Checker<'e> {
    declarations: &'e Declarations,
    types: Vec<Option<Type>>,
    references: Vec<Option<Reference>>,
    positions: Vec<u32>,
    substitutions: Substitutions,
    locals: Vec<(String, Type)>,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn report(&mut self, id: ExprId, message: String) {
        let offset = self.positions.get(id as usize).copied();
        // Only the count of the issues after these is shown, and their types can be long.
        let is_shown = self.issues.len() < MAX_ISSUES;
        let message = if is_shown { message } else { String::new() };
        self.issues.push(Issue { offset, message });
    }

    fn report_undeclared(&mut self, id: ExprId, name: &str) -> Type {
        let container = &self.declarations.container;
        let message = format!("undeclared reference to '{name}' (in container '{container}')");
        self.report(id, message);
        Type::Error
    }

    fn report_mismatch(&mut self, id: ExprId, expected: &Type, found: &Type) {
        self.report(
            id,
            format!("expected type '{expected}' but found '{found}'"),
        );
    }

    fn set_type(&mut self, id: ExprId, found: Type) -> Type {
        if let Some(slot) = self.types.get_mut(id as usize) {
            *slot = Some(found.clone());
        }
        found
    }

    fn set_reference(&mut self, id: ExprId, reference: Reference) {
        if let Some(slot) = self.references.get_mut(id as usize) {
            *slot = Some(reference);
        }
    }

    /// Checks an expression and returns its type, which is also recorded.
    fn check_expr(&mut self, expr: &mut Expr) -> Type {
        let id = expr.id;
        let found = match &mut expr.kind {
            ExprKind::Unspecified => Type::Error,
            ExprKind::Literal(value) => value.type_of(),
            ExprKind::Ident(_) => self.check_ident(expr),
            ExprKind::Select(_) => self.check_select(expr),
            ExprKind::Call(_) => self.check_call(expr),
            ExprKind::List(list) => self.check_list(list),
            ExprKind::Map(entries) => self.check_map(id, entries),
            ExprKind::Struct(literal) => self.check_struct(id, literal),
            ExprKind::Comprehension(fold) => self.check_comprehension(fold),
        };
        self.set_type(id, found)
    }

    /// Resolves a name; a match becomes the kind of the expression.
    fn resolve_name(&mut self, expr: &mut Expr, name: &str) -> Option<Type> {
        // Variables of comprehensions hide declared names, the innermost first.
        if let Some((_, found)) = self.locals.iter().rev().find(|(local, _)| local == name) {
            return Some(found.clone());
        }
        let declaration = self.declarations.find_identifier(name)?;
        let reference = match declaration.value {
            Some(value) => Reference::Constant(value),
            None => Reference::Variable(declaration.name.clone()),
        };
        self.set_reference(expr.id, reference);
        // A chain such as `a.b` that is one declared name becomes a single identifier.
        expr.kind = ExprKind::Ident(declaration.name);
        Some(declaration.value_type)
    }

    fn is_local(&self, name: &str) -> bool {
        self.locals.iter().any(|(local, _)| local == name)
    }

    fn check_ident(&mut self, expr: &mut Expr) -> Type {
        let ExprKind::Ident(name) = &expr.kind else {
            return Type::Error;
        };
        let name = name.clone();
        match self.resolve_name(expr, &name) {
            Some(found) => found,
            None => self.report_undeclared(expr.id, &name),
        }
    }

    fn check_select(&mut self, expr: &mut Expr) -> Type {
        // A declared name may contain dots. A variable of a loop hides it: `x.y` is a field of `x`
        // then.
        if let Some(name) = qualified_name(expr)
            && !self.is_local(name.split('.').next().unwrap_or_default())
            && let Some(found) = self.resolve_name(expr, &name)
        {
            return found;
        }
        let id = expr.id;
        let ExprKind::Select(select) = &mut expr.kind else {
            return Type::Error;
        };
        let operand = self.check_expr(&mut select.operand);
        let (field, test_only) = (select.field.clone(), select.test_only);
        let found = self.select_field(id, &operand, &field, false);
        if test_only {
            Type::Bool
        } else {
            self.substitutions.resolve(&found, false)
        }
    }

    /// Returns the type of a field of a value of the given type.
    fn select_field(&mut self, id: ExprId, operand: &Type, field: &str, optional: bool) -> Type {
        let operand = self.substitutions.resolve(operand, false);
        let (target, was_optional) = unwrap_optional(&operand);
        let found = match &target {
            Type::Map(_, value) => (**value).clone(),
            Type::Struct(name) => self.find_field(id, name, field),
            Type::Param(_) => {
                // The unknown type becomes `dyn`, so that its other uses agree with this one.
                self.substitutions.is_assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            Type::Dyn | Type::Error => Type::Dyn,
            other => {
                self.report(
                    id,
                    format!("type '{other}' does not support field selection"),
                );
                Type::Dyn
            }
        };
        if was_optional || optional {
            Type::optional(found)
        } else {
            found
        }
    }

    fn find_field(&mut self, id: ExprId, type_name: &str, field: &str) -> Type {
        if let Some(found) = self.declarations.find_field(type_name, field) {
            return found;
        }
        self.report(id, format!("undefined field '{field}'"));
        Type::Error
    }

    /// Joins the type of an element with those of the elements before it.
    fn join(&mut self, previous: Option<Type>, current: Type) -> Type {
        let Some(previous) = previous else {
            return current;
        };
        // Elements of different types are allowed in the language. Kubernetes rejects literals with
        // them in a check of its own (`literals`).
        if self.substitutions.is_assignable(&previous, &current) {
            return choose_most_general(&previous, &current);
        }
        Type::Dyn
    }

    /// Returns the inner type of an element that is marked as optional.
    fn unwrap_marked(&mut self, id: ExprId, found: Type) -> Type {
        let (inner, is_optional) = unwrap_optional(&found);
        // A dynamic value may turn out to be optional.
        if !is_optional && inner != Type::Dyn {
            self.report_mismatch(id, &Type::optional(inner.clone()), &inner);
        }
        inner
    }

    fn check_list(&mut self, list: &mut ListLiteral) -> Type {
        let mut joined = None;
        for (index, element) in list.elements.iter_mut().enumerate() {
            let mut found = self.check_expr(element);
            if list.optional.contains(&index) {
                found = self.unwrap_marked(element.id, found);
            }
            joined = Some(self.join(joined, found));
        }
        // The elements of an empty list have any type until the list is used.
        Type::list(joined.unwrap_or_else(|| self.substitutions.new_param()))
    }

    fn check_map(&mut self, id: ExprId, entries: &mut [MapEntry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            let key = self.check_expr(&mut entry.key);
            keys = Some(self.join(keys, key));
            let mut value = self.check_expr(&mut entry.value);
            if entry.optional {
                value = self.unwrap_marked(entry.value.id, value);
            }
            values = Some(self.join(values, value));
        }
        let key = keys.unwrap_or_else(|| self.substitutions.new_param());
        let value = values.unwrap_or_else(|| self.substitutions.new_param());
        let found = self.substitutions.resolve(&Type::map(key, value), false);
        if count_nodes(&found, MAX_TYPE_NODES) >= MAX_TYPE_NODES {
            self.report(id, format!("type has more than {MAX_TYPE_NODES} parts"));
            return Type::Error;
        }
        found
    }

    fn check_struct(&mut self, id: ExprId, literal: &mut StructLiteral) -> Type {
        let Some(declaration) = self.declarations.find_identifier(&literal.name) else {
            return self.report_undeclared(id, &literal.name);
        };
        let target = match &declaration.value_type {
            Type::Type(Some(inner)) => (**inner).clone(),
            other => {
                let message = format!("'{}' is not a type", other.runtime_name());
                self.report(id, message);
                return Type::Error;
            }
        };
        let Type::Struct(type_name) = &target else {
            self.report(
                id,
                format!("'{}' is not a message type", target.runtime_name()),
            );
            return Type::Error;
        };
        literal.name = declaration.name;
        for field in &mut literal.fields {
            let mut found = self.check_expr(&mut field.value);
            let expected = self.find_field(field.id, type_name, &field.name);
            if field.optional {
                found = self.unwrap_marked(field.value.id, found);
            }
            if !self.substitutions.is_assignable(&expected, &found) {
                let name = &field.name;
                let message = format!(
                    "expected type of field '{name}' is '{expected}' but provided type is '{found}'"
                );
                self.report(field.id, message);
            }
        }
        target
    }

    fn check_comprehension(&mut self, fold: &mut Comprehension) -> Type {
        let range = self.check_expr(&mut fold.range);
        let accumulator = self.check_expr(&mut fold.init);
        let range = self.substitutions.resolve(&range, false);
        let has_two = fold.variable2.is_some();
        let (first, second) = match &range {
            Type::List(element) if has_two => (Type::Int, (**element).clone()),
            // A loop with one variable has no second one, so this type is never read.
            Type::List(element) => ((**element).clone(), Type::Error),
            Type::Map(key, value) => ((**key).clone(), (**value).clone()),
            Type::Dyn | Type::Error | Type::Param(_) => {
                self.substitutions.is_assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension \
                     (must be list, map, or dynamic)"
                );
                self.report(fold.range.id, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.locals.len();
        self.locals
            .push((fold.accumulator.clone(), accumulator.clone()));
        self.locals.push((fold.variable.clone(), first));
        if let Some(name) = &fold.variable2 {
            self.locals.push((name.clone(), second));
        }
        let condition = self.check_expr(&mut fold.condition);
        self.expect_type(fold.condition.id, &Type::Bool, &condition);
        let step = self.check_expr(&mut fold.step);
        self.expect_type(fold.step.id, &accumulator, &step);
        // The result may read the accumulator, but no longer the variables of the loop.
        self.locals.truncate(depth + 1);
        let result = self.check_expr(&mut fold.result);
        self.locals.truncate(depth);
        self.substitutions.resolve(&result, false)
    }

    fn expect_type(&mut self, id: ExprId, expected: &Type, found: &Type) {
        if !self.substitutions.is_assignable(expected, found) {
            self.report_mismatch(id, expected, found);
        }
    }

    fn find_function(&self, name: &str) -> Option<Declared> {
        self.declarations.find_function(name).cloned()
    }
}
