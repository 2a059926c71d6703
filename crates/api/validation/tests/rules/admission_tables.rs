//! Tables of webhook configurations and policies.

use super::Name;
use super::table::{check_create, check_update, check_writes};
use serde_json::{Value, json};

const GROUP: &str = "admissionregistration.k8s.io";
const VALIDATING: Name = (GROUP, "ValidatingWebhookConfiguration");
const MUTATING: Name = (GROUP, "MutatingWebhookConfiguration");
const POLICY: Name = (GROUP, "ValidatingAdmissionPolicy");
const BINDING: Name = (GROUP, "ValidatingAdmissionPolicyBinding");
const MUTATING_POLICY: Name = (GROUP, "MutatingAdmissionPolicy");
const MUTATING_BINDING: Name = (GROUP, "MutatingAdmissionPolicyBinding");

fn rule() -> Value {
    json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]})
}

fn webhooks() -> Value {
    json!({"webhooks": [{"name": "a.b.c", "rules": [rule()], "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://a.b/c"}}]})
}

#[test]
fn new_webhooks() {
    let table = r#"
        => ok
        /webhooks/0/name="" => webhooks[0].name: Required value
        /webhooks/0/name="a.b" => webhooks[0].name: Invalid value: "a.b": should be a domain with at least three segments separated by dots
        /webhooks/0/name="A.b.c" => webhooks[0].name: Invalid value: "A.b.c": a lowercase RFC 1123 subdomain
        /webhooks/0/failurePolicy="Retry" => webhooks[0].failurePolicy: Unsupported value: "Retry": supported values: "Fail", "Ignore"
        /webhooks/0/matchPolicy="Some" => webhooks[0].matchPolicy: Unsupported value: "Some": supported values: "Equivalent", "Exact"
        /webhooks/0/sideEffects=null => webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun
        /webhooks/0/sideEffects="Some" => webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"
        /webhooks/0/timeoutSeconds=0 => webhooks[0].timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds
        /webhooks/0/timeoutSeconds=31 => webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds
        /webhooks/0/namespaceSelector={"matchExpressions":[{"key":"a","operator":"In"}]} => webhooks[0].namespaceSelector.matchExpressions[0].values: Required value
        /webhooks/0/objectSelector={"matchLabels":{"a b":"c"}} => webhooks[0].objectSelector.matchLabels: Invalid value: "a b"
        /webhooks/0/admissionReviewVersions=[] => webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1
        /webhooks/0/admissionReviewVersions=["v2"] => webhooks[0].admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1
        /webhooks/0/admissionReviewVersions=["v2","v1"] => ok
        /webhooks/0/admissionReviewVersions=["v1","v1"] => webhooks[0].admissionReviewVersions[1]: Invalid value: "v1": duplicate version
        /webhooks/0/admissionReviewVersions=["v1","1"] => webhooks[0].admissionReviewVersions[1]: Invalid value: "1": a DNS-1035 label
        /webhooks/0/clientConfig={} => webhooks[0].clientConfig: Required value: exactly one of url or service is required
        /webhooks/0/clientConfig/service={"namespace":"n","name":"s"} => webhooks[0].clientConfig: Required value: exactly one of url or service is required
        /webhooks/0/clientConfig/url="http://a.b" => webhooks[0].clientConfig.url: Invalid value: "http": 'https' is the only allowed URL scheme; desired format: https://host[/path]
        /webhooks/0/clientConfig/url="a" => webhooks[0].clientConfig.url: Invalid value: "": 'https' is the only allowed URL scheme ;; webhooks[0].clientConfig.url: Invalid value: "": host must be specified
        /webhooks/0/clientConfig/url="https://u@a.b" => webhooks[0].clientConfig.url: Invalid value: "u": user information is not permitted in the URL
        /webhooks/0/clientConfig/url="https://a.b#c" => webhooks[0].clientConfig.url: Invalid value: "c": fragments are not permitted in the URL
        /webhooks/0/clientConfig/url="https://a.b?c=d" => webhooks[0].clientConfig.url: Invalid value: "c=d": query parameters are not permitted in the URL
        /webhooks/0/clientConfig={"service":{"namespace":"n","name":"s","path":"/a/b"}} => ok
        # Upstream exchanges the two paths.
        /webhooks/0/clientConfig={"service":{"namespace":"","name":"s"}} => webhooks[0].clientConfig.service.name: Required value
        /webhooks/0/clientConfig={"service":{"namespace":"n","name":"s","port":70000}} => webhooks[0].clientConfig.service.port: Invalid value: 70000: port is not valid: must be between
        /webhooks/0/clientConfig={"service":{"namespace":"n","name":"s","path":"//"}} => webhooks[0].clientConfig.service.path: Invalid value: "//": segment[0] may not be empty
        /webhooks/0/clientConfig={"service":{"namespace":"n","name":"s","path":"/a//b"}} => webhooks[0].clientConfig.service.path: Invalid value: "/a//b": segment[1] may not be empty
        /webhooks/0/clientConfig={"service":{"namespace":"n","name":"s","path":"/A"}} => webhooks[0].clientConfig.service.path: Invalid value: "/A": segment[0]: a lowercase
        /webhooks/0/clientConfig={"service":{"namespace":"n","name":"s","path":"xa"}} => webhooks[0].clientConfig.service.path: Invalid value: "xa": must start with a '/'
        /webhooks/0/matchConditions=[{"name":"a","expression":"true"}] => ok
        /webhooks/0/matchConditions=[{"name":"","expression":""}] => webhooks[0].matchConditions[0].expression: Required value ;; webhooks[0].matchConditions[0].name: Required value
        /webhooks/0/matchConditions=[{"name":"a b","expression":"true"}] => webhooks[0].matchConditions[0].name: Invalid value: "a b"
        /webhooks/0/matchConditions=[{"name":"a","expression":"true"},{"name":"a","expression":"true"}] => webhooks[0].matchConditions[1].name: Duplicate value: "a"
        /webhooks/0/matchConditions=[{"name":"a","expression":"(true"}] => webhooks[0].matchConditions[0].expression: Invalid value: "(true"
    "#;
    check_create(VALIDATING, &webhooks(), table);
    check_create(MUTATING, &webhooks(), table);
    check_create(
        MUTATING,
        &webhooks(),
        r#"
        /webhooks/0/reinvocationPolicy="Always" => webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"
        /webhooks/0/reinvocationPolicy="IfNeeded" => ok
    "#,
    );
}

#[test]
fn rules_of_new_webhooks() {
    check_create(
        VALIDATING,
        &webhooks(),
        r#"
        /webhooks/0/rules/0/operations=[] => webhooks[0].rules[0].operations: Required value
        /webhooks/0/rules/0/operations=["*","CREATE"] => webhooks[0].rules[0].operations: Invalid value: ["*","CREATE"]: if '*' is present, must not specify other operations
        /webhooks/0/rules/0/operations=["LOOK"] => webhooks[0].rules[0].operations[0]: Unsupported value: "LOOK": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"
        /webhooks/0/rules/0/apiGroups=[] => webhooks[0].rules[0].apiGroups: Required value
        /webhooks/0/rules/0/apiGroups=["*","a"] => webhooks[0].rules[0].apiGroups: Invalid value: ["*","a"]: if '*' is present, must not specify other API groups
        /webhooks/0/rules/0/apiVersions=[] => webhooks[0].rules[0].apiVersions: Required value
        /webhooks/0/rules/0/apiVersions=["*","v1"] => webhooks[0].rules[0].apiVersions: Invalid value: ["*","v1"]: if '*' is present, must not specify other API versions
        /webhooks/0/rules/0/apiVersions=[""] => webhooks[0].rules[0].apiVersions[0]: Required value
        /webhooks/0/rules/0/resources=[] => webhooks[0].rules[0].resources: Required value
        /webhooks/0/rules/0/resources=[""] => webhooks[0].rules[0].resources[0]: Required value
        /webhooks/0/rules/0/resources=["*","pods"] => webhooks[0].rules[0].resources: Invalid value: ["*","pods"]: if '*' is present, must not specify other resources without subresources
        /webhooks/0/rules/0/resources=["*","pods/log"] => ok
        /webhooks/0/rules/0/resources=["*/*","pods"] => webhooks[0].rules[0].resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources
        /webhooks/0/rules/0/resources=["pods/*","pods/log"] => webhooks[0].rules[0].resources[1]: Invalid value: "pods/log": if 'pods/*' is present, must not specify pods/log
        /webhooks/0/rules/0/resources=["*/scale","pods/scale"] => webhooks[0].rules[0].resources[1]: Invalid value: "pods/scale": if '*/scale' is present, must not specify pods/scale
        /webhooks/0/rules/0/scope="Galaxy" => webhooks[0].rules[0].scope: Unsupported value: "Galaxy": supported values: "*", "Cluster", "Namespaced"
    "#,
    );
}

#[test]
fn changed_webhooks() {
    check_update(
        VALIDATING,
        &webhooks(),
        r#"
        => ok
        /webhooks/0/name="a" => webhooks[0].name: Invalid value: "a"
        /webhooks/-={"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://a.b"}} => webhooks[1].name: Duplicate value: "a.b.c"
        /webhooks/-={"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://a.b"}} >> /metadata/labels={"a":"b"} => ok
        /webhooks/0/sideEffects="Some" >> /webhooks/0/sideEffects="Unknown" => ok
        /webhooks/0/sideEffects="Some" >> /webhooks/0/sideEffects="Few" => webhooks[0].sideEffects: Unsupported value: "Few": supported values: "None", "NoneOnDryRun", "Some", "Unknown"
        /webhooks/0/admissionReviewVersions=["v2"] >> /metadata/labels={"a":"b"} => ok
        /webhooks/0/matchConditions=[{"name":"a","expression":"(true"}] >> /metadata/labels={"a":"b"} => ok
        /webhooks/0/objectSelector={"matchExpressions":[{"key":"a","operator":"In","values":["b c"]}]} >> /metadata/labels={"a":"b"} => ok
    "#,
    );
}

fn policy() -> Value {
    json!({"spec": {"matchConstraints": {"resourceRules": [rule()]}, "validations": [{"expression": "true"}]}})
}

#[test]
fn new_policies() {
    check_create(
        POLICY,
        &policy(),
        r#"
        => ok
        /spec/failurePolicy="Retry" => spec.failurePolicy: Unsupported value: "Retry": supported values: "Fail", "Ignore"
        /spec/matchConstraints=null => spec.matchConstraints: Required value
        /spec/matchConstraints/resourceRules=[] => spec.matchConstraints.resourceRules: Required value
        /spec/matchConstraints/matchPolicy="Some" => spec.matchConstraints.matchPolicy: Unsupported value: "Some"
        /spec/matchConstraints/namespaceSelector={"matchLabels":{"a b":"c"}} => spec.matchConstraints.namespaceSelector.matchLabels: Invalid value: "a b"
        /spec/matchConstraints/resourceRules/0/resourceNames=["a","a"] => spec.matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"
        /spec/matchConstraints/resourceRules/0/resourceNames=["a/b"] => spec.matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: "a/b": may not contain '/'
        /spec/matchConstraints/resourceRules/0/operations=[] => spec.matchConstraints.resourceRules[0].operations: Required value
        /spec/matchConstraints/excludeResourceRules=[{"operations":["CREATE"],"apiGroups":[],"apiVersions":["v1"],"resources":["a"]}] => spec.matchConstraints.excludeResourceRules[0].apiGroups: Required value
        /spec/paramKind={"apiVersion":"v1","kind":"ConfigMap"} => ok
        /spec/paramKind={"apiVersion":"","kind":""} => spec.paramKind.apiVersion: Required value ;; spec.paramKind.kind: Required value
        /spec/paramKind={"apiVersion":"a/b/c","kind":"K"} => spec.paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c
        /spec/paramKind={"apiVersion":"A/v1","kind":"K"} => spec.paramKind.apiVersion: Invalid value: "A"
        /spec/paramKind={"apiVersion":"a/","kind":"K"} => spec.paramKind.apiVersion: Invalid value: "a/": version must be specified
        /spec/paramKind={"apiVersion":"a/V1","kind":"K"} => spec.paramKind.apiVersion: Invalid value: "V1"
        /spec/paramKind={"apiVersion":"v1","kind":"a b"} => spec.paramKind.kind: Invalid value: "a b": may have mixed case, but should otherwise match: a DNS-1035
        /spec/matchConditions=[{"name":"","expression":"true"}] => spec.matchConditions[0].name: Required value
        /spec/variables=[{"name":"v","expression":"1"}] => ok
        /spec/variables=[{"name":"","expression":""}] => spec.variables[0].name: Required value: name is not specified ;; spec.variables[0].expression: Required value: expression is not specified
        /spec/variables=[{"name":"a-b","expression":"1"}] => spec.variables[0].name: Invalid value: "a-b": must be a valid CEL identifier
        /spec/variables=[{"name":"while","expression":"1"}] => spec.variables[0].name: Invalid value: "while": must be a valid CEL identifier
        /spec/validations=[] => spec.validations: Required value: validations or auditAnnotations must contain at least one item ;; spec.auditAnnotations: Required value: validations or auditAnnotations must contain at least one item
        /spec/validations/0/expression=" " => spec.validations[0].expression: Required value: expression is not specified ;; ...
        /spec/validations/0/message=" " => spec.validations[0].message: Invalid value: " ": must be non-empty if specified
        /spec/validations/0/message="a\nb" => spec.validations[0].message: Invalid value: "a\nb": must not contain line breaks
        /spec/validations/0/messageExpression=" " => spec.validations[0].messageExpression: Invalid value: " ": must be non-empty if specified
        /spec/validations/0/reason="Forbidden" => ok
        /spec/validations/0/reason="Unauthorized" => spec.validations[0].reason: Unsupported value: "Unauthorized": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"
        /spec/validations=[] & /spec/auditAnnotations=[{"key":"a","valueExpression":"'b'"}] => ok
        /spec/auditAnnotations=[{"key":"a b","valueExpression":"'b'"}] => spec.auditAnnotations[0].key: Invalid value: "x/a b": name part must consist
        /spec/auditAnnotations=[{"key":"a","valueExpression":""}] => spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified
        /spec/auditAnnotations=[{"key":"a","valueExpression":"'b'"},{"key":"a","valueExpression":"'b'"}] => spec.auditAnnotations[1].key: Duplicate value: "a"
    "#,
    );
}

#[test]
fn changed_policies_and_their_status() {
    check_update(
        POLICY,
        &policy(),
        r#"
        => ok
        /spec/validations=[] => spec.validations: Required value ;; spec.auditAnnotations: Required value
        /spec/matchConditions=[{"name":"","expression":"(true"}] >> /metadata/labels={"a":"b"} => ok
    "#,
    );
    check_writes(
        POLICY,
        "status",
        &policy(),
        r#"
        /status={"conditions":[{"type":"A","status":"True","reason":"R","lastTransitionTime":"2024-01-01T00:00:00Z"}]} => ok
        /status={"conditions":[{"type":"A","status":"True","lastTransitionTime":"2024-01-01T00:00:00Z"}]} => status.conditions[0].reason: Required value
        /status={"conditions":[{"type":"a b","status":"True","reason":"9"}]} => status.conditions[0].type: Invalid value: "a b" ;; status.conditions[0].lastTransitionTime: Required value ;; status.conditions[0].reason: Invalid value: "9": a condition reason must
        /status={"typeChecking":{"expressionWarnings":[{"warning":"","fieldRef":""}]}} => status.typeChecking.expressionWarnings[0].warning: Required value ;; status.typeChecking.expressionWarnings[0].fieldRef: Required value
    "#,
    );
}

#[test]
fn policy_bindings() {
    let base = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
    check_create(
        BINDING,
        &base,
        r#"
        => ok
        /spec/policyName="" => spec.policyName: Required value
        /spec/policyName="A" => spec.policyName: Invalid value: "A"
        /spec/validationActions=[] => spec.validationActions: Required value: at least one validation action is required
        /spec/validationActions=["Log"] => spec.validationActions[0]: Unsupported value: "Log": supported values: "Audit", "Deny", "Warn"
        /spec/validationActions=["Deny","Deny"] => spec.validationActions[1]: Duplicate value: "Deny"
        /spec/validationActions=["Deny","Warn"] => spec.validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn
        /spec/paramRef={"name":"a","parameterNotFoundAction":"Deny"} => ok
        /spec/paramRef={"parameterNotFoundAction":"Deny"} => spec.paramRef: Required value: one of name or selector must be specified
        /spec/paramRef={"name":"a","selector":{},"parameterNotFoundAction":"Deny"} => spec.paramRef.name: Forbidden: name and selector are mutually exclusive ;; spec.paramRef.selector: Forbidden: name and selector are mutually exclusive
        /spec/paramRef={"name":"a/b","parameterNotFoundAction":"Deny"} => spec.paramRef.name: Invalid value: "a/b": may not contain '/'
        /spec/paramRef={"name":"a"} => spec.paramRef.parameterNotFoundAction: Required value
        /spec/paramRef={"name":"a","parameterNotFoundAction":"Wait"} => spec.paramRef.parameterNotFoundAction: Unsupported value: "Wait": supported values: "Deny", "Allow"
        /spec/matchResources={"resourceRules":[{"operations":[],"apiGroups":[""],"apiVersions":["v1"],"resources":["a"]}]} => spec.matchResources.resourceRules[0].operations: Required value
    "#,
    );
    check_create(
        MUTATING_BINDING,
        &base,
        r#"
        /spec/validationActions=null => ok
        /spec/policyName="" => spec.policyName: Required value
        /spec/matchResources={"resourceRules":[{"operations":["DELETE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["a"]}]} => spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"
    "#,
    );
}

#[test]
fn mutating_policies() {
    let base = json!({"spec": {"matchConstraints": {"resourceRules": [rule()]}, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'add', path: '/x', value: 1}]"}}]}});
    let table = r#"
        => ok
        /spec/mutations=[] => spec.mutations: Required value: mutations must contain at least one item
        /spec/mutations/0/patchType="" => spec.mutations[0].patchType: Required value
        /spec/mutations/0/patchType="Merge" => spec.mutations[0].patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch"
        /spec/mutations/0={"patchType":"Merge","applyConfiguration":{"expression":"("}} => spec.mutations[0].patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", "JSONPatch"
        /spec/mutations/0/jsonPatch=null => spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch
        /spec/mutations/0/jsonPatch/expression="" => spec.mutations[0].jsonPatch.expression: Required value
        /spec/mutations/0/applyConfiguration={"expression":"Object{}"} => spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when patchType is JSONPatch
        /spec/mutations/0={"patchType":"ApplyConfiguration"} => spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration
        /spec/mutations/0={"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}} => ok
        /spec/reinvocationPolicy="Always" => spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"
        /spec/matchConstraints/resourceRules/0/operations=["DELETE"] => spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE"
        /spec/matchConstraints=null => spec.matchConstraints: Required value
        /spec/failurePolicy="Retry" => spec.failurePolicy: Unsupported value: "Retry"
    "#;
    check_create(MUTATING_POLICY, &base, table);
    check_update(MUTATING_POLICY, &base, table);
}
