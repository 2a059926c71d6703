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
    pub fn observe(&mut self, answer: Health) -> Option<Health> {
        self.run = if self.last == Some(answer) {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(answer);
        let needed = match answer {
            Health::Healthy => self.success,
            Health::Unhealthy => self.failure,
        };
        (self.run >= needed).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::Health::{Healthy as H, Unhealthy as U};
    use super::*;

    #[test]
    fn verdicts_need_their_number_in_a_row() {
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
        for (i, (answer, want)) in answers.into_iter().enumerate() {
            assert_eq!(counts.observe(answer), want, "answer {i}");
        }
    }
}
