//! Which requests webhooks are called for.

use super::{
    GROUP, allow, deny, hook, patch, register_mutating, register_validating, requests,
    service_hook, service_name, start,
};
use http::Version;
use integration_tests::{ReplyExt, Test, config_map, deployment};
use serde_json::{Value, json};
use testkit_control_plane::WebhookServer;

#[tokio::test]
async fn configurations_themselves_are_exempt() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/guard" => deny(review, "configurations are guarded"),
        _ => allow(review),
    })
    .await;
    let mut guard = hook(&test, &server, "guard", &["*"]);
    guard["rules"][0]["apiGroups"] = json!(["admissionregistration.k8s.io"]);
    let labels = json!({"guarded": test.namespace});
    guard["objectSelector"] = json!({"matchLabels": labels});
    register_validating(&test, &server, vec![guard]).await;
    for plural in [
        "validatingwebhookconfigurations",
        "mutatingwebhookconfigurations",
    ] {
        let kind = if plural.starts_with('v') {
            "Validating"
        } else {
            "Mutating"
        };
        let object = json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": format!("{kind}WebhookConfiguration"),
            "metadata": {"name": test.name("exempt"), "labels": labels}, "webhooks": []});
        let path = format!("{GROUP}/{plural}");
        test.create(&path, &object).await;
        let path = format!("{path}/{}", test.name("exempt"));
        test.admin.delete(&path).await.expect_status(200);
    }
    assert!(requests(&server, "guard").is_empty());
}

#[tokio::test]
async fn namespace_selector_uses_the_labels_of_the_namespace() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/marker" => allow(review),
        _ => deny(review, "no"),
    })
    .await;
    let mut guard = hook(&test, &server, "guard", &["configmaps", "namespaces"]);
    guard["namespaceSelector"] = json!({"matchLabels": {"guarded": test.namespace}});
    register_validating(&test, &server, vec![guard]).await;
    let path = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    test.create(&path(&test.namespace), &config_map("m")).await;
    // The namespace itself is judged by its own labels, which no cache has yet.
    let labels = json!({"guarded": test.namespace});
    let guarded = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": test.name("guarded"), "labels": labels}});
    let reply = test.admin.post("/api/v1/namespaces", &guarded).await;
    reply.expect_reason(403, "Forbidden");
    let request = requests(&server, "guard").remove(0);
    assert_eq!(request["namespace"], test.name("guarded").as_str());
    // Labelled later: the namespace's update is denied, too.
    let other = test.create_namespace(&json!({})).await;
    let reply = test
        .admin
        .merge_patch(
            &format!("/api/v1/namespaces/{other}"),
            &json!({"metadata": {"labels": labels}}),
        )
        .await;
    reply.expect_reason(403, "Forbidden");
    test.create(&path(&other), &config_map("m")).await;
}

#[tokio::test]
async fn object_selector_matches_the_old_or_the_new_object() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| allow(review)).await;
    let mut guard = hook(&test, &server, "guard", &["configmaps"]);
    guard["objectSelector"] = json!({"matchLabels": {"watched": "yes"}});
    register_validating(&test, &server, vec![guard]).await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("m")).await;
    assert!(requests(&server, "guard").is_empty());
    let object = format!("{path}/m");
    for labels in [json!({"watched": "yes"}), json!({"watched": null})] {
        let change = json!({"metadata": {"labels": labels}});
        test.admin
            .merge_patch(&object, &change)
            .await
            .expect_status(200);
    }
    assert_eq!(requests(&server, "guard").len(), 2);
    test.admin.delete(&object).await.expect_status(200);
    assert_eq!(requests(&server, "guard").len(), 2, "no label any more");
}

#[tokio::test]
async fn subresource_is_matched_by_name_only() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| allow(review)).await;
    let hooks = vec![
        hook(&test, &server, "scale", &["deployments/scale"]),
        hook(&test, &server, "whole", &["deployments"]),
    ];
    register_validating(&test, &server, hooks).await;
    let path = test.group("apps/v1", "deployments");
    test.create(&path, &deployment("d", 1)).await;
    let scale = json!({"spec": {"replicas": 2}});
    let reply = test
        .admin
        .merge_patch(&format!("{path}/d/scale"), &scale)
        .await;
    reply.expect_status(200);
    let request = requests(&server, "scale").remove(0);
    assert_eq!(request["subResource"], "scale");
    assert_eq!(request["kind"]["kind"], "Scale");
    assert_eq!(request["object"]["kind"], "Scale");
    assert_eq!(request["object"]["spec"]["replicas"], 2);
    assert_eq!(request["oldObject"]["spec"]["replicas"], 1);
    assert_eq!(request["resource"]["group"], "apps");
    let whole: Vec<Value> = requests(&server, "whole");
    assert_eq!(whole.len(), 1, "the create alone");
}

#[tokio::test]
async fn eviction_is_not_reviewed_as_a_deletion() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/deletions" => deny(review, "evict it"),
        _ => allow(review),
    })
    .await;
    let mut deletions = hook(&test, &server, "deletions", &["pods"]);
    deletions["rules"][0]["operations"] = json!(["DELETE"]);
    let evictions = hook(&test, &server, "evictions", &["pods/eviction"]);
    register_validating(&test, &server, vec![deletions, evictions]).await;
    let path = test.core("pods");
    test.create(&path, &integration_tests::pod("p")).await;
    let reply = test.admin.delete(&format!("{path}/p")).await;
    reply.expect_reason(403, "Forbidden");
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    test.create(&format!("{path}/p/eviction"), &eviction).await;
    let request = requests(&server, "evictions").remove(0);
    assert_eq!(request["kind"]["group"], "policy");
    assert_eq!(request["object"]["kind"], "Eviction");
    assert_eq!(
        requests(&server, "deletions").len(),
        1,
        "the deletion alone"
    );
    test.wait_until_deleted(&format!("{path}/p")).await;
}

#[tokio::test]
async fn reviews_of_access_are_matched_like_other_objects() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| allow(review)).await;
    let reviews = hook(&test, &server, "reviews", &["localsubjectaccessreviews"]);
    register_validating(&test, &server, vec![reviews]).await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": test.namespace},
        "spec": {"user": "u", "resourceAttributes": {"namespace": test.namespace, "verb": "get", "resource": "pods"}}});
    let path = test.group("authorization.k8s.io/v1", "localsubjectaccessreviews");
    test.create(&path, &review).await;
    let request = requests(&server, "reviews").remove(0);
    assert_eq!(request["kind"]["kind"], "LocalSubjectAccessReview");
    assert_eq!(request["object"]["spec"]["user"], "u");
}

#[tokio::test]
async fn object_is_converted_to_the_version_of_the_rule() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/old" => patch(
            review,
            &json!([{"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 70}]),
        ),
        _ => allow(review),
    })
    .await;
    let versioned = |name: &str, policy: &str| {
        let mut hook = hook(&test, &server, name, &["horizontalpodautoscalers"]);
        hook["rules"][0]["apiVersions"] = json!(["v1"]);
        hook["matchPolicy"] = json!(policy);
        hook
    };
    let hooks = vec![versioned("old", "Equivalent"), versioned("exact", "Exact")];
    register_mutating(&test, &server, hooks).await;
    let metric = |value: u8| json!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": value}}}]);
    let object = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "metrics": metric(50),
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
    let path = test.group("autoscaling/v2", "horizontalpodautoscalers");
    let created = test.create(&path, &object).await;
    assert_eq!(created["apiVersion"], "autoscaling/v2");
    assert_eq!(created["spec"]["metrics"], metric(70));
    let request = requests(&server, "old").remove(0);
    assert_eq!(request["kind"]["version"], "v1");
    assert_eq!(request["requestKind"]["version"], "v2");
    assert_eq!(request["resource"]["version"], "v1");
    assert_eq!(request["object"]["apiVersion"], "autoscaling/v1");
    assert!(requests(&server, "exact").is_empty());
}

#[tokio::test]
async fn match_conditions_decide_about_the_call() {
    let test = start().await;
    let server = WebhookServer::start(&[], |path, review| match path {
        "/marker" => allow(review),
        _ => deny(review, "no"),
    })
    .await;
    let conditional = |name: &str, expressions: &[&str]| {
        let mut hook = hook(&test, &server, name, &["configmaps"]);
        let conditions = expressions.iter().enumerate();
        let conditions = conditions.map(|(i, e)| json!({"name": format!("c{i}"), "expression": e}));
        hook["matchConditions"] = conditions.collect();
        hook
    };
    let hooks = vec![
        conditional("never", &["true", "request.userInfo.username == 'nobody'"]),
        conditional(
            "data",
            &[
                "has(object.data) && 'bad' in object.data",
                "oldObject == null",
            ],
        ),
        conditional(
            "reader",
            &["!authorizer.requestResource.check('create').allowed()"],
        ),
    ];
    register_validating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("good")).await;
    let mut bad = config_map("bad");
    bad["data"]["bad"] = json!("yes");
    let message = "admission webhook \"data.example.com\" denied the request: no";
    let reply = test.admin.post(&path, &bad).await;
    reply.expect_failure(403, "Forbidden", message);
    assert!(requests(&server, "never").is_empty());
    assert!(requests(&server, "reader").is_empty());
}

/// Returns how many creations a step of admission has let pass, or rejected. Concurrent tests count,
/// too.
async fn count_creations(test: &Test, step: &str, rejected: bool) -> u64 {
    let start = format!(
        "apiserver_admission_step_admission_duration_seconds_count{{type=\"{step}\",operation=\"CREATE\",rejected=\"{rejected}\"}} "
    );
    let page = test.admin.get("/metrics").await.text();
    let count = page.lines().find_map(|line| line.strip_prefix(&start));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn match_condition_that_fails_counts_by_the_failure_policy() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| allow(review)).await;
    let mut guard = hook(&test, &server, "level", &["configmaps"]);
    guard["matchConditions"] = json!([{"name": "c", "expression": "object.metadata.name == 'marker' || object.data.level == '1'"}]);
    let mut lenient = hook(&test, &server, "any-level", &["secrets"]);
    lenient["matchConditions"] = json!([{"name": "c", "expression": "object.none.x == 1"}]);
    lenient["failurePolicy"] = json!("Ignore");
    register_validating(&test, &server, vec![guard, lenient]).await;
    let rejected_before = count_creations(&test, "validate", true).await;
    let admitted_before = count_creations(&test, "admit", false).await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &config_map("m"))
        .await;
    let message = "configmaps \"m\" is forbidden: expression 'object.metadata.name == 'marker' || \
                   object.data.level == '1'' resulted in error: no such key: level";
    reply.expect_failure(403, "Forbidden", message);
    assert!(count_creations(&test, "validate", true).await > rejected_before);
    assert!(count_creations(&test, "admit", false).await > admitted_before);
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}});
    test.create(&test.core("secrets"), &secret).await;
    assert!(requests(&server, "any-level").is_empty());
    let page = test.admin.get("/metrics").await.text();
    for line in [
        "apiserver_admission_match_condition_evaluation_errors_total{name=\"level.example.com\",kind=\"webhook\",type=\"validating\",operation=\"CREATE\"} 1\n",
        "apiserver_admission_match_condition_exclusions_total{name=\"any-level.example.com\",kind=\"webhook\",type=\"validate\",operation=\"CREATE\"} 1\n",
        "apiserver_admission_match_condition_evaluation_seconds_count{name=\"level.example.com\",kind=\"webhook\",type=\"validating\",operation=\"CREATE\"} 1\n",
    ] {
        assert!(page.contains(line), "{line} is missing in {page}");
    }
}

#[tokio::test]
async fn match_conditions_that_do_not_compile_are_rejected() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| allow(review)).await;
    for kind in [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
    ] {
        for (expression, expect) in [
            (
                "object.",
                "compilation failed: ERROR: <input>:1:8: Syntax error",
            ),
            ("1", "must evaluate to bool but got int"),
            ("params.x == 1", "undeclared reference to 'params'"),
        ] {
            let mut conditional = hook(&test, &server, "guard", &["configmaps"]);
            conditional["matchConditions"] = json!([{"name": "c", "expression": expression}]);
            let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": {"name": test.name("conditions")}, "webhooks": [conditional]});
            let path = format!("{GROUP}/{}s", kind.to_lowercase());
            let reply = test.admin.post(&path, &object).await;
            let status = reply.expect_reason(422, "Invalid");
            let message = status["message"].as_str().unwrap_or_default();
            assert!(message.contains(expect), "{message}");
        }
    }
}

#[tokio::test]
async fn service_is_resolved_and_its_connection_is_reused() {
    let test = start().await;
    let server = WebhookServer::start(&[&service_name(&test)], |_, review| allow(review)).await;
    let hooks = vec![service_hook(&test, &server, "one", &["configmaps"]).await];
    register_validating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    for name in ["a", "b", "c"] {
        test.create(&path, &config_map(name)).await;
    }
    let received = server.received().into_iter();
    let calls: Vec<_> = received
        .filter(|call| call.path.starts_with("/one"))
        .filter(|call| call.review["request"]["name"] != "marker")
        .collect();
    assert_eq!(calls.len(), 3);
    assert!(
        calls
            .iter()
            .all(|call| call.connection == calls[0].connection)
    );
    assert!(calls[0].path.ends_with("?timeout=10s"), "{}", calls[0].path);
    assert!(calls[0].version < Version::HTTP_2, "{:?}", calls[0].version);
}

#[tokio::test]
async fn http2_is_used_to_this_machine() {
    let test = start().await;
    let server = WebhookServer::start(&[], |_, review| allow(review)).await;
    let hooks = vec![hook(&test, &server, "one", &["configmaps"])];
    register_validating(&test, &server, hooks).await;
    let path = test.core("configmaps");
    let create = async |name: &str| test.create(&path, &config_map(name)).await;
    futures::join!(create("a"), create("b"), create("c"));
    let received = server.received();
    assert!(received.iter().all(|call| call.version == Version::HTTP_2));
    assert!(
        received
            .iter()
            .all(|call| call.connection == received[0].connection)
    );
}
