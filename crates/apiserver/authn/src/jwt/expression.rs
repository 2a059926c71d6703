//! Compiled expressions over claims or the user.

use super::mapping_error::MappingError;
use api_cel::cost::PER_CALL_LIMIT;
use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::identity::{create_claims, create_user};
use api_cel::program::{Environment, Program};
use api_cel::{Budget, Type, Value};
use std::sync::LazyLock;

/// Files may come from any version, so that all functions are known.
pub static CLAIMS_ENVIRONMENT: LazyLock<Environment> =
    LazyLock::new(|| create_claims(STORED_EXPRESSIONS));
/// Environment of rules about users.
pub static USER_ENVIRONMENT: LazyLock<Environment> =
    LazyLock::new(|| create_user(STORED_EXPRESSIONS));

/// A compiled expression with its source, for the log.
#[derive(Clone, Debug)]
pub struct CompiledExpression {
    source: String,
    program: Program,
}

impl CompiledExpression {
    /// Compiles an expression of any type.
    ///
    /// # Errors
    /// The expression does not compile; the text is for the operator.
    pub fn compile(environment: &Environment, source: &str) -> Result<Self, String> {
        let program = environment
            .compile(source)
            .map_err(|error| format!("compilation failed: {error}"))?;
        let source = source.to_owned();
        Ok(CompiledExpression { source, program })
    }

    /// Compiles a rule, whose type must be known to be `bool`.
    ///
    /// # Errors
    /// The expression does not compile, or has another type.
    pub fn compile_rule(environment: &Environment, source: &str) -> Result<Self, String> {
        let compiled = Self::compile(environment, source)?;
        if *compiled.program.output_type() != Type::Bool {
            return Err("must evaluate to bool".to_owned());
        }
        Ok(compiled)
    }

    /// Reports whether the expression selects this claim by its name.
    pub fn selects_claim(&self, claim: &str) -> bool {
        self.program
            .selects_field(api_cel::hosts::identity::CLAIMS, claim)
    }

    /// Evaluates the expression with one variable.
    ///
    /// # Errors
    /// The evaluation fails or costs more than upstream's limit of a call.
    pub fn evaluate<'v>(
        &self,
        variable: &str,
        value: &Value<'v>,
    ) -> Result<Value<'v>, MappingError> {
        let variables = [(variable, value.clone())];
        let mut budget = Budget::new(PER_CALL_LIMIT);
        self.program
            .evaluate(&variables, &mut budget)
            .map_err(|error| MappingError::Evaluation {
                expression: self.source.clone(),
                // The text of an error may have a part of a claim, but never the token.
                why: error.to_string(),
            })
    }

    /// Returns the error of a rule that is false.
    pub fn refuse(&self, message: &str) -> MappingError {
        MappingError::Rule {
            expression: self.source.clone(),
            message: message.to_owned(),
        }
    }
}
