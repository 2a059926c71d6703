//! Environments and programs.

use std::sync::Arc;

use crate::ast::{Expr, ExprKind};
use crate::budget::Budget;
use crate::check::{Checked, check};
use crate::cost::Range;
use crate::environment::{Declarations, TypeProvider};
use crate::error::EvalError;
use crate::estimate::{SizeEstimates, estimate};
use crate::evaluate::{Variables, evaluate};
use crate::library::Library;
use crate::literals::{check_homogeneous, check_literals};
use crate::parser::parse;
use crate::plan::{Node, plan};
use crate::source::CompileError;
use crate::standard::{optional_library, standard_library, two_variables_library};
use crate::types::Type;
use crate::validators::check_formats;
use crate::value::Value;
use crate::walk::visit;

/// The declarations that expressions can refer to. A clone is cheap.
#[derive(Debug, Clone)]
pub struct Environment {
    declarations: Arc<Declarations>,
}

impl Environment {
    /// Creates the environment of Kubernetes 1.`minor` with the language and the given libraries.
    pub fn new(minor: u16, libraries: impl IntoIterator<Item = Library>) -> Environment {
        let mut declarations = Declarations::default();
        // As upstream's `baseOpts`: mixed literals are rejected in all versions, literals are
        // checked since 1.29, and optional values exist since 1.28.
        declarations.homogeneous_literals = true;
        declarations.checks_literals = minor >= 29;
        declarations.settings.optional_syntax = minor >= 28;
        let language = [
            standard_library(),
            optional_library(),
            two_variables_library(),
        ];
        for library in language.into_iter().chain(libraries) {
            if library.is_enabled(minor) {
                declarations.add_library(library);
            }
        }
        Environment {
            declarations: Arc::new(declarations),
        }
    }

    /// Returns the environment with a further variable.
    #[must_use]
    pub fn with_variable(&self, name: &str, value_type: Type) -> Environment {
        self.with(|declarations| declarations.add_variable(name, value_type))
    }

    /// Returns the environment with a provider of object types.
    #[must_use]
    pub fn with_provider(&self, provider: Arc<dyn TypeProvider>) -> Environment {
        self.with(|declarations| declarations.set_provider(provider))
    }

    /// Returns the environment with a further library.
    #[must_use]
    pub fn with_library(&self, library: Library) -> Environment {
        self.with(|declarations| declarations.add_library(library))
    }

    /// Returns the environment with changed declarations.
    #[must_use]
    pub fn with(&self, change: impl FnOnce(&mut Declarations)) -> Environment {
        let mut declarations = Declarations::clone(&self.declarations);
        change(&mut declarations);
        Environment {
            declarations: Arc::new(declarations),
        }
    }

    /// Parses, checks and plans an expression.
    pub fn compile(&self, source: &str) -> Result<Program, CompileError> {
        let parsed = parse(source, &self.declarations.settings)?;
        let checked = check(source, parsed, &self.declarations)?;
        let mut issues = check_formats(&checked);
        if self.declarations.checks_literals {
            issues.extend(check_literals(&checked));
        }
        if self.declarations.homogeneous_literals {
            issues.extend(check_homogeneous(&checked));
        }
        if !issues.is_empty() {
            return Err(CompileError::new(source, issues));
        }
        // The plan computes conversions of constants and compiles patterns, which can fail.
        let node = plan(&checked).map_err(|error| CompileError::instantiation(&error))?;
        Ok(Program {
            checked: Arc::new(checked),
            node: Arc::new(node),
        })
    }
}

/// A compiled expression. A clone is cheap.
#[derive(Debug, Clone)]
pub struct Program {
    checked: Arc<Checked>,
    node: Arc<Node>,
}

impl Program {
    /// Returns the type of the result.
    pub fn output_type(&self) -> &Type {
        self.checked.type_of(self.checked.expr.id)
    }

    /// Evaluates the expression within a budget.
    pub fn evaluate<'v>(
        &self,
        variables: &dyn Variables<'v>,
        budget: &mut Budget,
    ) -> Result<Value<'v>, EvalError> {
        evaluate(&self.node, variables, budget)
    }

    /// Estimates the cost of an evaluation.
    pub fn estimate_cost(&self, sizes: &dyn SizeEstimates) -> Range {
        estimate(&self.checked, sizes)
    }

    /// Reports whether the expression selects a field of a variable: `claims.email`,
    /// `claims.?email`, or a presence test of either.
    pub fn selects_field(&self, variable: &str, field: &str) -> bool {
        let is_variable =
            |expr: &Expr| matches!(&expr.kind, ExprKind::Ident(name) if name == variable);
        let mut found = false;
        visit(&self.checked.expr, &mut |expr| {
            found |= match &expr.kind {
                ExprKind::Select(select) => select.field == field && is_variable(&select.operand),
                ExprKind::Call(call) if call.function == "_?._" => match &*call.arguments {
                    [operand, literal] => {
                        is_variable(operand)
                            && matches!(&literal.kind, ExprKind::Literal(name) if name.as_str() == Some(field))
                    }
                    _ => false,
                },
                _ => false,
            };
        });
        found
    }

    /// Reports whether the expression refers to a variable.
    pub fn uses_variable(&self, name: &str) -> bool {
        self.checked.uses_variable(name)
    }
}
