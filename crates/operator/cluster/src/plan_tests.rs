#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::settings::{LAYOUT, Ports};

fn settings(runtime: Runtime) -> Settings {
    Settings {
        layout: LAYOUT,
        data_dir: "/data".into(),
        bin_dir: "/bin".into(),
        node_name: "n1".into(),
        node_address: "192.0.2.2".parse().unwrap(),
        runtime,
        pod_cidr: "10.244.0.0/16".parse().unwrap(),
        service_cidr: "10.96.0.0/16".parse().unwrap(),
        domain: "cluster.local".into(),
        ports: Ports::default(),
        verbosity: 0,
    }
}

fn names(plan: &Plan) -> Vec<&str> {
    plan.processes.iter().map(|p| p.name.as_str()).collect()
}

#[test]
fn what_runs_depends_on_the_runtime() {
    let layout = Layout::new(Path::new("/data"), false);
    let own = plan(&settings(Runtime::Own), &layout);
    assert_eq!(
        names(&own),
        [
            "kvstore",
            "kube-apiserver",
            "containerd",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "cluster-dns"
        ]
    );
    let simulated = plan(&settings(Runtime::Simulated), &layout);
    assert!(!names(&simulated).contains(&"containerd"));
    assert!(!names(&simulated).contains(&"kube-proxy"));
}

#[test]
fn every_dependency_starts_earlier() {
    let all = plan(&settings(Runtime::Own), &Layout::new(Path::new("/data"), false));
    for (index, process) in all.processes.iter().enumerate() {
        for name in &process.after {
            let at = all.processes.iter().position(|p| &p.name == name);
            assert!(at.is_some_and(|at| at < index), "{} after {name}", process.name);
        }
    }
}

#[test]
fn the_usual_addresses() {
    let settings = settings(Runtime::Own);
    assert_eq!(settings.api_service_address().to_string(), "10.96.0.1");
    assert_eq!(settings.dns_service_address().to_string(), "10.96.0.10");
    assert_eq!(settings.bridge_address().to_string(), "10.244.0.1");
    assert_eq!(settings.node_pods().to_string(), "10.244.0.0/24");
}
