//! Builds the CRI config of a pod's sandbox.

use super::{dns, hosts, security};
use crate::config::Settings;
use crate::pod::spec;
use k8s_openapi::api::core::v1::Pod;
use node_runtime::labels;
use node_runtime::v1::{
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, PodSandboxConfig, PodSandboxMetadata,
    PortMapping, Protocol,
};
use std::collections::HashMap;
use std::path::PathBuf;

fn text_or_empty(value: &Option<String>) -> String {
    value.clone().unwrap_or_default()
}

/// Returns the directory of a pod's logs.
pub(crate) fn log_dir(settings: &Settings, pod: &Pod) -> PathBuf {
    let meta = &pod.metadata;
    let name = format!(
        "{}_{}_{}",
        text_or_empty(&meta.namespace),
        text_or_empty(&meta.name),
        text_or_empty(&meta.uid)
    );
    settings.logs_dir.join(name)
}

pub(crate) fn build_pod_labels(pod: &Pod) -> HashMap<String, String> {
    let meta = &pod.metadata;
    let own = meta
        .labels
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.clone()));
    let ours = [
        (labels::POD_NAME, text_or_empty(&meta.name)),
        (labels::POD_NAMESPACE, text_or_empty(&meta.namespace)),
        (labels::POD_UID, text_or_empty(&meta.uid)),
    ];
    // The kubelet's labels come last and replace those of the pod: they decide to which pod a
    // container belongs.
    own.chain(ours.map(|(k, v)| (k.to_owned(), v))).collect()
}

/// Builds the sandbox's config; `node_resolv` is the content of the node's resolv.conf.
///
/// # Errors
/// An invalid security setting.
pub(crate) fn build_sandbox_config(
    pod: &Pod,
    settings: &Settings,
    cgroup: String,
    attempt: u32,
    node_resolv: &str,
) -> Result<PodSandboxConfig, String> {
    let meta = &pod.metadata;
    let names = hosts::choose_names(pod, &settings.cluster_domain, &settings.node_name);
    let annotations = meta
        .annotations
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    Ok(PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: text_or_empty(&meta.name),
            namespace: text_or_empty(&meta.namespace),
            uid: text_or_empty(&meta.uid),
            attempt,
        }),
        // The UTS namespace is the node's then.
        hostname: if spec::host_network(pod) {
            String::new()
        } else {
            names.hostname
        },
        log_directory: log_dir(settings, pod).to_string_lossy().into_owned(),
        dns_config: Some(dns::build_dns_config(pod, settings, node_resolv)),
        // In the node's network the process binds the port itself, and a mapping would redirect it.
        port_mappings: if spec::host_network(pod) {
            Vec::new()
        } else {
            list_port_mappings(pod)
        },
        labels: build_pod_labels(pod),
        annotations,
        linux: Some(build_linux_config(pod, settings, cgroup)?),
        windows: None,
    })
}

fn build_linux_config(
    pod: &Pod,
    settings: &Settings,
    cgroup_parent: String,
) -> Result<LinuxPodSandboxConfig, String> {
    let context = spec::read_spec(pod)
        .security_context
        .clone()
        .unwrap_or_default();
    let mut groups = context.supplemental_groups.clone().unwrap_or_default();
    groups.extend(context.fs_group);
    // A runtime rejects a privileged container in a sandbox that is not privileged.
    let privileged = spec::app_containers(pod)
        .chain(spec::init_containers(pod).map(|(_, c)| c))
        .any(|c| c.security_context.as_ref().and_then(|s| s.privileged) == Some(true));
    let sysctls = context
        .sysctls
        .iter()
        .flatten()
        // sysctl(8) accepts both separators; runtimes take dots.
        .map(|s| (s.name.replace('/', "."), s.value.clone()))
        .collect();
    Ok(LinuxPodSandboxConfig {
        cgroup_parent,
        security_context: Some(LinuxSandboxSecurityContext {
            namespace_options: Some(security::build_namespaces(pod, None)),
            run_as_user: security::to_int64(context.run_as_user),
            run_as_group: security::to_int64(
                context
                    .run_as_group
                    // The CRI rejects a group without a user.
                    .filter(|_| context.run_as_user.is_some()),
            ),
            supplemental_groups: groups,
            privileged,
            // The pause process needs nothing that the runtime's default filter blocks.
            seccomp: Some(node_runtime::v1::SecurityProfile::default()),
            readonly_rootfs: false,
            selinux_options: context
                .se_linux_options
                .as_ref()
                .map(security::convert_selinux),
            ..LinuxSandboxSecurityContext::default()
        }),
        sysctls,
        ..LinuxPodSandboxConfig::default()
    })
    .map(|mut linux| {
        // A simulated pod has no cgroup.
        if settings.simulated() {
            linux.cgroup_parent.clear();
        }
        linux
    })
}

fn list_port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let containers = spec::app_containers(pod).chain(spec::init_containers(pod).map(|(_, c)| c));
    let ports = containers
        .flat_map(|c| c.ports.iter().flatten())
        // Most ports only document what a container listens on.
        .filter(|p| p.host_port.is_some_and(|h| h > 0));
    ports
        .map(|p| PortMapping {
            protocol: match p.protocol.as_deref() {
                Some("UDP") => Protocol::Udp,
                Some("SCTP") => Protocol::Sctp,
                _ => Protocol::Tcp,
            } as i32,
            container_port: p.container_port,
            host_port: p.host_port.unwrap_or_default(),
            host_ip: p.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn config(metadata: Value, spec: Value) -> PodSandboxConfig {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            runtime_endpoint: "unix:///c.sock".into(),
            ..crate::testing::settings(dir.path())
        };
        let mut pod = (*crate::testing::pod(spec)).clone();
        let more: Pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        pod.metadata.labels = more.metadata.labels;
        build_sandbox_config(&pod, &settings, "/kubepods/podu".into(), 2, "").unwrap()
    }

    /// The labels of the kubelet decide to which pod a sandbox belongs.
    #[test]
    fn labels_of_a_pod_cannot_replace_those_of_the_kubelet() {
        let metadata = json!({"labels": {"app": "a", labels::POD_UID: "another"}});
        let built = config(metadata, json!({"containers": []}));
        assert_eq!(built.labels.get("app").map(String::as_str), Some("a"));
        assert_eq!(
            built.labels.get(labels::POD_UID).map(String::as_str),
            Some("u")
        );
        assert_eq!(built.metadata.unwrap().attempt, 2);
        assert_eq!(built.linux.unwrap().cgroup_parent, "/kubepods/podu");
    }

    #[test]
    fn host_ports_are_mapped_unless_the_pod_is_on_the_host_network() {
        let ports = json!([{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"},
            {"containerPort": 53, "hostPort": 53, "protocol": "UDP"}, {"containerPort": 81}]);
        let spec = |host_network: bool| json!({"hostNetwork": host_network, "containers": [{"name": "c", "ports": ports}]});
        let built = config(json!({}), spec(false));
        let found = built.port_mappings.iter();
        let found: Vec<_> = found
            .map(|p| {
                (
                    p.protocol,
                    p.container_port,
                    p.host_port,
                    p.host_ip.as_str(),
                )
            })
            .collect();
        let tcp = (Protocol::Tcp as i32, 80, 8080, "127.0.0.1");
        assert_eq!(found, [tcp, (Protocol::Udp as i32, 53, 53, "")]);
        assert_eq!(built.hostname, "a");
        let host = config(json!({}), spec(true));
        assert!(host.port_mappings.is_empty() && host.hostname.is_empty());
    }

    #[test]
    fn sysctls_groups_and_privileges_of_the_pod_reach_the_sandbox() {
        let security = json!({"fsGroup": 7, "supplementalGroups": [5], "runAsGroup": 3,
            "sysctls": [{"name": "net/ipv4/tcp_syncookies", "value": "1"}]});
        let privileged = json!({"name": "i", "securityContext": {"privileged": true}});
        let spec =
            json!({"securityContext": security, "containers": [], "initContainers": [privileged]});
        let linux = config(json!({}), spec).linux.unwrap();
        let sysctl = linux.sysctls.get("net.ipv4.tcp_syncookies");
        assert_eq!(sysctl.map(String::as_str), Some("1"));
        let context = linux.security_context.unwrap();
        assert_eq!(context.supplemental_groups, [5, 7]);
        assert!(context.privileged);
        assert_eq!(context.run_as_group, None, "CRI needs a user for a group");
    }
}
