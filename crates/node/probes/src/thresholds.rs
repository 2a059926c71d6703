//! Success and failure thresholds.

/// The state of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The success threshold was reached.
    Healthy,
    /// The failure threshold was reached.
    Unhealthy,
}

/// Counts consecutive equal results.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    success: u32,
    failure: u32,
    last: Option<Health>,
    run: u32,
}

impl Thresholds {
    /// Creates a counter with thresholds of consecutive equal results.
    pub fn new(success: u32, failure: u32) -> Self {
        Thresholds {
            success,
            failure,
            last: None,
            run: 0,
        }
    }

    /// Records a result; returns the state if its threshold is reached.
    pub fn observe(&mut self, health: Health) -> Option<Health> {
        // Any other result starts the count again: thresholds are about consecutive results.
        self.run = if self.last == Some(health) {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(health);
        let needed = match health {
            Health::Healthy => self.success,
            Health::Unhealthy => self.failure,
        };
        (self.run >= needed).then_some(health)
    }
}

#[cfg(test)]
mod tests {
    use super::Health::{Healthy as H, Unhealthy as U};
    use super::*;

    #[test]
    fn health_changes_after_the_threshold_of_equal_results() {
        let mut counts = Thresholds::new(2, 3);
        let answers = [
            (H, None),
            (U, None),
            (H, None),
            (H, Some(H)),
            (U, None),
            (U, None),
            (U, Some(U)),
            (U, Some(U)),
        ];
        for (i, (health, want)) in answers.into_iter().enumerate() {
            assert_eq!(counts.observe(health), want, "answer {i}");
        }
    }
}
