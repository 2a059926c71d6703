//! Built-in kinds without a stable version, which `--runtime-config` and `--feature-gates` enable.

use integration_tests::ReplyExt;
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane};

const ANCHOR: &str = "-----BEGIN CERTIFICATE-----
MIIBcDCCARegAwIBAgIUZAb31ELztw2Uil+0ATXfbl4oLHowCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTI2MjAzMjAyWhgPMjEyNjExMDIyMDMyMDJa
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEHjBlKsaf
Z8ZmotCZmxyrdb7fFHCTAbAEPT8RVKKFdH/bvBsv+7eoitPBScScRWMh4EXvplTk
RLaTzw/HSxvf66NTMFEwHQYDVR0OBBYEFFnQX9IvTuDh2X+YNKcFN+mJZlsWMB8G
A1UdIwQYMBaAFFnQX9IvTuDh2X+YNKcFN+mJZlsWMA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDRwAwRAIgX+2+5yoL417dudCTyjd4+mli7gLG6kpTf+g0d6fJ
dYoCIGqmaT6kk2LYrUW+dSIeuRNg8sahgUrpwxiSwGxsnm9n
-----END CERTIFICATE-----
";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";

async fn create(caller: &Caller, path: &str, object: &Value) -> Value {
    let reply = caller.post(path, object).await;
    assert_eq!(reply.status, 201, "{path}: {}", reply.text());
    reply.json()
}

async fn resources(admin: &Caller, version: &str) -> Vec<String> {
    let list = admin.get(&format!("/apis/{version}")).await.json();
    let all = list["resources"].as_array().into_iter().flatten();
    all.map(|resource| resource["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[tokio::test]
async fn kinds_are_served_in_all_their_versions() {
    let plane = ControlPlane::start_with_flags(&[
        "--runtime-config=coordination.k8s.io/v1beta1=true,coordination.k8s.io/v1alpha2=true,\
         internal.apiserver.k8s.io/v1alpha1=true,storagemigration.k8s.io/v1beta1=true",
        "--feature-gates=StorageVersionMigrator=true",
    ])
    .await;
    let admin = plane.admin();
    let candidates = |version: &str| {
        format!("/apis/coordination.k8s.io/{version}/namespaces/default/leasecandidates")
    };
    let candidate = json!({"apiVersion": "coordination.k8s.io/v1alpha2", "kind": "LeaseCandidate",
        "metadata": {"name": "a_B"}, "spec": {"leaseName": "l", "binaryVersion": "1.36.0",
            "emulationVersion": "1.36.0", "strategy": "OldestEmulationVersion"}});
    create(&admin, &candidates("v1alpha2"), &candidate).await;
    let path = format!("{}/a_B", candidates("v1beta1"));
    let read = admin.get(&path).await.json();
    assert_eq!(read["apiVersion"], "coordination.k8s.io/v1beta1");
    assert_eq!(read["spec"], candidate["spec"]);
    let change = json!({"spec": {"leaseName": "m"}});
    assert_eq!(admin.merge_patch(&path, &change).await.status, 422);

    let versions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
    let version = json!({"metadata": {"name": "apps.deployments"}, "spec": {},
        "status": {"commonEncodingVersion": "apps/v1"}});
    let created = create(&admin, versions, &version).await;
    assert_eq!(created["status"], json!({}), "the status is reset");
    let status = json!({"status": {"commonEncodingVersion": "apps/v1", "storageVersions": [
        {"apiServerID": "a", "encodingVersion": "apps/v1", "decodableVersions": ["apps/v1"]}]}});
    let path = format!("{versions}/apps.deployments");
    let written = admin.merge_patch(&format!("{path}/status"), &status).await;
    assert_eq!(written.status, 200, "{}", written.text());

    let migrations = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
    let migration = json!({"metadata": {"name": "m"},
        "spec": {"resource": {"group": "apps", "resource": "deployments"}}});
    create(&admin, migrations, &migration).await;
    let table = admin
        .clone()
        .with_header("accept", "application/json;as=Table;g=meta.k8s.io;v=v1")
        .get(migrations)
        .await
        .json();
    assert_eq!(
        table["rows"][0]["cells"],
        json!(["m", "deployments.apps", "Unknown"])
    );
    let document = admin
        .get("/openapi/v3/apis/storagemigration.k8s.io/v1beta1")
        .await;
    assert_eq!(document.status, 200);
}

#[tokio::test]
async fn trust_bundle_of_a_signer_needs_the_right_to_attest() {
    let plane = ControlPlane::start_with_flags(&[
        "--runtime-config=certificates.k8s.io/v1beta1/clustertrustbundles=true",
        "--feature-gates=ClusterTrustBundle=true",
    ])
    .await;
    let rule = |group: &str, resource: &str, verb: &str| json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]});
    let group = "certificates.k8s.io";
    let rules = json!([rule(group, "clustertrustbundles", "create"),
        {"apiGroups": [group], "resources": ["signers"], "resourceNames": ["example.com/mine"], "verbs": ["attest"]}]);
    plane.grant("attester", "", rules).await;
    let attester = plane.user("attester", None);
    let bundle = |signer: &str| {
        let name = format!("{}:a", signer.replace('/', ":"));
        json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": ANCHOR}})
    };
    create(&attester, BUNDLES, &bundle("example.com/mine")).await;
    let reply = attester.post(BUNDLES, &bundle("example.com/other")).await;
    assert_eq!(reply.status, 403);
    let message = reply.json()["message"].to_string();
    assert!(message.contains("not permitted to attest"), "{message}");
    let admin = plane.admin();
    create(&admin, BUNDLES, &bundle("example.com/other")).await;
    let selected = admin
        .get(&format!(
            "{BUNDLES}?fieldSelector=spec.signerName%3Dexample.com/mine"
        ))
        .await
        .json();
    let items = selected["items"].as_array().map_or(0, Vec::len);
    assert_eq!(items, 1, "{selected}");
    let mut wrong = bundle("example.com/third");
    wrong["spec"]["trustBundle"] = json!("nothing");
    assert_eq!(admin.post(BUNDLES, &wrong).await.status, 422);
    let served = resources(&admin, "certificates.k8s.io/v1beta1").await;
    assert_eq!(served, ["clustertrustbundles"]);
}

/// Every way to write a bundle of a signer is a statement about that signer.
#[tokio::test]
async fn every_write_of_a_trust_bundle_needs_the_right_to_attest() {
    let plane = ControlPlane::start_with_flags(&[
        "--runtime-config=certificates.k8s.io/v1beta1=true,certificates.k8s.io/v1alpha1=true",
        "--feature-gates=ClusterTrustBundle=true",
    ])
    .await;
    let group = "certificates.k8s.io";
    let verbs = [
        "get",
        "create",
        "update",
        "patch",
        "delete",
        "deletecollection",
    ];
    let rules = json!([{"apiGroups": [group], "resources": ["clustertrustbundles"], "verbs": verbs},
        {"apiGroups": [group], "resources": ["signers"], "resourceNames": ["example.com/mine"], "verbs": ["attest"]}]);
    plane.grant("attester", "", rules).await;
    let (admin, attester) = (plane.admin(), plane.user("attester", None));
    let stored = json!({"metadata": {"name": "example.com:other:a"},
        "spec": {"signerName": "example.com/other", "trustBundle": ANCHOR}});
    create(&admin, BUNDLES, &stored).await;

    for version in ["v1beta1", "v1alpha1"] {
        let bundles = format!("/apis/{group}/{version}/clustertrustbundles");
        let new = json!({"apiVersion": format!("{group}/{version}"), "kind": "ClusterTrustBundle",
            "metadata": {"name": "example.com:other:new"},
            "spec": {"signerName": "example.com/other", "trustBundle": ANCHOR}});
        let mut changed = attester
            .get(&format!("{bundles}/example.com:other:a"))
            .await
            .json();
        changed["spec"]["trustBundle"] = json!(format!("# mine\n{ANCHOR}"));
        let spec = json!({"spec": changed["spec"]});
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let operation = json!([{"op": "replace", "path": "/spec/trustBundle", "value": format!("# other\n{ANCHOR}")}]);
        for dry_run in ["", "&dryRun=All"] {
            let path = |name: &str| format!("{bundles}/{name}?fieldManager=m&force=true{dry_run}");
            let (own, other) = (path("example.com:other:new"), path("example.com:other:a"));
            let mut intent = new.clone();
            intent["metadata"]["name"] = json!("example.com:other:a");
            intent["spec"] = changed["spec"].clone();
            let update = format!(
                "{bundles}/example.com:other:a?{}",
                dry_run.trim_start_matches('&')
            );
            for (write, reply) in [
                (
                    "create",
                    attester
                        .post(
                            &format!("{bundles}?{}", dry_run.trim_start_matches('&')),
                            &new,
                        )
                        .await,
                ),
                ("create by apply", attester.apply(&own, &new).await),
                ("update", attester.put(&update, &changed).await),
                ("merge patch", attester.merge_patch(&update, &spec).await),
                ("label", attester.merge_patch(&update, &label).await),
                ("json patch", attester.json_patch(&update, &operation).await),
                ("apply", attester.apply(&other, &intent).await),
            ] {
                let text = reply.text();
                assert_eq!(reply.status, 403, "{write} {version}{dry_run}: {text}");
                assert!(text.contains("not permitted to attest"), "{write}: {text}");
            }
        }
        // A garbage collector changes nothing that a signer vouches for. A bundle may have no signer.
        let finalizer = json!({"metadata": {"finalizers": [format!("example.com/{version}")]}});
        let path = format!("{bundles}/example.com:other:a");
        let reply = attester
            .merge_patch(&format!("{path}?dryRun=All"), &finalizer)
            .await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        let plain = json!({"metadata": {"name": format!("plain-{version}")}, "spec": {"trustBundle": ANCHOR}});
        create(&attester, &bundles, &plain).await;
        let signer = json!({"spec": {"signerName": "example.com/other"}});
        let path = format!("{bundles}/plain-{version}");
        // As upstream, updates are validated first: the signer is immutable.
        assert_eq!(attester.merge_patch(&path, &signer).await.status, 422);
        let mine = json!({"metadata": {"name": format!("example.com:mine:{version}")},
            "spec": {"signerName": "example.com/mine", "trustBundle": ANCHOR}});
        create(&attester, &bundles, &mine).await;
    }
    let path = format!("{BUNDLES}/example.com:other:a");
    let left = admin.get(&path).await.json();
    assert_eq!(left["spec"], stored["spec"]);
    assert_eq!(left["metadata"]["labels"], Value::Null);
    let new = admin.get(&format!("{BUNDLES}/example.com:other:new")).await;
    assert_eq!(new.status, 404);
}

#[tokio::test]
async fn kind_without_its_feature_gate_is_not_served() {
    let plane =
        ControlPlane::start_with_flags(&["--runtime-config=certificates.k8s.io/v1beta1=true"])
            .await;
    let admin = plane.admin();
    assert_eq!(admin.get(BUNDLES).await.status, 404);
    assert_eq!(
        admin.get("/apis/certificates.k8s.io/v1beta1").await.status,
        404
    );
}

#[tokio::test]
async fn device_taint_rule_has_the_time_of_its_effect_and_a_warning() {
    let plane = ControlPlane::start_with_flags(&["--runtime-config=resource.k8s.io/v1beta2=true,\
         resource.k8s.io/v1alpha3/devicetaintrules=true"])
    .await;
    let admin = plane.admin();
    let rules = |version: &str| format!("/apis/resource.k8s.io/{version}/devicetaintrules");
    let rule = json!({"metadata": {"name": "a"}, "status": {"conditions": [{"type": "T"}]},
        "spec": {"deviceSelector": {"driver": "d.io"}, "taint": {"key": "e.io/k", "effect": "None",
            "timeAdded": "2026-01-01T00:00:00Z"}}});
    let reply = admin.post(&rules("v1beta2"), &rule).await;
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert!(reply.header("warning").contains("stored but has no effect"));
    let path = format!("{}/a", rules("v1alpha3"));
    let created = admin.get(&path).await.json();
    assert_eq!(created["apiVersion"], "resource.k8s.io/v1alpha3");
    assert_eq!(
        (&created["spec"], &created["status"]),
        (&rule["spec"], &json!({}))
    );
    assert_eq!(created["metadata"]["generation"], 1);
    let label = json!({"spec": {"taint": {"value": "v"}}});
    let same = admin.merge_patch(&path, &label).await.json();
    assert_eq!(same["spec"]["taint"]["timeAdded"], "2026-01-01T00:00:00Z");
    let effect = json!({"spec": {"taint": {"effect": "NoExecute"}}});
    let changed = admin.merge_patch(&path, &effect).await.json();
    assert_ne!(
        changed["spec"]["taint"]["timeAdded"],
        "2026-01-01T00:00:00Z"
    );
    assert_eq!(changed["metadata"]["generation"], 3);
    let deleted = admin.delete(&path).await.json();
    assert_eq!(deleted["kind"], "DeviceTaintRule");
}
