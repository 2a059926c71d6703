#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use serde_json::{Value, json};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn rules(behavior: Value) -> (Rules, Rules) {
    Rules::of_behavior(&serde_json::from_value(behavior).unwrap(), 300)
}

#[test]
fn target_shrinks_after_the_window_only() {
    let mut history = History::default();
    history.record_first(5, at(0));
    for (second, desired, expected) in [
        (0, 3, 5),
        (10, 8, 8),
        (300, 4, 8),
        (310, 4, 8),
        (311, 2, 4),
        (611, 1, 2),
    ] {
        assert_eq!(
            history.stabilize(desired, 300, at(second)).0,
            expected,
            "{second}"
        );
    }
}

/// A recommendation or change at the very start of a window is not within it, as upstream.
#[test]
fn windows_are_exact_to_the_fraction_of_a_second() {
    let fraction = |text: &str| text.parse::<Timestamp>().unwrap();
    let (first, next) = ("2026-01-01T00:00:10.500Z", "2026-01-01T00:00:25.520Z");
    let (up, down) = rules(json!({}));
    let mut history = History::default();
    history.record_first(3, fraction(first));
    let stable = history.stabilize_by_rules(9, 3, (&up, &down), fraction(first));
    assert_eq!(stable.0, 9);
    history.record_change([4, 8], (&up, &down), fraction(first));
    let bounds = Bounds {
        low: 1,
        high: 100,
        current: 8,
    };
    let limit = history.limit_by_rules(16, bounds, (&up, &down), fraction(next));
    assert_eq!(limit.0, 16);
}

#[test]
fn windows_of_both_directions_stabilize() {
    let both = json!({"scaleUp": {"stabilizationWindowSeconds": 60},
        "scaleDown": {"stabilizationWindowSeconds": 120}});
    for (case, behavior, recommendations, current, desired, expected) in [
        ("grows at once by default", json!({}), vec![(0, 3)], 3, 9, 9),
        ("window of the flag", json!({}), vec![(0, 7)], 7, 2, 7),
        (
            "lowest of the window",
            both.clone(),
            vec![(50, 4), (80, 6)],
            3,
            9,
            4,
        ),
        (
            "before the window",
            both.clone(),
            vec![(30, 4), (80, 6)],
            3,
            9,
            6,
        ),
        (
            "highest of the window",
            both.clone(),
            vec![(10, 8), (80, 5)],
            8,
            2,
            8,
        ),
        ("neither", both, vec![(80, 9)], 5, 2, 5),
    ] {
        let mut history = History::default();
        for (second, count) in recommendations {
            push_entry(&mut history.recommendations, count, at(second));
        }
        let (up, down) = rules(behavior);
        let (size, reason, _) = history.stabilize_by_rules(desired, current, (&up, &down), at(100));
        assert_eq!(size, expected, "{case}");
        assert_eq!(reason == "ScaleUpStabilized", desired >= current, "{case}");
    }
}

#[test]
fn policies_limit_the_rate() {
    let policy =
        |kind: &str, value: i32| json!({"type": kind, "value": value, "periodSeconds": 60});
    let (pods, percent) = (policy("Pods", 4), policy("Percent", 50));
    let all = json!([pods, percent]);
    let up = |rules: Value| json!({"scaleUp": rules});
    let down = |rules: Value| json!({"scaleDown": rules});
    let change = |old: i32, new: i32| Some([old, new]);
    for (case, behavior, changed, current, desired, expected) in [
        ("default", json!({}), None, 3, 20, (7, "ScaleUpLimit")),
        (
            "default doubles",
            json!({}),
            None,
            6,
            20,
            (12, "ScaleUpLimit"),
        ),
        (
            "default shrinks",
            json!({}),
            None,
            20,
            1,
            (2, "TooFewReplicas"),
        ),
        (
            "max",
            up(json!({"policies": all})),
            None,
            10,
            30,
            (15, "ScaleUpLimit"),
        ),
        (
            "min",
            up(json!({"policies": all, "selectPolicy": "Min"})),
            None,
            10,
            30,
            (14, "ScaleUpLimit"),
        ),
        (
            "disabled",
            up(json!({"selectPolicy": "Disabled"})),
            None,
            10,
            30,
            (10, "ScaleUpLimit"),
        ),
        (
            "bound",
            up(json!({"policies": [policy("Pods", 90)]})),
            None,
            10,
            70,
            (50, "TooManyReplicas"),
        ),
        (
            "rounded up",
            up(json!({"policies": [policy("Percent", 10)]})),
            None,
            3,
            9,
            (4, "ScaleUpLimit"),
        ),
        (
            "added before",
            up(json!({"policies": [pods]})),
            change(7, 10),
            10,
            30,
            (11, "ScaleUpLimit"),
        ),
        (
            "exhausted",
            up(json!({"policies": [pods]})),
            change(5, 10),
            10,
            30,
            (10, "ScaleUpLimit"),
        ),
        (
            "removed before",
            up(json!({"policies": [pods]})),
            change(12, 10),
            10,
            30,
            (16, "ScaleUpLimit"),
        ),
        (
            "down max",
            down(json!({"policies": all})),
            None,
            10,
            2,
            (5, "ScaleDownLimit"),
        ),
        (
            "down min",
            down(json!({"policies": all, "selectPolicy": "Min"})),
            None,
            10,
            2,
            (6, "ScaleDownLimit"),
        ),
        (
            "down off",
            down(json!({"selectPolicy": "Disabled"})),
            None,
            10,
            2,
            (10, "ScaleDownLimit"),
        ),
        (
            "within",
            json!({}),
            None,
            10,
            12,
            (12, "DesiredWithinRange"),
        ),
        ("same", json!({}), None, 10, 10, (10, "DesiredWithinRange")),
    ] {
        let (up, down) = rules(behavior);
        let mut history = History::default();
        if let Some(changed) = changed {
            history.record_change(changed, (&up, &down), at(50));
        }
        let bounds = Bounds {
            low: 2,
            high: 50,
            current,
        };
        let (size, reason, _) = history.limit_by_rules(desired, bounds, (&up, &down), at(100));
        assert_eq!((size, reason), expected, "{case}");
    }
}

#[test]
fn changes_before_the_longest_period_are_dropped() {
    let (up, down) = rules(json!({}));
    let mut history = History::default();
    for second in 0..100 {
        history.record_change([1, 3], (&up, &down), at(second));
        history.record_change([3, 1], (&up, &down), at(second));
    }
    assert_eq!((history.added.len(), history.removed.len()), (16, 16));
    for second in 0..10_000 {
        push_entry(&mut history.recommendations, 1, at(second));
    }
    assert_eq!(history.recommendations.len(), MAX_ENTRIES);
}

#[test]
fn size_doubles_at_most_without_behavior() {
    for (current, desired, expected) in [
        (1, 9, (4, "ScaleUpLimit")),
        (3, 9, (6, "ScaleUpLimit")),
        (6, 20, (10, "TooManyReplicas")),
        (6, 1, (2, "TooFewReplicas")),
        (6, 5, (5, "DesiredWithinRange")),
    ] {
        let bounds = Bounds {
            low: 2,
            high: 10,
            current,
        };
        let (size, reason, _) = limit_without_rules(desired, bounds);
        assert_eq!((size, reason), expected, "{current} to {desired}");
    }
}
