//! The processes of one node.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::control_plane::{API_PROXY, Builder, list_dns_arguments};
use super::process::{Process, Ready, path_text, pool_argument};
use crate::cni_plugin::{CniBackend, ENCRYPTED_TUNNEL, TUNNEL};
use crate::layout::Layout;
use crate::membership::Membership;
use crate::node::ClusterNode;
use crate::node_dns::{DNS_PORT, NODE_DNS};
use crate::settings::Runtime;

pub(super) struct NodeBuilder<'a> {
    cluster: &'a Builder<'a>,
    node: ClusterNode,
    layout: Layout,
}

impl<'a> NodeBuilder<'a> {
    pub(super) fn new(cluster: &'a Builder<'a>, node: ClusterNode) -> Self {
        let layout = cluster.layout.for_node(node.number);
        Self {
            cluster,
            node,
            layout,
        }
    }

    /// Returns the proxy to the API servers, on which the components of a worker depend.
    fn proxy_dependency(&self) -> Vec<String> {
        let has_proxy = self.cluster.settings.has_api_proxy();
        has_proxy
            .then(|| API_PROXY.to_owned())
            .into_iter()
            .collect()
    }

    fn servers(&self) -> Vec<String> {
        let all = self.cluster.servers();
        all.into_iter().map(str::to_owned).collect()
    }

    /// Returns the path of the node's namespaces, if it has its own.
    fn namespaces(&self) -> Option<PathBuf> {
        let isolated = self.node.is_isolated;
        isolated.then(|| self.cluster.layout.namespaces(self.node.number))
    }

    /// Builds a process of this node. `after` are names of components.
    fn process(
        &self,
        name: &str,
        args: Vec<String>,
        inputs: &[PathBuf],
        ready: Ready,
        after: &[String],
    ) -> Process {
        let after: Vec<&str> = after.iter().map(String::as_str).collect();
        Process {
            name: self.node.process_name(name),
            node: self.node.name.clone(),
            namespaces: self.namespaces(),
            ..self.cluster.process(name, args, inputs, ready, &after)
        }
    }

    /// Returns the readiness check of a port on the node's loopback address.
    fn listens_at(&self, port: u16) -> Ready {
        let address = SocketAddr::from((self.node.loopback, port));
        match self.namespaces() {
            Some(namespaces) => Ready::TcpInside(namespaces, address),
            None => Ready::Tcp(address),
        }
    }

    pub(super) fn containerd(&self) -> Process {
        let config = self.layout.config("containerd.toml");
        let mut process = self.process(
            "containerd",
            vec!["--config".to_owned(), path_text(&config)],
            &[config],
            Ready::Unix(self.layout.containerd_socket()),
            &[],
        );
        // containerd is the distribution's and not beside the other programs.
        process.argv[0] = crate::command::find_program("containerd")
            .map_or("containerd".to_owned(), |p| path_text(&p));
        // containerd has no flag for the verbosity of our components.
        process.argv.truncate(3);
        process
    }

    pub(super) fn kubelet(&self) -> Process {
        let settings = self.cluster.settings;
        let kubeconfig = self.layout.kubeconfig("kubelet");
        let config = self.layout.config("kubelet.yaml");
        let endpoint = match &settings.runtime {
            Runtime::Own => format!("unix://{}", path_text(&self.layout.containerd_socket())),
            Runtime::Endpoint(endpoint) => endpoint.clone(),
            Runtime::Simulated => format!("simulated:{}", self.simulated_network()),
        };
        let name = &self.node.name;
        let mut args = vec![
            format!("--config={}", path_text(&config)),
            format!("--kubeconfig={}", path_text(&kubeconfig)),
            format!("--hostname-override={name}"),
            format!("--node-ip={}", self.format_addresses()),
            format!(
                "--root-dir={}",
                path_text(&self.layout.data().join("kubelet"))
            ),
            format!("--container-runtime-endpoint={endpoint}"),
        ];
        let (inputs, mut after) = match &settings.membership {
            Some(membership) => {
                args.extend(self.join_arguments(membership));
                // Not the kubeconfig and certificates, which the kubelet itself writes.
                let inputs = vec![
                    config,
                    self.cluster.pki_path("ca.crt"),
                    self.layout.bootstrap_digest(),
                ];
                (inputs, self.proxy_dependency())
            }
            None => (vec![kubeconfig, config], self.servers()),
        };
        if settings.runtime == Runtime::Own {
            after.push(self.node.process_name("containerd"));
        }
        let mut required = Vec::new();
        if settings.enforces_policies() && settings.has_pod_network() {
            // kube-proxy's health port opens once pods are closed or have the rules of an earlier
            // process: on a node that boots, pods must not start before.
            required.push(self.node.process_name("kube-proxy"));
        }
        if settings.node_dns.is_some() && settings.has_pod_network() {
            // The kubelet starts after the DNS server: otherwise a pod in the node's network could
            // take port 53.
            required.push(self.node.process_name(NODE_DNS));
        }
        after.extend(required.iter().cloned());
        // The health port opens after the kubelet has reached its runtime.
        let ready = self.listens_at(settings.ports.kubelet_health);
        Process {
            required,
            ..self.process("kubelet", args, &inputs, ready, &after)
        }
    }

    fn format_addresses(&self) -> String {
        let addresses: Vec<_> = self.node.addresses().map(|ip| ip.to_string()).collect();
        addresses.join(",")
    }

    /// Returns the processes on which the clients of the API server on this node depend.
    fn client_dependencies(&self) -> Vec<String> {
        match self.cluster.settings.membership {
            Some(_) => self.proxy_dependency(),
            None => self.servers(),
        }
    }

    /// Returns the agent of the pod network, if the node has one. It reads the nodes, as kube-proxy
    /// does, and with the same identity. It writes the node's key with that of the kubelet, because
    /// the identity of all nodes could replace the keys of others.
    pub(super) fn network_agent(&self) -> Option<Process> {
        let settings = self.cluster.settings;
        if !settings.has_network_agent() {
            return None;
        }
        let mut after = self.client_dependencies();
        let kubeconfig = self.layout.kubeconfig("proxy");
        let mut args = vec![
            format!("--kubeconfig={}", path_text(&kubeconfig)),
            format!("--hostname-override={}", self.node.name),
            format!("--cluster-cidr={}", settings.pod_cidr),
            format!("--backend={}", settings.cni_backend),
            format!("--bridge={}", settings.bridge()),
            format!("--vxlan-device={TUNNEL}"),
            format!("--wireguard-device={ENCRYPTED_TUNNEL}"),
            format!("--cni-conf-dir={}", path_text(&self.layout.cni_conf())),
            format!("--data-dir={}", path_text(&self.layout.cni_state())),
        ];
        let mut inputs = vec![kubeconfig];
        // Without a control plane, kube-proxy has the kubelet's identity.
        let has_proxy_identity = settings.membership.is_none();
        if settings.cni_backend == CniBackend::Wireguard && has_proxy_identity {
            let kubeconfig = self.layout.kubeconfig("kubelet");
            args.push(format!("--node-kubeconfig={}", path_text(&kubeconfig)));
            inputs.push(kubeconfig);
        }
        // The agent's configuration file lets pods start, so the agent waits until kube-proxy
        // isolates those that policies select.
        let required: Vec<_> = settings
            .enforces_policies()
            .then(|| self.node.process_name("kube-proxy"))
            .into_iter()
            .collect();
        after.extend(required.iter().cloned());
        Some(Process {
            required,
            ..self.process("ironclad-cni", args, &inputs, Ready::Started, &after)
        })
    }

    /// Returns the DNS server of the node, if nodes have their own. It has the identity of the
    /// cluster's DNS server: it parses packets of pods, and must not act as the node.
    pub(super) fn dns(&self) -> Option<Process> {
        let settings = self.cluster.settings;
        let address = SocketAddr::new(settings.node_dns?, DNS_PORT);
        let after = self.client_dependencies();
        let kubeconfig = self.layout.kubeconfig("dns");
        let health = SocketAddr::from((self.node.loopback, settings.ports.node_dns_health));
        let mut args = vec![
            format!("--kubeconfig={}", path_text(&kubeconfig)),
            format!("--health-address={health}"),
            // The clients include the node and pods in its network: their packets have the server's
            // address as source, too.
            format!("--allow={}", IpNet::from(address.ip())),
        ];
        args.extend(list_dns_arguments(settings, address));
        let ready = self.listens_at(settings.ports.node_dns_health);
        let process = self.process("cluster-dns", args, &[kubeconfig], ready, &after);
        Some(Process {
            // The first node may run the cluster's DNS server, too.
            name: self.node.process_name(NODE_DNS),
            ..process
        })
    }

    /// Returns the arguments with which a kubelet requests its certificates and registers its node.
    fn join_arguments(&self, membership: &Membership) -> Vec<String> {
        let bootstrap = self.layout.bootstrap_kubeconfig();
        let mut args = vec![
            format!("--bootstrap-kubeconfig={}", path_text(&bootstrap)),
            format!("--cert-dir={}", path_text(&self.layout.pki())),
        ];
        let lists = [
            ("node-labels", &membership.labels),
            ("register-with-taints", &membership.taints),
        ];
        let lists = lists.iter().filter(|(_, values)| !values.is_empty());
        args.extend(lists.map(|(flag, values)| format!("--{flag}={}", values.join(","))));
        args
    }

    /// Returns the /16 of the addresses of simulated pods, which lead nowhere: the shared range of
    /// RFC 6598 for all nodes but the first. Two joined nodes may have the same one, which 28
    /// share.
    fn simulated_network(&self) -> String {
        let settings = self.cluster.settings;
        let has_joined = settings.membership.is_some() || settings.joined_control_plane().is_some();
        match (has_joined, self.node.number) {
            // After those of the nodes of `up`.
            (true, _) => format!("100.{}.0.0", 100 + self.digest_name() % 28),
            (false, 1) => String::new(),
            (false, number) => format!("100.{}.0.0", 64 + number),
        }
    }

    fn digest_name(&self) -> u8 {
        let digest = crate::files::digest_hex(self.node.name.as_bytes());
        u8::from_str_radix(digest.get(..2).unwrap_or_default(), 16).unwrap_or_default()
    }

    pub(super) fn proxy(&self) -> Process {
        let config = self.layout.config("kube-proxy.yaml");
        let settings = self.cluster.settings;
        let inputs = [config.clone(), self.layout.kubeconfig("proxy")];
        let mut args = vec![
            format!("--config={}", path_text(&config)),
            format!("--hostname-override={}", self.node.name),
        ];
        if settings.enforces_policies() {
            args.extend([
                "--network-policies".to_owned(),
                format!("--network-policy-pod-cidrs={}", self.node.pods),
                format!("--network-policy-bridge={}", settings.bridge()),
            ]);
        }
        args.extend(pool_argument(settings));
        let ready = self.listens_at(settings.ports.proxy_health);
        let after = self.client_dependencies();
        self.process("kube-proxy", args, &inputs, ready, &after)
    }
}
