//! Tables of candidates for leases, storage versions, their migrations, and taints of devices.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::json;

const CANDIDATE: Name = ("coordination.k8s.io", "LeaseCandidate");
const STORAGE_VERSION: Name = ("internal.apiserver.k8s.io", "StorageVersion");
const MIGRATION: Name = ("storagemigration.k8s.io", "StorageVersionMigration");

const TAINT_RULE: Name = ("resource.k8s.io", "DeviceTaintRule");

#[test]
fn device_taint_rules() {
    let base = json!({"spec": {"taint": {"key": "e.io/broken", "effect": "NoExecute"}}});
    let table = r#"
        => ok
        /spec/taint/value="a b" => spec.taint.value: Invalid value: "a b": a valid label must be
        /spec/taint/key="" => spec.taint.key: Invalid value: "": name part must be non-empty ;; spec.taint.key: Invalid value: "": name part must consist of
        /spec/taint/effect="" => spec.taint.effect: Required value
        /spec/taint/effect="Evict" => spec.taint.effect: Unsupported value: "Evict": supported values: "NoExecute", "NoSchedule", "None"
        /spec/deviceSelector={} => ok
        /spec/deviceSelector={"driver":"d.io","pool":"n/p","device":"a"} => ok
        /spec/deviceSelector={"driver":"d_","pool":"","device":"A"} => spec.deviceSelector.driver: Invalid value: "d_": a lowercase RFC 1123 subdomain ;; spec.deviceSelector.pool: Required value ;; spec.deviceSelector.device: Invalid value: "A": a lowercase RFC 1123 label
    "#;
    check_create(TAINT_RULE, &base, table);
    check_update(
        TAINT_RULE,
        &base,
        r#"
        /spec/taint/effect="None" => ok
        /spec/taint/effect="Evict" => spec.taint.effect: Unsupported value: "Evict"
        /spec/taint/effect="Evict" >> /spec/taint/value="a" => ok
    "#,
    );
    let condition = |kind: u32| {
        json!({"type": format!("T{kind}"), "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z"})
    };
    let conditions = |count| json!((0..count).map(condition).collect::<Vec<_>>()).to_string();
    let table = r#"
        /status={"conditions":EIGHT} => ok
        /status={"conditions":NINE} => status.conditions: Too many: 9: must have at most 8 items
        /status={"conditions":[{"type":"T"}]} => status.conditions[0].status: Unsupported value: "" ;; ...
    "#;
    let table = table.replace("EIGHT", &conditions(8));
    let table = table.replace("NINE", &conditions(9));
    check_writes(TAINT_RULE, "status", &base, &table);
}

#[test]
fn lease_candidates() {
    let base = json!({"spec": {"leaseName": "l", "binaryVersion": "1.36.0",
        "emulationVersion": "1.35.0", "strategy": "OldestEmulationVersion"}});
    let table = r#"
        => ok
        /metadata/name="a_B.c" => ok
        /metadata/name="..a" => metadata.name: Invalid value: "..a": must not start with '..'
        /metadata/name="a:b" => metadata.name: Invalid value: "a:b": a valid config key must consist of
        /spec/binaryVersion="" => spec.binaryVersion: Required value
        /spec/binaryVersion="v1" => spec.binaryVersion: Invalid value: "v1": must be a valid semantic version ;; spec.binaryVersion: Invalid value: "v1": must be greater than or equal to `emulationVersion`
        /spec/binaryVersion="1.34.9" => spec.binaryVersion: Invalid value: "1.34.9": must be greater than or equal to `emulationVersion`
        /spec/binaryVersion="1.35.0-rc.1" => spec.binaryVersion: Invalid value: "1.35.0-rc.1": must be greater than or equal to `emulationVersion`
        /spec/emulationVersion="1.35" => spec.emulationVersion: Invalid value: "1.35": must be a valid semantic version ;; spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'
        /spec/emulationVersion="" => spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'
        /spec/emulationVersion="" & /spec/strategy="example.com/mine" => ok
        /spec/strategy="" => spec.strategy: Required value
        /spec/strategy="Newest" => spec.strategy.strategy: Unsupported value: "Newest": supported values: "OldestEmulationVersion"
        /spec/strategy="a/b/c" => spec.strategy.strategy: Invalid value: "a/b/c"
    "#;
    check_create(CANDIDATE, &base, table);
    check_create(
        CANDIDATE,
        &base,
        "/spec/leaseName=\"\" => spec.leaseName: Required value",
    );
    check_update(
        CANDIDATE,
        &base,
        r#"
        /spec/binaryVersion="1.37.0" => ok
        /spec/binaryVersion="" => spec.binaryVersion: Required value
        /spec/leaseName="m" => spec.leaseName: Invalid value: "m": field is immutable
    "#,
    );
}

#[test]
fn storage_versions() {
    check_create(
        STORAGE_VERSION,
        &json!({"metadata": {"name": "apps.deployments"}, "spec": {}}),
        r#"
        => ok
        /metadata/name="core.pods" => ok
        /metadata/name="pods" => metadata.name: Invalid value: "pods": name must be in the form of <group>.<resource>
        /metadata/name="A.pods" => metadata.name: Invalid value: "A.pods": the group segment a lowercase RFC 1123 subdomain
        /metadata/name="a.1" => metadata.name: Invalid value: "a.1": the resource segment a DNS-1035 label
        /status={"commonEncodingVersion":"v9"} => ok
    "#,
    );
    let base = json!({"metadata": {"name": "apps.deployments"}, "spec": {}});
    let server = r#"{"apiServerID":"a","encodingVersion":"apps/v1","decodableVersions":["apps/v1","apps/v1beta1"],"servedVersions":["apps/v1"]}"#;
    let table = r#"
        /status={"storageVersions":[SERVER],"commonEncodingVersion":"apps/v1"} => ok
        /status={"storageVersions":[SERVER]} => status.commonEncodingVersion: Invalid value: null: the common encoding version is apps/v1
        /status={"storageVersions":[SERVER],"commonEncodingVersion":"v2"} => status.commonEncodingVersion: Invalid value: "v2": the actual common encoding version is apps/v1
        /status={"commonEncodingVersion":"v2"} => status.commonEncodingVersion: Invalid value: "v2": should be nil if servers do not agree
        /status={"storageVersions":[SERVER,SERVER],"commonEncodingVersion":"apps/v1"} => status.storageVersions[1].apiServerID: Duplicate value: "a"
        /status={"storageVersions":[{"apiServerID":"A","encodingVersion":"V1","decodableVersions":["v2"],"servedVersions":["v3"]}],"commonEncodingVersion":"V1"} => status.storageVersions[0].apiServerID: Invalid value: "A" ;; status.storageVersions[0].encodingVersion: Invalid value: "V1": version part: ;; status.storageVersions[0].decodableVersions: Invalid value: ["v2"]: decodableVersions must include encodingVersion V1 ;; status.storageVersions[0].servedVersions[0]: Invalid value: "v3": individual served version : v3 must be included in decodableVersions : [v2]
        /status={"conditions":[{"type":"AllEncodingVersionsEqual","status":"True","reason":"r","message":"m"}]} => ok
        /status={"conditions":[{"type":"T","status":"True","reason":"r","message":"m"},{"type":"T","status":"_","reason":"","message":""}]} => status[1].type: Invalid value: "T": the type of the condition is not unique, it also appears in conditions[0] ;; status[1].status: Invalid value: "_" ;; status[1].reason: Required value ;; status[1].message: Required value
    "#;
    check_writes(
        STORAGE_VERSION,
        "status",
        &base,
        &table.replace("SERVER", server),
    );
}

#[test]
fn storage_version_migrations() {
    let base = json!({"spec": {"resource": {"group": "apps", "resource": "deployments"}}});
    check_create(
        MIGRATION,
        &base,
        r#"
        => ok
        /spec/resource={"resource":"pods"} => ok
        /spec/resource={"group":"apps"} => spec.resource.resource: Required value: resource is required to be set
        /spec/resource={"resource":"pods/status"} => spec.resource.resource: Invalid value: "pods/status": a DNS-1035 label
        /spec/resource={"group":"A","resource":"pods"} => spec.resource.group: Invalid value: "A": a lowercase RFC 1123 subdomain
    "#,
    );
    check_update(
        MIGRATION,
        &base,
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/resource/group="batch" => spec: Invalid value: {
    "#,
    );
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "R", "message": "", "lastTransitionTime": "2024-01-01T00:00:00Z"}).to_string()
    };
    let table = r#"
        /status={"resourceVersion":"5"} => ok
        /status={"resourceVersion":"05"} => status.resourceVersion: Invalid value: "05": resource version is not well formed: 05
        /status={"resourceVersion":"x"} => status.resourceVersion: Invalid value: "x": resource version is not well formed: x
        /status={"conditions":[SUCCEEDED]} => ok
        /status={"conditions":[SUCCEEDED,FAILED]} => status.conditions: Invalid value: [
        /status={"conditions":[{"type":"Running"}]} => status.conditions[0].status: Unsupported value: "" ;; status.conditions[0].lastTransitionTime: Required value ;; status.conditions[0].reason: Required value
    "#;
    let table = table.replace("SUCCEEDED", &condition("Succeeded", "True"));
    let table = table.replace("FAILED", &condition("Failed", "True"));
    check_writes(MIGRATION, "status", &base, &table);
    let mut done = base.clone();
    done["status"] = json!({"resourceVersion": "5", "conditions": [
        serde_json::from_str::<serde_json::Value>(&condition("Succeeded", "True")).unwrap_or_default()]});
    let table = r#"
        /status/resourceVersion="6" => status.resourceVersion: Invalid value: "6": field is immutable
        /status/conditions/0/status="False" => status.conditions: Invalid value: [
        /status/conditions=[] => status.conditions: Invalid value: [
    "#;
    check_writes(MIGRATION, "status", &done, table);
}
