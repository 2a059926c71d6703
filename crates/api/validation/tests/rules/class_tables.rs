//! Tables of classes, leases, requests for certificates and roles.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const PRIORITY_CLASS: Name = ("scheduling.k8s.io", "PriorityClass");
const RUNTIME_CLASS: Name = ("node.k8s.io", "RuntimeClass");
const LEASE: Name = ("coordination.k8s.io", "Lease");
const REQUEST: Name = ("certificates.k8s.io", "CertificateSigningRequest");
const ROLE: Name = ("rbac.authorization.k8s.io", "Role");
const CLUSTER_ROLE: Name = ("rbac.authorization.k8s.io", "ClusterRole");
const ROLE_BINDING: Name = ("rbac.authorization.k8s.io", "RoleBinding");
const CLUSTER_ROLE_BINDING: Name = ("rbac.authorization.k8s.io", "ClusterRoleBinding");

#[test]
fn priority_classes() {
    let base = json!({"value": 10});
    check_create(
        PRIORITY_CLASS,
        &base,
        r#"
        => ok
        /value=-5 => ok
        /value=1000000001 => value: Forbidden: maximum allowed value of a user defined priority is 1000000000
        /preemptionPolicy="Never" => ok
        /preemptionPolicy="" => preemptionPolicy: Required value
        /preemptionPolicy="Maybe" => preemptionPolicy: Unsupported value: "Maybe": supported values: "PreemptLowerPriority", "Never"
        /metadata/name="system-x" => metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: system-x is not a known system priority class
        /metadata/name="system-node-critical" => metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: value of system-node-critical PriorityClass must be 2000001000
        /metadata/name="system-cluster-critical" & /value=2000000000 => ok
        /metadata/name="system-cluster-critical" & /value=2000000000 & /globalDefault=true => metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: globalDefault of system-cluster-critical PriorityClass must be false
    "#,
    );
    check_update(
        PRIORITY_CLASS,
        &base,
        r#"
        /description="d" => ok
        /value=11 => value: Forbidden: may not be changed in an update.
        /preemptionPolicy="Never" => preemptionPolicy: Invalid value: "Never": field is immutable
    "#,
    );
}

#[test]
fn runtime_classes() {
    let base = json!({"handler": "h"});
    check_create(
        RUNTIME_CLASS,
        &base,
        r#"
        => ok
        /handler="" => handler: Required value
        /handler="A" => handler: Invalid value: "A": a lowercase RFC 1123 label
        /overhead={"podFixed":{"cpu":"1"}} => ok
        /overhead={"podFixed":{"cpu":"-1"}} => overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0
        /scheduling={"nodeSelector":{"a":"b"}} => ok
        /scheduling={"nodeSelector":{"a b":"b"}} => scheduling.nodeSelector: Invalid value: "a b"
        /scheduling={"tolerations":[{"key":"a","operator":"Exists"}]} => ok
        /scheduling={"tolerations":[{"key":"a","operator":"Exists","effect":"NoExecute"},{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}]} => scheduling.tolerations[1]: Duplicate value: {
        /scheduling={"tolerations":[{"key":"a","operator":"Exists","value":"b"}]} => scheduling.tolerations[0].operator: Invalid value: 
    "#,
    );
    check_update(
        RUNTIME_CLASS,
        &base,
        r#"
        /metadata/labels={"a":"b"} => ok
        /handler="i" => handler: Invalid value: "i": field is immutable
    "#,
    );
}

#[test]
fn leases() {
    let base = json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}});
    let table = r#"
        => ok
        /spec/leaseDurationSeconds=0 => spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0
        /spec/leaseTransitions=-1 => spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0
        /spec/strategy="OldestEmulationVersion" => ok
        /spec/strategy="a.io/b" => ok
        /spec/preferredHolder="b" & /spec/strategy="OldestEmulationVersion" => ok
    "#;
    check_create(LEASE, &base, table);
    check_update(LEASE, &base, table);
}

/// Returns a signed request, as the field has it.
fn request() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let request = rcgen::CertificateParams::default().serialize_request(&key);
    STANDARD.encode(request.unwrap().pem().unwrap())
}

#[test]
fn conditions_of_certificate_requests() {
    let spec = json!({"request": request(), "signerName": "a.b/c", "usages": ["client auth"]});
    let base = json!({"spec": spec});
    let approved = r#"{"type":"Approved","status":"True"}"#;
    let denied = r#"{"type":"Denied","status":"True"}"#;
    let table = r#"
        /status={"conditions":[APPROVED]} => ok
        /status={"conditions":[{"type":"","status":"True"}]} => status.conditions[0].type: Required value
        /status={"conditions":[{"type":"A","status":""}]} => status.conditions[0].status: Required value
        /status={"conditions":[{"type":"A","status":"Maybe"}]} => status.conditions[0].status: Unsupported value: "Maybe": supported values: "False", "True", "Unknown"
        /status={"conditions":[{"type":"Approved","status":"False"}]} => status.conditions[0].status: Unsupported value: "False": supported values: "True"
        /status={"conditions":[APPROVED,DENIED]} => status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive
        /status={"conditions":[APPROVED,APPROVED]} => status.conditions[1].type: Duplicate value: "Approved"
        /status={"conditions":[APPROVED]} >> /status/conditions=[] => status.conditions: Forbidden: updates may not remove a condition of type "Approved"
        /status={"conditions":[APPROVED,APPROVED]} >> /metadata/labels={"a":"b"} => ok
        /status={"conditions":[APPROVED,DENIED]} >> /metadata/labels={"a":"b"} => ok
    "#;
    let table = table
        .replace("APPROVED", approved)
        .replace("DENIED", denied);
    check_writes(REQUEST, "approval", &base, &table);
    check_writes(
        REQUEST,
        "status",
        &base,
        r#"
        /status={"certificate":"LS0tLS1CRUdJTiBQVUJMSUMgS0VZLS0tLS0KQUFBQQotLS0tLUVORCBQVUJMSUMgS0VZLS0tLS0K"} => status.certificate: Invalid value: "<certificate data>": only CERTIFICATE PEM blocks are allowed, found "PUBLIC KEY"
        /status={"certificate":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="} => status.certificate: Invalid value: "<certificate data>": x509: malformed certificate
        /status={"certificate":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCks6IHYKCkFBQUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="} => status.certificate: Invalid value: "<certificate data>": no PEM block headers are permitted
        /status={"certificate":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCgotLS0tLUVORCBDRVJUSUZJQ0FURS0tLS0tCg=="} => status.certificate: Invalid value: "<certificate data>": found CERTIFICATE PEM block containing 0 certificates
        /status={"certificate":"eA=="} >> /status/certificate="eQ==" => status.certificate: Forbidden: updates may not modify existing certificate content
        /status={"certificate":"eA=="} => status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block
        /status={"certificate":"eA=="} >> /metadata/labels={"a":"b"} => ok
        /status={"certificate":"eA=="} >> /status/certificate=null => status.certificate: Forbidden: updates may not modify existing certificate content
        # Only approval decides.
        /status={"conditions":[{"type":"Approved","status":"False"}]} => ok
        /status={"conditions":[{"type":"Failed","status":"True"}]} => ok
    "#,
    );
}

#[test]
fn certificate_requests() {
    let base = json!({"spec": {"request": "", "signerName": "a.b/c", "usages": ["client auth"]}});
    check_create(
        REQUEST,
        &base,
        r#"
        => spec.request: Invalid value: ""
        /metadata/name="a/b" => metadata.name: Invalid value: "a/b": may not contain '/' ;; ...
        /spec/usages=[] => spec.usages: Required value ;; ...
        /spec/usages=["flying"] => spec.usages[0]: Unsupported value: "flying" ;; ...
        /spec/usages=["any","any"] => spec.usages[1]: Duplicate value: "any" ;; ...
        /spec/signerName="" => spec.signerName: Required value ;; ...
        /spec/signerName="a" => spec.signerName: Invalid value: "a": must be a fully qualified domain and path of the form 'example.com/signer-name' ;; ...
        /spec/signerName="a.b/c/d" => spec.signerName: Invalid value: "a.b/c/d": must be a fully qualified domain and path ;; ...
        /spec/signerName="a.B/c" => spec.signerName: Invalid value: "a.B": validating label "B": a lowercase RFC 1123 label ;; ...
        /spec/signerName="a.b/C" => spec.signerName: Invalid value: "C": validating label "C": a lowercase RFC 1123 subdomain ;; ...
        /spec/signerName="a/b" => spec.signerName: Invalid value: "a": should be a domain with at least two segments separated by dots ;; ...
        /spec/signerName="kubernetes.io/legacy-unknown" => spec.signerName: Invalid value: "kubernetes.io/legacy-unknown": the legacy signerName is not allowed via this API version ;; ...
        /spec/expirationSeconds=599 => spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes) ;; ...
    "#,
    );
}

fn role() -> Value {
    json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]})
}

#[test]
fn roles() {
    let shared = r#"
        => ok
        /rules=[] => ok
        /rules/0/verbs=[] => rules[0].verbs: Required value: verbs must contain at least one value
        /rules/0/apiGroups=[] => rules[0].apiGroups: Required value: resource rules must supply at least one api group
        /rules/0/resources=[] => rules[0].resources: Required value: resource rules must supply at least one resource
    "#;
    check_create(ROLE, &role(), shared);
    check_update(ROLE, &role(), shared);
    check_create(CLUSTER_ROLE, &role(), shared);
    check_update(CLUSTER_ROLE, &role(), shared);
    check_create(
        ROLE,
        &role(),
        r#"
        /metadata/name="system:a B" => ok
        /metadata/name="a/b" => metadata.name: Invalid value: "a/b": may not contain '/'
        /rules/0={"verbs":["get"],"nonResourceURLs":["/"]} => rules[0].nonResourceURLs: Invalid value: ["/"]: namespaced rules cannot apply to non-resource URLs
    "#,
    );
    check_create(
        CLUSTER_ROLE,
        &role(),
        r#"
        /rules/0={"verbs":["get"],"nonResourceURLs":["/"]} => ok
        /rules/0/nonResourceURLs=["/"] => rules[0].nonResourceURLs: Invalid value: ["/"]: rules cannot apply to both regular resources and non-resource URLs
        /aggregationRule={} => aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if aggregationRule is non-nil
        /aggregationRule={"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]} => ok
        /aggregationRule={"clusterRoleSelectors":[{"matchLabels":{"a":"b c"}}]} => aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "b c": a valid label ;; ...
        /aggregationRule={"clusterRoleSelectors":[{"matchExpressions":[{"key":"a","operator":"In"}]}]} => aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value ;; aggregationRule.clusterRoleSelectors[0]: Invalid value: {
    "#,
    );
}

#[test]
fn role_bindings() {
    let base = json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "u"}]});
    let shared = r#"
        => ok
        /subjects=[] => ok
        /roleRef/apiGroup="x" => roleRef.apiGroup: Unsupported value: "x": supported values: "rbac.authorization.k8s.io"
        /roleRef/name="" => roleRef.name: Required value
        /roleRef/name="a%" => roleRef.name: Invalid value: "a%": may not contain '%'
        /subjects/0/name="" => subjects[0].name: Required value
        /subjects/0/kind="Robot" => subjects[0].kind: Unsupported value: "Robot": supported values: "ServiceAccount", "User", "Group"
        /subjects/0/apiGroup="x" => subjects[0].apiGroup: Unsupported value: "x"
        /subjects/0={"kind":"ServiceAccount","name":"a","namespace":"n"} => ok
        /subjects/0={"kind":"ServiceAccount","name":"A","namespace":"n"} => subjects[0].name: Invalid value: "A"
        /subjects/0={"kind":"ServiceAccount","name":"a","namespace":"n","apiGroup":"x"} => subjects[0].apiGroup: Unsupported value: "x": supported values: ""
    "#;
    check_create(ROLE_BINDING, &base, shared);
    check_create(CLUSTER_ROLE_BINDING, &base, shared);
    check_create(
        ROLE_BINDING,
        &base,
        r#"
        /roleRef/kind="Role" => ok
        /roleRef/kind="Group" => roleRef.kind: Unsupported value: "Group": supported values: "Role", "ClusterRole"
    "#,
    );
    check_create(
        CLUSTER_ROLE_BINDING,
        &base,
        r#"
        /roleRef/kind="Role" => roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"
        /subjects/0={"kind":"ServiceAccount","name":"a"} => subjects[0].namespace: Required value
    "#,
    );
    for kind in [ROLE_BINDING, CLUSTER_ROLE_BINDING] {
        check_update(
            kind,
            &base,
            r#"
            /subjects=[] => ok
            /roleRef/name="s" => roleRef: Invalid value: {
        "#,
        );
    }
}
