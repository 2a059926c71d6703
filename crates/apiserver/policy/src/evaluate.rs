//! The evaluation of a list of expressions within one budget.

use crate::activation::Activation;
use api_cel::cost::PER_CALL_LIMIT;
use api_cel::hosts::policy::{ExpressionError, PolicyCompiler, Purpose};
use api_cel::{Budget, Program, Value as CelValue};
use std::time::{Duration, Instant};

/// The error of a policy whose expressions together cost too much.
pub const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// A compiled expression with its text.
pub struct Expression {
    source: String,
    program: Result<Program, ExpressionError>,
}

/// The result of one expression.
pub struct Evaluated<'v> {
    /// The value, or the text of the error.
    pub value: Result<CelValue<'v>, String>,
    /// The time that it took.
    pub elapsed: Duration,
}

/// The budgets of one policy and binding.
pub struct Allowance {
    /// Cost that is left.
    pub cost: u64,
    work: Budget,
}

impl Allowance {
    /// Creates an allowance for expressions that cost at most `cost` together.
    pub fn new(cost: u64) -> Self {
        Allowance {
            cost,
            work: Budget::new(u64::MAX),
        }
    }

    /// Sets the cost for the next expressions. The work is one bound for all.
    pub fn with_cost(mut self, cost: u64) -> Self {
        self.cost = cost;
        self
    }

    fn charge(&mut self, cost: u64) -> Result<(), &'static str> {
        self.cost = self.cost.checked_sub(cost).ok_or(OUT_OF_BUDGET)?;
        Ok(())
    }
}

impl Expression {
    /// Compiles an expression.
    pub fn compile(compiler: &PolicyCompiler, purpose: Purpose, source: &str, minor: u16) -> Self {
        Expression {
            source: source.to_owned(),
            program: compiler.compile(purpose, source, minor),
        }
    }

    /// Returns the text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns why the expression does not compile.
    pub fn compile_error(&self) -> Option<&ExpressionError> {
        self.program.as_ref().err()
    }

    /// Evaluates the expression.
    ///
    /// # Errors
    /// The budget does not suffice: no further expression may be evaluated.
    pub fn evaluate<'v>(
        &self,
        activation: &Activation<'_, 'v>,
        allowance: &mut Allowance,
    ) -> Result<Evaluated<'v>, &'static str> {
        let program = match &self.program {
            Ok(program) => program,
            Err(error) => {
                return Ok(Evaluated {
                    value: Err(format!("compilation error: {error}")),
                    elapsed: Duration::ZERO,
                });
            }
        };
        let begun = Instant::now();
        let mut budget = allowance.work.split_evaluation(PER_CALL_LIMIT);
        let result = program.evaluate(activation, &mut budget);
        allowance.work.absorb_work(&budget);
        allowance.charge(activation.take_composed_cost())?;
        allowance.charge(budget.used())?;
        let value = result
            .map_err(|error| format!("expression '{}' resulted in error: {error}", self.source));
        Ok(Evaluated {
            value,
            elapsed: begun.elapsed(),
        })
    }
}
