//! RBAC, access reviews, escalation, and the Node authorizer.

use http::Method;
use integration_tests::{
    Components, Http2Client, ReplyExt, Test, config_map, grant_rule, node, pod, pod_with, wait_for,
};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

async fn start() -> Test {
    Test::start(Components::ApiServer).await
}

async fn is_allowed(test: &Test, spec: Value) -> bool {
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    test.create(path, &review).await["status"]["allowed"] == true
}

/// Creates a Node, and connects with the identity of its kubelet.
async fn connect_node(test: &Test, stem: &str) -> (String, Http2Client) {
    let name = test.name(stem);
    test.create("/api/v1/nodes", &node(&name, &json!({}))).await;
    let client = test.connect(&test.plane().kubelet(&name)).await;
    (name, client)
}

#[tokio::test]
async fn user_without_a_role_is_forbidden() {
    let test = start().await;
    let (user, client) = test.connect_user("user").await;
    let namespace = &test.namespace;
    for (reply, message) in [
        (
            client.get(&test.core("configmaps")).await,
            format!(
                "configmaps is forbidden: User \"{user}\" cannot list resource \"configmaps\" in API group \"\" in \
                 the namespace \"{namespace}\""
            ),
        ),
        (
            client.get(&test.core("configmaps/c")).await,
            format!(
                "configmaps \"c\" is forbidden: User \"{user}\" cannot get resource \"configmaps\" in API group \
                 \"\" in the namespace \"{namespace}\""
            ),
        ),
        (
            client.get("/api/v1/nodes").await,
            format!(
                "nodes is forbidden: User \"{user}\" cannot list resource \"nodes\" in API group \"\" at the cluster \
                 scope"
            ),
        ),
        (
            client.delete(&test.group("apps/v1", "deployments/d")).await,
            format!(
                "deployments.apps \"d\" is forbidden: User \"{user}\" cannot delete resource \"deployments\" in API \
                 group \"apps\" in the namespace \"{namespace}\""
            ),
        ),
        (
            client.get("/metrics").await,
            format!("forbidden: User \"{user}\" cannot get path \"/metrics\""),
        ),
    ] {
        reply.expect_failure(403, "Forbidden", &message);
    }
}

#[tokio::test]
async fn role_grants_its_verbs_in_its_namespace_only() {
    let test = start().await;
    let (user, client) = test.connect_user("user").await;
    test.create(&test.core("configmaps"), &config_map("c"))
        .await;
    test.grant(&user, &[grant_rule("", &["configmaps"], &["get", "list"])])
        .await;
    let path = test.core("configmaps");
    client.get(&path).await.expect_status(200);
    client.get(&format!("{path}/c")).await.expect_status(200);
    client
        .delete(&format!("{path}/c"))
        .await
        .expect_reason(403, "Forbidden");
    client
        .post(&path, &config_map("x"))
        .await
        .expect_reason(403, "Forbidden");
    client
        .get(&format!("{path}?watch=true"))
        .await
        .expect_reason(403, "Forbidden");
    client
        .get("/api/v1/configmaps")
        .await
        .expect_reason(403, "Forbidden");
    client
        .get("/api/v1/namespaces/default/configmaps")
        .await
        .expect_reason(403, "Forbidden");
    client
        .get(&test.core("secrets"))
        .await
        .expect_reason(403, "Forbidden");
}

#[tokio::test]
async fn rule_with_resource_names_grants_these_objects_only() {
    let test = start().await;
    let (user, client) = test.connect_user("user").await;
    let path = test.core("configmaps");
    for name in ["mine", "other"] {
        test.create(&path, &config_map(name)).await;
    }
    let mut rule = grant_rule("", &["configmaps"], &["get", "list", "patch"]);
    rule["resourceNames"] = json!(["mine"]);
    test.grant(&user, &[rule]).await;
    client.get(&format!("{path}/mine")).await.expect_status(200);
    client
        .get(&format!("{path}/other"))
        .await
        .expect_reason(403, "Forbidden");
    client.get(&path).await.expect_reason(403, "Forbidden");
    client
        .get(&format!("{path}?fieldSelector=metadata.name=mine"))
        .await
        .expect_status(200);
    client
        .get(&format!("{path}?fieldSelector=metadata.name=other"))
        .await
        .expect_reason(403, "Forbidden");
}

#[tokio::test]
async fn subresource_is_granted_apart_from_its_resource() {
    let test = start().await;
    let (user, client) = test.connect_user("user").await;
    test.create(&test.core("pods"), &pod("p")).await;
    test.grant(&user, &[grant_rule("", &["pods/status"], &["get"])])
        .await;
    client
        .get(&test.core("pods/p/status"))
        .await
        .expect_status(200);
    client
        .get(&test.core("pods/p"))
        .await
        .expect_reason(403, "Forbidden");
    client.get(&test.core("pods/p/log")).await.expect_failure(
        403,
        "Forbidden",
        &format!(
            "pods \"p\" is forbidden: User \"{user}\" cannot get resource \"pods/log\" in API group \"\" in the \
             namespace \"{}\"",
            test.namespace
        ),
    );
}

#[tokio::test]
async fn wildcard_of_subresources_grants_nothing_else() {
    let test = start().await;
    let (user, _) = test.connect_user("user").await;
    test.grant(&user, &[grant_rule("apps", &["*/scale"], &["get"])])
        .await;
    let attributes = |subresource: &str| {
        json!({"user": user, "resourceAttributes": {"verb": "get", "group": "apps", "resource": "deployments",
            "subresource": subresource, "namespace": test.namespace}})
    };
    assert!(is_allowed(&test, attributes("scale")).await);
    assert!(!is_allowed(&test, attributes("")).await);
    assert!(!is_allowed(&test, attributes("status")).await);
}

#[tokio::test]
async fn cluster_role_is_bound_in_one_namespace() {
    let test = start().await;
    let group = test.name("group");
    let role = test.name("viewer");
    let viewer =
        json!({"metadata": {"name": role}, "rules": [grant_rule("", &["pods"], &["get", "list"])]});
    test.create(&format!("/apis/{RBAC}/v1/clusterroles"), &viewer)
        .await;
    let binding = json!({"metadata": {"name": "viewers"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group},
            {"kind": "ServiceAccount", "name": "robot", "namespace": test.namespace}]});
    test.create(&test.group(&format!("{RBAC}/v1"), "rolebindings"), &binding)
        .await;
    let member = test.admin.impersonate("jane", &[&group]);
    wait_for("the binding is effective", async || {
        member.get(&test.core("pods")).await.status == 200
    })
    .await;
    member
        .get(&test.core("secrets"))
        .await
        .expect_reason(403, "Forbidden");
    member
        .get("/api/v1/namespaces/default/pods")
        .await
        .expect_reason(403, "Forbidden");
    let account = format!("system:serviceaccount:{}:robot", test.namespace);
    let account = test.admin.impersonate(&account, &[]);
    account.get(&test.core("pods")).await.expect_status(200);
}

#[tokio::test]
async fn paths_are_granted_by_prefix() {
    let test = start().await;
    let user = test.name("user");
    let rules = json!([{"nonResourceURLs": ["/metrics", "/debug/*"], "verbs": ["get"]}]);
    test.plane().grant(&user, "", rules).await;
    let path = |verb: &str, path: &str| json!({"user": user, "nonResourceAttributes": {"verb": verb, "path": path}});
    wait_for("the grant is effective", async || {
        is_allowed(&test, path("get", "/metrics")).await
    })
    .await;
    assert!(is_allowed(&test, path("get", "/debug/a/b")).await);
    assert!(!is_allowed(&test, path("post", "/metrics")).await);
    assert!(!is_allowed(&test, path("get", "/metrics/x")).await);
}

#[tokio::test]
async fn role_with_more_rights_than_its_author_is_forbidden() {
    let test = start().await;
    let (user, client) = test.connect_user("author").await;
    let own = grant_rule("", &["pods"], &["get"]);
    let roles = grant_rule(
        RBAC,
        &["roles", "rolebindings"],
        &["create", "update", "get", "patch"],
    );
    test.grant(&user, &[own.clone(), roles]).await;
    let path = test.group(&format!("{RBAC}/v1"), "roles");
    let role = |name: &str, rule: &Value| json!({"metadata": {"name": name}, "rules": [rule]});
    client
        .post(&path, &role("same", &own))
        .await
        .expect_status(201);
    let more = grant_rule("", &["secrets"], &["get"]);
    let reply = client.post(&path, &role("more", &more)).await;
    reply.expect_failure(
        403,
        "Forbidden",
        &format!(
            "roles.rbac.authorization.k8s.io \"more\" is forbidden: user \"{user}\" (groups=[\"system:authenticated\"]) is \
             attempting to grant RBAC permissions not currently held:\n{{APIGroups:[\"\"], Resources:[\"secrets\"], \
             Verbs:[\"get\"]}}"
        ),
    );
    let patch = json!({"rules": [own, more]});
    client
        .merge_patch(&format!("{path}/same"), &patch)
        .await
        .expect_reason(403, "Forbidden");
    // A PUT replaces a role, and creates one that is absent.
    for target in ["same", "absent", "absent?dryRun=All"] {
        let name = target.split('?').next().unwrap();
        client
            .put(&format!("{path}/{target}"), &role(name, &more))
            .await
            .expect_reason(403, "Forbidden");
    }
    let binding = json!({"metadata": {"name": "absent"}, "subjects": [],
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}});
    let bindings = test.group(&format!("{RBAC}/v1"), "rolebindings/absent");
    client
        .put(&bindings, &binding)
        .await
        .expect_reason(403, "Forbidden");
    test.admin.get(&bindings).await.expect_status(404);
    test.admin
        .get(&format!("{path}/absent"))
        .await
        .expect_status(404);
}

#[tokio::test]
async fn binding_to_a_role_with_more_rights_needs_the_bind_verb() {
    let test = start().await;
    let (user, client) = test.connect_user("binder").await;
    test.grant(&user, &[grant_rule(RBAC, &["rolebindings"], &["create"])])
        .await;
    let path = test.group(&format!("{RBAC}/v1"), "rolebindings");
    let binding = |name: &str, role: &str| {
        json!({"metadata": {"name": name}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "joe"}]})
    };
    let status = client
        .post(&path, &binding("a", "system:node-bootstrapper"))
        .await
        .expect_reason(403, "Forbidden");
    assert!(
        status["message"]
            .as_str()
            .unwrap()
            .contains("is attempting to grant RBAC permissions not currently held:"),
        "{status}"
    );
    let mut rule = grant_rule(RBAC, &["clusterroles"], &["bind"]);
    rule["resourceNames"] = json!(["system:node-bootstrapper"]);
    test.plane().grant(&user, "", json!([rule])).await;
    wait_for("the grant is effective", async || {
        client
            .post(&path, &binding("b", "system:node-bootstrapper"))
            .await
            .status
            == 201
    })
    .await;
    client
        .post(&path, &binding("c", "cluster-admin"))
        .await
        .expect_reason(403, "Forbidden");
}

#[tokio::test]
async fn role_reference_of_a_binding_is_immutable() {
    let test = start().await;
    let path = test.group(&format!("{RBAC}/v1"), "rolebindings");
    let binding = json!({"metadata": {"name": "b"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"}});
    test.create(&path, &binding).await;
    let patch = json!({"roleRef": {"name": "edit"}});
    let reply = test.admin.merge_patch(&format!("{path}/b"), &patch).await;
    let status = reply.expect_causes(&[("roleRef", "FieldValueInvalid")]);
    let message = status["message"].as_str().unwrap();
    assert!(message.ends_with(": cannot change roleRef"), "{message}");
}

#[tokio::test]
async fn access_review_names_the_binding_that_allows() {
    let test = start().await;
    let (user, _) = test.connect_user("user").await;
    test.grant(&user, &[grant_rule("", &["pods"], &["get"])])
        .await;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": test.namespace}, "spec": {"user": user, "resourceAttributes":
            {"verb": "get", "resource": "pods", "namespace": test.namespace}}});
    let path = test.group("authorization.k8s.io/v1", "localsubjectaccessreviews");
    let status = test.create(&path, &review).await["status"].take();
    let role = format!("test-{user}");
    assert_eq!(
        status,
        json!({"allowed": true, "reason": format!(
            "RBAC: allowed by RoleBinding \"{role}/{}\" of Role \"{role}\" to User \"{user}\"", test.namespace)})
    );
}

#[tokio::test]
async fn incomplete_access_review_is_invalid() {
    let test = start().await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    for (spec, cause) in [
        (json!({"user": "u"}), "spec.resourceAttributes"),
        (json!({"resourceAttributes": {"verb": "get"}}), "spec.user"),
    ] {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let status = test
            .admin
            .post(path, &review)
            .await
            .expect_reason(422, "Invalid");
        assert_eq!(status["details"]["causes"][0]["field"], cause, "{status}");
    }
}

#[tokio::test]
async fn user_reviews_its_own_access() {
    let test = start().await;
    let (user, client) = test.connect_user("user").await;
    test.grant(
        &user,
        &[grant_rule("apps", &["deployments"], &["list", "get"])],
    )
    .await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (verb, allowed) in [("list", true), ("delete", false)] {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"verb": verb, "group": "apps", "resource": "deployments",
                "namespace": test.namespace}}});
        let review = client.post(path, &review).await.expect_status(201).json();
        assert_eq!(review["status"]["allowed"], allowed, "{verb}");
    }
    let rules = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": test.namespace}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let status = client.post(path, &rules).await.expect_status(201).json()["status"].take();
    assert_eq!(status["incomplete"], false);
    let own =
        json!({"verbs": ["list", "get"], "apiGroups": ["apps"], "resources": ["deployments"]});
    assert!(
        status["resourceRules"].as_array().unwrap().contains(&own),
        "{status}"
    );
}

#[tokio::test]
async fn node_reads_what_its_pods_use() {
    let test = start().await;
    let (name, client) = connect_node(&test, "node").await;
    for secret in ["mine", "other"] {
        test.create(
            &test.core("secrets"),
            &json!({"metadata": {"name": secret}}),
        )
        .await;
    }
    let volume = json!({"name": "v", "secret": {"secretName": "mine"}});
    let pod = pod_with("p", &json!({"nodeName": name, "volumes": [volume]}));
    test.create(&test.core("pods"), &pod).await;
    wait_for("the node reads the Secret of its pod", async || {
        client.get(&test.core("secrets/mine")).await.status == 200
    })
    .await;
    let status = client
        .get(&test.core("secrets/other"))
        .await
        .expect_reason(403, "Forbidden");
    let message = status["message"].as_str().unwrap();
    assert!(
        message.ends_with(&format!(
            "no relationship found between node '{name}' and this object"
        )),
        "{message}"
    );
    client
        .get(&test.core("secrets"))
        .await
        .expect_reason(403, "Forbidden");
    client
        .get(&format!("/api/v1/nodes/{name}"))
        .await
        .expect_status(200);
    let own = format!("/api/v1/pods?fieldSelector=spec.nodeName={name}");
    client.get(&own).await.expect_status(200);
}

#[tokio::test]
async fn node_writes_itself_only() {
    let test = start().await;
    let (name, client) = connect_node(&test, "node").await;
    let (other, _) = connect_node(&test, "other").await;
    let annotation = json!({"metadata": {"annotations": {"a": "b"}}});
    let own = format!("/api/v1/nodes/{name}");
    client
        .merge_patch(&own, &annotation)
        .await
        .expect_status(200);
    client
        .merge_patch(&format!("/api/v1/nodes/{other}"), &annotation)
        .await
        .expect_reason(403, "Forbidden");
    for (patch, part) in [
        (
            json!({"metadata": {"labels": {"node-restriction.kubernetes.io/x": "y"}}}),
            "is not allowed to modify labels: node-restriction.kubernetes.io/x",
        ),
        (
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
            "is not allowed to modify taints",
        ),
    ] {
        let status = client
            .merge_patch(&own, &patch)
            .await
            .expect_reason(403, "Forbidden");
        let message = status["message"].as_str().unwrap();
        assert!(message.ends_with(part), "{message}");
    }
    client.delete(&own).await.expect_reason(403, "Forbidden");
    // A PUT of an absent Lease creates it: that of another node must stay out of reach.
    let lease = |name: &str| json!({"metadata": {"name": name}, "spec": {"holderIdentity": name}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    client
        .put(&format!("{leases}/{other}"), &lease(&other))
        .await
        .expect_reason(403, "Forbidden");
    client
        .post(&test.core("pods"), &pod("p"))
        .await
        .expect_reason(403, "Forbidden");
}

#[tokio::test]
async fn node_writes_the_status_of_its_pods_only() {
    let test = start().await;
    let (name, client) = connect_node(&test, "node").await;
    let (other, _) = connect_node(&test, "other").await;
    for (pod, node) in [("own", &name), ("foreign", &other)] {
        test.create(
            &test.core("pods"),
            &pod_with(pod, &json!({"nodeName": node})),
        )
        .await;
    }
    let patch = json!({"status": {"phase": "Running"}});
    client
        .merge_patch(&test.core("pods/own/status"), &patch)
        .await
        .expect_status(200);
    client
        .merge_patch(&test.core("pods/foreign/status"), &patch)
        .await
        .expect_reason(403, "Forbidden");
    client
        .delete(&test.core("pods/foreign"))
        .await
        .expect_reason(403, "Forbidden");
}

#[tokio::test]
async fn impersonation_needs_its_verb() {
    let test = start().await;
    let (user, client) = test.connect_user("user").await;
    let jane = client.impersonate("jane", &[]);
    jane.get("/version").await.expect_failure(
        403,
        "Forbidden",
        &format!(
            "users \"jane\" is forbidden: User \"{user}\" cannot impersonate resource \"users\" in API group \"\" at \
             the cluster scope"
        ),
    );
    let mut rule = grant_rule("", &["users"], &["impersonate"]);
    rule["resourceNames"] = json!(["jane"]);
    test.plane().grant(&user, "", json!([rule])).await;
    wait_for("the grant is effective", async || {
        jane.get("/version").await.status == 200
    })
    .await;
    client
        .impersonate("joe", &[])
        .get("/version")
        .await
        .expect_reason(403, "Forbidden");
    client
        .impersonate("jane", &["system:masters"])
        .get("/version")
        .await
        .expect_reason(403, "Forbidden");
}

#[tokio::test]
async fn impersonated_user_has_its_groups_uid_and_extra() {
    let test = start().await;
    let jane = test
        .admin
        .impersonate("jane", &["devs", "ops"])
        .with_header("impersonate-uid", "u-1")
        .with_header("impersonate-extra-example.com%2fteam", "a");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let reply = jane.post(path, &review).await.expect_status(201);
    assert_eq!(
        reply.json()["status"]["userInfo"],
        json!({"username": "jane", "uid": "u-1", "groups": ["devs", "ops", "system:authenticated"],
            "extra": {"example.com/team": ["a"]}})
    );
}

#[tokio::test]
async fn groups_without_a_user_are_not_impersonated() {
    let test = start().await;
    let headers = [("impersonate-group", "devs")];
    let reply = test.admin.send(Method::GET, "/version", &headers, "").await;
    assert_eq!(reply.status, 400);
}
