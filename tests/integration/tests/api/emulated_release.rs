//! `--emulated-version`: versions of kinds, stored versions and `/version` of a former release.

use integration_tests::ReplyExt;
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane};

const GROUP: &str = "/apis/resource.k8s.io";
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

/// Returns the hash of the storage version of a resource, which discovery documents have.
async fn read_storage_version_hash(server: &Caller, version: &str, plural: &str) -> Value {
    let document = server.get(&format!("/apis/{version}")).await.json();
    let mut resources = document["resources"].as_array().unwrap().iter();
    let resource = resources.find(|resource| resource["name"] == plural);
    resource.unwrap()["storageVersionHash"].clone()
}

#[tokio::test]
async fn former_and_current_release_read_what_the_other_has_stored() {
    let current = ["--runtime-config=resource.k8s.io/v1beta2=true"];
    let plane = ControlPlane::start_with_flags(&current).await;
    let former = plane
        .start_api_server(
            "former",
            &[
                "--emulated-version=kube=1.34",
                "--min-compatibility-version=kube=1.33",
                "--runtime-config=resource.k8s.io/v1beta2=true",
            ],
        )
        .await;
    let servers = [
        ("by-current", plane.admin()),
        ("by-former", plane.admin().at(former.address())),
    ];
    for (version, plural, is_same) in [
        ("resource.k8s.io/v1", "deviceclasses", false),
        ("apps/v1", "deployments", true),
    ] {
        let current = read_storage_version_hash(&servers[0].1, version, plural).await;
        let former = read_storage_version_hash(&servers[1].1, version, plural).await;
        assert!(current.is_string());
        assert_eq!(current == former, is_same, "{plural}: {current} {former}");
    }
    for (name, server) in &servers {
        let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == \"d.example\""}}]}});
        let reply = server
            .post(&format!("{GROUP}/v1/deviceclasses"), &class)
            .await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        for (_, reader) in &servers {
            for version in ["v1", "v1beta2"] {
                let path = format!("{GROUP}/{version}/deviceclasses/{name}");
                let found = reader.get(&path).await.json();
                assert_eq!(found["apiVersion"], format!("resource.k8s.io/{version}"));
                assert_eq!(found["spec"], class["spec"]);
            }
        }
    }
    // The other server writes the object in its own storage version.
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    for ((_, writer), name) in servers.iter().rev().zip(["by-current", "by-former"]) {
        let path = format!("{GROUP}/v1/deviceclasses/{name}");
        let reply = writer.merge_patch(&path, &patch).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        for (_, reader) in &servers {
            let found = reader.get(&path).await.json();
            assert_eq!(found["metadata"]["labels"], patch["metadata"]["labels"]);
        }
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

#[tokio::test]
async fn version_that_is_not_served_has_no_warning() {
    let plane = ControlPlane::start_with_flags(&[]).await;
    let path = "/apis/resource.k8s.io/v1beta2/deviceclasses";
    let reply = plane.admin().get(path).await;
    assert_eq!((reply.status, reply.header("warning")), (404, ""));
}
