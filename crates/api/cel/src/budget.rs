//! Bounds of an evaluation.

use crate::error::EvalError;

/// A bound for work that costs do not measure: iterations without a cost, and comparisons of large
/// values. 20 million units take about a second.
const MAX_WORK: u64 = 20_000_000;

/// The cost that an evaluation may have, and the cost so far.
#[derive(Debug, Clone)]
pub struct Budget {
    limit: u64,
    used: u64,
    work_left: u64,
}

impl Budget {
    /// Creates a budget with a cost limit.
    pub fn new(limit: u64) -> Budget {
        Budget {
            limit,
            used: 0,
            work_left: MAX_WORK,
        }
    }

    /// Returns the cost so far.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Returns the cost that is left.
    pub fn remaining(&self) -> u64 {
        self.limit.saturating_sub(self.used)
    }

    /// Adds a cost.
    pub fn charge(&mut self, cost: u64) -> Result<(), EvalError> {
        // The cost is recorded even above the limit, so that the caller can charge it to a budget
        // of its own.
        self.used = self.used.saturating_add(cost);
        if self.used > self.limit {
            Err(EvalError::CostLimitExceeded)
        } else {
            Ok(())
        }
    }

    /// Reverts the cost of a step that upstream does not count.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.used = self.used.saturating_sub(cost);
    }

    /// Adds work that has no cost.
    pub fn work(&mut self, units: u64) -> Result<(), EvalError> {
        // The same error as for costs: to a client it makes no difference which of the two limits
        // was reached.
        match self.work_left.checked_sub(units) {
            Some(left) => {
                self.work_left = left;
                Ok(())
            }
            None => Err(EvalError::CostLimitExceeded),
        }
    }

    /// Runs an evaluation with a cost limit of its own, and returns its result and cost. The cost
    /// is left for the caller to charge; the work counts here, so that many evaluations share one
    /// bound.
    pub fn limit_call<T>(&mut self, limit: u64, call: impl FnOnce(&mut Budget) -> T) -> (T, u64) {
        let mut inner = Budget {
            limit,
            used: 0,
            work_left: self.work_left,
        };
        let result = call(&mut inner);
        self.work_left = inner.work_left;
        (result, inner.used)
    }

    /// Returns the work that is left, for functions that count it themselves.
    pub(crate) fn work_left(&mut self) -> &mut u64 {
        &mut self.work_left
    }

    /// Creates the budget of one of several evaluations: its own cost limit, and the work that is
    /// left for all.
    #[must_use]
    pub fn split_evaluation(&self, limit: u64) -> Budget {
        Budget {
            limit,
            used: 0,
            work_left: self.work_left,
        }
    }

    /// Takes the work of a split evaluation from this budget. The cost is not added.
    pub fn absorb_work(&mut self, part: &Budget) {
        // The part started with this budget's work, so less is left after it; a stale part can't
        // add any.
        self.work_left = self.work_left.min(part.work_left);
    }
}
