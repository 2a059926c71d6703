#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::autoscale::tests::{default_config, scaler};
use serde_json::{Value, json};

/// Returns a pod with a request of one CPU that started `age` seconds before the time of tests and
/// changed its readiness `changed` seconds before it.
fn pod(index: usize, state: &str, age: i64, changed: i64) -> Arc<Pod> {
    let before = |seconds: i64| {
        Timestamp::from_second(10_000 - seconds)
            .unwrap()
            .to_string()
    };
    let phase = match state {
        "Ready" | "NotReady" | "Deleting" => "Running",
        phase => phase,
    };
    let ready = if state == "NotReady" { "False" } else { "True" };
    let deleted = (state == "Deleting").then(|| before(1));
    Arc::new(
        serde_json::from_value(json!({
            "metadata": {"name": index.to_string(), "deletionTimestamp": deleted},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": phase, "startTime": before(age), "conditions": [
                {"type": "Ready", "status": ready, "lastTransitionTime": before(changed)}]}}))
        .unwrap(),
    )
}

/// Returns pods that have been in their state for long, and the samples of those with a usage in
/// percent.
fn cluster(pods: &[(&str, Option<i64>)]) -> (Vec<Arc<Pod>>, Samples) {
    let sample = |(index, (_, percent)): (usize, &(&str, Option<i64>))| {
        Some((index.to_string(), sample((*percent)? * 10)))
    };
    let samples = pods.iter().enumerate().filter_map(sample).collect();
    let pod = |(index, (state, _)): (usize, &(&str, Option<i64>))| {
        let changed = if *state == "NotReady" { 1000 } else { 900 };
        pod(index, state, 1000, changed)
    };
    (pods.iter().enumerate().map(pod).collect(), samples)
}

fn sample(value: i64) -> Sample {
    Sample {
        value,
        at: Timestamp::from_second(9990).unwrap(),
        window: SignedDuration::from_secs(30),
    }
}

fn context<'a>(pods: &'a [Arc<Pod>], current: i32, config: &'a Config) -> Context<'a> {
    Context {
        pods,
        current,
        observed: current,
        tolerances: Tolerances::of_autoscaler(&scaler(json!([]), json!(null)), 0.1),
        config,
        now: Timestamp::from_second(10_000).unwrap(),
    }
}

#[test]
fn pods_without_a_sample_damp_the_change() {
    let ready = |percent: i64| ("Ready", Some(percent));
    let missing = ("Ready", None);
    for (case, pods, target, expected) in [
        (
            "grows",
            vec![ready(30), ready(50), ready(70)],
            30,
            Some((5, 50)),
        ),
        (
            "shrinks",
            vec![ready(10), ready(20), ready(30)],
            50,
            Some((2, 20)),
        ),
        (
            "within tolerance",
            vec![ready(33), ready(33)],
            30,
            Some((2, 33)),
        ),
        (
            "unready damps growth",
            vec![("NotReady", Some(40)), ready(50), ready(70)],
            30,
            Some((4, 60)),
        ),
        (
            "pending damps growth",
            vec![("Pending", None), ready(50), ready(70)],
            30,
            Some((4, 60)),
        ),
        (
            "unready does not damp shrinking",
            vec![("NotReady", Some(40)), ready(10)],
            50,
            Some((1, 10)),
        ),
        (
            "missing damps growth",
            vec![missing, ready(90), ready(90)],
            50,
            Some((4, 90)),
        ),
        (
            "missing damps shrinking",
            vec![missing, ready(10), ready(10), ready(10)],
            50,
            Some((3, 10)),
        ),
        (
            "missing reverses nothing",
            vec![missing, missing, ready(10)],
            40,
            Some((3, 10)),
        ),
        (
            "high target",
            vec![missing, ready(30), ready(30), ready(30)],
            120,
            Some((2, 30)),
        ),
        (
            "failed is ignored",
            vec![("Failed", Some(90)), ready(60)],
            30,
            Some((2, 60)),
        ),
        (
            "deleting is ignored",
            vec![("Deleting", Some(90)), ready(60)],
            30,
            Some((2, 60)),
        ),
        ("only unready", vec![("NotReady", Some(40))], 30, None),
        ("no pods", vec![], 30, None),
    ] {
        let (pods, samples) = cluster(&pods);
        let config = default_config();
        let context = context(&pods, i32::try_from(pods.len()).unwrap(), &config);
        let size = context.size_by_pods(samples, Goal::Utilization(target, None), "cpu");
        let found = size.ok().map(|s| (s.replicas, s.utilization.unwrap()));
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn missing_pods_have_the_average_of_a_value() {
    let ready = |value: i64| ("Ready", Some(value));
    for (case, pods, expected) in [
        ("grows", vec![ready(10), ready(30)], (4, 200)),
        ("shrinks by all", vec![ready(4), ready(4)], (1, 40)),
        (
            "missing has the target",
            vec![("Ready", None), ready(2), ready(2)],
            (2, 20),
        ),
        (
            "missing has nothing",
            vec![("Ready", None), ready(30), ready(30)],
            (6, 300),
        ),
        (
            "pods that are not ready count",
            vec![("NotReady", Some(30)), ready(30)],
            (6, 300),
        ),
    ] {
        let (pods, samples) = cluster(&pods);
        let config = default_config();
        let context = context(&pods, i32::try_from(pods.len()).unwrap(), &config);
        let size = context
            .size_by_pods(samples, Goal::Average(100), "")
            .unwrap();
        assert_eq!((size.replicas, size.usage), expected, "{case}");
    }
}

#[test]
fn readiness_of_starting_pods_counts_for_cpu_only() {
    for (case, state, age, changed, resource, unready) in [
        ("old and ready", "Ready", 1000, 900, "cpu", false),
        ("was never ready", "NotReady", 1000, 980, "cpu", true),
        ("was ready before", "NotReady", 1000, 500, "cpu", false),
        ("starting", "NotReady", 100, 90, "cpu", true),
        (
            "starting, ready for a window",
            "Ready",
            100,
            50,
            "cpu",
            false,
        ),
        (
            "starting, ready within the window",
            "Ready",
            100,
            30,
            "cpu",
            true,
        ),
        ("memory", "NotReady", 100, 90, "memory", false),
    ] {
        let pods = [pod(0, state, age, changed)];
        let config = default_config();
        let samples = Samples::from([("0".to_owned(), sample(1))]);
        let groups = context(&pods, 1, &config).group_pods(&samples, resource);
        assert_eq!(groups.unready.len(), usize::from(unready), "{case}");
    }
}

#[test]
fn totals_are_compared_with_ready_pods_or_shared() {
    let config = default_config();
    let (pods, _) = cluster(&[("Ready", None), ("Ready", None), ("NotReady", None)]);
    for (current, usage, target, total, share) in [
        (3, 200, 100, 4, (2, 67)),
        (3, 105, 100, 3, (2, 35)),
        (3, 310, 100, 7, (3, 104)),
        (0, 250, 100, 3, (3, i64::MAX)),
        (3, i64::MAX, 1, i32::MAX, (i32::MAX, i64::MAX / 3 + 1)),
    ] {
        let context = context(&pods, current, &config);
        let found = context.size_by_total(usage, target).unwrap();
        assert_eq!(
            (found.replicas, found.usage),
            (total, usage),
            "{current} {usage}"
        );
        let found = context.size_by_share(usage, target);
        assert_eq!(found.replicas, share.0, "{current} {usage}");
        assert!(found.usage.abs_diff(share.1) <= 1024, "{found:?}");
    }
    assert!(context(&[], 1, &config).size_by_total(9, 1).is_err());
}

#[test]
fn tolerance_is_that_of_the_direction() {
    for (behavior, ratio, contained) in [
        (json!(null), 1.1, true),
        (json!(null), 1.11, false),
        (json!(null), 0.9, true),
        (json!({"scaleUp": {"tolerance": "0"}}), 1.01, false),
        (json!({"scaleUp": {"tolerance": "200m"}}), 1.19, true),
        (json!({"scaleUp": {"tolerance": "0.5"}}), 0.8, false),
        (json!({"scaleDown": {"tolerance": "0.5"}}), 0.6, true),
    ] {
        let case = format!("{behavior} {ratio}");
        let tolerances = Tolerances::of_autoscaler(&scaler(json!([]), behavior), 0.1);
        assert_eq!(tolerances.contains(ratio), contained, "{case}");
    }
}

#[test]
fn request_is_that_of_the_pod_or_of_each_container() {
    let with = |cpu: &str| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let sidecar = json!({"name": "s", "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "1"}}});
    let none = json!({"name": "n"});
    let level = |name: &str| json!({"requests": {name: "3"}});
    let both = json!({"containers": [with("1")], "initContainers": [none, sidecar]});
    let rows: [(Value, Option<&str>, Option<i64>); 8] = [
        (
            json!({"containers": [with("1"), with("500m")]}),
            None,
            Some(1500),
        ),
        (both.clone(), None, Some(2000)),
        (both.clone(), Some("s"), Some(1000)),
        (both, Some("n"), None),
        (json!({"containers": [with("1"), none]}), None, None),
        (
            json!({"containers": [with("1"), none]}),
            Some("c"),
            Some(1000),
        ),
        (
            json!({"containers": [none], "resources": level("cpu")}),
            None,
            Some(3000),
        ),
        (
            json!({"containers": [none], "resources": level("memory")}),
            None,
            None,
        ),
    ];
    for (spec, container, expected) in rows {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(
            requested_amount(&pod, container, "cpu").ok(),
            expected,
            "{spec}"
        );
    }
}
