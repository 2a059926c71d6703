//! `resource.k8s.io/v1beta1`, whose requests and devices have other fields than in the stored
//! version.

use api_codec::cbor;
use http::Method;
use integration_tests::protobuf::Envelope;
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane};

const GROUP: &str = "/apis/resource.k8s.io";
const OLD: &str = "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true";
const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

fn claims(version: &str) -> String {
    format!("{GROUP}/{version}/namespaces/default/resourceclaims")
}

fn claim(name: &str, requests: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}})
}

fn slice(version: &str, devices: Value) -> Value {
    json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": "ResourceSlice",
        "metadata": {"name": "s"}, "spec": {"driver": "d.io", "nodeName": "n",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}, "devices": devices}})
}

#[tokio::test]
async fn claim_has_the_fields_of_each_version() {
    let plane = ControlPlane::start_with_flags(&[OLD]).await;
    let admin = plane.admin();
    let requests = json!([{"name": "r", "deviceClassName": "gpu"},
        {"name": "s", "firstAvailable": [{"name": "a", "deviceClassName": "gpu"}]}]);
    let created = admin
        .post(&claims("v1beta1"), &claim("c", requests))
        .await
        .expect_success()
        .json();
    let chosen =
        json!({"name": "a", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    let old = json!([{"name": "r", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1},
        {"name": "s", "deviceClassName": "", "firstAvailable": [chosen]}]);
    assert_eq!(created["spec"]["devices"]["requests"], old);
    let exactly = json!({"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1});
    let new = json!([{"name": "r", "exactly": exactly}, {"name": "s", "firstAvailable": [chosen]}]);
    for version in VERSIONS {
        let expect = if version == "v1beta1" { &old } else { &new };
        let listed = admin.get(&claims(version)).await.json();
        assert_eq!(
            &listed["items"][0]["spec"]["devices"]["requests"], expect,
            "{version}"
        );
        let path = format!("{}/c", claims(version));
        // A client may write again the bytes that it has read.
        let read = admin
            .clone()
            .with_header("accept", PROTOBUF)
            .get(&path)
            .await;
        assert_eq!(
            Envelope::read(&read.body).api_version,
            format!("resource.k8s.io/{version}")
        );
        let headers = [("content-type", PROTOBUF), ("accept", "application/json")];
        let written = admin
            .send(Method::PUT, &path, &headers, read.body)
            .await
            .unwrap();
        assert_eq!(
            &written.expect_success().json()["spec"]["devices"]["requests"],
            expect
        );
        let yaml = admin
            .clone()
            .with_header("accept", "application/yaml")
            .get(&path)
            .await;
        assert_eq!(yaml.text().contains("exactly:"), version != "v1beta1");
    }
    let result =
        |request: &str| json!({"request": request, "driver": "d.io", "pool": "p", "device": "a"});
    let results = json!([result("r"), result("s/a")]);
    let status = json!({"status": {"allocation": {"devices": {"results": results}}}});
    admin
        .merge_patch(&format!("{}/c/status", claims("v1beta1")), &status)
        .await
        .expect_success();
    let document = admin
        .get("/openapi/v3/apis/resource.k8s.io/v1beta1")
        .await
        .json();
    let basic = "/components/schemas/io.k8s.api.resource.v1beta1.BasicDevice";
    assert!(document.pointer(basic).is_some());
}

#[tokio::test]
async fn rules_of_the_stored_version_hold_for_the_old_one() {
    let plane = ControlPlane::start_with_flags(&[OLD]).await;
    let admin = plane.admin();
    for (requests, causes) in [
        (
            json!([{"name": "r"}]),
            &[("spec.devices.requests[0]", "FieldValueRequired")][..],
        ),
        (
            json!([{"name": "r", "selectors": [{"cel": {"expression": "true"}}]}]),
            &[
                (
                    "spec.devices.requests[0].exactly.allocationMode",
                    "FieldValueNotSupported",
                ),
                (
                    "spec.devices.requests[0].exactly.deviceClassName",
                    "FieldValueRequired",
                ),
            ],
        ),
        // Access to devices in use needs a label of the namespace, whatever the version.
        (
            json!([{"name": "r", "deviceClassName": "gpu", "adminAccess": true}]),
            &[(
                "spec.devices.requests[0].adminAccess",
                "FieldValueForbidden",
            )],
        ),
    ] {
        let reply = admin
            .post(&claims("v1beta1"), &claim("c", requests.clone()))
            .await;
        let status = reply.json();
        assert_eq!(status["code"], 422, "{requests}: {status}");
        let empty = Vec::new();
        let found = status["details"]["causes"].as_array().unwrap_or(&empty);
        for (field, reason) in causes {
            let is_cause = |cause: &&Value| cause["field"] == *field && cause["reason"] == *reason;
            assert!(
                found.iter().any(|cause| is_cause(&cause)),
                "{requests} {field}: {status}"
            );
        }
    }
    let template = json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {"requests":
        [{"name": "r", "deviceClassName": "gpu", "adminAccess": true}]}}}});
    let path = format!("{GROUP}/v1beta1/namespaces/default/resourceclaimtemplates");
    assert_eq!(admin.post(&path, &template).await.status, 422);
    // The spec is immutable in every version.
    let requests = json!([{"name": "r", "deviceClassName": "gpu"}]);
    admin
        .post(
            &claims("v1"),
            &claim(
                "c",
                json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]),
            ),
        )
        .await
        .expect_success();
    let path = format!("{}/c", claims("v1beta1"));
    let change =
        json!({"spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "x"}]}}});
    assert_eq!(admin.merge_patch(&path, &change).await.status, 422);
    let same = json!({"spec": {"devices": {"requests": requests}}});
    assert_eq!(admin.merge_patch(&path, &same).await.status, 200);
    // `exactly` is no field of the version.
    let strict = format!("{}?fieldValidation=Strict", claims("v1beta1"));
    let wrong = claim(
        "d",
        json!([{"name": "r", "exactly": {"deviceClassName": "gpu"}}]),
    );
    assert_eq!(admin.post(&strict, &wrong).await.status, 400);
}

async fn apply_slice(admin: &Caller, version: &str, devices: Value) -> Value {
    let path = format!("{GROUP}/{version}/resourceslices/s");
    let reply = admin
        .apply(&format!("{path}?fieldManager=m"), &slice(version, devices))
        .await;
    assert!(reply.status < 300, "{version}: {}", reply.text());
    reply.json()
}

#[tokio::test]
async fn applied_slice_is_changed_in_another_version() {
    let plane =
        ControlPlane::start_with_flags(&[OLD, "--feature-gates=CBORServingAndStorage=true"]).await;
    let admin = plane.admin();
    let basic = json!({"attributes": {"x": {"int": 1}}, "taints": [{"key": "e.io/k", "effect": "NoSchedule"}]});
    let applied = apply_slice(&admin, "v1beta1", json!([{"name": "a", "basic": basic}])).await;
    let device = &applied["spec"]["devices"][0];
    assert!(
        device["basic"]["taints"][0]["timeAdded"].is_string(),
        "{device}"
    );
    let managed = &applied["metadata"]["managedFields"][0];
    assert_eq!(managed["apiVersion"], "resource.k8s.io/v1beta1");
    let path = format!("{GROUP}/v1/resourceslices/s");
    let read = admin.get(&path).await.json();
    assert_eq!(
        read["spec"]["devices"][0]["attributes"],
        json!({"x": {"int": 1}})
    );
    assert_eq!(read["metadata"]["generation"], 1);
    let changed = apply_slice(
        &admin,
        "v1",
        json!([{"name": "b", "attributes": {"x": {"int": 2}}}]),
    )
    .await;
    assert_eq!(changed["metadata"]["generation"], 2);
    let old = format!("{GROUP}/v1beta1/resourceslices/s");
    let reply = admin
        .clone()
        .with_header("accept", "application/cbor")
        .get(&old)
        .await;
    let read = cbor::parse(&reply.body).unwrap();
    assert_eq!(
        read["spec"]["devices"],
        json!([{"name": "b", "basic": {"attributes": {"x": {"int": 2}}}}])
    );
    let selected = format!("{GROUP}/v1beta1/resourceslices?fieldSelector=spec.nodeName%3Dother");
    assert_eq!(admin.get(&selected).await.json()["items"], json!([]));
    assert_eq!(admin.delete(&old).await.json()["kind"], "ResourceSlice");
    assert_eq!(admin.get(&path).await.status, 404);
}

#[tokio::test]
async fn disabled_version_is_not_found_and_its_objects_stay() {
    let plane = ControlPlane::start_with_flags(&[]).await;
    let admin = plane.admin();
    let enabled = plane.start_api_server("second", &[OLD]).await;
    let second = admin.clone().at(enabled.address());
    second
        .post(
            &claims("v1beta1"),
            &claim("c", json!([{"name": "r", "deviceClassName": "gpu"}])),
        )
        .await
        .expect_success();
    assert_eq!(admin.get(&claims("v1beta1")).await.status, 404);
    let versions = admin.get("/apis/resource.k8s.io").await.json()["versions"].clone();
    assert_eq!(versions.as_array().map(Vec::len), Some(1), "{versions}");
    let stored = integration_tests::wait_for_value("the claim", async || {
        let reply = admin.get(&format!("{}/c", claims("v1"))).await;
        (reply.status == 200).then(|| reply.json())
    })
    .await;
    let class = stored.pointer("/spec/devices/requests/0/exactly/deviceClassName");
    assert_eq!(class, Some(&json!("gpu")));
}
