//! Listeners, rights and limits of components and containers.

use super::*;

/// The store's peer port carries every Secret, and a peer may write without further checks.
#[test]
fn no_component_listens_or_connects_without_tls() {
    let all = make_plan(
        &Settings::with_nodes(2),
        &Layout::new(Path::new("/data"), false),
    );
    for process in &all.processes {
        let plain: Vec<_> = process
            .argv
            .iter()
            .filter(|argument| argument.contains("http://"))
            .collect();
        assert!(plain.is_empty(), "{}: {plain:?}", process.name);
    }
    let store = arguments("kvstore");
    for flag in [
        "--listen-peer-urls=https://127.0.0.1:2380",
        "--initial-advertise-peer-urls=https://127.0.0.1:2380",
        "--peer-cert-file=/data/pki/etcd/peer.crt",
        "--peer-key-file=/data/pki/etcd/peer.key",
        "--peer-trusted-ca-file=/data/pki/etcd/ca.crt",
        "--peer-client-cert-auth=true",
        "--client-cert-auth=true",
    ] {
        assert!(
            store.contains(&flag.to_owned()),
            "{flag} is not among {store:?}"
        );
    }
}

#[test]
fn api_server_limits_anonymous_requests_and_denies_external_ips() {
    let api = arguments("kube-apiserver");
    assert!(
        api.contains(&"--authentication-config=/data/config/authentication.yaml".to_owned()),
        "{api:?}"
    );
    let plugins = api
        .iter()
        .find_map(|argument| argument.strip_prefix("--enable-admission-plugins="));
    assert_eq!(plugins, Some("NodeRestriction,DenyServiceExternalIPs"));
}

#[test]
fn api_server_has_an_audit_log() {
    let api = arguments("kube-apiserver");
    for flag in [
        "--audit-policy-file=/data/config/audit-policy.yaml",
        "--audit-log-path=/data/logs/audit/audit.log",
    ] {
        assert!(api.contains(&flag.to_owned()), "{flag}: {api:?}");
    }
}

/// A policy must not be accepted without a warning where nothing enforces it.
#[test]
fn policies_are_enforced_by_every_node_of_an_own_network_or_warned_about() {
    let endpoint = Runtime::Endpoint("unix:///c.sock".to_owned());
    for (settings, enforced) in [
        (Settings::with_nodes(2), true),
        (settings(endpoint), false),
        (settings(Runtime::Simulated), false),
    ] {
        let plan = make_plan(&settings, &Layout::new(Path::new("/data"), false));
        let has = |process: &Process, argument: &str| process.argv.iter().any(|a| a == argument);
        let mut proxies = plan
            .processes
            .iter()
            .filter(|p| p.name.starts_with("kube-proxy"));
        assert!(proxies.all(|p| has(p, "--network-policies") == enforced));
        let api = plan.processes.iter().find(|p| p.name == "kube-apiserver");
        assert_eq!(has(api.unwrap(), "--network-policies-enforced"), enforced);
        let claimed = Settings {
            network_policies_enforced: true,
            ..settings.clone()
        };
        let plan = make_plan(&claimed, &Layout::new(Path::new("/data"), false));
        let api = plan.processes.iter().find(|p| p.name == "kube-apiserver");
        assert!(has(api.unwrap(), "--network-policies-enforced"));
        for process in plan.processes.iter().filter(|p| p.is_kubelet()) {
            let waits = process.required.iter().any(|p| p.starts_with("kube-proxy"));
            assert_eq!(
                waits, enforced,
                "pods start after the rules: {}",
                process.name
            );
        }
    }
    let second = make_plan(
        &Settings::with_nodes(2),
        &Layout::new(Path::new("/data"), false),
    );
    let proxy = second
        .processes
        .iter()
        .find(|p| p.name == "kube-proxy-2")
        .unwrap();
    let bridge = Settings::with_nodes(2).bridge();
    for argument in [
        "--network-policy-pod-cidrs=10.244.1.0/24".to_owned(),
        format!("--network-policy-bridge={bridge}"),
    ] {
        assert!(proxy.argv.contains(&argument), "{:?}", proxy.argv);
    }
}

#[test]
fn dns_server_gives_up_root_where_pods_reach_it() {
    assert!(arguments("cluster-dns").contains(&"--user=61053".to_owned()));
    let simulated = make_plan(
        &settings(Runtime::Simulated),
        &Layout::new(Path::new("/data"), false),
    );
    assert!(
        simulated
            .processes
            .iter()
            .flat_map(|p| &p.argv)
            .all(|argument| !argument.starts_with("--user="))
    );
}

/// Without it containers that name no profile may make every system call.
#[test]
fn kubelet_gives_containers_the_seccomp_profile_of_the_runtime() {
    for runtime in [Runtime::Own, Runtime::Simulated] {
        let (settings, layout) = (settings(runtime), Layout::new(Path::new("/data"), false));
        let config = format!("--config={}", layout.config("kubelet.yaml").display());
        let kubelet = make_plan(&settings, &layout)
            .processes
            .into_iter()
            .find(|process| process.name == "kubelet");
        assert!(
            kubelet.is_some_and(|kubelet| kubelet.argv.contains(&config)),
            "{config}"
        );
        let file: serde_json::Value = serde_json::from_str(&crate::configs::kubelet_config(
            &settings,
            &settings.first_node(),
            &layout,
        ))
        .unwrap();
        assert_eq!(file["seccompDefault"], true);
    }
}

#[test]
fn control_plane_listens_on_loopback_if_no_pod_runs() {
    let bind = |runtime| {
        let plan = make_plan(&settings(runtime), &Layout::new(Path::new("/data"), false));
        let api = plan
            .processes
            .into_iter()
            .find(|p| p.name == "kube-apiserver")
            .unwrap();
        let address = api
            .argv
            .iter()
            .find_map(|a| a.strip_prefix("--bind-address="));
        address.unwrap().to_owned()
    };
    assert_eq!(bind(Runtime::Own), "0.0.0.0");
    assert_eq!(bind(Runtime::Simulated), "127.0.0.1");
}
