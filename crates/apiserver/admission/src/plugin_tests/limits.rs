use super::*;
use crate::limit_ranger::LimitRanger;

fn ranger(limits: Value) -> LimitRanger {
    let range = json!({"metadata": {"name": "r", "namespace": "n"}, "spec": {"limits": limits}});
    LimitRanger(context(&[("limitranges", range)]))
}

fn container(requests: Value, limits: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
}

fn check_container(limit: Value, requests: Value, limits: Value) -> Result<(), String> {
    let pod = json!({"spec": {"containers": [container(requests, limits)]}});
    validate(&ranger(json!([limit])), &create("pods", pod))
}

#[test]
fn defaults_fill_containers_and_init_containers_and_are_noted() {
    let limits = json!([{"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}, "defaultRequest": {"cpu": "500m"}}]);
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "a"}, container(json!({"cpu": "2"}), json!({"cpu": "2", "memory": "2Gi"}))],
        "initContainers": [{"name": "i", "resources": {"limits": {"memory": "5Mi"}}}]}});
    let admitted = admit(&ranger(limits), &create("pods", pod)).unwrap();
    assert_eq!(
        admitted["spec"]["containers"][0]["resources"],
        json!({"requests": {"cpu": "500m"}, "limits": {"cpu": "1", "memory": "1Gi"}})
    );
    assert_eq!(
        admitted["spec"]["containers"][1]["resources"]["limits"],
        json!({"cpu": "2", "memory": "2Gi"})
    );
    assert_eq!(
        admitted["metadata"]["annotations"]["kubernetes.io/limit-ranger"],
        "LimitRanger plugin set: cpu request for container a; cpu, memory limit for container a; \
         cpu request for init container i; cpu limit for init container i"
    );
}

#[test]
fn minimum_applies_to_requests_and_limits() {
    let limit = json!({"type": "Container", "min": {"memory": "100Mi"}});
    let start = "minimum memory usage per Container is 100Mi";
    for (requests, limits, why) in [
        (json!({"memory": "100Mi"}), json!({}), None),
        (json!({}), json!({}), Some(".  No request is specified")),
        (
            json!({"memory": "99Mi"}),
            json!({}),
            Some(", but request is 99Mi"),
        ),
        (
            json!({"memory": "100Mi"}),
            json!({"memory": "50Mi"}),
            Some(", but limit is 50Mi"),
        ),
    ] {
        let expect = why.map_or(Ok(()), |why| forbidden("pods", &format!("{start}{why}")));
        assert_eq!(
            check_container(limit.clone(), requests.clone(), limits),
            expect,
            "{requests}"
        );
    }
}

#[test]
fn maximum_needs_a_limit() {
    let limit = json!({"type": "Container", "max": {"cpu": "2"}});
    let start = "maximum cpu usage per Container is 2";
    for (requests, limits, why) in [
        (json!({}), json!({"cpu": "2"}), None),
        (
            json!({"cpu": "1"}),
            json!({}),
            Some(".  No limit is specified"),
        ),
        (
            json!({}),
            json!({"cpu": "2100m"}),
            Some(", but limit is 2100m"),
        ),
        (
            json!({"cpu": "3"}),
            json!({"cpu": "1"}),
            Some(", but request is 3"),
        ),
    ] {
        let expect = why.map_or(Ok(()), |why| forbidden("pods", &format!("{start}{why}")));
        assert_eq!(
            check_container(limit.clone(), requests, limits.clone()),
            expect,
            "{limits}"
        );
    }
}

#[test]
fn ratio_needs_request_and_limit_above_zero() {
    let limit = json!({"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}});
    let start = "cpu max limit to request ratio per Container is 2";
    for (requests, limits, why) in [
        (json!({"cpu": "1"}), json!({"cpu": "2"}), None),
        (
            json!({"cpu": "1"}),
            json!({"cpu": "2500m"}),
            Some(", but provided ratio is 2.500000"),
        ),
        (
            json!({"cpu": "0"}),
            json!({"cpu": "1"}),
            Some(", but no request is specified or request is 0"),
        ),
        (
            json!({"cpu": "1"}),
            json!({}),
            Some(", but no limit is specified or limit is 0"),
        ),
    ] {
        let expect = why.map_or(Ok(()), |why| forbidden("pods", &format!("{start}{why}")));
        assert_eq!(
            check_container(limit.clone(), requests, limits.clone()),
            expect,
            "{limits}"
        );
    }
}

#[test]
fn bounds_of_a_pod_apply_to_the_sum_of_its_containers() {
    let ranger = ranger(json!([{"type": "Pod", "max": {"cpu": "1500m"}}]));
    let pod = |limits: [&str; 2]| {
        let containers = limits.map(|limit| container(json!({}), json!({"cpu": limit})));
        create("pods", json!({"spec": {"containers": containers}}))
    };
    assert_eq!(validate(&ranger, &pod(["1", "500m"])), Ok(()));
    assert_eq!(
        validate(&ranger, &pod(["1", "600m"])),
        forbidden(
            "pods",
            "maximum cpu usage per Pod is 1500m, but limit is 1600m"
        )
    );
}

#[test]
fn several_violations_are_listed_in_brackets() {
    let limit = json!({"type": "Container", "min": {"cpu": "1"}, "max": {"memory": "1Gi"}});
    assert_eq!(
        check_container(limit, json!({}), json!({"memory": "2Gi"})),
        forbidden(
            "pods",
            "[minimum cpu usage per Container is 1.  No request is specified, maximum memory usage per Container is 1Gi, but limit is 2Gi]"
        )
    );
}

#[test]
fn storage_of_a_claim_is_bounded() {
    let ranger = ranger(
        json!([{"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}}]),
    );
    let claim = |size: &str| {
        create(
            "persistentvolumeclaims",
            json!({"spec": {"resources": {"requests": {"storage": size}}}}),
        )
    };
    assert_eq!(validate(&ranger, &claim("10Gi")), Ok(()));
    assert_eq!(
        validate(&ranger, &claim("500Mi")),
        forbidden(
            "persistentvolumeclaims",
            "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi"
        )
    );
    assert_eq!(
        validate(&ranger, &claim("11Gi")),
        forbidden(
            "persistentvolumeclaims",
            "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi"
        )
    );
}

#[test]
fn update_of_a_pod_is_checked_for_a_resize_only() {
    let ranger = ranger(json!([{"type": "Container", "max": {"cpu": "1"}}]));
    let pod = json!({"spec": {"containers": [container(json!({}), json!({"cpu": "2"}))]}});
    assert_eq!(
        validate(&ranger, &update("pods", json!({}), pod.clone())),
        Ok(())
    );
    assert!(validate(&ranger, &update("pods/resize", json!({}), pod)).is_err());
}

#[test]
fn resize_of_the_resources_of_a_pod_is_checked() {
    let ranger = ranger(json!([{"type": "Pod", "max": {"cpu": "2"}}]));
    let pod = |cpu: &str| {
        json!({"spec": {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": cpu}},
            "containers": [container(json!({}), json!({}))]}})
    };
    for (cpu, expect) in [
        ("2", Ok(())),
        (
            "2500m",
            forbidden("pods", "maximum cpu usage per Pod is 2, but limit is 2500m"),
        ),
    ] {
        let write = update("pods/resize", pod("1"), pod(cpu));
        assert_eq!(validate(&ranger, &write), expect, "{cpu}");
    }
}

#[test]
fn update_of_a_claim_that_is_being_deleted_is_not_checked() {
    let ranger = ranger(json!([{"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]));
    let mut claim =
        json!({"metadata": {"name": "x"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    assert!(
        validate(
            &ranger,
            &update("persistentvolumeclaims", claim.clone(), claim.clone())
        )
        .is_err()
    );
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let write = update("persistentvolumeclaims", claim.clone(), claim);
    assert_eq!(validate(&ranger, &write), Ok(()));
}
