//! Reads: absent objects, lists and their selectors.

use integration_tests::{Components, ReplyExt, Test, config_map, pod, pod_with};
use serde_json::json;

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

#[tokio::test]
async fn absent_object_is_not_found() {
    let test = start().await;
    let reply = test.admin.get(&test.core("configmaps/none")).await;
    let status = reply.expect_failure(404, "NotFound", "configmaps \"none\" not found");
    assert_eq!(
        status["details"],
        json!({"name": "none", "kind": "configmaps"})
    );
    assert_eq!(status["metadata"], json!({}));
}

#[tokio::test]
async fn absent_object_of_a_group_is_named_with_its_group() {
    let test = start().await;
    let reply = test
        .admin
        .get(&test.group("apps/v1", "deployments/none"))
        .await;
    let status = reply.expect_failure(404, "NotFound", "deployments.apps \"none\" not found");
    assert_eq!(
        status["details"],
        json!({"name": "none", "group": "apps", "kind": "deployments"})
    );
}

#[tokio::test]
async fn unknown_resource_is_not_found() {
    let test = start().await;
    for path in [
        test.core("things"),
        "/apis/example.com/v1/things".to_owned(),
    ] {
        let reply = test.admin.get(&path).await;
        assert_eq!(reply.status, 404, "{path}");
        let text = reply.text();
        assert!(
            text.contains("the server could not find the requested resource")
                || text.contains("404 page not found"),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn list_in_an_absent_namespace_is_empty() {
    let test = start().await;
    let list = test.read("/api/v1/namespaces/absent/configmaps").await;
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn list_is_sorted_by_namespace_and_name() {
    let test = start().await;
    let other = test.create_namespace(&json!({})).await;
    for namespace in [&other, &test.namespace] {
        for name in ["b", "a"] {
            let mut object = config_map(name);
            object["metadata"]["labels"] = json!({"sorted": test.namespace});
            let path = format!("/api/v1/namespaces/{namespace}/configmaps");
            test.create(&path, &object).await;
        }
    }
    let path = format!("/api/v1/configmaps?labelSelector=sorted={}", test.namespace);
    let list = test.read(&path).await;
    let keys: Vec<(&str, &str)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let metadata = &item["metadata"];
            (
                metadata["namespace"].as_str().unwrap(),
                metadata["name"].as_str().unwrap(),
            )
        })
        .collect();
    let (first, second) = (test.namespace.as_str(), other.as_str());
    assert_eq!(
        keys,
        [(first, "a"), (first, "b"), (second, "a"), (second, "b")]
    );
}

#[tokio::test]
async fn items_of_a_list_have_no_type() {
    let test = start().await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    let list = test.read(&test.core("configmaps")).await;
    assert_eq!(list["apiVersion"], "v1");
    let item = &list["items"][0];
    assert_eq!((item.get("kind"), item.get("apiVersion")), (None, None));
}

#[tokio::test]
async fn label_selectors_choose_objects() {
    let test = start().await;
    let path = test.core("configmaps");
    for (name, labels) in [
        ("one", json!({"env": "prod", "tier": "web"})),
        ("two", json!({"env": "dev"})),
        ("three", json!({"tier": "db"})),
        ("four", json!({})),
    ] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = labels;
        test.create(&path, &object).await;
    }
    for (selector, expected) in [
        ("env%3Dprod", vec!["one"]),
        ("env%3D%3Ddev", vec!["two"]),
        ("env!%3Dprod", vec!["four", "three", "two"]),
        ("env%20in%20(prod,dev)", vec!["one", "two"]),
        ("env%20notin%20(prod)", vec!["four", "three", "two"]),
        ("tier", vec!["one", "three"]),
        ("!tier", vec!["four", "two"]),
        ("env%3Dprod,tier%3Dweb", vec!["one"]),
        ("env%3Dprod,tier%3Ddb", vec![]),
        ("", vec!["four", "one", "three", "two"]),
    ] {
        let names = test
            .names(&format!("{path}?labelSelector={selector}"))
            .await;
        assert_eq!(names, expected, "{selector}");
    }
}

#[tokio::test]
async fn malformed_label_selector_is_a_bad_request() {
    let test = start().await;
    for (selector, message) in [
        ("a%3Db%3Dc", "found '=', expected: ',' or 'end of string'"),
        (
            "(a)",
            "found '(', expected: !, identifier, or 'end of string'",
        ),
        (
            "a%20in%20b",
            "unable to parse requirement: found 'b' expected: '('",
        ),
        (
            "a%20in%20(b",
            "unable to parse requirement: found '', expected: ',' or ')'",
        ),
        (
            "a%3E",
            "unable to parse requirement: values[0]: Invalid value: \"\": for 'Gt', 'Lt' operators, the value must be \
             an integer",
        ),
    ] {
        let path = format!("{}?labelSelector={selector}", test.core("configmaps"));
        test.admin
            .get(&path)
            .await
            .expect_failure(400, "BadRequest", message);
    }
}

#[tokio::test]
async fn field_selectors_choose_pods() {
    let test = start().await;
    let path = test.core("pods");
    test.create(&path, &pod("free")).await;
    let bound = json!({"nodeName": "absent-node", "restartPolicy": "Never"});
    test.create(&path, &pod_with("bound", &bound)).await;
    for (selector, expected) in [
        ("metadata.name=free", vec!["free"]),
        ("metadata.name!=free", vec!["bound"]),
        ("spec.nodeName=", vec!["free"]),
        ("spec.nodeName=absent-node", vec!["bound"]),
        ("spec.restartPolicy=Never", vec!["bound"]),
        ("status.phase=Pending", vec!["bound", "free"]),
        ("status.phase=Running", vec![]),
        (
            "spec.schedulerName=default-scheduler,spec.nodeName=",
            vec!["free"],
        ),
    ] {
        let names = test
            .names(&format!("{path}?fieldSelector={selector}"))
            .await;
        assert_eq!(names, expected, "{selector}");
    }
}

#[tokio::test]
async fn unknown_field_selector_is_a_bad_request() {
    let test = start().await;
    let path = format!("{}?fieldSelector=spec.bogus=x", test.core("pods"));
    test.admin.get(&path).await.expect_failure(
        400,
        "BadRequest",
        "field label not supported: spec.bogus",
    );
}
