//! Kinds of alpha versions that are stored without effect: Workloads, PodGroups and
//! ResourcePoolStatusRequests.

use integration_tests::ReplyExt;
use integration_tests::protobuf::Envelope;
use serde_json::{Value, json};
use testkit_control_plane::ControlPlane;

const SCHEDULING: &str = "/apis/scheduling.k8s.io/v1alpha2";
const POOLS: &str = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn workload(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"podGroupTemplates":
        [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 2}}, "priority": 5}]}})
}

fn group(name: &str, workload: &str) -> Value {
    let reference = json!({"workloadName": workload, "podGroupTemplateName": "t"});
    json!({"metadata": {"name": name}, "spec": {"schedulingPolicy": {"basic": {}},
        "disruptionMode": "PodGroup", "podGroupTemplateRef": {"workload": reference}},
        "status": {"conditions": [{"type": "T"}]}})
}

#[tokio::test]
async fn group_of_pods_belongs_to_a_workload() {
    let plane = ControlPlane::start_with_flags(&[
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
        "--feature-gates=GenericWorkload=true",
    ])
    .await;
    let admin = plane.admin();
    let path = |plural: &str| format!("{SCHEDULING}/namespaces/default/{plural}");
    let reply = admin.post(&path("workloads"), &workload("w")).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert!(
        reply
            .header("warning")
            .contains("each pod is scheduled alone")
    );
    let template = reply.json()["spec"]["podGroupTemplates"][0].clone();
    assert_eq!(template["priority"], Value::Null);
    assert_eq!(
        admin
            .post(&path("podgroups"), &group("g", "absent"))
            .await
            .status,
        403
    );
    let created = admin.post(&path("podgroups"), &group("g", "w")).await;
    let created = created.expect_success().json();
    // Fields of other gates are dropped, and the mode has its default.
    assert_eq!(created["spec"]["disruptionMode"], "Pod");
    assert_eq!(
        (&created["status"], &created["metadata"]["generation"]),
        (&json!({}), &Value::Null)
    );
    let one = format!("{}/g", path("podgroups"));
    let status = json!({"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [{"type": "PodGroupScheduled",
        "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let written = admin.merge_patch(&format!("{one}/status"), &status).await;
    assert_eq!(
        written.expect_success().json()["metadata"]["labels"],
        Value::Null
    );
    let change = json!({"spec": {"schedulingPolicy": {"basic": null, "gang": {"minCount": 1}}}});
    admin
        .merge_patch(&one, &change)
        .await
        .expect_causes(&[("spec.schedulingPolicy", "FieldValueInvalid")]);
    let read = admin
        .clone()
        .with_header("accept", PROTOBUF)
        .get(&one)
        .await;
    assert_eq!(
        Envelope::read(&read.body).api_version,
        "scheduling.k8s.io/v1alpha2"
    );
    let rules = admin
        .get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-view")
        .await;
    assert!(
        rules.text().contains("podgroups/status"),
        "readers see the groups"
    );
    let document = admin
        .get("/openapi/v3/apis/scheduling.k8s.io/v1alpha2")
        .await;
    let schema = "/components/schemas/io.k8s.api.scheduling.v1alpha2.PodGroup";
    assert!(document.json().pointer(schema).is_some());
    assert_eq!(admin.delete(&one).await.json()["kind"], "Status");
}

#[tokio::test]
async fn kinds_are_not_served_without_their_gate_or_version() {
    let plane =
        ControlPlane::start_with_flags(&["--runtime-config=scheduling.k8s.io/v1alpha2=true"]).await;
    let admin = plane.admin();
    for path in [&format!("{SCHEDULING}/workloads"), POOLS] {
        assert_eq!(admin.get(path).await.status, 404, "{path}");
    }
    let rules = admin
        .get("/apis/rbac.authorization.k8s.io/v1/clusterroles/system:aggregate-to-view")
        .await;
    assert!(!rules.text().contains("podgroups"));
}

#[tokio::test]
async fn request_for_pools_is_answered_once() {
    let plane =
        ControlPlane::start_with_flags(&["--runtime-config=resource.k8s.io/v1alpha3=true"]).await;
    let admin = plane.admin();
    let request = json!({"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
        "metadata": {"name": "r"}, "spec": {"driver": "d.io"}, "status": {"poolCount": 7}});
    let reply = admin.post(POOLS, &request).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert!(reply.header("warning").contains("stored but has no effect"));
    let created = reply.json();
    assert_eq!(
        (&created["spec"]["limit"], &created["status"]),
        (&json!(100), &Value::Null)
    );
    let one = format!("{POOLS}/r");
    // Without a resourceVersion, nothing is replaced.
    admin
        .put(&one, &request)
        .await
        .expect_causes(&[("metadata.resourceVersion", "FieldValueInvalid")]);
    let status = |count: i64| json!({"status": {"poolCount": count}});
    let path = format!("{one}/status");
    let written = admin.merge_patch(&path, &status(0)).await.expect_success();
    assert_eq!(written.json()["status"]["poolCount"], 0);
    admin
        .merge_patch(&path, &status(1))
        .await
        .expect_causes(&[("status", "FieldValueInvalid")]);
    let change = json!({"spec": {"limit": 5}});
    admin
        .merge_patch(&one, &change)
        .await
        .expect_causes(&[("spec", "FieldValueInvalid")]);
    assert_eq!(
        admin.delete(&one).await.json()["kind"],
        "ResourcePoolStatusRequest"
    );
}
