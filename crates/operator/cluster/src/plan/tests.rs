//! Processes, their order and their stamps.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod joined;
mod network;
mod security;

use std::net::SocketAddr;
use std::path::Path;

use super::process::path_text;
use super::*;
use crate::cni_plugin::CniPlugin;
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

fn plan_of_joined_machine(change: impl FnOnce(&mut Settings)) -> Plan {
    let mut settings = Settings::example_joined();
    change(&mut settings);
    make_plan(&settings, &Layout::new(Path::new("/data"), false))
}

fn find_arguments(settings: &Settings, component: &str) -> Vec<String> {
    let plan = make_plan(settings, &Layout::new(Path::new("/data"), false));
    let mut processes = plan.processes.into_iter();
    let found = processes.find(|process| process.name == component);
    found.map(|process| process.argv).unwrap_or_default()
}

fn voting(initial_cluster: &str) -> JoinProgress {
    JoinProgress::Voting(start_members(initial_cluster))
}

fn start_members(initial_cluster: &str) -> StartMembers {
    StartMembers {
        initial_cluster: initial_cluster.to_owned(),
        client_urls: Vec::new(),
    }
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

/// A renewal restarts nothing.
#[test]
fn stamp_is_that_of_a_kubeconfig_without_its_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("scheduler.kubeconfig");
    let stamp = |server: &str, ca: &str, certificate: &str| {
        let text = format!(
            "    server: {server}\n    certificate-authority-data: {ca}\n    \
             client-certificate-data: {certificate}\n    client-key-data: {certificate}\n"
        );
        std::fs::write(&path, text).unwrap();
        let process = Process {
            inputs: vec![path.clone()],
            ..Process::example("p", &["x"])
        };
        process_stamp(&process, &[])
    };
    let first = stamp("a", "b", "c");
    for (case, other, changes) in [
        ("certificate", stamp("a", "b", "d"), false),
        ("server", stamp("e", "b", "c"), true),
        ("CA", stamp("a", "e", "c"), false),
    ] {
        assert_eq!(other != first, changes, "{case}");
    }
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
