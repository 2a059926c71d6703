//! Defaults of the kinds that configure a cluster and its namespaces.

use super::*;

#[test]
fn secret_is_opaque_and_its_string_data_is_encoded() {
    let secret = default(
        "",
        "Secret",
        json!({"data": {"a": "b2xk", "k": "a2VwdA=="}, "stringData": {"a": "new"}}),
    );
    check(
        &secret,
        &[
            ("/type", json!("Opaque")),
            ("/data", json!({"a": "bmV3", "k": "a2VwdA=="})),
            ("/stringData", Value::Null),
        ],
    );
}

#[test]
fn namespace_is_labelled_with_its_name() {
    let namespace = default("", "Namespace", json!({"metadata": {"name": "n"}}));
    check(
        &namespace,
        &[
            (
                "/metadata/labels",
                json!({"kubernetes.io/metadata.name": "n"}),
            ),
            ("/status/phase", json!("Active")),
        ],
    );
    let generated = default("", "Namespace", json!({"metadata": {"generateName": "n-"}}));
    check(&generated, &[("/metadata/labels", Value::Null)]);
}

#[test]
fn node_that_reports_no_allocatable_resources_has_its_capacity() {
    let node = default("", "Node", json!({"status": {"capacity": {"cpu": "4"}}}));
    check(&node, &[("/status/allocatable", json!({"cpu": "4"}))]);
    let reserved = json!({"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}});
    let node = default("", "Node", reserved);
    check(&node, &[("/status/allocatable", json!({"cpu": "3"}))]);
}

#[test]
fn limit_range_of_containers_defaults_from_its_bounds() {
    let item = json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "1Mi"}});
    let range = default("", "LimitRange", json!({"spec": {"limits": [item]}}));
    check(
        &range,
        &[
            ("/spec/limits/0/default", json!({"cpu": "2"})),
            (
                "/spec/limits/0/defaultRequest",
                json!({"cpu": "2", "memory": "1Mi"}),
            ),
        ],
    );
    let item = json!({"type": "Pod", "max": {"cpu": "2"}});
    let range = default("", "LimitRange", json!({"spec": {"limits": [item]}}));
    check(&range, &[("/spec/limits/0/default", Value::Null)]);
}

#[test]
fn network_policy_covers_egress_only_if_it_has_egress_rules() {
    for (spec, types) in [
        (json!({}), json!(["Ingress"])),
        (json!({"egress": [{}]}), json!(["Ingress", "Egress"])),
        (json!({"policyTypes": ["Egress"]}), json!(["Egress"])),
    ] {
        let policy = default("networking.k8s.io", "NetworkPolicy", json!({"spec": spec}));
        check(&policy, &[("/spec/policyTypes", types)]);
    }
}

#[test]
fn role_binding_refers_to_the_rbac_group() {
    let subjects = json!([{"kind": "User"}, {"kind": "Group"}, {"kind": "ServiceAccount"}]);
    let binding = default(
        "rbac.authorization.k8s.io",
        "RoleBinding",
        json!({"roleRef": {}, "subjects": subjects}),
    );
    let group = json!("rbac.authorization.k8s.io");
    check(
        &binding,
        &[
            ("/roleRef/apiGroup", group.clone()),
            ("/subjects/0/apiGroup", group.clone()),
            ("/subjects/1/apiGroup", group),
            ("/subjects/2/apiGroup", Value::Null),
        ],
    );
}

#[test]
fn webhook_fails_closed_after_ten_seconds() {
    let hooks = json!({"webhooks": [{"clientConfig": {"service": {}}, "rules": [{}]}]});
    let group = "admissionregistration.k8s.io";
    for (kind, reinvocation) in [
        ("MutatingWebhookConfiguration", json!("Never")),
        ("ValidatingWebhookConfiguration", Value::Null),
    ] {
        check(
            &default(group, kind, hooks.clone()),
            &[
                ("/webhooks/0/failurePolicy", json!("Fail")),
                ("/webhooks/0/timeoutSeconds", json!(10)),
                ("/webhooks/0/matchPolicy", json!("Equivalent")),
                ("/webhooks/0/namespaceSelector", json!({})),
                ("/webhooks/0/rules/0/scope", json!("*")),
                ("/webhooks/0/clientConfig/service/port", json!(443)),
                ("/webhooks/0/reinvocationPolicy", reinvocation),
            ],
        );
    }
}

#[test]
fn priority_level_has_shares_and_queues() {
    let group = "flowcontrol.apiserver.k8s.io";
    let limited = json!({"spec": {"limited": {"limitResponse": {"queuing": {}}}}});
    let level = default(group, "PriorityLevelConfiguration", limited);
    check(
        &level,
        &[
            ("/spec/limited/nominalConcurrencyShares", json!(30)),
            ("/spec/limited/lendablePercent", json!(0)),
            (
                "/spec/limited/limitResponse/queuing",
                json!({"handSize": 8, "queueLengthLimit": 50, "queues": 64}),
            ),
        ],
    );
    let schema = default(
        group,
        "FlowSchema",
        json!({"spec": {"matchingPrecedence": 0}}),
    );
    check(&schema, &[("/spec/matchingPrecedence", json!(1000))]);
}

#[test]
fn device_request_counts_one_device() {
    let requests = json!([{"exactly": {}}, {"exactly": {"allocationMode": "All"}}]);
    let claim = default(
        "resource.k8s.io",
        "ResourceClaim",
        json!({"spec": {"devices": {"requests": requests}}}),
    );
    check(
        &claim,
        &[
            (
                "/spec/devices/requests/0/exactly",
                json!({"allocationMode": "ExactCount", "count": 1}),
            ),
            (
                "/spec/devices/requests/1/exactly",
                json!({"allocationMode": "All"}),
            ),
        ],
    );
}

#[test]
fn custom_resource_definition_derives_names_from_the_kind() {
    let definition = default(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        json!({"spec": {"names": {"kind": "Widget"}, "versions": [{"name": "v1", "storage": true}]}}),
    );
    check(
        &definition,
        &[
            ("/spec/names/singular", json!("widget")),
            ("/spec/names/listKind", json!("WidgetList")),
            ("/spec/conversion/strategy", json!("None")),
            ("/status/storedVersions", json!(["v1"])),
        ],
    );
}

#[test]
fn priority_class_preempts_lower_priority() {
    let class = default("scheduling.k8s.io", "PriorityClass", json!({}));
    check(
        &class,
        &[("/preemptionPolicy", json!("PreemptLowerPriority"))],
    );
}
