//! Bounds of a search.

use std::cell::Cell;

/// Steps between two readings of the clock.
const CLOCK_INTERVAL: u64 = 64;
/// Largest number of candidates that the search for one node tries. Realistic claims need some
/// hundred; a claim without a solution can ask for every combination of the devices.
const MAX_STEPS: u64 = 500_000;

/// The bound was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expired;

/// Bounds of the search for one node: a number of steps, and a clock that the caller reads.
pub struct Limits<'a> {
    steps: Cell<u64>,
    is_expired: &'a dyn Fn() -> bool,
}

impl<'a> Limits<'a> {
    /// Creates the bounds. `is_expired` returns whether the time for the search is over.
    pub fn new(is_expired: &'a dyn Fn() -> bool) -> Self {
        Self {
            steps: Cell::new(0),
            is_expired,
        }
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Counts a cheap step.
    ///
    /// # Errors
    /// The bound was reached.
    pub fn count_step(&self) -> Result<(), Expired> {
        let steps = self.steps.get() + 1;
        self.steps.set(steps);
        if steps > MAX_STEPS {
            return Err(Expired);
        }
        if steps.is_multiple_of(CLOCK_INTERVAL) {
            self.check_clock()?;
        }
        Ok(())
    }

    /// Reads the clock before an expensive step.
    ///
    /// # Errors
    /// The time is over.
    pub fn check_clock(&self) -> Result<(), Expired> {
        if (self.is_expired)() {
            return Err(Expired);
        }
        Ok(())
    }
}
