//! `--emulated-version`: versions of kinds, stored versions and `/version` of a former release.

use integration_tests::ReplyExt;
use serde_json::json;
use testkit_control_plane::ControlPlane;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";

#[tokio::test]
async fn former_release_has_its_own_versions() {
    let plane = ControlPlane::start_with_flags(&["--emulated-version=1.35"]).await;
    let admin = plane.admin();
    let version = admin.get("/version").await.json();
    assert_eq!(version["minor"], "36");
    assert_eq!(version["emulationMinor"], "35");
    assert_eq!(version["minCompatibilityMinor"], "34");
    assert_eq!(admin.get(POLICIES).await.status, 404);
    let group = admin
        .get("/apis/admissionregistration.k8s.io/v1")
        .await
        .text();
    assert!(group.contains("validatingadmissionpolicies"), "{group}");
    assert!(!group.contains("mutatingadmissionpolicies"), "{group}");
}

#[tokio::test]
async fn stored_objects_are_read_in_each_version() {
    let plane = ControlPlane::start_with_flags(&[
        "--emulated-version=kube=1.34",
        "--min-compatibility-version=kube=1.33",
        "--runtime-config=resource.k8s.io/v1beta2=true",
    ])
    .await;
    let admin = plane.admin();
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"},
        "spec": {"selectors": [{"cel": {"expression": "device.driver == \"d.example\""}}]}});
    let reply = admin
        .post("/apis/resource.k8s.io/v1/deviceclasses", &class)
        .await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    for version in ["v1", "v1beta2"] {
        let found = admin
            .get(&format!("/apis/resource.k8s.io/{version}/deviceclasses/c"))
            .await;
        let found = found.json();
        assert_eq!(found["apiVersion"], format!("resource.k8s.io/{version}"));
        assert_eq!(found["spec"]["selectors"], class["spec"]["selectors"]);
    }
}

#[tokio::test]
async fn deprecated_version_has_a_warning() {
    let plane = ControlPlane::start_with_flags(&[
        "--runtime-config=admissionregistration.k8s.io/v1alpha1=true",
    ])
    .await;
    let path = "/apis/admissionregistration.k8s.io/v1alpha1/mutatingadmissionpolicies";
    let reply = plane.admin().get(path).await;
    let expect = "MutatingAdmissionPolicy is deprecated in v1.35+, unavailable in v1.38+";
    assert!(
        reply.header("warning").contains(expect),
        "{}",
        reply.header("warning")
    );
}
