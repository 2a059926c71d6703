//! Pods.

use super::{Name, build, create, merge, update, write};
use serde_json::{Value, json};

const POD: Name = ("", "Pod");

fn spec(change: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
    merge(&mut spec, change);
    json!({"spec": spec})
}

/// Checks a pod whose only container has more fields.
fn container(change: Value, expected: &[&str]) {
    let mut container = json!({"name": "c", "image": "i:1"});
    merge(&mut container, change);
    create(POD, json!({"spec": {"containers": [container]}}), expected);
}

fn volume(source: Value, expected: &[&str]) {
    let mut volume = json!({"name": "v"});
    merge(&mut volume, source);
    create(POD, spec(json!({"volumes": [volume]})), expected);
}

fn pod(change: Value) -> Value {
    build(POD, spec(change))
}

#[test]
fn pod_needs_a_container() {
    create(
        POD,
        json!({"spec": {"containers": []}}),
        &["spec.containers: Required value"],
    );
}

#[test]
fn container_needs_a_name_and_an_image() {
    create(
        POD,
        json!({"spec": {"containers": [{}]}}),
        &[
            "spec.containers[0].name: Required value",
            "spec.containers[0].image: Required value",
        ],
    );
}

#[test]
fn container_name_is_a_dns_label() {
    container(
        json!({"name": "A"}),
        &["spec.containers[0].name: Invalid value: \"A\": a lowercase RFC 1123 label must"],
    );
}

#[test]
fn names_of_containers_are_unique_across_init_containers() {
    let init = json!([{"name": "c", "image": "i"}]);
    create(
        POD,
        spec(json!({"initContainers": init})),
        &["spec.initContainers[0].name: Duplicate value: \"c\""],
    );
}

#[test]
fn image_has_no_white_space_around_it() {
    container(
        json!({"image": " i:1"}),
        &[
            "spec.containers[0].image: Invalid value: \" i:1\": must not have leading or trailing whitespace",
        ],
    );
}

#[test]
fn pull_policy_is_one_of_three() {
    container(
        json!({"imagePullPolicy": "Sometimes"}),
        &[
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
}

#[test]
fn host_port_is_used_once() {
    let port =
        |protocol: &str| json!({"containerPort": 80, "hostPort": 8080, "protocol": protocol});
    container(json!({"ports": [port("TCP"), port("UDP")]}), &[]);
    container(
        json!({"ports": [port("TCP"), port("TCP")]}),
        &["spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//8080\""],
    );
}

#[test]
fn variable_needs_a_name_without_equals_sign() {
    container(
        json!({"env": [{"value": "v"}]}),
        &["spec.containers[0].env[0].name: Required value"],
    );
    container(
        json!({"env": [{"name": "A=B"}]}),
        &["spec.containers[0].env[0].name: Invalid value: \"A=B\": "],
    );
}

#[test]
fn variable_has_a_value_or_a_source() {
    let source = json!({"fieldRef": {"fieldPath": "metadata.name"}});
    container(
        json!({"env": [{"name": "A", "value": "v", "valueFrom": source}]}),
        &[
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
        ],
    );
    container(
        json!({"env": [{"name": "A", "valueFrom": {}}]}),
        &["spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: "],
    );
}

#[test]
fn request_is_at_most_the_limit() {
    container(
        json!({"resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}),
        &[
            "spec.containers[0].resources.requests: Invalid value: \"2Gi\": must be less than or equal to memory limit of 1Gi",
        ],
    );
}

#[test]
fn amounts_are_not_negative() {
    container(
        json!({"resources": {"requests": {"cpu": "-1"}}}),
        &[
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ],
    );
}

#[test]
fn extended_resources_are_whole_and_requested_as_limited() {
    let amounts = |limit: &str| json!({"resources": {"limits": {"example.com/gpu": limit}}});
    container(amounts("1"), &[]);
    container(
        amounts("1500m"),
        &[
            "spec.containers[0].resources.limits[example.com/gpu]: Invalid value: \"1500m\": must be an integer",
            "spec.containers[0].resources.requests[example.com/gpu]: Invalid value: \"1500m\": must be an integer",
        ],
    );
}

#[test]
fn unknown_unqualified_resource_is_rejected() {
    container(
        json!({"resources": {"limits": {"gpu": "1"}}}),
        &[
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
            "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully qualified",
            "spec.containers[0].resources.requests[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
        ],
    );
}

#[test]
fn probe_has_exactly_one_handler() {
    container(
        json!({"livenessProbe": {}}),
        &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
    );
    let both = json!({"tcpSocket": {"port": 1}, "httpGet": {"port": 1}});
    container(
        json!({"livenessProbe": both}),
        &[
            "spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ],
    );
}

#[test]
fn liveness_probe_succeeds_once() {
    let probe = json!({"tcpSocket": {"port": 1}, "successThreshold": 2});
    container(
        json!({"livenessProbe": probe, "readinessProbe": probe}),
        &["spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1"],
    );
}

#[test]
fn readiness_probe_has_no_grace_period() {
    let probe = json!({"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 5});
    container(
        json!({"readinessProbe": probe}),
        &[
            "spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
        ],
    );
}

#[test]
fn init_container_has_no_probes_unless_it_is_a_sidecar() {
    let probe = json!({"tcpSocket": {"port": 1}});
    let init = |policy: Value| json!({"initContainers": [{"name": "i", "image": "i", "livenessProbe": probe, "restartPolicy": policy}]});
    create(POD, spec(init(json!("Always"))), &[]);
    create(
        POD,
        spec(init(Value::Null)),
        &[
            "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    );
}

#[test]
fn mount_names_a_volume_and_a_unique_path() {
    container(
        json!({"volumeMounts": [{"name": "v", "mountPath": "/x"}]}),
        &["spec.containers[0].volumeMounts[0].name: Not found: \"v\""],
    );
    let mount = json!({"name": "v", "mountPath": "/x"});
    let containers = json!([{"name": "c", "image": "i", "volumeMounts": [mount, mount]}]);
    create(
        POD,
        json!({"spec": {"containers": containers, "volumes": [{"name": "v"}]}}),
        &["spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/x\": must be unique"],
    );
}

#[test]
fn volume_has_one_source_and_a_unique_name() {
    volume(
        json!({"emptyDir": {}, "hostPath": {"path": "/a"}}),
        &["spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type"],
    );
    create(
        POD,
        spec(json!({"volumes": [{"name": "v"}, {"name": "v"}]})),
        &["spec.volumes[1].name: Duplicate value: \"v\""],
    );
}

#[test]
fn host_path_has_no_backsteps() {
    volume(
        json!({"hostPath": {"path": "/a/../b"}}),
        &["spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"],
    );
}

#[test]
fn file_mode_is_at_most_0777() {
    volume(
        json!({"secret": {"secretName": "s", "defaultMode": 512}}),
        &[
            "spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        ],
    );
}

#[test]
fn restart_and_dns_policies_are_known() {
    create(
        POD,
        spec(json!({"restartPolicy": "Maybe"})),
        &[
            "spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\"",
        ],
    );
    create(
        POD,
        spec(json!({"dnsPolicy": "Maybe"})),
        &["spec.dnsPolicy: Unsupported value: \"Maybe\": supported values: "],
    );
}

#[test]
fn dns_policy_none_needs_a_name_server() {
    create(
        POD,
        spec(json!({"dnsPolicy": "None"})),
        &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    );
}

#[test]
fn active_deadline_is_positive() {
    create(
        POD,
        spec(json!({"activeDeadlineSeconds": 0})),
        &[
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ],
    );
}

#[test]
fn toleration_of_all_keys_uses_exists() {
    create(
        POD,
        spec(json!({"tolerations": [{"operator": "Equal"}]})),
        &[
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty",
        ],
    );
    create(
        POD,
        spec(json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "v"}]})),
        &["spec.tolerations[0].operator: Invalid value: "],
    );
}

#[test]
fn toleration_seconds_need_no_execute() {
    create(
        POD,
        spec(
            json!({"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]}),
        ),
        &[
            "spec.tolerations[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ],
    );
}

#[test]
fn spread_constraint_needs_skew_key_and_action() {
    create(
        POD,
        spec(json!({"topologySpreadConstraints": [{}]})),
        &[
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"\"",
        ],
    );
}

#[test]
fn preferred_terms_weigh_from_1_to_100() {
    let term = json!({"weight": 101, "podAffinityTerm": {"topologyKey": "zone"}});
    create(
        POD,
        spec(
            json!({"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}),
        ),
        &[
            "spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100",
        ],
    );
}

#[test]
fn required_node_affinity_needs_a_term() {
    let required = json!({"nodeSelectorTerms": []});
    create(
        POD,
        spec(
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
        ),
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
        ],
    );
}

#[test]
fn gated_pod_is_not_bound() {
    create(
        POD,
        spec(json!({"nodeName": "n", "schedulingGates": [{"name": "a"}]})),
        &["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
    );
}

#[test]
fn privileged_container_cannot_forbid_escalation() {
    container(
        json!({"securityContext": {"privileged": true, "allowPrivilegeEscalation": false}}),
        &["spec.containers[0].securityContext: Invalid value: "],
    );
}

#[test]
fn ephemeral_containers_are_not_created_with_the_pod() {
    let ephemeral = json!([{"name": "e", "image": "i"}]);
    create(
        POD,
        spec(json!({"ephemeralContainers": ephemeral})),
        &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    );
}

#[test]
fn ephemeral_containers_are_added_and_never_changed() {
    let one = json!({"name": "e", "image": "i"});
    let old = pod(json!({}));
    let change = |list: Value| json!({"spec": {"ephemeralContainers": list}});
    write(POD, "ephemeralcontainers", &old, change(json!([one])), &[]);
    let mut with_one = old.clone();
    merge(&mut with_one, change(json!([one])));
    write(
        POD,
        "ephemeralcontainers",
        &with_one,
        change(json!([])),
        &[
            "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed",
        ],
    );
}

#[test]
fn image_and_deadline_of_a_pod_may_change() {
    let old = pod(json!({}));
    let container = json!({"name": "c", "image": "i:2"});
    update(POD, &old, json!({"spec": {"containers": [container]}}), &[]);
    update(
        POD,
        &old,
        json!({"spec": {"activeDeadlineSeconds": 10}}),
        &[],
    );
}

#[test]
fn other_fields_of_a_pod_do_not_change() {
    let old = pod(json!({}));
    for change in [
        json!({"hostname": "h"}),
        json!({"restartPolicy": "Never"}),
        json!({"nodeName": "n"}),
    ] {
        update(
            POD,
            &old,
            json!({"spec": change}),
            &[
                "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`",
            ],
        );
    }
}

#[test]
fn active_deadline_may_only_become_shorter() {
    let old = pod(json!({"activeDeadlineSeconds": 10}));
    update(
        POD,
        &old,
        json!({"spec": {"activeDeadlineSeconds": 5}}),
        &[],
    );
    update(
        POD,
        &old,
        json!({"spec": {"activeDeadlineSeconds": 20}}),
        &[
            "spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value",
        ],
    );
    update(
        POD,
        &old,
        json!({"spec": {"activeDeadlineSeconds": null}}),
        &[
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ],
    );
}

#[test]
fn tolerations_may_only_be_added() {
    let old = pod(json!({"tolerations": [{"key": "a", "operator": "Exists"}]}));
    let added = json!([{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]);
    update(POD, &old, json!({"spec": {"tolerations": added}}), &[]);
    update(
        POD,
        &old,
        json!({"spec": {"tolerations": []}}),
        &[
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ],
    );
}

#[test]
fn scheduling_gates_may_only_be_removed() {
    let old = pod(json!({"schedulingGates": [{"name": "a"}]}));
    update(POD, &old, json!({"spec": {"schedulingGates": []}}), &[]);
    update(
        POD,
        &old,
        json!({"spec": {"schedulingGates": [{"name": "a"}, {"name": "b"}]}}),
        &[
            "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'",
        ],
    );
}
