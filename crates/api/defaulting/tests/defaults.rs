//! Defaults of the built-in kinds, as upstream's `defaults.go` of each group sets them.
#![allow(clippy::unwrap_used)]

use api_defaulting::default_object;
use api_meta::Kind;
use serde_json::{Value, json};

fn default(group: &str, kind: &str, mut object: Value) -> Value {
    let kind = Kind {
        group,
        version: if group == "autoscaling" { "v2" } else { "v1" },
        kind,
        namespaced: true,
    };
    default_object(kind, &mut object);
    let once = object.clone();
    default_object(kind, &mut object);
    assert_eq!(object, once, "defaulting twice changes the object");
    object
}

/// Asserts that the values at the JSON pointers are the expected ones.
fn check(object: &Value, expected: &[(&str, Value)]) {
    for (pointer, value) in expected {
        let found = object.pointer(pointer).unwrap_or(&Value::Null);
        assert_eq!(found, value, "{pointer} of {object}");
    }
}

fn pod(spec: Value) -> Value {
    default("", "Pod", json!({"spec": spec}))
}

fn service(spec: Value) -> Value {
    default("", "Service", json!({"spec": spec}))
}

fn job(spec: Value) -> Value {
    default("batch", "Job", json!({"spec": spec}))
}

#[test]
fn pod_has_policies_grace_period_and_scheduler() {
    check(
        &pod(json!({"containers": []})),
        &[
            ("/spec/dnsPolicy", json!("ClusterFirst")),
            ("/spec/restartPolicy", json!("Always")),
            ("/spec/schedulerName", json!("default-scheduler")),
            ("/spec/terminationGracePeriodSeconds", json!(30)),
            ("/spec/enableServiceLinks", json!(true)),
            ("/spec/securityContext", json!({})),
        ],
    );
}

#[test]
fn explicit_zero_and_false_are_not_defaulted() {
    check(
        &pod(json!({"terminationGracePeriodSeconds": 0, "enableServiceLinks": false})),
        &[
            ("/spec/terminationGracePeriodSeconds", json!(0)),
            ("/spec/enableServiceLinks", json!(false)),
        ],
    );
    let deployment = default("apps", "Deployment", json!({"spec": {"replicas": 0}}));
    check(&deployment, &[("/spec/replicas", json!(0))]);
}

#[test]
fn explicit_null_counts_as_absent() {
    let pod = pod(json!({"dnsPolicy": null, "terminationGracePeriodSeconds": null}));
    check(
        &pod,
        &[
            ("/spec/dnsPolicy", json!("ClusterFirst")),
            ("/spec/terminationGracePeriodSeconds", json!(30)),
        ],
    );
}

#[test]
fn service_links_are_defaulted_in_pods_but_not_in_templates() {
    let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
    let deployment = default("apps", "Deployment", template);
    check(
        &deployment,
        &[
            ("/spec/template/spec/enableServiceLinks", Value::Null),
            ("/spec/template/spec/dnsPolicy", json!("ClusterFirst")),
        ],
    );
}

#[test]
fn container_has_a_termination_message_and_a_protocol_for_ports() {
    let pod = pod(json!({"containers": [{"image": "a:1", "ports": [{"containerPort": 80}]}]}));
    check(
        &pod,
        &[
            (
                "/spec/containers/0/terminationMessagePath",
                json!("/dev/termination-log"),
            ),
            ("/spec/containers/0/terminationMessagePolicy", json!("File")),
            ("/spec/containers/0/imagePullPolicy", json!("IfNotPresent")),
            ("/spec/containers/0/ports/0/protocol", json!("TCP")),
            ("/spec/containers/0/resources", json!({})),
        ],
    );
}

#[test]
fn probe_has_thresholds_and_an_http_scheme() {
    let probe = json!({"httpGet": {"port": 80}, "periodSeconds": 0});
    let pod = pod(json!({"containers": [{"readinessProbe": probe}]}));
    check(
        &pod,
        &[
            ("/spec/containers/0/readinessProbe/timeoutSeconds", json!(1)),
            ("/spec/containers/0/readinessProbe/periodSeconds", json!(10)),
            (
                "/spec/containers/0/readinessProbe/successThreshold",
                json!(1),
            ),
            (
                "/spec/containers/0/readinessProbe/failureThreshold",
                json!(3),
            ),
            ("/spec/containers/0/readinessProbe/httpGet/path", json!("/")),
            (
                "/spec/containers/0/readinessProbe/httpGet/scheme",
                json!("HTTP"),
            ),
        ],
    );
}

#[test]
fn lifecycle_hook_has_an_http_path_and_scheme() {
    let hooks = json!({"preStop": {"httpGet": {"port": 1}}, "postStart": {"httpGet": {"port": 1}}});
    let pod = pod(json!({"containers": [{"lifecycle": hooks}]}));
    for hook in ["preStop", "postStart"] {
        let at = format!("/spec/containers/0/lifecycle/{hook}/httpGet");
        check(
            &pod,
            &[(&at, json!({"port": 1, "path": "/", "scheme": "HTTP"}))],
        );
    }
}

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

#[test]
fn host_ports_are_the_container_ports_in_the_hosts_network() {
    let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}]);
    let pod = pod(json!({"hostNetwork": true, "containers": [{"ports": ports}]}));
    check(
        &pod,
        &[
            ("/spec/containers/0/ports/0/hostPort", json!(80)),
            ("/spec/containers/0/ports/1/hostPort", json!(82)),
        ],
    );
}

#[test]
fn service_account_is_set_under_its_former_name_too() {
    for field in ["serviceAccountName", "serviceAccount"] {
        let pod = pod(json!({field: "robot"}));
        check(
            &pod,
            &[
                ("/spec/serviceAccountName", json!("robot")),
                ("/spec/serviceAccount", json!("robot")),
            ],
        );
    }
}

#[test]
fn volume_without_source_is_an_empty_directory() {
    let pod = pod(json!({"volumes": [{"name": "v"}, {"name": "w", "hostPath": {"path": "/"}}]}));
    check(
        &pod,
        &[
            ("/spec/volumes/0/emptyDir", json!({})),
            ("/spec/volumes/1/emptyDir", Value::Null),
            ("/spec/volumes/1/hostPath/type", json!("")),
        ],
    );
}

#[test]
fn files_of_volumes_have_mode_0644() {
    let source = |name: &str| json!({"name": "v", name: {}});
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        let pod = pod(json!({"volumes": [source(name)]}));
        check(
            &pod,
            &[(&format!("/spec/volumes/0/{name}/defaultMode"), json!(0o644))],
        );
    }
}

#[test]
fn projected_token_expires_after_an_hour() {
    let sources = json!([{"serviceAccountToken": {"path": "t"}}]);
    let pod = pod(json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}));
    let at = "/spec/volumes/0/projected/sources/0/serviceAccountToken/expirationSeconds";
    check(&pod, &[(at, json!(3600))]);
}

#[test]
fn field_reference_has_version_v1() {
    let env = json!([{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let pod = pod(json!({"containers": [{"env": env}]}));
    let at = "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion";
    check(&pod, &[(at, json!("v1"))]);
}

#[test]
fn service_is_a_cluster_ip_without_affinity() {
    check(
        &service(json!({"ports": [{"port": 80}]})),
        &[
            ("/spec/type", json!("ClusterIP")),
            ("/spec/sessionAffinity", json!("None")),
            ("/spec/internalTrafficPolicy", json!("Cluster")),
            ("/spec/externalTrafficPolicy", Value::Null),
            (
                "/spec/ports/0",
                json!({"port": 80, "protocol": "TCP", "targetPort": 80}),
            ),
        ],
    );
}

#[test]
fn external_traffic_policy_is_set_for_services_that_are_reached_from_outside() {
    for (spec, policy) in [
        (json!({"type": "NodePort"}), json!("Cluster")),
        (json!({"type": "LoadBalancer"}), json!("Cluster")),
        (json!({"externalIPs": ["192.0.2.1"]}), json!("Cluster")),
        (json!({"type": "ClusterIP"}), Value::Null),
        (
            json!({"type": "ExternalName", "externalIPs": ["192.0.2.1"]}),
            Value::Null,
        ),
    ] {
        check(&service(spec), &[("/spec/externalTrafficPolicy", policy)]);
    }
}

#[test]
fn client_ip_affinity_lasts_three_hours() {
    let at = "/spec/sessionAffinityConfig/clientIP/timeoutSeconds";
    check(
        &service(json!({"sessionAffinity": "ClientIP"})),
        &[(at, json!(10_800))],
    );
}

#[test]
fn load_balancer_allocates_node_ports_and_its_addresses_are_virtual() {
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}, {"hostname": "a"}]}});
    let balancer = default(
        "",
        "Service",
        json!({"spec": {"type": "LoadBalancer"}, "status": status}),
    );
    check(
        &balancer,
        &[
            ("/spec/allocateLoadBalancerNodePorts", json!(true)),
            ("/status/loadBalancer/ingress/0/ipMode", json!("VIP")),
            ("/status/loadBalancer/ingress/1/ipMode", Value::Null),
        ],
    );
    let other = default(
        "",
        "Service",
        json!({"spec": {"type": "ClusterIP"}, "status": status}),
    );
    check(
        &other,
        &[("/status/loadBalancer/ingress/0/ipMode", Value::Null)],
    );
}

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
fn volumes_and_claims_are_file_systems() {
    let volume = default("", "PersistentVolume", json!({"spec": {}}));
    check(
        &volume,
        &[
            ("/spec/persistentVolumeReclaimPolicy", json!("Retain")),
            ("/spec/volumeMode", json!("Filesystem")),
            ("/status/phase", json!("Pending")),
        ],
    );
    let claim = default("", "PersistentVolumeClaim", json!({"spec": {}}));
    check(
        &claim,
        &[
            ("/spec/volumeMode", json!("Filesystem")),
            ("/status/phase", json!("Pending")),
        ],
    );
}

#[test]
fn deployment_rolls_a_quarter_at_a_time() {
    let deployment = default("apps", "Deployment", json!({"spec": {}}));
    check(
        &deployment,
        &[
            ("/spec/replicas", json!(1)),
            ("/spec/revisionHistoryLimit", json!(10)),
            ("/spec/progressDeadlineSeconds", json!(600)),
            ("/spec/strategy/type", json!("RollingUpdate")),
            (
                "/spec/strategy/rollingUpdate",
                json!({"maxSurge": "25%", "maxUnavailable": "25%"}),
            ),
        ],
    );
}

#[test]
fn deployment_that_recreates_its_pods_has_no_rolling_update() {
    let spec = json!({"strategy": {"type": "Recreate"}});
    let deployment = default("apps", "Deployment", json!({"spec": spec}));
    check(
        &deployment,
        &[("/spec/strategy", json!({"type": "Recreate"}))],
    );
}

#[test]
fn daemon_set_replaces_one_pod_at_a_time() {
    let set = default("apps", "DaemonSet", json!({"spec": {}}));
    check(
        &set,
        &[
            (
                "/spec/updateStrategy/rollingUpdate",
                json!({"maxSurge": 0, "maxUnavailable": 1}),
            ),
            ("/spec/revisionHistoryLimit", json!(10)),
        ],
    );
}

#[test]
fn stateful_set_is_ordered_and_retains_its_claims() {
    let set = default(
        "apps",
        "StatefulSet",
        json!({"spec": {"volumeClaimTemplates": [{}]}}),
    );
    check(
        &set,
        &[
            ("/spec/podManagementPolicy", json!("OrderedReady")),
            ("/spec/updateStrategy/rollingUpdate/partition", json!(0)),
            (
                "/spec/persistentVolumeClaimRetentionPolicy",
                json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
            ),
            (
                "/spec/volumeClaimTemplates/0/kind",
                json!("PersistentVolumeClaim"),
            ),
            (
                "/spec/volumeClaimTemplates/0/spec/volumeMode",
                json!("Filesystem"),
            ),
        ],
    );
}

#[test]
fn replication_controller_selects_the_labels_of_its_template() {
    let template = json!({"metadata": {"labels": {"a": "b"}}});
    let controller = default(
        "",
        "ReplicationController",
        json!({"spec": {"template": template}}),
    );
    check(
        &controller,
        &[
            ("/spec/selector", json!({"a": "b"})),
            ("/metadata/labels", json!({"a": "b"})),
            ("/spec/replicas", json!(1)),
        ],
    );
}

#[test]
fn job_runs_one_pod_to_completion() {
    check(
        &job(json!({})),
        &[
            ("/spec/completions", json!(1)),
            ("/spec/parallelism", json!(1)),
            ("/spec/backoffLimit", json!(6)),
            ("/spec/completionMode", json!("NonIndexed")),
            ("/spec/suspend", json!(false)),
            ("/spec/podReplacementPolicy", json!("TerminatingOrFailed")),
        ],
    );
}

#[test]
fn job_with_parallelism_alone_is_a_work_queue() {
    check(
        &job(json!({"parallelism": 3})),
        &[
            ("/spec/completions", Value::Null),
            ("/spec/parallelism", json!(3)),
        ],
    );
}

#[test]
fn backoff_limit_per_index_lifts_the_limit_of_the_job() {
    let job = job(json!({"backoffLimitPerIndex": 1}));
    check(&job, &[("/spec/backoffLimit", json!(i32::MAX))]);
}

#[test]
fn failure_policy_replaces_pods_only_after_they_failed() {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
    check(
        &job(json!({"podFailurePolicy": {"rules": [rule]}})),
        &[
            ("/spec/podReplacementPolicy", json!("Failed")),
            (
                "/spec/podFailurePolicy/rules/0/onPodConditions/0/status",
                json!("True"),
            ),
        ],
    );
}

#[test]
fn cron_job_allows_concurrency_and_keeps_three_successes_and_one_failure() {
    let cron = default(
        "batch",
        "CronJob",
        json!({"spec": {"jobTemplate": {"spec": {}}}}),
    );
    check(
        &cron,
        &[
            ("/spec/concurrencyPolicy", json!("Allow")),
            ("/spec/suspend", json!(false)),
            ("/spec/successfulJobsHistoryLimit", json!(3)),
            ("/spec/failedJobsHistoryLimit", json!(1)),
            // The job controller creates Jobs, and those are defaulted when they are created.
            ("/spec/jobTemplate/spec/backoffLimit", Value::Null),
        ],
    );
}

#[test]
fn autoscaler_targets_80_percent_of_the_cpu_request() {
    let scaler = default(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({"spec": {}}),
    );
    check(
        &scaler,
        &[
            ("/spec/minReplicas", json!(1)),
            ("/spec/metrics/0/resource/name", json!("cpu")),
            (
                "/spec/metrics/0/resource/target/averageUtilization",
                json!(80),
            ),
        ],
    );
}

#[test]
fn autoscaler_behavior_is_completed_for_both_directions() {
    let spec = json!({"behavior": {"scaleDown": {"selectPolicy": "Min"}}});
    let scaler = default(
        "autoscaling",
        "HorizontalPodAutoscaler",
        json!({"spec": spec}),
    );
    check(
        &scaler,
        &[
            (
                "/spec/behavior/scaleUp/stabilizationWindowSeconds",
                json!(0),
            ),
            ("/spec/behavior/scaleUp/policies/0/value", json!(4)),
            ("/spec/behavior/scaleDown/selectPolicy", json!("Min")),
            ("/spec/behavior/scaleDown/policies/0/value", json!(100)),
            (
                "/spec/behavior/scaleDown/stabilizationWindowSeconds",
                Value::Null,
            ),
        ],
    );
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
fn endpoint_slice_port_has_an_empty_name_and_tcp() {
    let slice = default(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"ports": [{"port": 1}]}),
    );
    check(
        &slice,
        &[(
            "/ports/0",
            json!({"name": "", "port": 1, "protocol": "TCP"}),
        )],
    );
}

#[test]
fn storage_class_deletes_volumes_and_binds_at_once() {
    let class = default("storage.k8s.io", "StorageClass", json!({}));
    check(
        &class,
        &[
            ("/reclaimPolicy", json!("Delete")),
            ("/volumeBindingMode", json!("Immediate")),
        ],
    );
}

#[test]
fn csi_driver_attaches_persistent_volumes() {
    let driver = default("storage.k8s.io", "CSIDriver", json!({"spec": {}}));
    check(
        &driver,
        &[
            ("/spec/attachRequired", json!(true)),
            ("/spec/podInfoOnMount", json!(false)),
            ("/spec/volumeLifecycleModes", json!(["Persistent"])),
            ("/spec/fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
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
