//! Plans of machines that joined, and of a shared control plane.

use super::*;

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
    for input in plan.processes.iter().flat_map(|process| &process.inputs) {
        assert!(
            !input.ends_with("kubelet.kubeconfig")
                && !input.ends_with("kubelet-client-current.pem")
        );
    }
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
