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

/// Cost limit of all policies for one request. Upstream has a limit for each parameter only, and
/// users of a namespace may be able to create parameters.
// Five times `RuntimeCELCostBudget`, which upstream takes for about one second.
const REQUEST_BUDGET: u64 = 50_000_000;

/// The budgets of one request.
pub struct Allowance {
    /// Cost that is left for the current expressions.
    cost: u64,
    /// Cost that is left for all.
    total: u64,
    work: Budget,
}

impl Allowance {
    /// Creates the allowance of a request.
    pub fn new() -> Self {
        Allowance {
            cost: 0,
            total: REQUEST_BUDGET,
            // Cost limits apply to each evaluation, so that the shared budget has none. It bounds
            // the work.
            work: Budget::new(u64::MAX),
        }
    }

    /// Begins with expressions that cost at most `cost` together.
    pub fn begin(&mut self, cost: u64) {
        self.cost = cost.min(self.total);
    }

    /// Charges work on behalf of an evaluation, such as copies of the object.
    ///
    /// # Errors
    /// The budget of the request does not suffice.
    pub fn charge_total(&mut self, cost: u64) -> Result<(), &'static str> {
        self.total = self.total.checked_sub(cost).ok_or(OUT_OF_BUDGET)?;
        Ok(())
    }

    /// Returns the cost that is left, for a repetition of the evaluation that follows.
    pub fn remaining_cost(&self) -> (u64, u64) {
        (self.cost, self.total)
    }

    /// Restores the cost that was left. The work of the first evaluation stays charged.
    pub fn restore_cost(&mut self, (cost, total): (u64, u64)) {
        (self.cost, self.total) = (cost, total);
    }

    fn charge(&mut self, cost: u64) -> Result<(), &'static str> {
        // Before the check of the current limit: cost that has arisen counts even if it exceeds the
        // limit.
        self.total = self.total.saturating_sub(cost);
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
                    // The metrics recognize the error by this prefix, as upstream's `ErrorType`
                    // does.
                    value: Err(format!("compilation error: {error}")),
                    elapsed: Duration::ZERO,
                });
            }
        };
        let begun = Instant::now();
        // Upstream's `PerCallLimit`, about 0.1 seconds for each expression.
        let mut budget = allowance.work.split_evaluation(PER_CALL_LIMIT);
        let result = program.evaluate(activation, &mut budget);
        allowance.work.absorb_work(&budget);
        // Also after an error: a failed evaluation has taken its time.
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn all_work_for_a_request_has_one_bound() {
        let mut allowance = Allowance::new();
        allowance.charge_total(REQUEST_BUDGET - 10).unwrap();
        allowance.begin(1_000_000);
        assert!(allowance.charge(7).is_ok());
        assert_eq!(allowance.charge(7), Err(OUT_OF_BUDGET));
        allowance.begin(1_000_000);
        assert_eq!(allowance.charge(1), Err(OUT_OF_BUDGET));
        assert_eq!(allowance.charge_total(1), Err(OUT_OF_BUDGET));
    }
}
