#![allow(clippy::unwrap_used, clippy::expect_used)]
use std::net::SocketAddr;
use std::path::Path;

use super::process::path_text;
use super::*;
use crate::control_plane::{JoinProgress, StartMembers};

fn settings(runtime: Runtime) -> Settings {
    Settings {
        runtime,
        ..Settings::example()
    }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.processes.iter().map(|p| p.name.as_str()).collect()
}

#[test]
fn processes_of_the_plan_depend_on_the_runtime() {
    let layout = Layout::new(Path::new("/data"), false);
    let own = make_plan(&settings(Runtime::Own), &layout);
    assert_eq!(
        names(&own),
        [
            "kvstore",
            "kube-apiserver",
            "containerd",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-proxy",
            "kubelet",
            "cluster-dns"
        ]
    );
    let simulated = make_plan(&settings(Runtime::Simulated), &layout);
    assert!(!names(&simulated).contains(&"containerd"));
    assert!(!names(&simulated).contains(&"kube-proxy"));
}

#[test]
fn every_node_has_a_runtime_a_kubelet_and_a_proxy() {
    let layout = Layout::new(Path::new("/data"), false);
    let plan = make_plan(&Settings::with_nodes(3), &layout);
    for (number, node) in [("", "n1"), ("-2", "n1-2"), ("-3", "n1-3")] {
        for component in ["containerd", "kubelet", "kube-proxy"] {
            let name = format!("{component}{number}");
            let process = plan.processes.iter().find(|p| p.name == name).unwrap();
            assert_eq!(process.node, node);
            assert_eq!(process.namespaces.is_some(), node != "n1", "{name}");
        }
    }
    let one = make_plan(&Settings::with_nodes(1), &layout);
    assert!(one.processes.iter().all(|p| p.namespaces.is_none()));
    let simulated = Settings {
        runtime: Runtime::Simulated,
        ..Settings::with_nodes(2)
    };
    let plan = make_plan(&simulated, &layout);
    let kubelet = plan.processes.iter().find(|p| p.name == "kubelet-2");
    let address = SocketAddr::from(([127, 0, 0, 2], 10248));
    assert_eq!(kubelet.unwrap().ready, Ready::Tcp(address));
    assert!(plan.processes.iter().all(|p| p.namespaces.is_none()));
}

#[test]
fn every_dependency_starts_earlier() {
    let all = make_plan(
        &Settings::with_nodes(2),
        &Layout::new(Path::new("/data"), false),
    );
    for (index, process) in all.processes.iter().enumerate() {
        for name in &process.after {
            let at = all.processes.iter().position(|p| &p.name == name);
            assert!(
                at.is_some_and(|at| at < index),
                "{} after {name}",
                process.name
            );
        }
    }
}

#[test]
fn default_addresses_are_in_the_default_ranges() {
    let settings = settings(Runtime::Own);
    assert_eq!(settings.api_service_address().to_string(), "10.96.0.1");
    assert_eq!(settings.dns_service_address().to_string(), "10.96.0.10");
    let node = settings.first_node();
    assert_eq!(node.bridge_address().to_string(), "10.244.0.1");
    assert_eq!(node.pods.to_string(), "10.244.0.0/24");
}

fn arguments(component: &str) -> Vec<String> {
    let all = make_plan(
        &settings(Runtime::Own),
        &Layout::new(Path::new("/data"), false),
    );
    all.processes
        .into_iter()
        .find(|process| process.name == component)
        .map(|process| process.argv)
        .unwrap_or_default()
}

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

/// Addresses that are allocated must be announced, and by nodes that agree about the pool.
#[test]
fn controllers_and_all_nodes_have_the_pool_of_load_balancers() {
    let flag = "--load-balancer-pool=192.0.2.100-192.0.2.110";
    for pool in [None, Some("192.0.2.100-192.0.2.110".to_owned())] {
        let settings = Settings {
            load_balancer_pool: pool.clone(),
            ..Settings::with_nodes(2)
        };
        let plan = make_plan(&settings, &Layout::new(Path::new("/data"), false));
        let with_pool: Vec<_> = plan
            .processes
            .iter()
            .filter(|process| process.argv.iter().any(|argument| argument == flag))
            .map(|process| process.name.as_str())
            .collect();
        match pool {
            None => assert!(with_pool.is_empty(), "{with_pool:?}"),
            Some(_) => assert_eq!(
                with_pool,
                ["kube-controller-manager", "kube-proxy", "kube-proxy-2"]
            ),
        }
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
    assert!(arguments("cluster-dns").contains(&"--user=65534".to_owned()));
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
fn stamp_changes_with_arguments_program_and_inputs() {
    let dir = tempfile::tempdir().unwrap();
    let (program, input) = (dir.path().join("program"), dir.path().join("input"));
    let stamp = |arguments: &[&str]| {
        let mut plan = Plan {
            processes: vec![Process {
                name: "p".into(),
                argv: std::iter::once(path_text(&program))
                    .chain(arguments.iter().map(|&a| a.to_owned()))
                    .collect(),
                node: String::new(),
                namespaces: None,
                after: Vec::new(),
                required: Vec::new(),
                needs_data: false,
                socket: None,
                ready: Ready::Started,
                inputs: vec![input.clone()],
                stamp: String::new(),
            }],
        };
        plan.set_stamps();
        plan.processes.remove(0).stamp
    };
    std::fs::write(&program, "1").unwrap();
    std::fs::write(&input, "a").unwrap();
    let first = stamp(&["x"]);
    assert_eq!(stamp(&["x"]), first);
    assert_ne!(stamp(&["y"]), first);
    assert_ne!(stamp(&["x", ""]), stamp(&["x"]));
    std::fs::write(&input, "b").unwrap();
    let with_input = stamp(&["x"]);
    assert_ne!(with_input, first);
    std::fs::write(&program, "12").unwrap();
    assert_ne!(stamp(&["x"]), with_input);
}

#[test]
fn verbosity_is_given_to_every_component_but_containerd() {
    let mut shared = Settings::example_shared();
    shared.control_plane.as_mut().unwrap().joined = None;
    for settings in [Settings::with_nodes(2), shared] {
        let verbose = Settings {
            verbosity: 3,
            ..settings
        };
        let plan = make_plan(&verbose, &Layout::new(Path::new("/data"), false));
        for process in &plan.processes {
            let given = process.argv.iter().any(|argument| argument == "-v=3");
            let is_own = !process.name.starts_with("containerd");
            assert_eq!(given, is_own, "{}", process.name);
        }
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

fn plan_of_joined_machine(change: impl FnOnce(&mut Settings)) -> Plan {
    let mut settings = Settings::example_joined();
    change(&mut settings);
    make_plan(&settings, &Layout::new(Path::new("/data"), false))
}

/// A joined machine has no credential of the control plane, and starts none of its components.
#[test]
fn joined_machine_runs_what_a_node_needs_and_nothing_else() {
    let plan = plan_of_joined_machine(|_| {});
    assert_eq!(names(&plan), ["containerd", "kube-proxy", "kubelet"]);
    let waits = |plan: &Plan| {
        let kubelet = plan.processes.iter().find(|p| p.is_kubelet()).unwrap();
        let names = [&kubelet.after, &kubelet.required];
        names.map(|names| names.contains(&"kube-proxy".to_owned())) == [true, true]
    };
    assert!(waits(&plan), "pods start after the rules");
    let without_policies = plan_of_joined_machine(|settings| {
        settings.membership.as_mut().unwrap().enforces_policies = false;
    });
    assert!(!waits(&without_policies));
    let simulated = plan_of_joined_machine(|settings| settings.runtime = Runtime::Simulated);
    assert_eq!(names(&simulated), ["kubelet"]);
    let unregistered = plan_of_joined_machine(|settings| {
        settings.membership.as_mut().unwrap().pods = None;
    });
    assert_eq!(names(&unregistered), ["containerd", "kubelet"]);
    assert!(
        !waits(&unregistered),
        "kube-proxy would need its certificate"
    );
    let all: Vec<_> = plan.processes.iter().flat_map(|p| &p.argv).collect();
    assert!(
        all.iter().all(|argument| !argument.contains("admin")),
        "{all:?}"
    );
}

#[test]
fn kubelet_of_a_joined_machine_requests_its_certificates_and_registers_with_labels_and_taints() {
    let plan = plan_of_joined_machine(|_| {});
    let kubelet = plan.processes.iter().find(|p| p.name == "kubelet").unwrap();
    for flag in [
        "--bootstrap-kubeconfig=/data/config/bootstrap.kubeconfig",
        "--kubeconfig=/data/config/kubelet.kubeconfig",
        "--cert-dir=/data/pki",
        "--hostname-override=w1",
        "--node-ip=192.0.2.3",
        "--node-labels=disk=ssd",
        "--register-with-taints=dedicated=db:NoSchedule",
    ] {
        assert!(
            kubelet.argv.contains(&flag.to_owned()),
            "{flag}: {:?}",
            kubelet.argv
        );
    }
    // The kubelet writes these itself: as inputs they would restart it after each renewal.
    for input in &kubelet.inputs {
        assert!(
            !input.ends_with("kubelet.kubeconfig")
                && !input.ends_with("kubelet-client-current.pem")
        );
    }
    let proxy = plan
        .processes
        .iter()
        .find(|p| p.name == "kube-proxy")
        .unwrap();
    assert!(
        proxy
            .inputs
            .iter()
            .any(|input| input.ends_with("kubelet-client-current.pem"))
    );
    let plain = plan_of_joined_machine(|settings| {
        let membership = settings.membership.as_mut().unwrap();
        (membership.labels, membership.taints) = (Vec::new(), Vec::new());
    });
    let all: Vec<_> = plain.processes.iter().flat_map(|p| &p.argv).collect();
    assert!(
        all.iter()
            .all(|a| !a.starts_with("--node-labels") && !a.starts_with("--register"))
    );
}

#[test]
fn simulated_pods_of_joined_machines_have_other_addresses_than_those_of_the_first() {
    let network = |settings: Settings| {
        let settings = Settings {
            runtime: Runtime::Simulated,
            ..settings
        };
        let plan = make_plan(&settings, &Layout::new(Path::new("/data"), false));
        let kubelet = plan.processes.into_iter().find(Process::is_kubelet);
        let mut argv = kubelet.unwrap().argv.into_iter();
        let flag = "--container-runtime-endpoint=simulated:";
        argv.find_map(|argument| argument.strip_prefix(flag).map(str::to_owned))
            .unwrap()
    };
    let mut joined = Settings::example_shared().with_progress(voting(""));
    assert_eq!(network(Settings::example()), "");
    assert!(network(joined.clone()).starts_with("100."), "cp2");
    joined.control_plane.as_mut().unwrap().joined = None;
    assert_eq!(network(joined), "", "the machine of init");
}

fn start_members(initial_cluster: &str) -> StartMembers {
    StartMembers {
        initial_cluster: initial_cluster.to_owned(),
        client_urls: Vec::new(),
    }
}

fn voting(initial_cluster: &str) -> JoinProgress {
    JoinProgress::Voting(start_members(initial_cluster))
}

fn shared_control_plane(progress: Option<JoinProgress>) -> Plan {
    let mut settings = Settings::example_shared();
    match progress {
        None => settings.control_plane.as_mut().unwrap().joined = None,
        Some(progress) => settings = settings.with_progress(progress),
    }
    make_plan(&settings, &Layout::new(Path::new("/data"), false))
}

#[test]
fn store_of_a_shared_control_plane_listens_on_the_nodes_address_with_certificates() {
    let plan = shared_control_plane(None);
    let store = plan.processes.iter().find(|p| p.name == "kvstore").unwrap();
    for expected in [
        "--listen-client-urls=https://127.0.0.1:2379,https://192.0.2.3:2379",
        "--advertise-client-urls=https://192.0.2.3:2379",
        "--listen-peer-urls=https://192.0.2.3:2380",
        "--initial-advertise-peer-urls=https://192.0.2.3:2380",
        "--initial-cluster=cp2=https://192.0.2.3:2380",
        "--client-cert-auth=true",
        "--peer-client-cert-auth=true",
        "--peer-trusted-ca-file=/data/pki/etcd/ca.crt",
    ] {
        assert!(store.argv.iter().any(|a| a == expected), "{expected}");
    }
    assert!(
        !store
            .argv
            .iter()
            .any(|a| a.contains("initial-cluster-state"))
    );
}

#[test]
fn member_that_joins_starts_alone_until_it_votes() {
    assert!(names(&shared_control_plane(Some(JoinProgress::Verified))).is_empty());
    let members = "cp1=https://192.0.2.2:2380,cp2=https://192.0.2.3:2380";
    let learner = shared_control_plane(Some(JoinProgress::Added(start_members(members))));
    assert_eq!(names(&learner), ["kvstore"]);
    let voter = shared_control_plane(Some(voting(members)));
    assert_eq!(learner.processes[0], voter.processes[0], "no restart");
    assert!(voter.processes[0].needs_data);
    let argv = &voter.processes[0].argv;
    for expected in [
        format!("--initial-cluster={members}"),
        "--initial-cluster-state=existing".to_owned(),
    ] {
        assert!(argv.contains(&expected), "{expected}");
    }
    assert!(names(&voter).contains(&"kube-apiserver"));
}

#[test]
fn clients_of_a_shared_control_plane_wait_for_the_proxy_of_their_machine() {
    let plan = shared_control_plane(None);
    let proxy = plan.processes.iter().find(|p| p.name == "api-proxy");
    let proxy = proxy.unwrap();
    let address = "127.0.0.1:6444".parse().unwrap();
    assert_eq!(proxy.ready, Ready::Tcp(address));
    assert_eq!(proxy.socket, Some(address), "it stays bound over restarts");
    for name in [
        "kubelet",
        "kube-proxy",
        "kube-scheduler",
        "kube-controller-manager",
        "cluster-dns",
    ] {
        let process = plan.processes.iter().find(|p| p.name == name).unwrap();
        assert!(process.after.contains(&"api-proxy".to_owned()), "{name}");
    }
    let worker = plan_of_joined_machine(|settings| {
        settings.membership.as_mut().unwrap().has_proxy = true;
    });
    assert_eq!(names(&worker)[0], "api-proxy");
    let kubelet = worker
        .processes
        .iter()
        .find(|p| p.name == "kubelet")
        .unwrap();
    assert!(kubelet.after.contains(&"api-proxy".to_owned()));
    let alone = make_plan(
        &Settings::example(),
        &Layout::new(Path::new("/data"), false),
    );
    assert!(!names(&alone).contains(&"api-proxy"));
}
