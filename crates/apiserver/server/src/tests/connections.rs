//! Admission of connections: policies change the options, and the connection is made with them.

use super::{Answer, TestServer, request, soon, start_server};
use serde_json::{Value, json};
use std::time::Duration;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1";

/// Starts a server with the pod `p` of the containers `a` and `b`, and a policy for `exec`.
async fn start_with_policy(mutation: Value) -> TestServer {
    let server = start_server(&[]).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec":
        {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}});
    let rules = json!({"resourceRules": [{"operations": ["CONNECT"], "apiGroups": [""],
        "apiVersions": ["v1"], "resources": ["pods/exec"]}]});
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy", "metadata": {"name": "m"},
        "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "matchConstraints": rules, "mutations": [mutation]}});
    let binding = json!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": "m"},
        "spec": {"policyName": "m"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "d"}});
    for (path, object) in [
        ("/api/v1/namespaces".to_owned(), namespace),
        ("/api/v1/namespaces/d/pods".to_owned(), pod),
        (format!("{POLICIES}/mutatingadmissionpolicies"), policy),
        (
            format!("{POLICIES}/mutatingadmissionpolicybindings"),
            binding,
        ),
    ] {
        let created = server.write("POST", &path, object).await;
        assert_eq!(created.code, 201, "{}", created.text());
    }
    server
}

/// Sends `exec` until a response has `expect` in it.
async fn wait_for_exec(server: &TestServer, query: &str, expect: &str) -> Answer {
    let path = format!("/api/v1/namespaces/d/pods/p/exec?{query}");
    soon(async {
        loop {
            let answer = server.send(request("POST", &path), "").await;
            if answer.text().contains(expect) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn policy_changes_the_options_of_a_connection() {
    // The JSON patch is computed from the options that the client has sent.
    let patch = "[JSONPatch{op: 'add', path: '/container', \
         value: object.command[0] + (has(object.stdin) ? '-in' : '')}]";
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": patch}});
    let server = start_with_policy(mutation).await;
    let answer = wait_for_exec(&server, "container=a&command=x&stdin=1", "not valid").await;
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "container x-in is not valid for pod p");
    // A container that exists: the pod has no node yet.
    wait_for_exec(
        &server,
        "container=x&command=b",
        "does not have a host assigned",
    )
    .await;
}

#[tokio::test]
async fn options_of_a_connection_can_not_be_merged() {
    let mutation = json!({"patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": "Object{container: 'b'}"}});
    let server = start_with_policy(mutation).await;
    let answer = wait_for_exec(&server, "container=a&command=x", "policy 'm'").await;
    let message = answer.json()["message"].as_str().unwrap().to_owned();
    let expect = "no corresponding type for /v1, Kind=PodExecOptions";
    assert!(message.ends_with(expect), "{message}");
}

#[tokio::test]
async fn port_that_is_no_number_is_rejected_before_admission() {
    let server = start_server(&[]).await;
    let path = "/api/v1/namespaces/d/pods/p/portforward?ports=80,x";
    let answer = server.send(request("POST", path), "").await;
    assert_eq!(answer.status(), (400, "BadRequest".into()));
}
