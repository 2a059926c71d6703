//! Tables of candidates for leases, storage versions, their migrations, taints of devices, requests
//! for the state of pools, workloads and groups of pods.

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

const POOL_REQUEST: Name = ("resource.k8s.io", "ResourcePoolStatusRequest");
const WORKLOAD: Name = ("scheduling.k8s.io", "Workload");
const POD_GROUP: Name = ("scheduling.k8s.io", "PodGroup");

#[test]
fn resource_pool_status_requests() {
    let base = json!({"spec": {"driver": "d.io"}});
    check_create(
        POOL_REQUEST,
        &base,
        r#"
        => ok
        /spec/driver="D.io" => ok
        /spec/driver="" => spec.driver: Required value
        /spec/driver="d_" => spec.driver: Invalid value: "d_": a lowercase RFC 1123 subdomain
        /spec/limit=1 => ok
        /spec/limit=0 => spec.limit: Invalid value: 0: must be greater than or equal to 1
        /spec/limit=1000 => ok
        /spec/limit=1001 => spec.limit: Invalid value: 1001: must be less than or equal to 1000
        /spec/poolName="n/p" => ok
        /spec/poolName="a//B" => spec.poolName: Invalid value: "a//B": segment 1: must not be empty ;; spec.poolName: Invalid value: "B": segment 2: a lowercase
    "#,
    );
    let long = json!({"spec": {"driver": "d.io", "poolName": "/".repeat(254)}});
    let table = "=> spec.poolName: Too long: may not be more than 253 bytes";
    check_create(POOL_REQUEST, &long, table);
    check_update(
        POOL_REQUEST,
        &base,
        r#"
        => ok
        /metadata/labels={"a":"b"} => ok
        /spec/limit=5 => spec: Invalid value: null: field is immutable
        # The status is not taken from here.
        /status={"poolCount":-1} => ok
    "#,
    );
    let pool = r#"{"driver":"d.io","poolName":"p","generation":1}"#;
    let table = r#"
        /status={"poolCount":0} => ok
        /status={} => status.poolCount: Required value
        /status={"poolCount":-1} => status.poolCount: Invalid value: -1: must be greater than or equal to 0
        /status={"poolCount":1,"pools":[POOL]} => ok
        /status={"poolCount":1,"pools":[POOL]} & /status/pools/0/totalDevices=-1 => status.pools[0].totalDevices: Invalid value: -1: must be greater
        /status={"poolCount":1,"pools":[POOL]} & /status/pools/0/resourceSliceCount=0 => status.pools[0].resourceSliceCount: Invalid value: 0: must be greater than or equal to 1
        /status={"poolCount":1,"pools":[{}]} => status.pools[0].driver: Required value ;; status.pools[0].poolName: Required value ;; status.pools[0].generation: Required value
        /status={"poolCount":1,"pools":[POOL]} & /status/pools/0/generation=-1 & /status/pools/0/nodeName="A" => status.pools[0].generation: Invalid value: -1 ;; status.pools[0].nodeName: Invalid value: "A"
        /status={"poolCount":1,"pools":[POOL]} & /status/pools/0/validationError="LONG" => status.pools[0].validationError: Too long: may not be more than 256 bytes
        /status={"poolCount":1,"pools":[MANY]} => status.pools: Too many: 1001: must have at most 1000 items
        /status={"poolCount":1,"conditions":[{"type":"T"}]} => status.conditions[0].status: Unsupported value: "" ;; ...
        /status={"poolCount":1} >> /status={"poolCount":1} => ok
        /status={"poolCount":1} >> /status={"poolCount":2} => status: Invalid value: {"poolCount":2}: field is immutable
        /status={"poolCount":1} >> /status=null => status: Invalid value: null: field is immutable
    "#;
    let table = table.replace("LONG", &"x".repeat(257));
    let table = table.replace("MANY", &vec![pool; 1001].join(","));
    check_writes(POOL_REQUEST, "status", &base, &table.replace("POOL", pool));
}

#[test]
fn workloads() {
    let base =
        json!({"spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}]}});
    let template = r#"{"name":"NAME","schedulingPolicy":{"basic":{}}}"#;
    let templates = |count: usize| {
        let all = (0..count).map(|i| template.replace("NAME", &format!("t{i}")));
        all.collect::<Vec<_>>().join(",")
    };
    let table = r#"
        => ok
        /spec/podGroupTemplates=[] => spec.podGroupTemplates: Required value
        /spec/podGroupTemplates=[EIGHT] => ok
        /spec/podGroupTemplates=[NINE] => spec.podGroupTemplates: Too many: 9: must have at most 8 items
        /spec/podGroupTemplates=[ONE,ONE] => spec.podGroupTemplates[1]: Duplicate value: {"name":"t0"
        /spec/podGroupTemplates/0/name="" => spec.podGroupTemplates[0].name: Required value
        /spec/podGroupTemplates/0/name="a.b" => spec.podGroupTemplates[0].name: Invalid value: "a.b": must not contain dots
        /spec/podGroupTemplates/0/schedulingPolicy={} => spec.podGroupTemplates[0].schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`
        /spec/podGroupTemplates/0/schedulingPolicy/gang={"minCount":2} => spec.podGroupTemplates[0].schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: `basic`, `gang`
        /spec/podGroupTemplates/0/schedulingPolicy={"gang":{"minCount":2}} => ok
        /spec/podGroupTemplates/0/schedulingPolicy={"gang":{}} => spec.podGroupTemplates[0].schedulingPolicy.gang.minCount: Required value
        /spec/podGroupTemplates/0/schedulingPolicy={"gang":{"minCount":-1}} => spec.podGroupTemplates[0].schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1
        /spec/controllerRef={"apiGroup":"batch","kind":"Job","name":"j"} => ok
        /spec/controllerRef={"apiGroup":"B","kind":"","name":"a/b"} => spec.controllerRef.apiGroup: Invalid value: "B" ;; spec.controllerRef.kind: Required value ;; spec.controllerRef.name: Invalid value: "a/b"
        # Fields of gates that are off are dropped.
        /spec/podGroupTemplates/0/priority=-5 & /spec/podGroupTemplates/0/disruptionMode="X" => ok
    "#;
    let table = table
        .replace("EIGHT", &templates(8))
        .replace("NINE", &templates(9));
    check_create(WORKLOAD, &base, &table.replace("ONE", &templates(1)));
    check_update(
        WORKLOAD,
        &base,
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/podGroupTemplates/0/name="u" => spec.podGroupTemplates: Invalid value: null: field is immutable
        /spec/podGroupTemplates/0/schedulingPolicy={} => spec.podGroupTemplates: Invalid value: null: field is immutable
        /spec/podGroupTemplates/0/schedulingPolicy={"gang":{}} => spec.podGroupTemplates: Invalid value: null: field is immutable
        /spec/controllerRef={"kind":"Job","name":"j"} => spec.controllerRef: Invalid value: null: field is immutable
        /spec/podGroupTemplates/0/priority=5 => ok
        /spec/podGroupTemplates/0/priority=5 >> /spec/podGroupTemplates/0/priority=6 => spec.podGroupTemplates: Invalid value: null: field is immutable
    "#,
    );
}

#[test]
fn pod_groups() {
    let base = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}},
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}}});
    check_create(
        POD_GROUP,
        &base,
        r#"
        => ok
        /spec/podGroupTemplateRef=null => ok
        /spec/podGroupTemplateRef={} => spec.podGroupTemplateRef: Invalid value: "": must specify one of: `workload`
        /spec/podGroupTemplateRef/workload={} => spec.podGroupTemplateRef.workload.workloadName: Required value ;; spec.podGroupTemplateRef.workload.podGroupTemplateName: Required value
        /spec/podGroupTemplateRef/workload={"workloadName":"W","podGroupTemplateName":"a.b"} => spec.podGroupTemplateRef.workload.workloadName: Invalid value: "W" ;; spec.podGroupTemplateRef.workload.podGroupTemplateName: Invalid value: "a.b"
        /spec/schedulingPolicy={} => spec.schedulingPolicy: Invalid value: "": must specify one of
        /spec/schedulingPolicy/gang/minCount=0 => spec.schedulingPolicy.gang.minCount: Required value
        /spec/disruptionMode="X" & /spec/priority=5 & /spec/resourceClaims=[{}] => ok
    "#,
    );
    check_update(
        POD_GROUP,
        &base,
        r#"
        /metadata/labels={"a":"b"} => ok
        /spec/schedulingPolicy/gang/minCount=3 => spec.schedulingPolicy: Invalid value: null: field is immutable
        /spec/podGroupTemplateRef=null => spec.podGroupTemplateRef: Invalid value: null: field is immutable
        /spec/disruptionMode="PodGroup" => spec.disruptionMode: Forbidden
        /spec/priority=5 => ok
        /spec/priority=5 >> /spec/priority=6 => spec.priority: Forbidden
        /spec/priority=5 >> /spec/priority=null => ok
        /spec/resourceClaims=[{"name":"a"}] >> /spec/resourceClaims=[] => spec.resourceClaims: Invalid value: null: field is immutable
    "#,
    );
    check_writes(
        POD_GROUP,
        "status",
        &base,
        r#"
        /status={"conditions":[{"type":"T"}]} => status.conditions[0].status: Unsupported value: "" ;; ...
        # Without claims in the spec, their status is dropped.
        /status={"resourceClaimStatuses":[{"name":"b"}]} => ok
        /spec/resourceClaims=[{"name":"a"}] >> /status={"resourceClaimStatuses":[{"name":"a","resourceClaimName":"c"}]} => ok
        /spec/resourceClaims=[{"name":"a"}] >> /status={"resourceClaimStatuses":[{"name":"b"}]} => status.resourceClaimStatuses[0].name: Invalid value: "b": must match the name of an entry in `spec.resourceClaims`
        /spec/resourceClaims=[{"name":"a"}] >> /status={"resourceClaimStatuses":[{"name":"a"},{"name":"a","resourceClaimName":"C"}]} => status.resourceClaimStatuses[1]: Duplicate value ;; status.resourceClaimStatuses[1].resourceClaimName: Invalid value: "C"
        /spec/resourceClaims=[{"name":"a"}] >> /status={"resourceClaimStatuses":[{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"},{"name":"a"}]} => status.resourceClaimStatuses: Too many: 5
    "#,
    );
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
