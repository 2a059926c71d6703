use super::*;
use crate::pod_security::PodSecurity;

fn plugin(labels: &[(&str, &str)]) -> PodSecurity {
    let labels: serde_json::Map<_, _> = labels
        .iter()
        .map(|(k, v)| (format!("pod-security.kubernetes.io/{k}"), json!(v)))
        .collect();
    PodSecurity(context(&[(
        "namespaces",
        json!({"metadata": {"name": "n", "labels": labels}}),
    )]))
}

/// Checks a pod against a level at a version (`baseline`, `restricted:v1.20`); expects the
/// violations, empty if it is allowed.
fn check(policy: &str, spec: Value, expect: &str) {
    let (level, version) = policy.split_once(':').unwrap_or((policy, "latest"));
    let plugin = plugin(&[("enforce", level), ("enforce-version", version)]);
    let expect = match expect {
        "" => Ok(()),
        text => forbidden(
            "pods",
            &format!("violates PodSecurity \"{level}:{version}\": {text}"),
        ),
    };
    assert_eq!(
        validate(&plugin, &create("pods", json!({"spec": spec}))),
        expect,
        "{policy} {spec}"
    );
}

fn hardened() -> Value {
    json!({"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "a", "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}}]})
}

fn one(context: Value) -> Value {
    json!({"containers": [{"name": "a", "securityContext": context}]})
}

#[test]
fn baseline_forbids_host_namespaces() {
    check(
        "baseline",
        json!({"hostNetwork": true, "hostPID": true, "hostIPC": true}),
        "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
    );
    check("baseline", json!({"hostNetwork": false}), "");
}

#[test]
fn baseline_forbids_host_path_volumes() {
    let volumes = json!([{"name": "a", "hostPath": {}}, {"name": "b", "hostPath": {}}, {"name": "c", "emptyDir": {}}]);
    check(
        "baseline",
        json!({"volumes": volumes}),
        "hostPath volumes (volumes \"a\", \"b\")",
    );
}

#[test]
fn baseline_forbids_host_ports() {
    let container = |name: &str, ports: &[i64]| json!({"name": name, "ports": ports.iter().map(|p| json!({"hostPort": p})).collect::<Vec<_>>()});
    check(
        "baseline",
        json!({"containers": [container("a", &[0]), container("b", &[20])]}),
        "hostPort (container \"b\" uses hostPort 20)",
    );
    check(
        "baseline",
        json!({"containers": [container("b", &[10, 20]), container("c", &[30, 10])]}),
        "hostPorts (containers \"b\", \"c\" use hostPorts 10, 20, 30)",
    );
}

#[test]
fn baseline_forbids_capabilities_outside_of_the_default_set() {
    check(
        "baseline",
        one(json!({"capabilities": {"add": ["CHOWN", "NET_BIND_SERVICE"]}})),
        "",
    );
    check(
        "baseline",
        one(json!({"capabilities": {"add": ["FOO", "BAR", "CHOWN"]}})),
        "non-default capabilities (container \"a\" must not include \"BAR\", \"FOO\" in securityContext.capabilities.add)",
    );
}

#[test]
fn baseline_forbids_host_processes() {
    let host = json!({"windowsOptions": {"hostProcess": true}});
    check(
        "baseline",
        json!({"securityContext": host, "containers": [{"name": "e", "securityContext": host}, {"name": "f", "securityContext": host}]}),
        "hostProcess (pod and containers \"e\", \"f\" must not set securityContext.windowsOptions.hostProcess=true)",
    );
}

#[test]
fn baseline_forbids_app_armor_profiles_of_field_and_annotation() {
    let profile = |kind: &str| json!({"appArmorProfile": {"type": kind}});
    check("baseline", one(profile("Localhost")), "");
    check(
        "baseline",
        json!({"securityContext": profile("Unconfined")}),
        "forbidden AppArmor profile (pod must not set AppArmor profile type to \"Unconfined\")",
    );
    check(
        "baseline",
        one(profile("Unconfined")),
        "forbidden AppArmor profile (container \"a\" must not set AppArmor profile type to \"Unconfined\")",
    );
}

#[test]
fn baseline_forbids_selinux_user_role_and_unknown_types() {
    let options = |options: Value| json!({"securityContext": {"seLinuxOptions": options}});
    check(
        "baseline",
        options(json!({"type": "container_t", "level": "s0:c1"})),
        "",
    );
    check(
        "baseline",
        options(json!({"type": "bad"})),
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"bad\")",
    );
    check(
        "baseline",
        options(json!({"type": "foo", "user": "u", "role": "r"})),
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"foo\"; user may not be set; role may not be set)",
    );
    check(
        "baseline:v1.31",
        options(json!({"type": "container_engine_t"})),
        "",
    );
    check(
        "baseline:v1.30",
        options(json!({"type": "container_engine_t"})),
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")",
    );
}

#[test]
fn baseline_forbids_unconfined_seccomp() {
    let unconfined = json!({"seccompProfile": {"type": "Unconfined"}});
    check("baseline", one(json!({})), "");
    check(
        "baseline",
        json!({"securityContext": unconfined, "containers": [{"name": "c", "securityContext": unconfined}, {"name": "d", "securityContext": unconfined}]}),
        "seccompProfile (pod and containers \"c\", \"d\" must not set securityContext.seccompProfile.type to \"Unconfined\")",
    );
}

#[test]
fn baseline_allows_each_safe_sysctl_since_its_version() {
    for (name, minor) in [
        ("net.ipv4.ip_local_reserved_ports", 27),
        ("net.ipv4.tcp_keepalive_time", 29),
        ("net.ipv4.tcp_fin_timeout", 29),
        ("net.ipv4.tcp_rmem", 32),
    ] {
        let spec = json!({"securityContext": {"sysctls": [{"name": name, "value": "1"}]}});
        check(&format!("baseline:v1.{minor}"), spec.clone(), "");
        check(
            &format!("baseline:v1.{}", minor - 1),
            spec,
            &format!("forbidden sysctls ({name})"),
        );
    }
    let names = json!({"securityContext": {"sysctls": [{"name": "a"}, {"name": "kernel.shm_rmid_forced"}, {"name": "b"}]}});
    check("baseline", names, "forbidden sysctls (a, b)");
}

#[test]
fn baseline_forbids_probe_hosts_since_1_34() {
    let spec =
        json!({"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "8.8.8.8"}}}]});
    check("baseline:v1.33", spec.clone(), "");
    check(
        "baseline:v1.34",
        spec,
        "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"8.8.8.8\")",
    );
    check(
        "baseline",
        json!({"containers": [{"name": "a", "readinessProbe": {"tcpSocket": {"host": "127.0.0.1"}}}]}),
        "probe or lifecycle host (container \"a\" uses probe or lifecycle host \"127.0.0.1\")",
    );
}

#[test]
fn baseline_checks_init_and_ephemeral_containers() {
    let privileged = json!([{"name": "x", "securityContext": {"privileged": true}}]);
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        check(
            "baseline",
            json!({field: privileged}),
            "privileged (container \"x\" must not set securityContext.privileged=true)",
        );
    }
}

#[test]
fn baseline_allows_unmasked_proc_in_a_user_namespace_since_1_35() {
    let why = "procMount (container \"x\" must not set securityContext.procMount to \"Unmasked\")";
    let unmasked = json!([{"name": "x", "securityContext": {"procMount": "Unmasked"}}]);
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for (policy, host_users, expect) in [
            ("baseline", json!(false), ""),
            ("baseline:v1.35", json!(false), ""),
            ("baseline:v1.34", json!(false), why),
            ("baseline:v1.0", json!(false), why),
            ("baseline", json!(true), why),
            ("baseline", Value::Null, why),
        ] {
            check(
                policy,
                json!({"hostUsers": host_users, field: unmasked}),
                expect,
            );
        }
    }
}

#[test]
fn restricted_forbids_unmasked_proc_whatever_the_user_namespace() {
    let why = "procMount (container \"a\" must not set securityContext.procMount to \"Unmasked\")";
    for policy in ["restricted", "restricted:v1.35", "restricted:v1.34"] {
        for host_users in [json!(false), json!(true), Value::Null] {
            let mut spec = hardened();
            spec["hostUsers"] = host_users;
            spec["containers"][0]["securityContext"]["procMount"] = json!("Unmasked");
            check(policy, spec, why);
        }
    }
}

#[test]
fn latest_standards_are_those_of_the_emulated_release() {
    let spec = json!({"hostUsers": false,
        "containers": [{"name": "x", "securityContext": {"procMount": "Unmasked"}}]});
    for version in ["latest", "v1.36"] {
        for (emulated_minor, is_allowed) in [(34, false), (35, true)] {
            let mut plugin = plugin(&[("enforce", "baseline"), ("enforce-version", version)]);
            plugin.0.emulated_minor = emulated_minor;
            let result = validate(&plugin, &create("pods", json!({"spec": spec})));
            assert_eq!(
                result.is_ok(),
                is_allowed,
                "{version} in 1.{emulated_minor}"
            );
            if let Err(text) = result {
                let policy = format!("\"baseline:{version}\"");
                assert!(text.contains(&policy), "{text}");
            }
        }
    }
}

#[test]
fn restricted_allows_a_hardened_pod() {
    check("restricted", hardened(), "");
}

#[test]
fn restricted_forbids_volume_types() {
    let mut spec = hardened();
    spec["volumes"] = json!([{"name": "a", "nfs": {}}, {"name": "b", "hostPath": {}}, {"name": "c", "emptyDir": {}}]);
    check(
        "restricted",
        spec,
        "restricted volume types (volumes \"a\", \"b\" use restricted volume types \"hostPath\", \"nfs\")",
    );
}

#[test]
fn restricted_requires_a_user_other_than_root() {
    let mut spec = hardened();
    spec["securityContext"]["runAsNonRoot"] = json!(false);
    check(
        "restricted",
        spec.clone(),
        "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)",
    );
    spec["securityContext"]["runAsNonRoot"] = Value::Null;
    check(
        "restricted",
        spec.clone(),
        "runAsNonRoot != true (pod or container \"a\" must set securityContext.runAsNonRoot=true)",
    );
    spec["containers"][0]["securityContext"]["runAsNonRoot"] = json!(true);
    check("restricted", spec.clone(), "");
    spec["securityContext"]["runAsUser"] = json!(0);
    check(
        "restricted:v1.23",
        spec.clone(),
        "runAsUser=0 (pod must not set runAsUser=0)",
    );
    check("restricted:v1.22", spec, "");
}

#[test]
fn restricted_requires_dropped_capabilities_since_1_22() {
    let mut spec = hardened();
    spec["containers"][0]["securityContext"]["capabilities"] =
        json!({"add": ["CHOWN", "NET_BIND_SERVICE"]});
    check(
        "restricted",
        spec.clone(),
        "unrestricted capabilities (container \"a\" must set securityContext.capabilities.drop=[\"ALL\"]; container \"a\" must not include \"CHOWN\" in securityContext.capabilities.add)",
    );
    check("restricted:v1.21", spec, "");
}

#[test]
fn restricted_requires_a_seccomp_profile_since_1_19() {
    let mut spec = hardened();
    spec["securityContext"]["seccompProfile"] = Value::Null;
    let why = "seccompProfile (pod or container \"a\" must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
    check("restricted:v1.19", spec.clone(), why);
    check("restricted:v1.18", spec.clone(), "");
    spec["containers"][0]["securityContext"]["seccompProfile"] = json!({"type": "Localhost"});
    check("restricted", spec, "");
}

#[test]
fn restricted_exempts_windows_pods_from_linux_checks_since_1_25() {
    let spec = json!({"os": {"name": "windows"}, "securityContext": {"runAsNonRoot": true}, "containers": [{"name": "a"}]});
    check("restricted:v1.25", spec.clone(), "");
    let plugin = plugin(&[("enforce", "restricted"), ("enforce-version", "v1.24")]);
    assert!(validate(&plugin, &create("pods", json!({"spec": spec}))).is_err());
}

#[test]
fn namespace_without_labels_enforces_nothing() {
    assert_eq!(
        validate(
            &plugin(&[]),
            &create("pods", json!({"spec": {"hostPID": true}}))
        ),
        Ok(())
    );
}

#[test]
fn invalid_level_enforces_restricted_at_the_latest_version() {
    let plugin = plugin(&[("enforce", "strict"), ("enforce-version", "new")]);
    let error = validate(
        &plugin,
        &create("pods", json!({"spec": {"containers": [{"name": "a"}]}})),
    )
    .unwrap_err();
    assert!(
        error.contains("violates PodSecurity \"restricted:latest\""),
        "{error}"
    );
}

#[test]
fn workload_gets_a_warning_and_is_not_rejected() {
    let plugin = plugin(&[("enforce", "baseline"), ("warn", "baseline")]);
    let spec = json!({"hostPID": true});
    let deployment = create(
        "apps:deployments",
        json!({"spec": {"template": {"spec": spec}}}),
    );
    assert_eq!(validate(&plugin, &deployment), Ok(()));
    let warning = ["would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"];
    assert_eq!(admit_warnings(&plugin, &deployment), warning);
    let cron_job = create(
        "batch:cronjobs",
        json!({"spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
    );
    assert_eq!(admit_warnings(&plugin, &cron_job), warning);
}

#[test]
fn update_of_a_pod_is_checked_if_an_image_changes() {
    let plugin = plugin(&[("enforce", "baseline")]);
    let pod = |image: &str| json!({"spec": {"hostPID": true, "containers": [{"name": "a", "image": image}]}});
    assert_eq!(
        validate(&plugin, &update("pods", pod("i:1"), pod("i:1"))),
        Ok(())
    );
    assert!(validate(&plugin, &update("pods", pod("i:1"), pod("i:2"))).is_err());
    assert_eq!(
        validate(&plugin, &update("pods/status", pod("i:1"), pod("i:2"))),
        Ok(())
    );
}

#[test]
fn stricter_namespace_warns_about_its_existing_pods() {
    let pod = |name: &str| json!({"metadata": {"name": name, "namespace": "x"}, "spec": {"hostPID": true}});
    let plugin = PodSecurity(context(&[("pods", pod("a")), ("pods", pod("b"))]));
    let namespace = |level: &str| json!({"metadata": {"name": "x", "labels": {"pod-security.kubernetes.io/enforce": level}}});
    let write = Write {
        namespace: "",
        ..update("namespaces", namespace("privileged"), namespace("baseline"))
    };
    assert_eq!(
        admit_warnings(&plugin, &write),
        [
            "existing pods in namespace \"x\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "a (and 1 other pod): host namespaces"
        ]
    );
}
