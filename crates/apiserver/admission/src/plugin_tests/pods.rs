use super::*;
use crate::pod_groups::PodGroupWorkloadExists;
use crate::pods::{
    AlwaysPullImages, DefaultTolerationSeconds, DenyServiceExternalIps, TaintNodesByCondition,
};
use crate::priority::Priority;
use crate::runtime_class::RuntimeClass;
use crate::service_account::ServiceAccount;

#[test]
fn missing_tolerations_of_node_taints_last_five_minutes() {
    let added = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let (not_ready, unreachable) = (
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    );
    let own = json!({"key": not_ready, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 7});
    let other_effect = json!({"key": not_ready, "operator": "Exists", "effect": "NoSchedule"});
    let all = json!({"operator": "Exists"});
    for (given, expect) in [
        (json!([]), json!([added(not_ready), added(unreachable)])),
        (json!([own]), json!([own, added(unreachable)])),
        (
            json!([other_effect]),
            json!([other_effect, added(not_ready), added(unreachable)]),
        ),
        (json!([all]), json!([all])),
    ] {
        let admitted = admit(
            &DefaultTolerationSeconds,
            &create("pods", json!({"spec": {"tolerations": given}})),
        )
        .unwrap();
        assert_eq!(admitted["spec"]["tolerations"], expect, "{given}");
    }
}

#[test]
fn new_node_is_tainted_as_not_ready_once() {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    for given in [json!([]), json!([taint])] {
        let admitted = admit(
            &TaintNodesByCondition,
            &create("nodes", json!({"spec": {"taints": given}})),
        )
        .unwrap();
        assert_eq!(admitted["spec"]["taints"], json!([taint]));
    }
}

#[test]
fn images_are_pulled_always_in_every_kind_of_container() {
    let pod = json!({"spec": {"containers": [{"imagePullPolicy": "Never"}], "initContainers": [{}], "ephemeralContainers": [{}]}});
    let admitted = admit(&AlwaysPullImages, &create("pods", pod)).unwrap();
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        assert_eq!(
            admitted["spec"][field][0]["imagePullPolicy"], "Always",
            "{field}"
        );
    }
}

#[test]
fn external_address_of_a_service_may_stay_but_not_be_added() {
    let service = |ips: Value| json!({"spec": {"externalIPs": ips}});
    let denied = forbidden(
        "services",
        "Use of external IPs is denied by admission control",
    );
    let plugin = DenyServiceExternalIps;
    assert_eq!(
        validate(&plugin, &create("services", service(json!(["1.1.1.1"])))),
        denied
    );
    assert_eq!(
        validate(&plugin, &create("services", service(json!([])))),
        Ok(())
    );
    let (one, two) = (
        service(json!(["1.1.1.1"])),
        service(json!(["1.1.1.1", "2.2.2.2"])),
    );
    assert_eq!(
        validate(&plugin, &update("services", two.clone(), one.clone())),
        Ok(())
    );
    assert_eq!(validate(&plugin, &update("services", one, two)), denied);
}

fn priority() -> Priority {
    let class = |name: &str, value: i64, default: bool, policy: &str| {
        (
            "scheduling.k8s.io:priorityclasses",
            json!({"metadata": {"name": name}, "value": value, "globalDefault": default, "preemptionPolicy": policy}),
        )
    };
    Priority(context(&[
        class("high", 1000, false, "Never"),
        class("default", 5, true, "PreemptLowerPriority"),
    ]))
}

#[test]
fn priority_comes_from_the_class_or_the_default() {
    for (spec, name, value, policy) in [
        (json!({"priorityClassName": "high"}), "high", 1000, "Never"),
        (
            json!({"priorityClassName": "high", "priority": 1000}),
            "high",
            1000,
            "Never",
        ),
        (json!({}), "default", 5, "PreemptLowerPriority"),
        (
            json!({"priorityClassName": "system-node-critical"}),
            "system-node-critical",
            2_000_001_000_i64,
            "PreemptLowerPriority",
        ),
    ] {
        let admitted = admit(&priority(), &create("pods", json!({"spec": spec}))).unwrap();
        let expect =
            json!({"priorityClassName": name, "priority": value, "preemptionPolicy": policy});
        assert_eq!(admitted["spec"], expect, "{spec}");
    }
}

#[test]
fn pod_without_any_class_has_priority_zero() {
    let admitted = admit(
        &Priority(context(&[])),
        &create("pods", json!({"spec": {}})),
    )
    .unwrap();
    assert_eq!(
        admitted["spec"],
        json!({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"})
    );
}

#[test]
fn lowest_of_several_default_classes_is_set() {
    let class = |name: &str, value: i64| {
        (
            "scheduling.k8s.io:priorityclasses",
            json!({"metadata": {"name": name}, "value": value, "globalDefault": true}),
        )
    };
    let plugin = Priority(context(&[class("b", 20), class("a", 10)]));
    let admitted = admit(&plugin, &create("pods", json!({"spec": {}}))).unwrap();
    assert_eq!(admitted["spec"]["priorityClassName"], "a");
}

#[test]
fn contradicting_priority_is_rejected() {
    for (spec, why) in [
        (
            json!({"priority": 7}),
            "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 5 from the given PriorityClass name",
        ),
        (
            json!({"priorityClassName": "none"}),
            "no PriorityClass with name none was found",
        ),
        (
            json!({"priorityClassName": "high", "priority": 7}),
            "the integer value of priority (7) must not be provided in pod spec; priority admission controller computed 1000 from the given PriorityClass name",
        ),
        (
            json!({"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"}),
            "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; priority admission controller computed Never from the given PriorityClass name",
        ),
    ] {
        let result = admit(&priority(), &create("pods", json!({"spec": spec})));
        assert_eq!(result.map(drop), forbidden("pods", why), "{spec}");
    }
}

#[test]
fn update_that_omits_the_priority_keeps_it() {
    let old = json!({"spec": {"priority": 9, "preemptionPolicy": "Never"}});
    let admitted = admit(&priority(), &update("pods", old, json!({"spec": {}}))).unwrap();
    assert_eq!(
        admitted["spec"],
        json!({"priority": 9, "preemptionPolicy": "Never"})
    );
}

#[test]
fn second_default_priority_class_is_rejected() {
    let class = |name: &str| {
        create(
            "scheduling.k8s.io:priorityclasses",
            json!({"metadata": {"name": name}, "globalDefault": true}),
        )
    };
    assert_eq!(
        validate(&priority(), &class("x")),
        Err("priorityclasses.scheduling.k8s.io \"x\" is forbidden: PriorityClass default is already marked as default. Only one default can exist".into())
    );
    let same = class("default");
    assert_eq!(validate(&priority(), &same), Ok(()));
    let changed = update(same.path, same.object.clone(), same.object.clone());
    assert_eq!(validate(&priority(), &changed), Ok(()));
}

fn runtime_class() -> RuntimeClass {
    let class = json!({"metadata": {"name": "vm"}, "overhead": {"podFixed": {"cpu": "1"}},
        "scheduling": {"nodeSelector": {"vm": "yes"}, "tolerations": [{"key": "vm"}]}});
    RuntimeClass(context(&[("node.k8s.io:runtimeclasses", class)]))
}

#[test]
fn runtime_class_sets_overhead_and_scheduling() {
    let pod = json!({"spec": {"runtimeClassName": "vm", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "t"}]}});
    let admitted = admit(&runtime_class(), &create("pods", pod)).unwrap();
    assert_eq!(
        admitted["spec"],
        json!({"runtimeClassName": "vm", "overhead": {"cpu": "1"}, "nodeSelector": {"a": "b", "vm": "yes"}, "tolerations": [{"key": "t"}, {"key": "vm"}]})
    );
}

#[test]
fn pod_that_contradicts_its_runtime_class_is_rejected() {
    for (spec, why) in [
        (
            json!({"runtimeClassName": "none"}),
            "pod rejected: RuntimeClass \"none\" not found",
        ),
        (
            json!({"runtimeClassName": "vm", "overhead": {"cpu": "2"}}),
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            json!({"runtimeClassName": "vm", "nodeSelector": {"vm": "no"}}),
            "conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no",
        ),
    ] {
        let result = admit(&runtime_class(), &create("pods", json!({"spec": spec})));
        assert_eq!(result.map(drop), forbidden("pods", why), "{spec}");
    }
    let alone = create("pods", json!({"spec": {"overhead": {"cpu": "1"}}}));
    let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    assert_eq!(validate(&runtime_class(), &alone), forbidden("pods", why));
}

fn accounts() -> ServiceAccount {
    let account = |name: &str, more: Value| {
        let mut account = json!({"metadata": {"name": name, "namespace": "n"}});
        for (key, value) in more.as_object().unwrap() {
            account[key.as_str()] = value.clone();
        }
        ("serviceaccounts", account)
    };
    ServiceAccount(context(&[
        account("default", json!({"imagePullSecrets": [{"name": "pull"}]})),
        account("quiet", json!({"automountServiceAccountToken": false})),
    ]))
}

#[test]
fn pod_gets_the_default_account_its_pull_secrets_and_a_token() {
    let admitted = admit(
        &accounts(),
        &create(
            "pods",
            json!({"metadata": {}, "spec": {"containers": [{"name": "c"}]}}),
        ),
    )
    .unwrap();
    let spec = &admitted["spec"];
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
    let sources = &spec["volumes"][0]["projected"]["sources"];
    assert_eq!(
        sources[0]["serviceAccountToken"],
        json!({"expirationSeconds": 3607, "path": "token"})
    );
    assert_eq!(
        spec["containers"][0]["volumeMounts"][0]["mountPath"],
        "/var/run/secrets/kubernetes.io/serviceaccount"
    );
}

#[test]
fn account_can_opt_out_of_the_token() {
    let pod = json!({"metadata": {}, "spec": {"serviceAccountName": "quiet", "containers": [{"name": "c"}]}});
    assert!(
        admit(&accounts(), &create("pods", pod)).unwrap()["spec"]
            .get("volumes")
            .is_none()
    );
}

#[test]
fn missing_account_is_named_in_the_rejection() {
    let pod = json!({"metadata": {}, "spec": {"serviceAccountName": "none"}});
    let result = admit(&accounts(), &create("pods", pod));
    assert_eq!(
        result.map(drop),
        forbidden(
            "pods",
            "error looking up service account n/none: serviceaccount \"none\" not found"
        )
    );
}

#[test]
fn mirror_pod_may_not_use_accounts_or_tokens() {
    let mirror = |spec: Value| {
        create(
            "pods",
            json!({"metadata": {"annotations": {"kubernetes.io/config.mirror": "h"}}, "spec": spec}),
        )
    };
    let token = json!([{"name": "v", "projected": {"sources": [{"serviceAccountToken": {}}]}}]);
    for (spec, why) in [
        (
            json!({"serviceAccountName": "default"}),
            "a mirror pod may not reference service accounts",
        ),
        (
            json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}),
            "a mirror pod may not reference secrets",
        ),
        (
            json!({"volumes": token}),
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
    ] {
        assert_eq!(
            admit(&accounts(), &mirror(spec.clone())).map(drop),
            forbidden("pods", why),
            "{spec}"
        );
    }
    let admitted = admit(&accounts(), &mirror(json!({"containers": []}))).unwrap();
    assert!(admitted["spec"].get("serviceAccountName").is_none());
}

#[test]
fn group_of_pods_needs_its_workload_and_template() {
    let workload = |name: &str, metadata: Value| {
        let mut workload =
            json!({"metadata": metadata, "spec": {"podGroupTemplates": [{"name": "t"}]}});
        workload["metadata"]["name"] = json!(name);
        workload["metadata"]["namespace"] = json!("n");
        ("scheduling.k8s.io:workloads", workload)
    };
    let deleted = json!({"deletionTimestamp": "2026-01-01T00:00:00Z"});
    let objects = [workload("w", json!({})), workload("gone", deleted)];
    let plugin = PodGroupWorkloadExists(context(&objects));
    let path = "scheduling.k8s.io:podgroups";
    let group = |workload: &str, template: &str| {
        let workload = json!({"workloadName": workload, "podGroupTemplateName": template});
        json!({"metadata": {"name": "x"}, "spec": {"podGroupTemplateRef": {"workload": workload}}})
    };
    let rejected = |why: &str| {
        forbidden(
            "podgroups.scheduling.k8s.io",
            &format!("PodGroup rejected: {why}"),
        )
    };
    for (write, expect) in [
        (create(path, group("w", "t")), Ok(())),
        (create(path, json!({"spec": {}})), Ok(())),
        (
            create(path, group("w", "u")),
            rejected("PodGroupTemplate \"u\" not found in Workload \"w\""),
        ),
        (
            create(path, group("a", "t")),
            rejected("Workload \"a\" not found"),
        ),
        (
            create(path, group("gone", "t")),
            rejected("Workload \"gone\" is being deleted"),
        ),
        (update(path, group("a", "t"), group("a", "t")), Ok(())),
        (
            Write {
                namespace: "m",
                ..create(path, group("w", "t"))
            },
            rejected("Workload \"w\" not found"),
        ),
    ] {
        assert_eq!(validate(&plugin, &write), expect, "{}", write.object);
    }
}
