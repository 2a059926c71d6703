//! RBAC, admission, flow control and certificates.

use super::{Name, build, create, merge, update};
use serde_json::{Value, json};

const ROLE: Name = ("rbac.authorization.k8s.io", "Role");
const CLUSTER_ROLE: Name = ("rbac.authorization.k8s.io", "ClusterRole");
const ROLE_BINDING: Name = ("rbac.authorization.k8s.io", "RoleBinding");
const CLUSTER_ROLE_BINDING: Name = ("rbac.authorization.k8s.io", "ClusterRoleBinding");
const WEBHOOKS: Name = (
    "admissionregistration.k8s.io",
    "ValidatingWebhookConfiguration",
);
const FLOW_SCHEMA: Name = ("flowcontrol.apiserver.k8s.io", "FlowSchema");

fn webhook(change: Value) -> Value {
    let mut hook = json!({"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://example.com/hook"}});
    merge(&mut hook, change);
    json!({"webhooks": [hook]})
}

fn binding(subject: Value) -> Value {
    json!({"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [subject]})
}

#[test]
fn rule_needs_verbs_groups_and_resources() {
    create(
        ROLE,
        json!({"rules": [{}]}),
        &[
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ],
    );
}

#[test]
fn paths_are_for_cluster_roles() {
    let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]});
    create(CLUSTER_ROLE, json!({"rules": [rule]}), &[]);
    create(
        ROLE,
        json!({"rules": [rule]}),
        &[
            "rules[0].nonResourceURLs: Invalid value: [\"/healthz\"]: namespaced rules cannot apply to non-resource URLs",
        ],
    );
}

#[test]
fn rule_has_paths_or_resources() {
    let rule = json!({"verbs": ["get"], "nonResourceURLs": ["/a"], "apiGroups": [""], "resources": ["pods"]});
    create(
        CLUSTER_ROLE,
        json!({"rules": [rule]}),
        &[
            "rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular resources and non-resource URLs",
        ],
    );
}

#[test]
fn binding_refers_to_a_role() {
    create(
        ROLE_BINDING,
        json!({"roleRef": {"kind": "Pod", "name": ""}}),
        &[
            "roleRef.kind: Unsupported value: \"Pod\": supported values: \"Role\", \"ClusterRole\"",
            "roleRef.name: Required value",
        ],
    );
    create(
        CLUSTER_ROLE_BINDING,
        json!({"roleRef": {"kind": "Role", "name": "r"}}),
        &["roleRef.kind: Unsupported value: \"Role\": supported values: \"ClusterRole\""],
    );
}

#[test]
fn subject_is_a_user_group_or_service_account() {
    create(
        ROLE_BINDING,
        binding(json!({"kind": "Robot", "name": "r"})),
        &[
            "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ],
    );
    create(
        CLUSTER_ROLE_BINDING,
        binding(json!({"kind": "ServiceAccount", "name": "s"})),
        &["subjects[0].namespace: Required value"],
    );
    create(
        ROLE_BINDING,
        binding(json!({"kind": "User", "name": ""})),
        &["subjects[0].name: Required value"],
    );
}

#[test]
fn role_of_a_binding_does_not_change() {
    let old = build(ROLE_BINDING, binding(json!({"kind": "User", "name": "u"})));
    update(
        ROLE_BINDING,
        &old,
        json!({"roleRef": {"name": "other"}}),
        &["roleRef: Invalid value: "],
    );
}

#[test]
fn webhook_has_a_url_or_a_service() {
    let message =
        "webhooks[0].clientConfig: Required value: exactly one of url or service is required";
    create(
        WEBHOOKS,
        webhook(json!({"clientConfig": {"url": null}})),
        &[message],
    );
    let service = json!({"name": "s", "namespace": "n"});
    create(
        WEBHOOKS,
        webhook(json!({"clientConfig": {"service": service}})),
        &[message],
    );
}

#[test]
fn webhook_is_called_over_https_without_user_and_query() {
    for (url, message) in [
        (
            "http://example.com",
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme",
        ),
        (
            "https://u:p@example.com",
            "webhooks[0].clientConfig.url: Invalid value: ",
        ),
        (
            "https://example.com/?a=b",
            "webhooks[0].clientConfig.url: Invalid value: \"a=b\": query parameters are not permitted in the URL",
        ),
        (
            "https://example.com/#f",
            "webhooks[0].clientConfig.url: Invalid value: \"f\": fragments are not permitted in the URL",
        ),
    ] {
        create(
            WEBHOOKS,
            webhook(json!({"clientConfig": {"url": url}})),
            &[message],
        );
    }
}

#[test]
fn webhook_states_its_side_effects_and_versions() {
    create(
        WEBHOOKS,
        webhook(json!({"sideEffects": null, "admissionReviewVersions": null})),
        &[
            "webhooks[0].sideEffects: Required value: must specify one of None, NoneOnDryRun",
            "webhooks[0].admissionReviewVersions: Required value: must specify one of v1, v1beta1",
        ],
    );
}

#[test]
fn webhook_responds_within_30_seconds() {
    create(
        WEBHOOKS,
        webhook(json!({"timeoutSeconds": 31})),
        &[
            "webhooks[0].timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ],
    );
}

#[test]
fn webhook_name_is_fully_qualified() {
    create(
        WEBHOOKS,
        webhook(json!({"name": "a.b"})),
        &[
            "webhooks[0].name: Invalid value: \"a.b\": should be a domain with at least three segments separated by dots",
        ],
    );
}

#[test]
fn wildcard_of_a_rule_stands_alone() {
    let rule = json!({"apiGroups": ["*", "apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    create(
        WEBHOOKS,
        webhook(json!({"rules": [rule]})),
        &[
            "webhooks[0].rules[0].apiGroups: Invalid value: [\"*\",\"apps\"]: if '*' is present, must not specify other API groups",
        ],
    );
}

#[test]
fn flow_schema_names_a_priority_level() {
    create(
        FLOW_SCHEMA,
        json!({"spec": {"priorityLevelConfiguration": {"name": ""}}}),
        &["spec.priorityLevelConfiguration.name: Required value"],
    );
    create(
        FLOW_SCHEMA,
        json!({"spec": {"priorityLevelConfiguration": {"name": "a"}, "matchingPrecedence": 10001}}),
        &["spec.matchingPrecedence: Invalid value: 10001: must not be greater than 10000"],
    );
}
