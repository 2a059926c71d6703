//! Recent recommendations and changes of size of an autoscaler, and the limits that follow from
//! them.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscalerBehavior,
};

/// Maximum number of entries of each list. Each write of an autoscaler's spec adds one.
const MAX_ENTRIES: usize = 4096;

/// A recommendation or a change of size, with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    count: i32,
    at: Timestamp,
}

/// Recommendations and changes of size, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    recommendations: Vec<Entry>,
    added: Vec<Entry>,
    removed: Vec<Entry>,
}

/// The bounds of a target and its size.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Minimum number of replicas.
    pub low: i32,
    /// Maximum number of replicas.
    pub high: i32,
    /// Number of replicas.
    pub current: i32,
}

/// A size, and the reason and message of the condition about it.
pub type Limited = (i32, &'static str, &'static str);

const WITHIN: (&str, &str) = (
    "DesiredWithinRange",
    "the desired count is within the acceptable range",
);
const TOO_MANY: (&str, &str) = (
    "TooManyReplicas",
    "the desired replica count is more than the maximum replica count",
);
const TOO_FEW: (&str, &str) = (
    "TooFewReplicas",
    "the desired replica count is less than the minimum replica count",
);
const TOO_FAST_UP: (&str, &str) = (
    "ScaleUpLimit",
    "the desired replica count is increasing faster than the maximum scale rate",
);
const TOO_FAST_DOWN: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);

/// Rules of one direction, with upstream's defaults.
#[derive(Clone, Debug)]
pub struct Rules {
    window: i64,
    select: String,
    policies: Vec<HPAScalingPolicy>,
}

impl Rules {
    fn new(rules: Option<&HPAScalingRules>, window: i64, policies: &[(&str, i32)]) -> Self {
        let policy = |(type_, value): &(&str, i32)| HPAScalingPolicy {
            type_: (*type_).to_owned(),
            value: *value,
            period_seconds: 15,
        };
        let own = rules.and_then(|r| r.policies.clone());
        let seconds = rules.and_then(|r| r.stabilization_window_seconds);
        Self {
            window: seconds.map_or(window, i64::from),
            select: rules
                .and_then(|r| r.select_policy.clone())
                .unwrap_or_else(|| "Max".to_owned()),
            policies: own.unwrap_or_else(|| policies.iter().map(policy).collect()),
        }
    }

    /// Returns the rules for growing and for shrinking; the latter has the window `stabilization`
    /// in seconds unless the behavior has another one.
    pub fn of_behavior(
        behavior: &HorizontalPodAutoscalerBehavior,
        stabilization: i64,
    ) -> (Self, Self) {
        let up = [("Pods", 4), ("Percent", 100)];
        let down = [("Percent", 100)];
        (
            Self::new(behavior.scale_up.as_ref(), 0, &up),
            Self::new(behavior.scale_down.as_ref(), stabilization, &down),
        )
    }

    fn longest_period(&self) -> i64 {
        let periods = self.policies.iter().map(|p| i64::from(p.period_seconds));
        periods.max().unwrap_or_default()
    }

    /// Returns the size that the selected policy allows; `propose` maps a policy and the size at
    /// the start of its period.
    fn select_limit(
        &self,
        current: i32,
        up: bool,
        propose: impl Fn(&HPAScalingPolicy) -> i32,
    ) -> i32 {
        let proposed = self.policies.iter().map(propose);
        let limit = match (self.select.as_str(), up) {
            ("Disabled", _) => None,
            // The largest change is the smallest size if the target shrinks.
            ("Min", true) | ("Max", false) => proposed.min(),
            _ => proposed.max(),
        };
        limit.unwrap_or(current)
    }
}

impl History {
    /// Records the size at the first reconcile, so that a restart does not shrink the target.
    pub fn record_first(&mut self, current: i32, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push(Entry {
                count: current,
                at: now,
            });
        }
    }

    /// Returns the highest recommendation of the last `window` seconds, and records `desired`.
    pub fn stabilize(&mut self, desired: i32, window: i64, now: Timestamp) -> Limited {
        let cutoff = seconds_before(now, window);
        self.recommendations.retain(|r| r.at >= cutoff);
        let highest = self.recommendations.iter().map(|r| r.count).max();
        push_entry(&mut self.recommendations, desired, now);
        let stable = highest.map_or(desired, |highest| highest.max(desired));
        (stable, DOWN_STABILIZED.0, DOWN_STABILIZED.1)
    }

    /// Returns the size within the recommendations of the windows of both directions, and records
    /// `desired`.
    pub fn stabilize_by_rules(
        &mut self,
        desired: i32,
        current: i32,
        (up, down): (&Rules, &Rules),
        now: Timestamp,
    ) -> Limited {
        let since = |rules: &Rules| seconds_before(now, rules.window);
        let (since_up, since_down) = (since(up), since(down));
        let after = |cutoff: Timestamp| {
            let recent = self.recommendations.iter().filter(move |r| r.at > cutoff);
            recent.map(|r| r.count).chain([desired])
        };
        let lowest = after(since_up).min().unwrap_or(desired);
        let highest = after(since_down).max().unwrap_or(desired);
        let stable = current.max(lowest).min(highest);
        let oldest = since_up.min(since_down);
        self.recommendations.retain(|r| r.at >= oldest);
        push_entry(&mut self.recommendations, desired, now);
        let (reason, message) = match desired >= current {
            true => UP_STABILIZED,
            false => DOWN_STABILIZED,
        };
        (stable, reason, message)
    }

    /// Returns the size within the bounds and the rates of the rules.
    pub fn limit_by_rules(
        &self,
        desired: i32,
        bounds: Bounds,
        (up, down): (&Rules, &Rules),
        now: Timestamp,
    ) -> Limited {
        let Bounds { low, high, current } = bounds;
        if desired > current {
            let limit = self.growth_limit(current, up, now).max(current);
            let (most, why) = match high > limit {
                true => (limit, TOO_FAST_UP),
                false => (high, TOO_MANY),
            };
            if desired > most {
                return (most, why.0, why.1);
            }
        } else if desired < current {
            let limit = self.shrink_limit(current, down, now).min(current);
            let (least, why) = match low < limit {
                true => (limit, TOO_FAST_DOWN),
                false => (low, TOO_FEW),
            };
            if desired < least {
                return (least, why.0, why.1);
            }
        }
        (desired, WITHIN.0, WITHIN.1)
    }

    fn growth_limit(&self, current: i32, rules: &Rules, now: Timestamp) -> i32 {
        rules.select_limit(current, true, |policy| {
            let start = self.size_at_start(current, policy, now);
            match policy.type_.as_str() {
                "Pods" => start.saturating_add(policy.value),
                // Rounded up, because otherwise a small target would never grow.
                _ => (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as i32,
            }
        })
    }

    fn shrink_limit(&self, current: i32, rules: &Rules, now: Timestamp) -> i32 {
        rules.select_limit(current, false, |policy| {
            let start = self.size_at_start(current, policy, now);
            match policy.type_.as_str() {
                "Pods" => start.saturating_sub(policy.value),
                _ => (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)) as i32,
            }
        })
    }

    fn size_at_start(&self, current: i32, policy: &HPAScalingPolicy, now: Timestamp) -> i32 {
        let cutoff = seconds_before(now, i64::from(policy.period_seconds));
        let sum = |entries: &[Entry]| -> i64 {
            let recent = entries.iter().filter(|e| e.at > cutoff);
            recent.map(|e| i64::from(e.count)).sum()
        };
        let start = i64::from(current) - sum(&self.added) + sum(&self.removed);
        i32::try_from(start).unwrap_or(i32::MAX)
    }

    /// Records a change of size for the rates of the rules.
    pub fn record_change(
        &mut self,
        [old, new]: [i32; 2],
        (up, down): (&Rules, &Rules),
        now: Timestamp,
    ) {
        let (entries, rules) = match new > old {
            true => (&mut self.added, up),
            false => (&mut self.removed, down),
        };
        let cutoff = seconds_before(now, rules.longest_period());
        entries.retain(|e| e.at >= cutoff);
        push_entry(entries, new.saturating_sub(old).saturating_abs(), now);
    }
}

fn push_entry(entries: &mut Vec<Entry>, count: i32, at: Timestamp) {
    if entries.len() >= MAX_ENTRIES {
        entries.remove(0);
    }
    entries.push(Entry { count, at });
}

/// Returns the size within the bounds; a step at most doubles it, but may always reach 4.
pub fn limit_without_rules(desired: i32, bounds: Bounds) -> Limited {
    let Bounds { low, high, current } = bounds;
    let limit = current.saturating_mul(2).max(4);
    let (most, why) = match high > limit {
        true => (limit, TOO_FAST_UP),
        false => (high, TOO_MANY),
    };
    let (size, (reason, message)) = if desired < low {
        (low, TOO_FEW)
    } else if desired > most {
        (most, why)
    } else {
        (desired, WITHIN)
    };
    (size, reason, message)
}

/// Returns the time `seconds` before `at`, with its fraction: a change at the very start of a
/// window is not within it.
fn seconds_before(at: Timestamp, seconds: i64) -> Timestamp {
    let before = at.checked_sub(SignedDuration::from_secs(seconds));
    before.unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests;
