use super::*;

#[test]
fn request_for_pools_sums_the_devices() {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": "2024-01-01T00:01:30Z"});
    let pools = json!([{"totalDevices": 3, "availableDevices": 1, "allocatedDevices": 2},
        {"totalDevices": 4, "unavailableDevices": 4, "validationError": "e"}]);
    for (status, expect) in [
        (
            Value::Null,
            json!(["-", "-", "-", "-", "-", 0, "Pending", "<none>"]),
        ),
        (
            json!({"poolCount": 2, "pools": pools, "conditions": [condition("Complete", "True")]}),
            json!(["7", "1", "2", "4", "1", 2, "Complete", "10s"]),
        ),
        (
            json!({"poolCount": 9, "pools": pools, "conditions": [condition("Complete", "True")]}),
            json!(["7", "1", "2", "4", "1", 9, "Complete (2/9 pools)", "10s"]),
        ),
        (
            json!({"poolCount": 0, "conditions": [condition("Failed", "True")]}),
            json!(["-", "-", "-", "-", "-", 0, "Failed", "<none>"]),
        ),
        (
            json!({"poolCount": 0, "conditions": [condition("Complete", "False")]}),
            json!(["0", "0", "0", "0", "0", 0, "Pending", "<none>"]),
        ),
    ] {
        let object = json!({"spec": {"driver": "d.io"}, "status": status});
        let found = cells(
            "resource.k8s.io",
            "v1alpha3",
            "resourcepoolstatusrequests",
            object,
        );
        assert_eq!(found[..2], ["x", "d.io"].map(Value::from));
        assert_eq!(json!(found[2..]), expect, "{status}");
    }
}

#[test]
fn group_of_pods_shows_its_policy_and_state() {
    let condition =
        |kind: &str, status: &str| json!([{"type": kind, "status": status, "reason": "R"}]);
    let reference = json!({"workload": {"workloadName": "w"}});
    for (policy, reference, conditions, expect) in [
        (
            "basic",
            Value::Null,
            Value::Null,
            ["Basic", "<none>", "Pending"],
        ),
        (
            "gang",
            reference,
            condition("PodGroupScheduled", "True"),
            ["Gang", "w", "Scheduled"],
        ),
        (
            "gang",
            Value::Null,
            condition("PodGroupScheduled", "False"),
            ["Gang", "<none>", "Unschedulable"],
        ),
        (
            "gang",
            Value::Null,
            condition("DisruptionTarget", "True"),
            ["Gang", "<none>", "R"],
        ),
    ] {
        let spec = json!({"schedulingPolicy": {policy: {}}, "podGroupTemplateRef": reference});
        let object = json!({"spec": spec, "status": {"conditions": conditions}});
        let found = cells("scheduling.k8s.io", "v1alpha2", "podgroups", object);
        assert_eq!(found[1..4], expect.map(Value::from));
        assert_eq!(found[4], "100s");
    }
}
