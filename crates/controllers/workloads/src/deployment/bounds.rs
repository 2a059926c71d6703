//! Bounds of a rollout: surge is rounded up, unavailability down.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Returns whether the strategy is RollingUpdate, which is the default.
pub fn is_rolling(d: &Deployment) -> bool {
    let strategy = d.spec.as_ref().and_then(|s| s.strategy.as_ref());
    strategy
        .and_then(|s| s.type_.as_deref())
        .is_none_or(|t| t == "RollingUpdate")
}

/// Returns the desired number of pods.
pub fn desired_replicas(d: &Deployment) -> i32 {
    d.spec.as_ref().and_then(|s| s.replicas).unwrap_or(1)
}

/// Returns the number of pods allowed above the desired number.
pub fn max_surge(d: &Deployment) -> i32 {
    if is_rolling(d) {
        resolve_bounds(d).0
    } else {
        0
    }
}

/// Returns the number of pods that may be unavailable.
pub fn max_unavailable(d: &Deployment) -> i32 {
    if !is_rolling(d) || desired_replicas(d) == 0 {
        0
    } else {
        resolve_bounds(d).1.min(desired_replicas(d))
    }
}

fn resolve_bounds(d: &Deployment) -> (i32, i32) {
    let rolling = d
        .spec
        .as_ref()
        .and_then(|s| s.strategy.as_ref())
        .and_then(|s| s.rolling_update.as_ref());
    let quarter = IntOrString::String("25%".to_owned());
    let surge = rolling
        .and_then(|r| r.max_surge.as_ref())
        .unwrap_or(&quarter);
    let unavailable = rolling
        .and_then(|r| r.max_unavailable.as_ref())
        .unwrap_or(&quarter);
    // Upstream's ResolveFenceposts: rounding apart keeps a small Deployment available, with one
    // more pod rather than one less.
    let surge = scale_value(surge, desired_replicas(d), true);
    let unavailable = scale_value(unavailable, desired_replicas(d), false);
    // Validation rejects two zeros, but percentages may round down to them. Without room in one
    // direction a rollout would never move.
    if surge == 0 && unavailable == 0 {
        (0, 1)
    } else {
        (surge, unavailable)
    }
}

/// Resolves a number, or a percentage of `total` rounded up or down.
pub fn scale_value(value: &IntOrString, total: i32, up: bool) -> i32 {
    match value {
        IntOrString::Int(n) => *n,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * i64::from(total);
            let whole = if up {
                (product + 99) / 100
            } else {
                product / 100
            };
            i32::try_from(whole).unwrap_or(i32::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_apart() {
        let percent = IntOrString::String("25%".to_owned());
        for (total, up, down) in [
            (0, 0, 0),
            (1, 1, 0),
            (3, 1, 0),
            (4, 1, 1),
            (5, 2, 1),
            (10, 3, 2),
        ] {
            assert_eq!(
                (
                    scale_value(&percent, total, true),
                    scale_value(&percent, total, false)
                ),
                (up, down),
                "{total}"
            );
        }
        assert_eq!(scale_value(&IntOrString::Int(3), 1, true), 3);
    }
}
