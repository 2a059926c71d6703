#![allow(clippy::unwrap_used)]
use super::*;
use serde_json::{Value, json};

fn cases() -> Vec<Value> {
    serde_json::from_str(crate::cases::POD_RESOURCES).unwrap()
}

fn options(case: &Value) -> Options {
    let is_set = |name: &str| case.pointer(&format!("/options/{name}")) == Some(&json!(true));
    const MISSING: &[(&str, Quantity)] = &[("cpu", Quantity::ZERO)];
    Options {
        use_status: is_set("use_status"),
        use_pod_status: is_set("use_pod_status"),
        exclude_overhead: is_set("exclude_overhead"),
        skip_pod_level: is_set("skip_pod_level"),
        missing_requests: if is_set("missing_requests") {
            MISSING
        } else {
            &[]
        },
    }
}

fn shown(list: &ResourceList<'_>) -> Value {
    list.iter()
        .map(|(name, amount)| (name.to_owned(), json!(amount.to_string())))
        .collect()
}

#[test]
fn requests_and_limits_follow_the_table() {
    for case in cases() {
        let typed: Pod = serde_json::from_value(case["pod"].clone()).unwrap();
        for pod in [typed, crate::tree::pod(&case["pod"])] {
            let options = options(&case);
            let got = [pod_requests(&pod, &options), pod_limits(&pod, &options)];
            let expected = ["requests", "limits"].map(|part| case[part].clone());
            assert_eq!(got.map(|list| shown(&list)), expected, "{}", case["name"]);
        }
    }
}

#[test]
fn a_limit_counts_if_every_container_has_it() {
    let limit = json!({"limits": {"cpu": "1"}});
    let with = |name: &str| json!({"name": name, "resources": limit});
    let sidecar = json!({"name": "s", "restartPolicy": "Always", "resources": limit});
    let none = json!({"name": "n"});
    for (spec, expected) in [
        (json!({"containers": [with("a"), with("b")]}), true),
        (json!({"containers": [with("a"), none]}), false),
        (
            json!({"containers": [with("a")], "initContainers": [none]}),
            false,
        ),
        (
            json!({"containers": [with("a")], "initContainers": [sidecar, none]}),
            true,
        ),
        (
            json!({"containers": [with("a")], "initContainers": [none, sidecar]}),
            false,
        ),
        (json!({"containers": [none], "resources": limit}), true),
        (
            json!({"containers": [none], "resources": {"limits": {"cpu": "0"}}}),
            false,
        ),
    ] {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
        assert_eq!(is_limited(&pod, "cpu"), expected, "{spec}");
    }
}
