//! The files of a cluster's machine: certificates, configurations, and the plan.

use operator_discovery::Endpoint;
use operator_pki::{Names, NodeName, Pki, Renewal};

use crate::admin_kubeconfig::write_admin_kubeconfig;
use crate::cni_plugin::CniPlugin;
use crate::config_file::{ConfigFile, write_configs};
use crate::error::Result;
use crate::layout::Layout;
use crate::node::ClusterNode;
use crate::plan::{DNS_USER, Plan};
use crate::settings::{Runtime, Settings};
use crate::{configs, files};

/// Writes missing or outdated configurations and certificates, and the certificates that `renewal`
/// names. Returns the names of the written certificates.
pub(crate) fn write_files(
    settings: &Settings,
    layout: &Layout,
    renewal: Renewal<'_>,
) -> Result<Vec<String>> {
    let written = write_credentials(settings, layout, renewal)?;
    write_configs(&make_configs(settings, layout))?;
    Ok(written)
}

/// Writes the certificates and kubeconfigs, as [`write_files`], and creates the directories of the
/// components.
pub(crate) fn write_credentials(
    settings: &Settings,
    layout: &Layout,
    renewal: Renewal<'_>,
) -> Result<Vec<String>> {
    let names = certificate_names(settings);
    let (pki, written) = operator_pki::write_pki(&layout.pki(), &names, renewal)?;
    tracing::debug!(?written, "certificates");
    let server = settings.server_url();
    // Each component has an identity of its own, so that RBAC limits its rights.
    for (file, certificate, user) in [
        (
            "controller-manager",
            "controller-manager",
            "system:kube-controller-manager",
        ),
        ("scheduler", "scheduler", "system:kube-scheduler"),
    ] {
        pki.write_kubeconfig(&layout.kubeconfig(file), certificate, user, &server)?;
    }
    write_admin_kubeconfig(settings, layout)?;
    for node in &settings.nodes() {
        let layout = layout.for_node(node.number);
        write_node_kubeconfigs(node, &layout, &pki)?;
        if node.number == 1 || settings.node_dns.is_some() {
            write_dns_kubeconfig(settings, node, &layout, &pki)?;
        }
        create_directories(settings, &layout)?;
    }
    Ok(written)
}

/// Writes the kubeconfig of the DNS servers on a node, which read a renewed one without root. The
/// server of the cluster, on the first node, shares it with that of the node.
fn write_dns_kubeconfig(
    settings: &Settings,
    node: &ClusterNode,
    layout: &Layout,
    pki: &Pki,
) -> Result<()> {
    let path = layout.kubeconfig("dns");
    // Without root it keeps its user.
    let drops_root = settings.runs_pods() && rustix::process::geteuid().is_root();
    let group = drops_root.then_some(DNS_USER);
    pki.write_group_kubeconfig(&path, "dns", "system:cluster-dns", &node.server, group)?;
    Ok(())
}

/// Returns the configurations of the components of a machine with a control plane.
pub(crate) fn make_configs(settings: &Settings, layout: &Layout) -> Vec<ConfigFile> {
    let mut made = vec![
        ConfigFile {
            path: layout.config("authentication.yaml"),
            content: configs::authentication_config(&settings.token_issuers),
        },
        ConfigFile {
            path: layout.config("audit-policy.yaml"),
            content: configs::audit_policy(),
        },
    ];
    for node in &settings.nodes() {
        let layout = &layout.for_node(node.number);
        made.push(ConfigFile {
            path: layout.config("kubelet.yaml"),
            content: configs::kubelet_config(settings, node, layout),
        });
        made.extend(make_runtime_config(settings, layout));
        made.extend(make_proxy_config(settings, layout));
        made.extend(make_cni_config(settings, node, layout));
    }
    made
}

/// Returns the names in the certificates of a cluster.
pub(crate) fn certificate_names(settings: &Settings) -> Names {
    let nodes = settings.nodes().into_iter().map(|node| NodeName {
        addresses: node.addresses().collect(),
        name: node.name,
    });
    // All addresses of the machine: a client on it and a pod see the same certificate.
    let mut extra_dns = vec![settings.node_name.clone()];
    let mut server_addresses = Vec::new();
    for host in list_extra_hosts(settings) {
        match host.parse() {
            Ok(address) => server_addresses.push(address),
            Err(_) => extra_dns.push(host),
        }
    }
    Names {
        domain: settings.domain.clone(),
        service_address: settings.api_service_address(),
        extra_dns,
        server_addresses,
        addresses: settings.node_addresses().collect(),
        nodes: nodes.collect(),
    }
}

/// Returns the names and addresses of the API server that the administrator chose.
fn list_extra_hosts(settings: &Settings) -> Vec<String> {
    let Some(shared) = &settings.control_plane else {
        return Vec::new();
    };
    let endpoint = shared.endpoint.as_ref();
    let endpoint = endpoint.and_then(|text| text.parse::<Endpoint>().ok());
    let endpoint = endpoint.map(|endpoint| endpoint.host().to_owned());
    endpoint
        .into_iter()
        .chain(shared.extra_sans.clone())
        .collect()
}

/// Writes the kubeconfigs of one node. Its kubelet has the identity of this node only.
fn write_node_kubeconfigs(node: &ClusterNode, layout: &Layout, pki: &Pki) -> Result<()> {
    // The Node authorizer derives the node from the user's name.
    let kubelet = format!("kubelet-{}", node.name);
    let user = format!("system:node:{}", node.name);
    let server = &node.server;
    pki.write_kubeconfig(&layout.kubeconfig("kubelet"), &kubelet, &user, server)?;
    pki.write_kubeconfig(
        &layout.kubeconfig("proxy"),
        "proxy",
        "system:kube-proxy",
        server,
    )?;
    Ok(())
}

/// Creates the directories of one node.
pub(crate) fn create_directories(settings: &Settings, layout: &Layout) -> Result<()> {
    // The kubelet would create it for all to read.
    files::create_private_dir(&layout.logs())?;
    // The kubelet can watch only a directory that exists.
    files::create_dir(&layout.data().join("manifests"), 0o755)?;
    if settings.runtime == Runtime::Own {
        // The runtime creates its socket, but not the directory of the socket.
        files::create_dir(layout.run(), 0o711)?;
        files::create_dir(&layout.cni_conf(), 0o755)?;
    }
    Ok(())
}

/// Returns the configuration of containerd, if the cluster starts it.
pub(crate) fn make_runtime_config(settings: &Settings, layout: &Layout) -> Option<ConfigFile> {
    (settings.runtime == Runtime::Own).then(|| ConfigFile {
        path: layout.config("containerd.toml"),
        content: configs::containerd_config(settings, layout),
    })
}

/// Returns the configuration of kube-proxy, if there is one.
pub(crate) fn make_proxy_config(settings: &Settings, layout: &Layout) -> Option<ConfigFile> {
    settings.runs_pods().then(|| ConfigFile {
        path: layout.config("kube-proxy.yaml"),
        content: configs::proxy_config(settings, layout),
    })
}

/// Returns the configuration of a node's pod network, unless its agent or the user writes it. A
/// node without one starts no pods but those in the node's own network.
pub(crate) fn make_cni_config(
    settings: &Settings,
    node: &ClusterNode,
    layout: &Layout,
) -> Option<ConfigFile> {
    let is_written = settings.runtime == Runtime::Own && settings.cni == CniPlugin::Bridge;
    is_written.then(|| ConfigFile {
        path: layout.cni_config(),
        content: configs::bridge_config(settings, node, layout),
    })
}

/// Writes a plan with the current stamps of programs and files. Returns it with them.
pub(crate) fn save_plan(layout: &Layout, mut plan: Plan) -> Result<Plan> {
    // After all files are written: the stamp decides which processes are restarted.
    plan.set_stamps();
    save_exact_plan(layout, &plan)?;
    Ok(plan)
}

/// Writes a plan with the stamps that it has: a process whose files have changed keeps running.
pub(crate) fn save_exact_plan(layout: &Layout, plan: &Plan) -> Result<()> {
    let text = serde_json::to_string_pretty(plan).unwrap_or_default();
    files::write_if_changed(&layout.plan(), text.as_bytes()).map(drop)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// It drops root, and reads the file again at each new connection.
    #[test]
    fn dns_server_of_each_node_has_a_kubeconfig_that_its_group_reads() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let without = Settings {
            data_dir: dir.path().into(),
            ..Settings::with_nodes(2)
        };
        let second = layout.for_node(2).kubeconfig("dns");
        write_credentials(&without, &layout, Renewal::Due).unwrap();
        assert!(!second.exists());
        let settings = Settings {
            node_dns: "169.254.20.10".parse().ok(),
            ..without
        };
        write_credentials(&settings, &layout, Renewal::Due).unwrap();
        for (path, server) in [
            (layout.kubeconfig("dns"), "https://127.0.0.1:6443"),
            (second, "https://192.0.2.2:6443"),
        ] {
            let config = client::Config::from_kubeconfig(&path).unwrap();
            assert_eq!(config.server, server);
            let (meta, is_root) = (
                path.metadata().unwrap(),
                rustix::process::geteuid().is_root(),
            );
            let expected = if is_root {
                (DNS_USER, 0o640)
            } else {
                (meta.gid(), 0o600)
            };
            assert_eq!((meta.gid(), meta.mode() & 0o777), expected);
        }
    }
}
