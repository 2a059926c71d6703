//! Owners of list elements, atomic fields and emptied structs.

use super::{fields_of, start};
use integration_tests::{ReplyExt, config_map, deployment};
use serde_json::{Value, json};

#[tokio::test]
async fn managers_own_entries_of_a_keyed_list() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments/d");
    let object = |container: Value| {
        let mut object = deployment("d", 0);
        object["spec"]["template"]["spec"]["containers"] = json!([container]);
        object
    };
    let first = object(json!({"name": "a", "image": "example.com/a:1"}));
    test.admin
        .apply(&path, "one", &first)
        .await
        .expect_status(201);
    let second = object(json!({"name": "b", "image": "example.com/b:1"}));
    let both = test
        .admin
        .apply(&path, "two", &second)
        .await
        .expect_status(200)
        .json();
    let names = |object: &Value| -> Vec<String> {
        let containers = object["spec"]["template"]["spec"]["containers"]
            .as_array()
            .unwrap();
        containers
            .iter()
            .map(|c| c["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&both), ["a", "b"]);
    let fields = fields_of(&both, "two", "Apply").unwrap();
    assert_eq!(
        fields["f:spec"]["f:template"]["f:spec"]["f:containers"],
        json!({"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:image": {}}})
    );
    let released =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}});
    let left = test
        .admin
        .apply(&path, "two", &released)
        .await
        .expect_status(200)
        .json();
    assert_eq!(names(&left), ["a"]);
}

#[tokio::test]
async fn ports_of_a_service_are_keyed_by_port_and_protocol() {
    let test = start().await;
    let path = test.core("services/s");
    let service = |name: &str, protocol: &str| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"name": name, "port": 53, "protocol": protocol}]}})
    };
    test.admin
        .apply(&path, "one", &service("tcp", "TCP"))
        .await
        .expect_status(201);
    let reply = test.admin.apply(&path, "two", &service("udp", "UDP")).await;
    let object = reply.expect_status(200).json();
    let ports: Vec<&str> = object["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["name"].as_str().unwrap())
        .collect();
    assert_eq!(ports, ["tcp", "udp"]);
    let fields = fields_of(&object, "two", "Apply").unwrap();
    assert!(
        fields["f:spec"]["f:ports"]["k:{\"port\":53,\"protocol\":\"UDP\"}"].is_object(),
        "{fields}"
    );
}

#[tokio::test]
async fn finalizers_are_owned_one_by_one() {
    let test = start().await;
    let path = test.core("configmaps/c");
    let object = |finalizers: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": finalizers}});
    let apply = async |manager: &str, finalizers: Value| {
        let reply = test.admin.apply(&path, manager, &object(finalizers)).await;
        reply.expect_success().json()
    };
    apply("one", json!(["example.com/a"])).await;
    let both = apply("two", json!(["example.com/b"])).await;
    assert_eq!(
        both["metadata"]["finalizers"],
        json!(["example.com/a", "example.com/b"])
    );
    let left = apply("one", json!([])).await;
    assert_eq!(left["metadata"]["finalizers"], json!(["example.com/b"]));
}

#[tokio::test]
async fn atomic_map_conflicts_as_a_whole() {
    let test = start().await;
    let path = test.core("services/s");
    let service = |selector: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": selector, "ports": [{"port": 1}]}})
    };
    test.admin
        .apply(&path, "one", &service(json!({"a": "b"})))
        .await
        .expect_status(201);
    let reply = test
        .admin
        .apply(&path, "two", &service(json!({"c": "d"})))
        .await;
    reply.expect_failure(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .spec.selector",
    );
}

#[tokio::test]
async fn abandoned_status_list_is_removed_from_an_applied_empty_struct() {
    let test = start().await;
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
        "spec": {"matchConstraints": {"resourceRules": [{"apiGroups": ["apps"],
            "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}]},
            "validations": [{"expression": "true"}]}});
    test.admin.post(path, &policy).await.expect_status(201);
    let status = |checked: Value| {
        json!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "status": {"observedGeneration": 1, "typeChecking": checked}})
    };
    let warning = json!({"fieldRef": "spec.validations[0].expression", "warning": "w"});
    let path = format!("{path}/p/status");
    let first = status(json!({"expressionWarnings": [warning]}));
    let reply = test.admin.apply(&path, "checker", &first).await;
    let checking = &reply.expect_status(200).json()["status"]["typeChecking"];
    assert_eq!(checking["expressionWarnings"][0]["warning"], "w");
    let reply = test.admin.apply(&path, "checker", &status(json!({}))).await;
    let object = reply.expect_status(200).json();
    assert_eq!(object["status"]["typeChecking"], json!({}), "{object}");
}

#[tokio::test]
async fn apply_of_duplicate_elements_fails() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["finalizers"] = json!(["example.com/a", "example.com/a"]);
    let reply = test
        .admin
        .apply(&test.core("configmaps/c"), "one", &object)
        .await;
    let status: Value = reply.expect_status(500).json();
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("failed to create typed patch object (")
            && message.ends_with(
                "; v1, Kind=ConfigMap): .metadata.finalizers: duplicate entries for key [=\"example.com/a\"]"
            ),
        "{message}"
    );
}
