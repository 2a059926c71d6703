//! Defaults of a pod's requests and limits.

use super::*;

#[test]
fn requests_of_a_pod_follow_from_its_limits() {
    let resources = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}});
    let expected = json!({"cpu": "1", "memory": "1Gi"});
    let pod = pod(json!({"containers": [{"resources": resources}]}));
    check(&pod, &[("/spec/containers/0/resources/requests", expected)]);
}

#[test]
fn requests_of_a_template_do_not_follow_from_its_limits() {
    let template = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "2"}}}]}});
    let set = default(
        "apps",
        "ReplicaSet",
        json!({"spec": {"template": template}}),
    );
    let at = "/spec/template/spec/containers/0/resources/requests";
    check(&set, &[(at, Value::Null)]);
}

#[test]
fn resource_lists_are_rounded_up_to_thousandths() {
    let fine = json!({"cpu": "0.5m", "memory": "1Gi"});
    let rounded = json!({"cpu": "1m", "memory": "1Gi"});
    let container = json!({"resources": {"requests": fine, "limits": fine}});
    let pod = pod(json!({"containers": [container], "overhead": fine}));
    let quota = default(
        "",
        "ResourceQuota",
        json!({"spec": {"hard": fine}, "status": {"used": fine}}),
    );
    let node = default("", "Node", json!({"status": {"capacity": fine}}));
    let volume = default("", "PersistentVolume", json!({"spec": {"capacity": fine}}));
    let claim = default(
        "",
        "PersistentVolumeClaim",
        json!({"spec": {"resources": {"requests": fine}}, "status": {"capacity": fine}}),
    );
    for (object, pointer) in [
        (&pod, "/spec/containers/0/resources/requests"),
        (&pod, "/spec/containers/0/resources/limits"),
        (&pod, "/spec/overhead"),
        (&quota, "/spec/hard"),
        (&quota, "/status/used"),
        (&node, "/status/capacity"),
        (&volume, "/spec/capacity"),
        (&claim, "/spec/resources/requests"),
        (&claim, "/status/capacity"),
    ] {
        check(object, &[(pointer, rounded.clone())]);
    }
}

#[test]
fn pod_level_requests_are_the_sum_of_the_containers() {
    let container = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
    let pod = pod(json!({
        "containers": [container("1"), container("500m")],
        "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
    }));
    // No container requests memory, so the request equals the limit (KEP-2837).
    let expected = json!({"cpu": "1500m", "memory": "1Gi"});
    check(&pod, &[("/spec/resources/requests", expected)]);
}

#[test]
fn pod_level_requests_that_are_set_remain() {
    let pod = pod(json!({
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}},
    }));
    check(&pod, &[("/spec/resources/requests", json!({"cpu": "2"}))]);
}

#[test]
fn pod_level_limit_of_huge_pages_is_the_sum_of_the_containers() {
    let container = json!({"resources": {"limits": {"hugepages-2Mi": "4Mi"}}});
    let pod = pod(json!({
        "containers": [container, container],
        "resources": {"limits": {"cpu": "1"}},
    }));
    check(
        &pod,
        &[
            ("/spec/resources/limits/hugepages-2Mi", json!("8Mi")),
            ("/spec/resources/requests/hugepages-2Mi", json!("8Mi")),
        ],
    );
}

#[test]
fn pod_without_pod_level_resources_gets_none() {
    let pod = pod(json!({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}));
    check(&pod, &[("/spec/resources", Value::Null)]);
}
