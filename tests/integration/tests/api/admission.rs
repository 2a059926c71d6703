//! Built-in admission plugins.

use integration_tests::{
    Components, ReplyExt, Test, config_map, node, pod, pod_with, wait_for_value,
};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

/// Sends a pod as a dry run and returns its spec as admission changed it. Waits until admission
/// knows the objects that the pod refers to.
async fn admit(test: &Test, fields: Value) -> Value {
    let path = format!("{}?dryRun=All", test.core("pods"));
    let pod = pod_with("p", &fields);
    wait_for_value(&format!("{fields} is admitted"), async || {
        let reply = test.admin.post(&path, &pod).await;
        (reply.status == 201).then(|| reply.json()["spec"].take())
    })
    .await
}

async fn create_limit_range(test: &Test, limits: Value) {
    let range = json!({"metadata": {"name": "limits"}, "spec": {"limits": limits}});
    test.create(&test.core("limitranges"), &range).await;
}

/// Posts a pod until admission knows the LimitRange, which is when it is rejected with 403.
async fn post_limited(test: &Test, pod: &Value, message: &str) {
    wait_for_value(message, async || {
        let reply = test
            .admin
            .post(&format!("{}?dryRun=All", test.core("pods")), pod)
            .await;
        (reply.status == 403).then_some(reply)
    })
    .await
    .expect_failure(403, "Forbidden", message);
}

fn with_resources(resources: Value) -> Value {
    pod_with(
        "p",
        &json!({"containers": [{"name": "c", "image": "example.com/c:1", "resources": resources}]}),
    )
}

#[tokio::test]
async fn limit_range_sets_defaults() {
    let test = start().await;
    let limits = json!([{"type": "Container", "default": {"cpu": "500m"}, "defaultRequest": {"cpu": "100m"},
        "max": {"memory": "1Gi"}}]);
    create_limit_range(&test, limits).await;
    let path = format!("{}?dryRun=All", test.core("pods"));
    let admitted = wait_for_value("defaults", async || {
        let object = test
            .admin
            .post(&path, &pod("p"))
            .await
            .expect_status(201)
            .json();
        let resources = &object["spec"]["containers"][0]["resources"];
        (resources != &json!({})).then_some(object)
    })
    .await;
    assert_eq!(
        admitted["spec"]["containers"][0]["resources"],
        json!({"limits": {"cpu": "500m", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "1Gi"}})
    );
    let annotation = &admitted["metadata"]["annotations"]["kubernetes.io/limit-ranger"];
    assert!(
        annotation
            .as_str()
            .unwrap()
            .starts_with("LimitRanger plugin set: "),
        "{annotation}"
    );
}

#[tokio::test]
async fn limit_range_rejects_containers_beyond_its_bounds() {
    let test = start().await;
    let limits = json!([{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "50m"},
        "maxLimitRequestRatio": {"cpu": "10"}}]);
    create_limit_range(&test, limits).await;
    for (resources, message) in [
        (
            json!({"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}),
            "pods \"p\" is forbidden: maximum cpu usage per Container is 1, but limit is 2",
        ),
        (
            json!({"limits": {"cpu": "100m"}, "requests": {"cpu": "10m"}}),
            "pods \"p\" is forbidden: minimum cpu usage per Container is 50m, but request is 10m",
        ),
        (
            json!({"limits": {"cpu": "1"}, "requests": {"cpu": "50m"}}),
            "pods \"p\" is forbidden: cpu max limit to request ratio per Container is 10, but provided ratio is \
             20.000000",
        ),
    ] {
        post_limited(&test, &with_resources(resources), message).await;
    }
}

#[tokio::test]
async fn limit_range_adds_up_the_containers_of_a_pod() {
    let test = start().await;
    create_limit_range(&test, json!([{"type": "Pod", "max": {"cpu": "1500m"}}])).await;
    let container = |name: &str| json!({"name": name, "image": "example.com/c:1", "resources": {"limits": {"cpu": "1"}}});
    let pod = pod_with(
        "p",
        &json!({"containers": [container("a"), container("b")]}),
    );
    let message = "pods \"p\" is forbidden: maximum cpu usage per Pod is 1500m, but limit is 2";
    post_limited(&test, &pod, message).await;
}

#[tokio::test]
async fn token_is_mounted_into_every_container() {
    let test = start().await;
    let spec = admit(
        &test,
        json!({"initContainers": [{"name": "i", "image": "example.com/i:1"}]}),
    )
    .await;
    assert_eq!(
        (&spec["serviceAccountName"], &spec["serviceAccount"]),
        (&json!("default"), &json!("default"))
    );
    let volume = &spec["volumes"][0];
    assert!(
        volume["name"]
            .as_str()
            .unwrap()
            .starts_with("kube-api-access-")
    );
    assert_eq!(
        volume["projected"],
        json!({"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace",
                "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]})
    );
    for container in [&spec["containers"][0], &spec["initContainers"][0]] {
        assert_eq!(
            container["volumeMounts"],
            json!([{"name": volume["name"], "readOnly": true,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}])
        );
    }
}

#[tokio::test]
async fn token_is_not_mounted_if_the_pod_or_its_account_opts_out() {
    let test = start().await;
    let spec = admit(&test, json!({"automountServiceAccountToken": false})).await;
    assert_eq!(spec.get("volumes"), None);
    let account = json!({"metadata": {"name": "robot"}, "automountServiceAccountToken": false,
        "imagePullSecrets": [{"name": "pull"}]});
    test.create(&test.core("serviceaccounts"), &account).await;
    let spec = admit(&test, json!({"serviceAccountName": "robot"})).await;
    assert_eq!(spec.get("volumes"), None);
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "pull"}]));
}

#[tokio::test]
async fn pod_of_an_absent_service_account_is_forbidden() {
    let test = start().await;
    let pod = pod_with("p", &json!({"serviceAccountName": "none"}));
    let reply = test.admin.post(&test.core("pods"), &pod).await;
    reply.expect_failure(
        403,
        "Forbidden",
        &format!(
            "pods \"p\" is forbidden: error looking up service account {}/none: serviceaccount \"none\" not found",
            test.namespace
        ),
    );
}

#[tokio::test]
async fn pod_tolerates_unreachable_nodes_for_five_minutes() {
    let test = start().await;
    let toleration = |key: &str, seconds: u32| {
        json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds})
    };
    let spec = admit(&test, json!({})).await;
    assert_eq!(
        spec["tolerations"],
        json!([toleration("not-ready", 300), toleration("unreachable", 300)])
    );
    let spec = admit(&test, json!({"tolerations": [toleration("not-ready", 5)]})).await;
    assert_eq!(
        spec["tolerations"],
        json!([toleration("not-ready", 5), toleration("unreachable", 300)])
    );
}

#[tokio::test]
async fn priority_comes_from_the_class() {
    let test = start().await;
    let name = test.name("class");
    let class = json!({"metadata": {"name": name}, "value": 77, "preemptionPolicy": "Never"});
    test.create("/apis/scheduling.k8s.io/v1/priorityclasses", &class)
        .await;
    let spec = admit(&test, json!({"priorityClassName": name})).await;
    assert_eq!(
        (&spec["priority"], &spec["preemptionPolicy"]),
        (&json!(77), &json!("Never"))
    );
    let spec = admit(&test, json!({})).await;
    assert_eq!(
        (&spec["priority"], &spec["preemptionPolicy"]),
        (&json!(0), &json!("PreemptLowerPriority"))
    );
}

#[tokio::test]
async fn absent_priority_class_and_own_priority_are_forbidden() {
    let test = start().await;
    let path = test.core("pods");
    let reply = test
        .admin
        .post(&path, &pod_with("p", &json!({"priorityClassName": "none"})))
        .await;
    reply.expect_failure(
        403,
        "Forbidden",
        "pods \"p\" is forbidden: no PriorityClass with name none was found",
    );
    let reply = test
        .admin
        .post(&path, &pod_with("p", &json!({"priority": 5})))
        .await;
    reply.expect_failure(
        403,
        "Forbidden",
        "pods \"p\" is forbidden: the integer value of priority (5) must not be provided in pod spec; priority \
         admission controller computed 0 from the given PriorityClass name",
    );
}

#[tokio::test]
async fn runtime_class_sets_overhead_and_scheduling() {
    let test = start().await;
    let name = test.name("class");
    let class = json!({"metadata": {"name": name}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}},
        "scheduling": {"nodeSelector": {"rt": "yes"}, "tolerations": [{"key": "rt", "operator": "Exists"}]}});
    test.create("/apis/node.k8s.io/v1/runtimeclasses", &class)
        .await;
    let spec = admit(&test, json!({"runtimeClassName": name})).await;
    assert_eq!(spec["overhead"], json!({"cpu": "10m"}));
    assert_eq!(spec["nodeSelector"], json!({"rt": "yes"}));
    let tolerations = spec["tolerations"].as_array().unwrap();
    assert!(
        tolerations.contains(&json!({"key": "rt", "operator": "Exists"})),
        "{spec}"
    );
}

#[tokio::test]
async fn absent_runtime_class_is_forbidden() {
    let test = start().await;
    let pod = pod_with("p", &json!({"runtimeClassName": "none"}));
    let reply = test.admin.post(&test.core("pods"), &pod).await;
    reply.expect_failure(
        403,
        "Forbidden",
        "pods \"p\" is forbidden: pod rejected: RuntimeClass \"none\" not found",
    );
}

#[tokio::test]
async fn new_node_has_the_not_ready_taint() {
    let test = start().await;
    let name = test.name("node");
    let reply = test
        .admin
        .post("/api/v1/nodes?dryRun=All", &node(&name, &json!({})))
        .await;
    assert_eq!(
        reply.expect_status(201).json()["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
}

#[tokio::test]
async fn claims_and_volumes_in_use_are_protected() {
    let test = start().await;
    let claim = json!({"metadata": {"name": "claim"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = test
        .create(&test.core("persistentvolumeclaims"), &claim)
        .await;
    assert_eq!(
        claim["metadata"]["finalizers"],
        json!(["kubernetes.io/pvc-protection"])
    );
    let volume = json!({"metadata": {"name": test.name("volume")}, "spec": {"capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}});
    let reply = test
        .admin
        .post("/api/v1/persistentvolumes?dryRun=All", &volume)
        .await;
    assert_eq!(
        reply.expect_status(201).json()["metadata"]["finalizers"],
        json!(["kubernetes.io/pv-protection"])
    );
}

#[tokio::test]
async fn terminating_namespace_takes_no_new_objects() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("before")).await;
    let namespace = format!("/api/v1/namespaces/{}", test.namespace);
    let deleted = test
        .admin
        .delete(&namespace)
        .await
        .expect_status(200)
        .json();
    assert_eq!(deleted["status"]["phase"], "Terminating");
    let status = wait_for_value("the namespace terminates", async || {
        let reply = test.admin.post(&path, &config_map("late")).await;
        (reply.status == 403).then_some(reply)
    })
    .await
    .expect_failure(
        403,
        "Forbidden",
        &format!(
            "configmaps \"late\" is forbidden: unable to create new content in namespace {} because it is being \
             terminated",
            test.namespace
        ),
    );
    assert_eq!(
        status["details"]["causes"],
        json!([{"reason": "NamespaceTerminating", "field": "metadata.namespace",
            "message": format!("namespace {} is being terminated", test.namespace)}])
    );
    let patch = json!({"data": {"b": "2"}});
    test.admin
        .merge_patch(&format!("{path}/before"), &patch)
        .await
        .expect_status(200);
    test.admin
        .delete(&format!("{path}/before"))
        .await
        .expect_status(200);
}

#[tokio::test]
async fn namespaces_of_the_system_may_not_be_deleted() {
    let test = start().await;
    for name in ["default", "kube-system", "kube-public"] {
        let reply = test
            .admin
            .delete(&format!("/api/v1/namespaces/{name}"))
            .await;
        reply.expect_failure(
            403,
            "Forbidden",
            &format!("namespaces \"{name}\" is forbidden: this namespace may not be deleted"),
        );
    }
}

#[tokio::test]
async fn baseline_namespace_rejects_privileged_pods() {
    let test = start().await;
    let labels = json!({"pod-security.kubernetes.io/enforce": "baseline"});
    let namespace = test.create_namespace(&labels).await;
    let container =
        json!({"name": "c", "image": "example.com/c:1", "securityContext": {"privileged": true}});
    let privileged = pod_with(
        "p",
        &json!({"containers": [container], "hostNetwork": true}),
    );
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    test.admin.post(&path, &privileged).await.expect_failure(
        403,
        "Forbidden",
        "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostNetwork=true), \
         privileged (container \"c\" must not set securityContext.privileged=true)",
    );
    test.create(&path, &pod("plain")).await;
}

#[tokio::test]
async fn restricted_namespace_warns_about_what_it_would_reject() {
    let test = start().await;
    let labels = json!({"pod-security.kubernetes.io/warn": "restricted"});
    let namespace = test.create_namespace(&labels).await;
    let path = format!("/api/v1/namespaces/{namespace}/pods");
    let reply = test.admin.post(&path, &pod("p")).await.expect_status(201);
    let warnings = reply.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(
        warnings[0].starts_with("299 - \"would violate PodSecurity \\\"restricted:latest\\\": "),
        "{warnings:?}"
    );
}

#[tokio::test]
async fn ephemeral_container_is_added_through_its_subresource_only() {
    let test = start().await;
    let path = test.core("pods");
    test.create(&path, &pod("p")).await;
    let patch =
        json!({"spec": {"ephemeralContainers": [{"name": "debug", "image": "example.com/d:1"}]}});
    let reply = test.admin.merge_patch(&format!("{path}/p"), &patch).await;
    reply.expect_reason(422, "Invalid");
    let one = format!("{path}/p/ephemeralcontainers");
    let object = test
        .admin
        .merge_patch(&one, &patch)
        .await
        .expect_status(200)
        .json();
    assert_eq!(object["spec"]["ephemeralContainers"][0]["name"], "debug");
    let none = json!({"spec": {"ephemeralContainers": []}});
    test.admin
        .merge_patch(&one, &none)
        .await
        .expect_reason(422, "Invalid");
}

#[tokio::test]
async fn validation_names_every_field_of_a_pod() {
    let test = start().await;
    let container = json!({"name": "Bad_Name", "image": "", "imagePullPolicy": "Sometimes",
        "ports": [{"containerPort": 70000}], "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}});
    let pod = pod_with(
        "p",
        &json!({"containers": [container], "restartPolicy": "Perhaps"}),
    );
    let reply = test.admin.post(&test.core("pods"), &pod).await;
    reply.expect_causes(&[
        ("spec.containers[0].image", "FieldValueRequired"),
        (
            "spec.containers[0].imagePullPolicy",
            "FieldValueNotSupported",
        ),
        ("spec.containers[0].name", "FieldValueInvalid"),
        (
            "spec.containers[0].ports[0].containerPort",
            "FieldValueInvalid",
        ),
        ("spec.containers[0].resources.requests", "FieldValueInvalid"),
        ("spec.restartPolicy", "FieldValueNotSupported"),
    ]);
}
