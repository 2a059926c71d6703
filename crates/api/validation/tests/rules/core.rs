//! ConfigMaps, Secrets, quotas, limits, namespaces, nodes, endpoints and events.

use super::{Name, build, create, update};
use serde_json::{Value, json};

const CONFIG_MAP: Name = ("", "ConfigMap");
const SECRET: Name = ("", "Secret");
const QUOTA: Name = ("", "ResourceQuota");
const LIMIT_RANGE: Name = ("", "LimitRange");
const NODE: Name = ("", "Node");
const ENDPOINTS: Name = ("", "Endpoints");
const EVENT: Name = ("", "Event");

#[test]
fn keys_of_a_config_map_are_file_names() {
    create(
        CONFIG_MAP,
        json!({"data": {"a b": ""}}),
        &["data[a b]: Invalid value: \"a b\": a valid config key must consist of"],
    );
    create(
        CONFIG_MAP,
        json!({"data": {"..": ""}}),
        &["data[..]: Invalid value: \"..\": must not be '..'"],
    );
    create(
        CONFIG_MAP,
        json!({"data": {"..a": ""}}),
        &["data[..a]: Invalid value: \"..a\": must not start with '..'"],
    );
}

#[test]
fn key_is_in_data_or_binary_data() {
    create(
        CONFIG_MAP,
        json!({"data": {"a": ""}, "binaryData": {"a": ""}}),
        &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
    );
}

#[test]
fn config_map_has_at_most_one_mebibyte() {
    let data = json!({"a": "v".repeat(1024 * 1024 + 1)});
    create(
        CONFIG_MAP,
        json!({"data": data}),
        &["[]: Too long: may not be more than 1048576 bytes"],
    );
}

#[test]
fn immutable_config_map_does_not_change() {
    let old = build(CONFIG_MAP, json!({"data": {"a": "b"}, "immutable": true}));
    let message = "Forbidden: field is immutable when `immutable` is set";
    update(
        CONFIG_MAP,
        &old,
        json!({"metadata": {"labels": {"a": "b"}}}),
        &[],
    );
    update(
        CONFIG_MAP,
        &old,
        json!({"data": {"a": "c"}}),
        &[&format!("data: {message}")],
    );
    update(
        CONFIG_MAP,
        &old,
        json!({"immutable": false}),
        &[&format!("immutable: {message}")],
    );
}

#[test]
fn secrets_of_known_types_have_their_keys() {
    for (kind, keys) in [
        ("kubernetes.io/tls", &["tls.crt", "tls.key"][..]),
        ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
        ("kubernetes.io/dockercfg", &[".dockercfg"]),
        ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
        ("kubernetes.io/basic-auth", &["username", "password"]),
    ] {
        let errors: Vec<String> = keys
            .iter()
            .map(|key| format!("data[{key}]: Required value"))
            .collect();
        let expected: Vec<&str> = errors.iter().map(String::as_str).collect();
        create(SECRET, json!({"type": kind}), &expected);
    }
}

#[test]
fn token_secret_names_its_service_account() {
    create(
        SECRET,
        json!({"type": "kubernetes.io/service-account-token"}),
        &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
    );
}

#[test]
fn credentials_of_registries_are_json_and_not_shown() {
    create(
        SECRET,
        json!({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "hunter2"}}),
        &["data[.dockerconfigjson]: Invalid value: \"<secret contents redacted>\": "],
    );
}

#[test]
fn type_of_a_secret_does_not_change() {
    let old = build(SECRET, json!({"type": "a/b"}));
    update(
        SECRET,
        &old,
        json!({"type": "c/d"}),
        &["type: Invalid value: \"c/d\": field is immutable"],
    );
}

#[test]
fn quota_counts_whole_objects() {
    create(
        QUOTA,
        json!({"spec": {"hard": {"pods": "10", "cpu": "500m"}}}),
        &[],
    );
    create(
        QUOTA,
        json!({"spec": {"hard": {"pods": "1500m"}}}),
        &["spec.hard[pods]: Invalid value: \"1500m\": must be an integer"],
    );
    create(
        QUOTA,
        json!({"spec": {"hard": {"cpu": "-1"}}}),
        &["spec.hard[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"],
    );
}

#[test]
fn scopes_of_a_quota_do_not_conflict_and_do_not_change() {
    let quota = |scopes: Value| json!({"spec": {"hard": {"pods": "1"}, "scopes": scopes}});
    create(
        QUOTA,
        quota(json!(["BestEffort", "NotBestEffort"])),
        &["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"],
    );
    create(
        QUOTA,
        json!({"spec": {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]}}),
        &["spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource"],
    );
    let old = build(QUOTA, quota(json!(["BestEffort"])));
    update(
        QUOTA,
        &old,
        json!({"spec": {"scopes": ["NotBestEffort"]}}),
        &["spec.scopes: Invalid value: [\"NotBestEffort\"]: field is immutable"],
    );
}

#[test]
fn bounds_of_a_limit_range_are_in_order() {
    let item = json!({"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "1"}});
    create(
        LIMIT_RANGE,
        json!({"spec": {"limits": [item]}}),
        &[
            "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
            "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
            "spec.limits[0].default[cpu]: Invalid value: \"2\": min value 2 is greater than default value 1",
        ],
    );
}

#[test]
fn limit_range_of_pods_has_no_defaults() {
    let item = json!({"type": "Pod", "default": {"cpu": "1"}});
    create(
        LIMIT_RANGE,
        json!({"spec": {"limits": [item]}}),
        &["spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'"],
    );
}

#[test]
fn limit_range_names_each_type_once() {
    let item = json!({"type": "Pod", "max": {"cpu": "1"}});
    create(
        LIMIT_RANGE,
        json!({"spec": {"limits": [item, item]}}),
        &["spec.limits[1].type: Duplicate value: \"Pod\""],
    );
}

#[test]
fn node_has_one_block_for_each_family() {
    create(
        NODE,
        json!({"spec": {"podCIDRs": ["10.0.0.0/24", "fd00::/64"]}}),
        &[],
    );
    create(
        NODE,
        json!({"spec": {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]}}),
        &["spec.podCIDRs: Invalid value: "],
    );
}

#[test]
fn block_and_provider_of_a_node_are_set_once() {
    let old = build(
        NODE,
        json!({"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"], "providerID": "a"}}),
    );
    update(
        NODE,
        &old,
        json!({"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}}),
        &[
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
        ],
    );
    update(
        NODE,
        &old,
        json!({"spec": {"providerID": "b"}}),
        &[
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
        ],
    );
}

#[test]
fn taint_has_an_effect_and_is_unique() {
    create(
        NODE,
        json!({"spec": {"taints": [{"key": "a"}]}}),
        &["metadata.taints[0].effect: Required value"],
    );
    create(
        NODE,
        json!({"spec": {"taints": [{"key": "a", "effect": "Never"}]}}),
        &["metadata.taints[0].effect: Unsupported value: \"Never\""],
    );
    let taint = json!({"key": "a", "effect": "NoSchedule"});
    create(
        NODE,
        json!({"spec": {"taints": [taint, taint]}}),
        &["metadata.taints[1]: Duplicate value: "],
    );
}

#[test]
fn subset_of_endpoints_has_addresses() {
    create(
        ENDPOINTS,
        json!({"subsets": [{"ports": [{"port": 80}]}]}),
        &["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"],
    );
    create(
        ENDPOINTS,
        json!({"subsets": [{"addresses": [{"ip": "169.254.169.254"}]}]}),
        &[
            "subsets[0].addresses[0].ip: Invalid value: \"169.254.169.254\": may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        ],
    );
}

#[test]
fn event_is_in_the_namespace_of_its_object() {
    create(
        EVENT,
        json!({"involvedObject": {"namespace": "other"}}),
        &["involvedObject.namespace: Invalid value: \"other\": does not match event.namespace"],
    );
}

#[test]
fn finalizers_of_a_namespace_are_qualified() {
    create(
        ("", "Namespace"),
        json!({"spec": {"finalizers": ["a"]}}),
        &[
            "spec.finalizers: Invalid value: \"a\": name is neither a standard finalizer name nor is it fully qualified",
        ],
    );
}
