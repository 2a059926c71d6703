//! Addresses, ranges and the pod network.

use super::*;
use crate::cni_plugin::CniBackend;

#[test]
fn default_addresses_are_in_the_default_ranges() {
    let settings = settings(Runtime::Own);
    assert_eq!(settings.api_service_address().to_string(), "10.96.0.1");
    assert_eq!(settings.dns_service_address().to_string(), "10.96.0.10");
    let node = settings.first_node();
    assert_eq!(node.bridge_address().to_string(), "10.244.0.1");
    assert_eq!(node.pods.to_string(), "10.244.0.0/24");
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

fn dual_stack() -> Settings {
    Settings {
        cni: CniPlugin::Ironclad,
        pod_cidr: "10.244.0.0/16,fd00::/48".parse().unwrap(),
        service_cidr: "10.96.0.0/16,fd01::/112".parse().unwrap(),
        second_address: "2001:db8::2".parse().ok(),
        ..Settings::with_nodes(2)
    }
}

#[test]
fn components_have_the_ranges_and_addresses_of_both_families() {
    let settings = dual_stack();
    for (component, flags) in [
        (
            "kube-apiserver",
            &[
                "--service-cluster-ip-range=10.96.0.0/16,fd01::/112",
                "--bind-address=::",
                "--advertise-address=192.0.2.2",
            ][..],
        ),
        (
            "kube-controller-manager",
            &[
                "--cluster-cidr=10.244.0.0/16,fd00::/48",
                "--service-cluster-ip-range=10.96.0.0/16,fd01::/112",
                "--node-cidr-mask-size-ipv4=24",
                "--node-cidr-mask-size-ipv6=64",
            ],
        ),
        ("kubelet", &["--node-ip=192.0.2.2,2001:db8::2"]),
        ("kubelet-2", &["--node-ip=198.18.7.2,fdc6:1207::2"]),
        (
            "kube-proxy-2",
            &["--network-policy-pod-cidrs=10.244.1.0/24,fd00:0:0:1::/64"],
        ),
        (
            "ironclad-cni-2",
            &["--cluster-cidr=10.244.0.0/16,fd00::/48", "--backend=auto"],
        ),
        (
            "cluster-dns",
            &[
                "--listen=10.244.0.1:10053",
                "--allow=10.244.0.0/16",
                "--allow=fd00::/48",
                "--allow=2001:db8::2/128",
            ],
        ),
    ] {
        let arguments = find_arguments(&settings, component);
        for flag in flags {
            assert!(
                arguments.iter().any(|argument| argument == flag),
                "{component} has no {flag}: {arguments:?}"
            );
        }
    }
    let v6 = Settings {
        pod_cidr: "fd00::/48".parse().unwrap(),
        service_cidr: "fd01::/112".parse().unwrap(),
        node_address: "2001:db8::2".parse().unwrap(),
        second_address: None,
        ..settings
    };
    assert_eq!(v6.dns_service_address().to_string(), "fd01::a");
    assert!(find_arguments(&v6, "cluster-dns").contains(&"--listen=[fd00::1]:10053".to_owned()));
    assert!(find_arguments(&v6, "kubelet-2").contains(&"--node-ip=fdc6:1207::2".to_owned()));
}

/// Its file lets pods start, which policies must isolate from their first packet on.
#[test]
fn agent_of_the_pod_network_waits_for_the_policies() {
    let plan = make_plan(&dual_stack(), &Layout::new(Path::new("/data"), false));
    let agents = plan
        .processes
        .iter()
        .filter(|process| process.program_name() == Some("ironclad-cni"));
    let required: Vec<_> = agents.map(|agent| agent.required.join(",")).collect();
    assert_eq!(required, ["kube-proxy", "kube-proxy-2"]);
}

/// The identity of kube-proxy is that of all nodes: with the right to write a Node, one node could
/// replace the keys of others.
#[test]
fn key_of_a_node_is_written_with_the_identity_of_the_node() {
    let find = |settings: &Settings| {
        let arguments = find_arguments(settings, "ironclad-cni");
        let mut found = arguments.into_iter();
        found.find(|argument| argument.starts_with("--node-kubeconfig"))
    };
    assert_eq!(find(&dual_stack()), None);
    let encrypted = Settings {
        cni_backend: CniBackend::Wireguard,
        ..dual_stack()
    };
    let expect = "--node-kubeconfig=/data/config/kubelet.kubeconfig";
    assert_eq!(find(&encrypted).as_deref(), Some(expect));
    assert!(find_arguments(&encrypted, "ironclad-cni").contains(&"--backend=wireguard".to_owned()));
    // The agent of a worker has the kubelet's identity for all that it does.
    let worker = Settings {
        cni: CniPlugin::Ironclad,
        cni_backend: CniBackend::Wireguard,
        ..Settings::example_joined()
    };
    assert_eq!(find(&worker), None);
    let arguments = find_arguments(&worker, "ironclad-cni");
    assert!(
        arguments.contains(&"--backend=wireguard".to_owned()),
        "{arguments:?}"
    );
}

#[test]
fn machine_without_a_pod_network_serves_names_at_its_address_and_enforces_no_policies() {
    let settings = Settings {
        cni: CniPlugin::None,
        ..Settings::example()
    };
    let dns = find_arguments(&settings, "cluster-dns");
    assert!(
        dns.contains(&"--listen=192.0.2.2:10053".to_owned()),
        "{dns:?}"
    );
    for flag in ["--allow=10.244.0.0/16", "--allow-nodes"] {
        assert!(dns.contains(&flag.to_owned()), "{flag}: {dns:?}");
    }
    assert!(find_arguments(&settings, "ironclad-cni").is_empty());
    for component in ["kube-proxy", "kube-apiserver"] {
        let arguments = find_arguments(&settings, component);
        let mut arguments = arguments.iter();
        assert!(!arguments.any(|argument| argument.contains("network-policies")));
    }
}

#[test]
fn dns_server_of_each_node_has_one_address_and_the_identity_of_the_clusters() {
    let settings = Settings {
        node_dns: "169.254.20.10".parse().ok(),
        ..Settings::with_nodes(2)
    };
    for (name, kubeconfig) in [
        ("node-dns", "/data/config/dns.kubeconfig"),
        ("node-dns-2", "/data/nodes/2/config/dns.kubeconfig"),
    ] {
        let arguments = find_arguments(&settings, name);
        for flag in [
            "--listen=169.254.20.10:53".to_owned(),
            format!("--kubeconfig={kubeconfig}"),
            "--health-address=127.0.0.1:9253".to_owned(),
            "--user=61053".to_owned(),
            "--allow=169.254.20.10/32".to_owned(),
        ] {
            assert!(
                arguments.contains(&flag),
                "{name} has no {flag}: {arguments:?}"
            );
        }
    }
    let plan = make_plan(&settings, &Layout::new(Path::new("/data"), false));
    let kubelets = plan.processes.iter().filter(|p| p.is_kubelet());
    let required: Vec<_> = kubelets.map(|kubelet| &kubelet.required[1..]).collect();
    assert_eq!(
        required,
        [["node-dns"], ["node-dns-2"]],
        "pods start after it"
    );
}
