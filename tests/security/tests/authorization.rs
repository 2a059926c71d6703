//! Authorization webhooks: each check calls them, and what a silent, broken or recursive webhook or a
//! changed configuration must not achieve.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "authorization/changes.rs"]
mod changes;
#[path = "authorization/checks.rs"]
mod checks;
#[path = "authorization/hook.rs"]
mod hook;

use hook::{
    Hook, PATIENCE, RBAC, REVIEWS, config_map, configuration, describe, review_self, start_with,
    status_of, write_config,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use testkit_control_plane::{ControlPlane, Options, WebhookReply, WebhookServer};

/// Reviews of requests for objects, collections, paths, watches and connections have their
/// attributes. RBAC can't undo a denial, and requests of administrators are never reviewed.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides_about_requests_before_rbac() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::with_lists(
        &[
            "jane list configmaps",
            "jane get /metrics",
            "jane watch configmaps",
            "jane get pods/exec",
        ],
        &["jane delete configmaps"],
    )
    .await;
    let plane = start_with(&hook, folder.path(), &json!({})).await;
    let rules =
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "delete"]}]);
    plane.grant("jane", "default", rules).await;
    let jane = plane.user("jane", Some("dev"));
    let maps = "/api/v1/namespaces/default/configmaps";

    let selected = format!("{maps}?labelSelector=app%3Da&fieldSelector=metadata.name%3Dm");
    jane.get(&selected).await.expect_success();
    let listed = hook.0.received();
    let listed = listed
        .iter()
        .rfind(|r| describe(&r.review["spec"]) == "jane list configmaps");
    let listed = listed.unwrap();
    assert_eq!(listed.path, "/authorize?timeout=3s");
    assert_eq!(listed.authorization, "Bearer of-the-server");
    assert_eq!(
        listed.review["spec"],
        json!({"user": "jane", "groups": ["dev", "system:authenticated"],
            "extra": listed.review["spec"]["extra"],
            "resourceAttributes": {"namespace": "default", "verb": "list", "version": "v1",
                "resource": "configmaps", "name": "m",
                "fieldSelector": {"requirements":
                    [{"key": "metadata.name", "operator": "In", "values": ["m"]}]},
                "labelSelector": {"requirements":
                    [{"key": "app", "operator": "In", "values": ["a"]}]}}})
    );
    jane.get("/metrics").await.expect_success();
    jane.get(&format!("{maps}?watch=true&timeoutSeconds=1"))
        .await
        .expect_success();
    // No opinion of the webhook, and a permission of RBAC.
    jane.get(&format!("{maps}/kube-root-ca.crt"))
        .await
        .expect_status(404);
    let denied = jane.delete(&format!("{maps}/m")).await.expect_status(403);
    assert!(
        denied.text().contains("denied by the hook"),
        "{}",
        denied.text()
    );
    jane.get("/api/v1/namespaces/default/secrets")
        .await
        .expect_status(403);

    // A connection that begins with GET needs `create` as well.
    let exec = "/api/v1/namespaces/default/pods/p/exec?command=id";
    jane.get(exec).await.expect_status(403);
    assert_eq!(hook.count("jane get pods/exec"), 1);
    assert_eq!(hook.count("jane create pods/exec"), 1);

    plane.admin().get(maps).await.expect_success();
    let metrics = plane.admin().get("/metrics").await.text();
    for line in [
        r#"apiserver_authorization_decisions_total{type="Webhook",name="hook",decision="denied"} 1"#,
        r#"apiserver_authorization_decisions_total{type="RBAC",name="rbac",decision="allowed"}"#,
        r#"apiserver_authorization_webhook_evaluations_total{name="hook",result="success"}"#,
        "apiserver_authorization_config_controller_last_config_info{apiserver_id_hash=\"sha256:",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    assert!(
        hook.reviewed()
            .iter()
            .all(|reviewed| !reviewed.starts_with("kubernetes-admin"))
    );
}

/// Reviews of access call the webhook, for all users that they may name.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_decides_about_reviews_and_impersonation() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::with_lists(
        &[
            "jane get secrets",
            "joe get secrets",
            "jane impersonate users",
            "joe list configmaps",
            "jane create localsubjectaccessreviews",
        ],
        &["jane list secrets"],
    )
    .await;
    let plane = start_with(&hook, folder.path(), &json!({})).await;
    let jane = plane.user("jane", None);
    let secrets = |verb: &str| json!({"namespace": "default", "verb": verb, "resource": "secrets"});
    let status = review_self(&jane, secrets("get")).await;
    assert_eq!(status, json!({"allowed": true}));
    let status = review_self(&jane, secrets("list")).await;
    let denied = json!({"allowed": false, "denied": true, "reason": "denied by the hook"});
    assert_eq!(status, denied);
    let status = review_self(&jane, secrets("watch")).await;
    assert_eq!(status, json!({"allowed": false}));

    let spec = json!({"user": "joe", "resourceAttributes": secrets("get")});
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
    let path = format!("{REVIEWS}/subjectaccessreviews");
    assert_eq!(
        status_of(plane.admin().post(&path, &review).await)["allowed"],
        true
    );
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": "default"}, "spec": spec});
    let path = format!("{REVIEWS}/namespaces/default/localsubjectaccessreviews");
    assert_eq!(status_of(jane.post(&path, &review).await)["allowed"], true);

    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": "default"}});
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let status = status_of(jane.post(&path, &review).await);
    assert_eq!(status["incomplete"], true);
    let error = "webhook authorizer does not support user rule resolution";
    assert_eq!(status["evaluationError"], error);

    let maps = "/api/v1/namespaces/default/configmaps";
    let as_joe = jane.clone().with_header("impersonate-user", "joe");
    as_joe.get(maps).await.expect_success();
    let in_group = as_joe.with_header("impersonate-group", "admins");
    in_group.get(maps).await.expect_status(403);
    jane.get(maps).await.expect_status(403);
}

/// A webhook that fails is an error with the policy Deny, and skipped with NoOpinion. Its address
/// does not reach the client.
#[tokio::test(flavor = "multi_thread")]
async fn failed_webhook_never_allows_more_than_the_others() {
    for policy in ["Deny", "NoOpinion"] {
        let folder = tempfile::tempdir().unwrap();
        let server = WebhookServer::start(&[], |_, _| {
            WebhookReply::json(&json!({})).after(Duration::from_secs(20))
        });
        let hook = Hook(server.await);
        let more = json!({"failurePolicy": policy, "timeout": "200ms",
            "matchConditions": [{"expression": "request.user.startsWith('j')"}]});
        let plane = start_with(&hook, folder.path(), &more).await;
        let maps = "/api/v1/namespaces/default/configmaps";
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}]);
        plane.grant("mary", "default", rules).await;
        // The match condition excludes this user.
        plane.user("mary", None).get(maps).await.expect_success();
        assert!(hook.0.received().is_empty());
        let group = RBAC;
        let subject = json!([{"op": "add", "path": "/subjects/-",
            "value": {"apiGroup": group, "kind": "User", "name": "jane"}}]);
        let path = format!("/apis/{group}/v1/namespaces/default/rolebindings/test-mary");
        plane
            .admin()
            .json_patch(&path, &subject)
            .await
            .expect_success();
        let jane = plane.user("jane", None);
        if policy == "Deny" {
            let reply = jane.get(maps).await.expect_status(500);
            assert!(!reply.text().contains("127.0.0.1"), "{}", reply.text());
        } else {
            let begun = Instant::now();
            while jane.get(maps).await.status != 200 {
                assert!(
                    begun.elapsed() < PATIENCE,
                    "RBAC does not allow the request"
                );
            }
            // Without another permission, the failure is the response.
            jane.get("/api/v1/nodes").await.expect_status(500);
            let status = review_self(&jane, json!({"verb": "get", "resource": "nodes"})).await;
            assert_eq!(status["allowed"], false);
            assert!(status["evaluationError"].is_string(), "{status}");
            let metrics = plane.admin().get("/metrics").await.text();
            let open = "webhook_evaluations_fail_open_total{name=\"hook\",result=\"timeout\"}";
            assert!(metrics.contains(open));
        }
    }
}

/// The flags describe one webhook too, with the beta version of the review, and are refused beside a
/// file.
#[tokio::test(flavor = "multi_thread")]
async fn webhook_of_the_flags_is_called_in_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Hook::with_lists(&["jane list secrets"], &[]).await;
    let kubeconfig = hook.kubeconfig(folder.path());
    let file = format!(
        "--authorization-webhook-config-file={}",
        kubeconfig.display()
    );
    let flags = ["--authorization-mode=Node,RBAC,Webhook", &file];
    let plane = ControlPlane::start_with_flags(&flags).await;
    let jane = plane.user("jane", Some("dev"));
    jane.get("/api/v1/namespaces/default/secrets")
        .await
        .expect_success();
    jane.get("/api/v1/namespaces/default/secrets")
        .await
        .expect_success();
    // Discovery is allowed by RBAC, before the webhook.
    jane.get("/api").await.expect_success();
    assert_eq!(hook.reviewed(), ["jane list secrets"]);
    let review = &hook.0.received()[0].review;
    assert_eq!(review["apiVersion"], "authorization.k8s.io/v1beta1");
    assert_eq!(
        review["spec"]["group"],
        json!(["dev", "system:authenticated"])
    );

    let config = folder.path().join("authorization.json");
    write_config(&config, &configuration(&[]));
    let both = Options {
        api_server: vec![
            format!("--authorization-config={}", config.display()),
            file.clone(),
        ],
        ..Options::default()
    };
    let error = ControlPlane::try_start(&both).await.err();
    assert!(error.is_some(), "a file and flags together are refused");
}

/// The policies of ABAC allow what they name, and a file with a misspelt field stops the start.
#[tokio::test(flavor = "multi_thread")]
async fn policies_of_a_file_allow_what_they_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policies.jsonl");
    let policy = |spec: Value| {
        json!({"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
            "spec": spec})
        .to_string()
    };
    let reader = json!({"user": "jane", "namespace": "default", "resource": "configmaps",
        "readonly": true});
    std::fs::write(&path, policy(reader)).unwrap();
    let file = format!("--authorization-policy-file={}", path.display());
    let mode = "--authorization-mode=Node,RBAC,ABAC";
    let plane = ControlPlane::start_with_flags(&[mode, &file]).await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let jane = plane.user("jane", None);
    jane.get(maps).await.expect_success();
    jane.post(maps, &config_map("m")).await.expect_status(403);
    jane.get("/api/v1/configmaps").await.expect_status(403);
    plane.user("joe", None).get(maps).await.expect_status(403);

    let misspelt = json!({"user": "jane", "namespace": "*", "resource": "*", "readOnly": true});
    std::fs::write(&path, policy(misspelt)).unwrap();
    let options = Options {
        api_server: vec![mode.to_owned(), file],
        ..Options::default()
    };
    let error = ControlPlane::try_start(&options).await.err();
    assert!(error.is_some(), "the misspelt field is ignored");
}
