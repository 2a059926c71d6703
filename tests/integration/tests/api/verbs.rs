//! Create, get, list, update and delete, and the metadata that the server sets.

use integration_tests::{
    Components, ReplyExt, Test, config_map, deployment, grant_rule, pod, pod_with,
};
use serde_json::{Value, json};

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

#[tokio::test]
async fn created_object_has_system_metadata() {
    let test = start().await;
    let object = test
        .create(&test.core("configmaps"), &config_map("c"))
        .await;
    let metadata = &object["metadata"];
    assert_eq!(
        (&object["apiVersion"], &object["kind"]),
        (&json!("v1"), &json!("ConfigMap"))
    );
    assert_eq!(metadata["name"], "c");
    assert_eq!(metadata["namespace"], test.namespace);
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert!(
        metadata["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > 0
    );
    let time = metadata["creationTimestamp"].as_str().unwrap();
    assert!(time.len() == 20 && time.ends_with('Z'), "{time}");
    // A ConfigMap has no generation.
    assert_eq!(metadata.get("generation"), None);
}

#[tokio::test]
async fn system_metadata_of_the_client_is_ignored_on_create() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["selfLink"] = json!("/mine");
    object["metadata"]["generation"] = json!(7);
    let created = test.create(&test.core("configmaps"), &object).await;
    let metadata = &created["metadata"];
    assert_ne!(metadata["uid"], "mine");
    assert_ne!(metadata["creationTimestamp"], "2001-01-01T00:00:00Z");
    assert_eq!(metadata.get("selfLink"), None);
}

#[tokio::test]
async fn create_with_a_resource_version_fails() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["resourceVersion"] = json!("5");
    let reply = test.admin.post(&test.core("configmaps"), &object).await;
    reply.expect_failure(
        500,
        "",
        "resourceVersion should not be set on objects to be created",
    );
}

#[tokio::test]
async fn second_create_of_a_name_already_exists() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let status = test
        .admin
        .post(&path, &config_map("c"))
        .await
        .expect_failure(409, "AlreadyExists", "configmaps \"c\" already exists");
    assert_eq!(
        status["details"],
        json!({"name": "c", "kind": "configmaps"})
    );
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
async fn generated_names_are_distinct_and_use_the_safe_alphabet() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = json!({"metadata": {"generateName": "gen-"}});
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..5 {
        let created = test.create(&path, &object).await;
        assert_eq!(created["metadata"]["generateName"], "gen-");
        names.insert(created["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!(names.len(), 5);
    for name in names {
        let random = name.strip_prefix("gen-").unwrap();
        assert_eq!(random.len(), 5, "{name}");
        assert!(
            random
                .chars()
                .all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c)),
            "{name}"
        );
    }
}

#[tokio::test]
async fn create_without_a_name_needs_a_name_or_generate_name() {
    let test = start().await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &json!({"metadata": {}}))
        .await;
    let status = reply.expect_causes(&[("metadata.name", "FieldValueRequired")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"
    );
}

#[tokio::test]
async fn invalid_name_is_named_with_its_rule() {
    let test = start().await;
    let reply = test
        .admin
        .post(&test.core("configmaps"), &config_map("Bad_Name"))
        .await;
    let status = reply.expect_causes(&[("metadata.name", "FieldValueInvalid")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 \
         subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an \
         alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
}

#[tokio::test]
async fn body_without_type_takes_that_of_the_path() {
    let test = start().await;
    let created = test
        .create(
            &test.core("configmaps"),
            &json!({"metadata": {"name": "c"}}),
        )
        .await;
    assert_eq!(created["kind"], "ConfigMap");
    assert_eq!(created["apiVersion"], "v1");
}

#[tokio::test]
async fn body_of_another_kind_is_a_bad_request() {
    let test = start().await;
    let mut object = config_map("c");
    object["kind"] = json!("Secret");
    let reply = test.admin.post(&test.core("configmaps"), &object).await;
    let status = reply.expect_reason(400, "BadRequest");
    assert!(
        status["message"].as_str().unwrap().contains("Secret"),
        "{status}"
    );
    test.admin
        .get(&test.core("secrets/c"))
        .await
        .expect_status(404);
}

#[tokio::test]
async fn body_of_another_namespace_is_a_bad_request() {
    let test = start().await;
    let mut object = config_map("c");
    object["metadata"]["namespace"] = json!("default");
    let reply = test.admin.post(&test.core("configmaps"), &object).await;
    reply.expect_failure(
        400,
        "BadRequest",
        "the namespace of the provided object does not match the namespace sent on the request",
    );
}

#[tokio::test]
async fn create_in_an_absent_namespace_is_not_found() {
    let test = start().await;
    let reply = test
        .admin
        .post("/api/v1/namespaces/absent/configmaps", &config_map("c"))
        .await;
    reply.expect_failure(404, "NotFound", "namespaces \"absent\" not found");
}

#[tokio::test]
async fn create_across_namespaces_is_not_allowed() {
    let test = start().await;
    let reply = test
        .admin
        .post("/api/v1/configmaps", &config_map("c"))
        .await;
    reply.expect_failure(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    );
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

#[tokio::test]
async fn update_replaces_the_object() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = test.create(&path, &config_map("c")).await;
    object["data"] = json!({"b": "2"});
    let updated = test
        .admin
        .put(&format!("{path}/c"), &object)
        .await
        .expect_status(200)
        .json();
    assert_eq!(updated["data"], json!({"b": "2"}));
    assert_eq!(updated["metadata"]["uid"], object["metadata"]["uid"]);
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
    assert_eq!(test.read(&format!("{path}/c")).await, updated);
}

#[tokio::test]
async fn update_without_a_change_keeps_the_resource_version() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let updated = test
        .admin
        .put(&format!("{path}/c"), &object)
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        updated["metadata"]["resourceVersion"],
        object["metadata"]["resourceVersion"]
    );
}

#[tokio::test]
async fn update_of_an_absent_object_is_not_found() {
    let test = start().await;
    let reply = test
        .admin
        .put(&test.core("configmaps/c"), &config_map("c"))
        .await;
    reply.expect_failure(404, "NotFound", "configmaps \"c\" not found");
}

#[tokio::test]
async fn update_of_an_absent_lease_creates_it() {
    let test = start().await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}});
    let path = test.group("coordination.k8s.io/v1", "leases/l");
    let reply = test.admin.put(&path, &lease).await;
    let created = reply.expect_status(201).json();
    // An update with the identity of a deleted object creates no other one.
    test.admin.delete(&path).await.expect_status(200);
    let reply = test.admin.put(&path, &created).await;
    reply.expect_reason(409, "Conflict");
    test.admin.get(&path).await.expect_status(404);
}

#[tokio::test]
async fn create_by_an_update_needs_the_right_to_create() {
    let test = start().await;
    let (user, client) = test.connect_user("updater").await;
    let rule = grant_rule("coordination.k8s.io", &["leases"], &["update", "get"]);
    test.grant(&user, &[rule]).await;
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let path = test.group("coordination.k8s.io/v1", "leases/l");
    client.put(&path, &lease).await.expect_failure(
        403,
        "Forbidden",
        &format!(
            "leases.coordination.k8s.io \"l\" is forbidden: User \"{user}\" cannot create resource \"leases\" in API \
             group \"coordination.k8s.io\" in the namespace \"{}\"",
            test.namespace
        ),
    );
}

#[tokio::test]
async fn update_under_another_name_is_a_bad_request() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = test.create(&path, &config_map("c")).await;
    object["metadata"]["name"] = json!("other");
    let reply = test.admin.put(&format!("{path}/c"), &object).await;
    reply.expect_failure(
        400,
        "BadRequest",
        "the name of the object (other) does not match the name on the URL (c)",
    );
}

#[tokio::test]
async fn update_with_another_uid_conflicts() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = test.create(&path, &config_map("c")).await;
    let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
    let other = "00000000-0000-4000-8000-000000000000";
    object["metadata"]["uid"] = json!(other);
    let reply = test.admin.put(&format!("{path}/c"), &object).await;
    let status = reply.expect_reason(409, "Conflict");
    let message = status["message"].as_str().unwrap();
    // Upstream's message has the key in the store, too.
    let part =
        format!("Precondition failed: UID in precondition: {other}, UID in object meta: {uid}");
    assert!(
        message.starts_with("Operation cannot be fulfilled on configmaps \"c\": ")
            && message.ends_with(&part),
        "{message}"
    );
}

#[tokio::test]
async fn immutable_config_map_rejects_changes_of_its_data() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = config_map("c");
    object["immutable"] = json!(true);
    test.create(&path, &object).await;
    let change = json!({"data": {"a": "2"}});
    let reply = test.admin.merge_patch(&format!("{path}/c"), &change).await;
    let status = reply.expect_causes(&[("data", "FieldValueForbidden")]);
    assert_eq!(
        status["message"],
        "ConfigMap \"c\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
    );
    let change = json!({"metadata": {"labels": {"x": "y"}}});
    test.admin
        .merge_patch(&format!("{path}/c"), &change)
        .await
        .expect_status(200);
}

#[tokio::test]
async fn generation_counts_changes_of_the_spec_only() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    let created = test.create(&path, &deployment("d", 0)).await;
    assert_eq!(created["metadata"]["generation"], 1);
    let path = format!("{path}/d");
    let labels = json!({"metadata": {"labels": {"x": "y"}}});
    let labelled = test
        .admin
        .merge_patch(&path, &labels)
        .await
        .expect_status(200)
        .json();
    assert_eq!(labelled["metadata"]["generation"], 1);
    let scaled = json!({"spec": {"replicas": 1}});
    let scaled = test
        .admin
        .merge_patch(&path, &scaled)
        .await
        .expect_status(200)
        .json();
    assert_eq!(scaled["metadata"]["generation"], 2);
}

#[tokio::test]
async fn status_is_written_through_its_subresource_only() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    let mut object = deployment("d", 0);
    object["status"] = json!({"replicas": 3});
    let created = test.create(&path, &object).await;
    assert_eq!(created["status"], json!({}));
    let path = format!("{path}/d");
    let change = json!({"spec": {"replicas": 5}, "status": {"observedGeneration": 1}});
    let written = test
        .admin
        .merge_patch(&format!("{path}/status"), &change)
        .await
        .expect_status(200)
        .json();
    assert_eq!(written["spec"]["replicas"], 0);
    assert_eq!(written["status"]["observedGeneration"], 1);
    let change = json!({"status": {"observedGeneration": 9}});
    let written = test
        .admin
        .merge_patch(&path, &change)
        .await
        .expect_status(200)
        .json();
    assert_eq!(written["status"]["observedGeneration"], 1);
}

#[tokio::test]
async fn scale_reads_and_writes_replicas() {
    let test = start().await;
    let path = test.group("apps/v1", "deployments");
    let created = test.create(&path, &deployment("d", 2)).await;
    let scale_path = format!("{path}/d/scale");
    let mut scale = test.read(&scale_path).await;
    assert_eq!(
        (&scale["apiVersion"], &scale["kind"]),
        (&json!("autoscaling/v1"), &json!("Scale"))
    );
    assert_eq!(scale["metadata"]["uid"], created["metadata"]["uid"]);
    assert_eq!(scale["spec"], json!({"replicas": 2}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=d"}));
    scale["spec"]["replicas"] = json!(4);
    test.admin.put(&scale_path, &scale).await.expect_status(200);
    assert_eq!(test.read(&format!("{path}/d")).await["spec"]["replicas"], 4);
    let negative = json!({"spec": {"replicas": -1}});
    let reply = test.admin.merge_patch(&scale_path, &negative).await;
    reply.expect_causes(&[("spec.replicas", "FieldValueInvalid")]);
}

#[tokio::test]
async fn delete_responds_with_a_status() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let status = test
        .admin
        .delete(&format!("{path}/c"))
        .await
        .expect_status(200)
        .json();
    assert_eq!(
        (&status["kind"], &status["status"]),
        (&json!("Status"), &json!("Success"))
    );
    assert_eq!(
        status["details"],
        json!({"name": "c", "kind": "configmaps", "uid": object["metadata"]["uid"]})
    );
    test.admin
        .get(&format!("{path}/c"))
        .await
        .expect_status(404);
    let reply = test.admin.delete(&format!("{path}/c")).await;
    reply.expect_failure(404, "NotFound", "configmaps \"c\" not found");
}

#[tokio::test]
async fn delete_collection_removes_the_selected_objects() {
    let test = start().await;
    let path = test.core("configmaps");
    for (name, batch) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut object = config_map(name);
        object["metadata"]["labels"] = json!({"batch": batch});
        test.create(&path, &object).await;
    }
    let reply = test
        .admin
        .delete(&format!("{path}?labelSelector=batch=x"))
        .await;
    let list = reply.expect_status(200).json();
    assert_eq!(list["kind"], "ConfigMapList");
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    assert_eq!(test.names(&path).await, ["c"]);
}

#[tokio::test]
async fn delete_keeps_an_object_with_a_finalizer() {
    let test = start().await;
    let path = test.core("configmaps");
    let mut object = config_map("c");
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    test.create(&path, &object).await;
    let one = format!("{path}/c");
    let marked = test.admin.delete(&one).await.expect_status(200).json();
    assert_eq!(marked["kind"], "ConfigMap");
    let metadata = &marked["metadata"];
    assert!(metadata["deletionTimestamp"].is_string(), "{metadata}");
    assert_eq!(metadata["deletionGracePeriodSeconds"], 0);
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/late"]}});
    let status = test
        .admin
        .merge_patch(&one, &more)
        .await
        .expect_reason(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("no new finalizers can be added if the object is being deleted"),
        "{status}"
    );
    let none = json!({"metadata": {"finalizers": null}});
    test.admin.merge_patch(&one, &none).await.expect_status(200);
    test.admin.get(&one).await.expect_status(404);
}

#[tokio::test]
async fn delete_preconditions_are_compared() {
    let test = start().await;
    let path = test.core("configmaps");
    let object = test.create(&path, &config_map("c")).await;
    let one = format!("{path}/c");
    let uid = object["metadata"]["uid"].as_str().unwrap();
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    let other = "00000000-0000-4000-8000-000000000000";
    let delete = async |preconditions: Value| {
        test.admin
            .delete_with(&one, &json!({"preconditions": preconditions}))
            .await
    };
    delete(json!({"uid": other})).await.expect_failure(
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"c\": the UID in the precondition ({other}) does not match \
             the UID in record ({uid}). The object might have been deleted and then recreated"
        ),
    );
    delete(json!({"resourceVersion": "1"})).await.expect_failure(
        409,
        "Conflict",
        &format!(
            "Operation cannot be fulfilled on ConfigMap \"c\": the ResourceVersion in the precondition (1) does not \
             match the ResourceVersion in record ({version}). The object might have been modified"
        ),
    );
    delete(json!({"uid": uid, "resourceVersion": version}))
        .await
        .expect_status(200);
}

#[tokio::test]
async fn propagation_policy_sets_its_finalizer() {
    let test = start().await;
    let path = test.core("configmaps");
    for (policy, finalizers) in [
        (
            "Foreground",
            json!(["example.com/hold", "foregroundDeletion"]),
        ),
        ("Orphan", json!(["example.com/hold", "orphan"])),
        ("Background", json!(["example.com/hold"])),
    ] {
        let name = policy.to_lowercase();
        let mut object = config_map(&name);
        object["metadata"]["finalizers"] = json!(["example.com/hold"]);
        test.create(&path, &object).await;
        let options = json!({"propagationPolicy": policy});
        let reply = test
            .admin
            .delete_with(&format!("{path}/{name}"), &options)
            .await;
        let mut marked = reply.expect_status(200).json();
        let list = marked["metadata"]["finalizers"].as_array_mut().unwrap();
        list.sort_by_key(Value::to_string);
        assert_eq!(json!(list), finalizers, "{policy}");
    }
}

#[tokio::test]
async fn contradictory_delete_options_are_invalid() {
    let test = start().await;
    let path = test.core("configmaps");
    test.create(&path, &config_map("c")).await;
    let one = format!("{path}/c");
    for (options, field) in [
        (
            json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
            "propagationPolicy",
        ),
        (
            json!({"propagationPolicy": "Sideways"}),
            "propagationPolicy",
        ),
        (json!({"dryRun": ["None"]}), "dryRun"),
    ] {
        let status = test
            .admin
            .delete_with(&one, &options)
            .await
            .expect_reason(422, "Invalid");
        assert!(
            status["message"].as_str().unwrap().contains(field),
            "{options}: {status}"
        );
    }
    test.admin.get(&one).await.expect_status(200);
}

#[tokio::test]
async fn dry_run_writes_nothing() {
    let test = start().await;
    let path = test.core("configmaps");
    let reply = test
        .admin
        .post(&format!("{path}?dryRun=All"), &config_map("c"))
        .await;
    let created = reply.expect_status(201).json();
    assert!(created["metadata"]["uid"].is_string());
    assert_eq!(created["metadata"].get("resourceVersion"), None);
    test.admin
        .get(&format!("{path}/c"))
        .await
        .expect_status(404);

    let object = test.create(&path, &config_map("c")).await;
    let dry = format!("{path}/c?dryRun=All");
    let change = json!({"data": {"a": "2"}});
    let patched = test
        .admin
        .merge_patch(&dry, &change)
        .await
        .expect_status(200)
        .json();
    assert_eq!(patched["data"], json!({"a": "2"}));
    let mut replaced = object.clone();
    replaced["data"] = json!({"a": "3"});
    test.admin.put(&dry, &replaced).await.expect_status(200);
    test.admin.delete(&dry).await.expect_status(200);
    test.admin
        .delete(&format!("{path}?dryRun=All"))
        .await
        .expect_status(200);
    assert_eq!(test.read(&format!("{path}/c")).await, object);
}

#[tokio::test]
async fn unknown_dry_run_value_is_invalid() {
    let test = start().await;
    let path = format!("{}?dryRun=Some", test.core("configmaps"));
    let reply = test.admin.post(&path, &config_map("c")).await;
    let status = reply.expect_reason(422, "Invalid");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("dryRun: Unsupported value: \"Some\": supported values: \"All\""),
        "{status}"
    );
}

#[tokio::test]
async fn binding_assigns_a_pod_once() {
    let test = start().await;
    let path = test.core("pods");
    test.create(&path, &pod("p")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "absent-node"}});
    let bind = format!("{path}/p/binding");
    let status = test.create(&bind, &binding).await;
    assert_eq!(status["status"], "Success");
    let bound = test.read(&format!("{path}/p")).await;
    assert_eq!(bound["spec"]["nodeName"], "absent-node");
    let condition = &bound["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("PodScheduled"), &json!("True"))
    );
    test.admin.post(&bind, &binding).await.expect_failure(
        409,
        "Conflict",
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"absent-node\"",
    );
}

#[tokio::test]
async fn eviction_deletes_a_pod_and_obeys_its_disruption_budget() {
    let test = start().await;
    let path = test.core("pods");
    let eviction = |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    test.create(&path, &pod("free")).await;
    test.create(&format!("{path}/free/eviction"), &eviction("free"))
        .await;
    test.admin
        .get(&format!("{path}/free"))
        .await
        .expect_status(404);

    let mut held = pod_with("held", &json!({"nodeName": "absent-node"}));
    held["metadata"]["labels"] = json!({"held": "yes"});
    test.create(&path, &held).await;
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    let reply = test
        .admin
        .merge_patch(&format!("{path}/held/status"), &running)
        .await;
    reply.expect_status(200);
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"held": "yes"}}}});
    test.create(&test.group("policy/v1", "poddisruptionbudgets"), &budget)
        .await;
    let reply = test
        .admin
        .post(&format!("{path}/held/eviction"), &eviction("held"))
        .await;
    let status = reply.expect_failure(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    assert_eq!(status["details"]["causes"][0]["reason"], "DisruptionBudget");
}
