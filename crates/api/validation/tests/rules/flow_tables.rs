//! Tables of APIServices, FlowSchemas and PriorityLevelConfigurations.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const API_SERVICE: Name = ("apiregistration.k8s.io", "APIService");
const SCHEMA: Name = ("flowcontrol.apiserver.k8s.io", "FlowSchema");
const LEVEL: Name = ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration");

fn api_service() -> Value {
    json!({"metadata": {"name": "v1.a.b"}, "spec": {"group": "a.b", "version": "v1", "groupPriorityMinimum": 100,
        "versionPriority": 10, "service": {"namespace": "n", "name": "s", "port": 443}}})
}

#[test]
fn api_services() {
    let table = r#"
        => ok
        /spec/service=null => ok
        /spec/groupPriorityMinimum=0 => spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000
        /spec/groupPriorityMinimum=20001 => spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000
        /spec/groupPriorityMinimum=20000 => ok
        /spec/versionPriority=0 => spec.versionPriority: Invalid value: 0: must be positive and less than 1000
        /spec/versionPriority=1001 => spec.versionPriority: Invalid value: 1001: must be positive and less than 1000
        /spec/service/namespace="" => spec.service.namespace: Required value
        /spec/service/name="" => spec.service.name: Required value
        /spec/service/port=0 => spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive
        /spec/service/port=null => ok
        /spec/insecureSkipTLSVerify=true => ok
        /spec/caBundle="YWJj" => ok
        /spec/insecureSkipTLSVerify=true & /spec/caBundle="YWJj" => spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present
        /spec/service=null & /spec/caBundle="YWJj" => spec.caBundle: Invalid value: "3 bytes": local APIServices may not have a caBundle
        /spec/service=null & /spec/insecureSkipTLSVerify=true => spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify
        /spec/version="V1" => metadata.name: Invalid value: "v1.a.b": must be `spec.version+"."+spec.group`: "V1.a.b" ;; spec.version: Invalid value: "V1": a DNS-1035 label must
        /spec/group="A" => metadata.name: Invalid value: "v1.a.b": must be `spec.version+"."+spec.group`: "v1.A" ;; spec.group: Invalid value: "A"
    "#;
    check_create(API_SERVICE, &api_service(), table);
    check_update(API_SERVICE, &api_service(), table);
    check_create(
        API_SERVICE,
        &api_service(),
        r#"
        /metadata/name="v1.a.c" => metadata.name: Invalid value: "v1.a.c": must be `spec.version+"."+spec.group`: "v1.a.b"
        /metadata/name="v1." & /spec/group="" => ok
        /metadata/name="v2." & /spec/group="" & /spec/version="v2" => spec.group: Required value: only v1 may have an empty group and it better be legacy kube
        /metadata/name="a/b" => metadata.name: Invalid value: "a/b": may not contain '/'
    "#,
    );
}

#[test]
fn status_of_api_services() {
    check_writes(
        API_SERVICE,
        "status",
        &api_service(),
        r#"
        /status={"conditions":[{"type":"Available","status":"True"}]} => ok
        /status={"conditions":[{"type":"Available","status":"Maybe"}]} => status.conditions[0].status: Unsupported value: "Maybe": supported values: "True", "False", "Unknown"
        # The spec and the metadata belong to the main resource.
        /spec/versionPriority=0 & /metadata/labels={"a b":"c"} => ok
    "#,
    );
}

fn schema() -> Value {
    json!({"spec": {"priorityLevelConfiguration": {"name": "a"}, "matchingPrecedence": 100, "rules": [{
        "subjects": [{"kind": "User", "user": {"name": "u"}}],
        "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["n"]}],
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}]}]}})
}

#[test]
fn flow_schemas() {
    let table = r#"
        => ok
        /spec/matchingPrecedence=0 => ok
        /spec/matchingPrecedence=-1 => spec.matchingPrecedence: Invalid value: -1: must be a positive value
        /spec/matchingPrecedence=10001 => spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000
        /spec/matchingPrecedence=1 => spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1
        /spec/distinguisherMethod={"type":"ByUser"} => ok
        /spec/distinguisherMethod={"type":"ByHost"} => spec.distinguisherMethod.type: Unsupported value: {"type":"ByHost"}: supported values: "ByNamespace", "ByUser"
        /spec/priorityLevelConfiguration/name="" => spec.priorityLevelConfiguration.name: Required value: must reference a priority level
        /spec/priorityLevelConfiguration/name="A" => spec.priorityLevelConfiguration.name: Invalid value: "A"
        /spec/rules=[] => ok
        /spec/rules/0/subjects=[] => spec.rules[0].subjects: Required value: subjects must contain at least one value
        /spec/rules/0/resourceRules=[] => ok
        /spec/rules/0/resourceRules=[] & /spec/rules/0/nonResourceRules=[] => spec.rules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty
        /spec/rules/0/subjects/0={"kind":"Robot"} => spec.rules[0].subjects[0].kind: Unsupported value: "Robot": supported values: "Group", "ServiceAccount", "User"
        /spec/rules/0/subjects/0={"kind":"User"} => spec.rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'
        /spec/rules/0/subjects/0={"kind":"User","user":{"name":""}} => spec.rules[0].subjects[0].user.name: Required value
        /spec/rules/0/subjects/0/group={"name":"g"} => spec.rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'
        /spec/rules/0/subjects/0={"kind":"Group"} => spec.rules[0].subjects[0].group: Required value: group is required when subject kind is 'Group'
        /spec/rules/0/subjects/0={"kind":"Group","group":{"name":"g"},"user":{"name":"u"}} => spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'
        /spec/rules/0/subjects/0={"kind":"ServiceAccount","serviceAccount":{"name":"*","namespace":"n"}} => ok
        /spec/rules/0/subjects/0={"kind":"ServiceAccount","serviceAccount":{"name":"A","namespace":"*"}} => spec.rules[0].subjects[0].serviceAccount.name: Invalid value: "A" ;; spec.rules[0].subjects[0].serviceAccount.namespace: Invalid value: "*"
        /spec/rules/0/subjects/0={"kind":"ServiceAccount","serviceAccount":{}} => spec.rules[0].subjects[0].serviceAccount.name: Required value ;; spec.rules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account
        /spec/rules/0/resourceRules/0/verbs=[] => spec.rules[0].resourceRules[0].verbs: Required value: verbs must contain at least one value
        /spec/rules/0/resourceRules/0/verbs=["*","get"] => spec.rules[0].resourceRules[0].verbs: Invalid value: ["*","get"]: if '*' is present, must not specify other verbs
        /spec/rules/0/resourceRules/0/verbs=["look"] => spec.rules[0].resourceRules[0].verbs: Unsupported value: ["look"]: supported values: "create", "delete"
        /spec/rules/0/resourceRules/0/apiGroups=[] => spec.rules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group
        /spec/rules/0/resourceRules/0/apiGroups=["*","a"] => spec.rules[0].resourceRules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other api groups
        /spec/rules/0/resourceRules/0/resources=[] => spec.rules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource
        /spec/rules/0/resourceRules/0/resources=["*","a"] => spec.rules[0].resourceRules[0].resources: Invalid value: ["*","a"]: if '*' is present, must not specify other resources
        /spec/rules/0/resourceRules/0/namespaces=[] => spec.rules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace
        /spec/rules/0/resourceRules/0/namespaces=[] & /spec/rules/0/resourceRules/0/clusterScope=true => ok
        /spec/rules/0/resourceRules/0/namespaces=["*"] => ok
        /spec/rules/0/resourceRules/0/namespaces=["*","n"] => spec.rules[0].resourceRules[0].namespaces: Invalid value: ["*","n"]: if '*' is present, must not specify other namespaces
        /spec/rules/0/resourceRules/0/namespaces=["A"] => spec.rules[0].resourceRules[0].namespaces[0]: Invalid value: "A": each member of this list must be '*' or a DNS-1123 label; a lowercase
        /spec/rules/0/nonResourceRules/0/verbs=["post"] => spec.rules[0].nonResourceRules[0].verbs: Unsupported value: ["post"]
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=[] => spec.rules[0].nonResourceRules[0].nonResourceURLs: Required value: nonResourceURLs must contain at least one value
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=["*","/a"] => spec.rules[0].nonResourceRules[0].nonResourceURLs: Invalid value: ["*","/a"]: if '*' is present, must not specify other non-resource URLs
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=["/","/a/*"] => ok
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=[""] => spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "": must not be empty
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=["a"] => spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "a": must start with slash
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=["/a b"] => spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/a b": must not contain white-space
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=["/a//b"] => spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/a//b": must not contain double slash
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=["/a*"] => spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/a*": wildcard can only do suffix matching
        /spec/rules/0/nonResourceRules/0/nonResourceURLs=["/*/a/*"] => spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: "/*/a/*": wildcard can only do suffix matching
    "#;
    check_create(SCHEMA, &schema(), table);
    check_update(SCHEMA, &schema(), table);
}

#[test]
fn mandatory_flow_schemas() {
    check_create(
        SCHEMA,
        &schema(),
        r#"
        /metadata/name="exempt" => spec: Invalid value: {
        /metadata/name="catch-all" => spec: Invalid value: {
    "#,
    );
}

#[test]
fn status_of_flow_schemas() {
    check_writes(
        SCHEMA,
        "status",
        &schema(),
        r#"
        /status={"conditions":[{"type":"Dangling","status":"True"}]} => ok
        /status={"conditions":[{"type":"A"},{"type":"A"}]} => status.conditions[1].type: Duplicate value: "A"
        /status={"conditions":[{"status":"True"}]} => status.conditions[0].type: Required value
    "#,
    );
}

fn level() -> Value {
    json!({"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 10, "limitResponse": {"type": "Queue",
        "queuing": {"queues": 64, "handSize": 8, "queueLengthLimit": 50}}}}})
}

#[test]
fn priority_levels() {
    let table = r#"
        => ok
        /spec/type="Other" => spec.type: Unsupported value: "Other": supported values: "Exempt", "Limited"
        /spec={"type":"Exempt"} => spec.type: Invalid value: "Exempt": must be 'Exempt' if and only if `name` is 'exempt'
        /spec/exempt={} => spec.exempt: Forbidden: must be nil if the type is Limited
        /spec/limited=null => spec.limited: Required value: must not be empty when type is Limited
        /spec/limited/nominalConcurrencyShares=-1 => spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer
        /spec/limited/nominalConcurrencyShares=0 => ok
        /spec/limited/lendablePercent=101 => spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive
        /spec/limited/lendablePercent=-1 => spec.limited.lendablePercent: Invalid value: -1: must be between 0 and 100, inclusive
        /spec/limited/borrowingLimitPercent=-1 => spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer
        /spec/limited/borrowingLimitPercent=200 => ok
        /spec/limited/limitResponse={"type":"Drop"} => spec.limited.limitResponse.type: Unsupported value: "Drop": supported values: "Queue", "Reject"
        /spec/limited/limitResponse={"type":"Reject"} => ok
        /spec/limited/limitResponse/type="Reject" => spec.limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited
        /spec/limited/limitResponse/queuing/queues=-1 => spec.limited.limitResponse.queuing.queues: Invalid value: -1: must be positive ;; spec.limited.limitResponse.queuing.handSize: Invalid value: 8: should not be greater than queues (-1)
        /spec/limited/limitResponse/queuing/queues=10000001 & /spec/limited/limitResponse/queuing/handSize=1 => spec.limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than 10000000
        /spec/limited/limitResponse/queuing/handSize=65 => spec.limited.limitResponse.queuing.handSize: Invalid value: 65: should not be greater than queues (64)
        /spec/limited/limitResponse/queuing/handSize=11 => spec.limited.limitResponse.queuing.handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be greater than 60
        /spec/limited/limitResponse/queuing/handSize=10 => ok
        /spec/limited/limitResponse/queuing/handSize=-1 => spec.limited.limitResponse.queuing.handSize: Invalid value: -1: must be positive
        /spec/limited/limitResponse/queuing/queueLengthLimit=-1 => spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive
        /metadata/annotations={"flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares":""} => metadata.annotations: Forbidden: annotation 'flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares' is forbidden
    "#;
    check_create(LEVEL, &level(), table);
    check_update(LEVEL, &level(), table);
    check_create(
        LEVEL,
        &level(),
        r#"
        /metadata/name="exempt" & /spec={"type":"Exempt"} => ok
        /metadata/name="exempt" & /spec={"type":"Exempt","exempt":{"nominalConcurrencyShares":5,"lendablePercent":10}} => ok
        /metadata/name="exempt" & /spec={"type":"Exempt","exempt":{"nominalConcurrencyShares":-5}} => spec.exempt.nominalConcurrencyShares: Invalid value: -5
        /metadata/name="exempt" & /spec={"type":"Exempt","exempt":{"lendablePercent":101}} => spec.exempt.lendablePercent: Invalid value: 101
        /metadata/name="exempt" & /spec/type="Exempt" => spec.limited: Forbidden: must be nil if the type is not Limited ;; spec: Invalid value: {
        /metadata/name="catch-all" => spec: Invalid value: {
        /metadata/name="catch-all" & /spec/limited={"nominalConcurrencyShares":5,"lendablePercent":0,"limitResponse":{"type":"Reject"}} => ok
    "#,
    );
    check_writes(
        LEVEL,
        "status",
        &level(),
        r#"
        /status={"conditions":[{"type":"A"},{"type":"A"}]} => status.conditions[1].type: Duplicate value: "A"
    "#,
    );
}
