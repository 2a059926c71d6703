//! Defaults of pods, their containers and volumes.

use super::*;

#[test]
fn pod_has_policies_grace_period_and_scheduler() {
    check(
        &pod(json!({"containers": []})),
        &[
            ("/spec/dnsPolicy", json!("ClusterFirst")),
            ("/spec/restartPolicy", json!("Always")),
            ("/spec/schedulerName", json!("default-scheduler")),
            ("/spec/terminationGracePeriodSeconds", json!(30)),
            ("/spec/enableServiceLinks", json!(true)),
            ("/spec/securityContext", json!({})),
        ],
    );
}

#[test]
fn explicit_zero_and_false_are_not_defaulted() {
    check(
        &pod(json!({"terminationGracePeriodSeconds": 0, "enableServiceLinks": false})),
        &[
            ("/spec/terminationGracePeriodSeconds", json!(0)),
            ("/spec/enableServiceLinks", json!(false)),
        ],
    );
    let deployment = default("apps", "Deployment", json!({"spec": {"replicas": 0}}));
    check(&deployment, &[("/spec/replicas", json!(0))]);
}

#[test]
fn explicit_null_counts_as_absent() {
    let pod = pod(json!({"dnsPolicy": null, "terminationGracePeriodSeconds": null}));
    check(
        &pod,
        &[
            ("/spec/dnsPolicy", json!("ClusterFirst")),
            ("/spec/terminationGracePeriodSeconds", json!(30)),
        ],
    );
}

#[test]
fn service_links_are_defaulted_in_pods_but_not_in_templates() {
    let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
    let deployment = default("apps", "Deployment", template);
    check(
        &deployment,
        &[
            ("/spec/template/spec/enableServiceLinks", Value::Null),
            ("/spec/template/spec/dnsPolicy", json!("ClusterFirst")),
        ],
    );
}

#[test]
fn container_has_a_termination_message_and_a_protocol_for_ports() {
    let pod = pod(json!({"containers": [{"image": "a:1", "ports": [{"containerPort": 80}]}]}));
    check(
        &pod,
        &[
            (
                "/spec/containers/0/terminationMessagePath",
                json!("/dev/termination-log"),
            ),
            ("/spec/containers/0/terminationMessagePolicy", json!("File")),
            ("/spec/containers/0/imagePullPolicy", json!("IfNotPresent")),
            ("/spec/containers/0/ports/0/protocol", json!("TCP")),
            ("/spec/containers/0/resources", json!({})),
        ],
    );
}

#[test]
fn probe_has_thresholds_and_an_http_scheme() {
    let probe = json!({"httpGet": {"port": 80}, "periodSeconds": 0});
    let pod = pod(json!({"containers": [{"readinessProbe": probe}]}));
    check(
        &pod,
        &[
            ("/spec/containers/0/readinessProbe/timeoutSeconds", json!(1)),
            ("/spec/containers/0/readinessProbe/periodSeconds", json!(10)),
            (
                "/spec/containers/0/readinessProbe/successThreshold",
                json!(1),
            ),
            (
                "/spec/containers/0/readinessProbe/failureThreshold",
                json!(3),
            ),
            ("/spec/containers/0/readinessProbe/httpGet/path", json!("/")),
            (
                "/spec/containers/0/readinessProbe/httpGet/scheme",
                json!("HTTP"),
            ),
        ],
    );
}

#[test]
fn lifecycle_hook_has_an_http_path_and_scheme() {
    let hooks = json!({"preStop": {"httpGet": {"port": 1}}, "postStart": {"httpGet": {"port": 1}}});
    let pod = pod(json!({"containers": [{"lifecycle": hooks}]}));
    for hook in ["preStop", "postStart"] {
        let at = format!("/spec/containers/0/lifecycle/{hook}/httpGet");
        check(
            &pod,
            &[(&at, json!({"port": 1, "path": "/", "scheme": "HTTP"}))],
        );
    }
}

#[test]
fn host_ports_are_the_container_ports_in_the_hosts_network() {
    let ports = json!([{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}]);
    let pod = pod(json!({"hostNetwork": true, "containers": [{"ports": ports}]}));
    check(
        &pod,
        &[
            ("/spec/containers/0/ports/0/hostPort", json!(80)),
            ("/spec/containers/0/ports/1/hostPort", json!(82)),
        ],
    );
}

#[test]
fn service_account_is_set_under_its_former_name_too() {
    for field in ["serviceAccountName", "serviceAccount"] {
        let pod = pod(json!({field: "robot"}));
        check(
            &pod,
            &[
                ("/spec/serviceAccountName", json!("robot")),
                ("/spec/serviceAccount", json!("robot")),
            ],
        );
    }
}

#[test]
fn volume_without_source_is_an_empty_directory() {
    let pod = pod(json!({"volumes": [{"name": "v"}, {"name": "w", "hostPath": {"path": "/"}}]}));
    check(
        &pod,
        &[
            ("/spec/volumes/0/emptyDir", json!({})),
            ("/spec/volumes/1/emptyDir", Value::Null),
            ("/spec/volumes/1/hostPath/type", json!("")),
        ],
    );
}

#[test]
fn files_of_volumes_have_mode_0644() {
    let source = |name: &str| json!({"name": "v", name: {}});
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        let pod = pod(json!({"volumes": [source(name)]}));
        check(
            &pod,
            &[(&format!("/spec/volumes/0/{name}/defaultMode"), json!(0o644))],
        );
    }
}

#[test]
fn projected_token_expires_after_an_hour() {
    let sources = json!([{"serviceAccountToken": {"path": "t"}}]);
    let pod = pod(json!({"volumes": [{"name": "v", "projected": {"sources": sources}}]}));
    let at = "/spec/volumes/0/projected/sources/0/serviceAccountToken/expirationSeconds";
    check(&pod, &[(at, json!(3600))]);
}

#[test]
fn field_reference_has_version_v1() {
    let env = json!([{"name": "E", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let pod = pod(json!({"containers": [{"env": env}]}));
    let at = "/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion";
    check(&pod, &[(at, json!("v1"))]);
}
