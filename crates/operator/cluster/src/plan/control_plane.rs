//! The processes of the control plane, which runs on the first node.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::process::{Process, Ready, path_text, pool_argument};
use crate::addresses::node_prefix_length;
use crate::layout::Layout;
use crate::ranges::Ranges;
use crate::settings::Settings;

/// User and group of cluster DNS, which parses data from pods. After its start it needs no
/// permission except to read its kubeconfig. It is not `nobody`, whose other processes could read
/// that file, too. The ID is in no range that systemd allocates.
pub(crate) const DNS_USER: u32 = 61053;

/// Flags of the API server that name a file beneath the directory of certificates. Components
/// follow these files, CAs and keys of ServiceAccounts too: a change needs no restart.
const API_SERVER_FILES: [(&str, &str); 14] = [
    ("client-ca-file", "ca.crt"),
    ("tls-cert-file", "apiserver.crt"),
    ("tls-private-key-file", "apiserver.key"),
    ("etcd-cafile", "etcd/ca.crt"),
    ("etcd-certfile", "apiserver-etcd-client.crt"),
    ("etcd-keyfile", "apiserver-etcd-client.key"),
    ("kubelet-certificate-authority", "ca.crt"),
    ("kubelet-client-certificate", "apiserver-kubelet-client.crt"),
    ("kubelet-client-key", "apiserver-kubelet-client.key"),
    ("service-account-key-file", "sa.pub"),
    ("service-account-signing-key-file", "sa.key"),
    ("requestheader-client-ca-file", "front-proxy-ca.crt"),
    ("proxy-client-cert-file", "front-proxy-client.crt"),
    ("proxy-client-key-file", "front-proxy-client.key"),
];

/// Name of the proxy to the API servers, and of its subcommand.
pub(crate) const API_PROXY: &str = "api-proxy";

/// Builds the processes of the control plane.
pub(super) struct Builder<'a> {
    pub(super) settings: &'a Settings,
    pub(super) layout: &'a Layout,
}

/// Returns the URL at which other machines reach the store of this one.
pub(crate) fn format_member_url(address: IpAddr, port: u16) -> String {
    format!("https://{}", SocketAddr::new(address, port))
}

fn loopback_address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Returns the flags with the size of nodes' ranges.
fn list_mask_arguments(pods: &Ranges) -> Vec<String> {
    let is_dual = pods.iter().count() > 1;
    let flag = |range: IpNet| match (is_dual, range) {
        (false, _) => "--node-cidr-mask-size",
        (true, IpNet::V4(_)) => "--node-cidr-mask-size-ipv4",
        (true, IpNet::V6(_)) => "--node-cidr-mask-size-ipv6",
    };
    pods.iter()
        .map(|range| format!("{}={}", flag(range), node_prefix_length(range)))
        .collect()
}

/// Returns the flags of a DNS server that listens at an address.
pub(super) fn list_dns_arguments(settings: &Settings, listen: SocketAddr) -> Vec<String> {
    let mut args = vec![
        format!("--listen={listen}"),
        format!("--domain={}", settings.domain),
    ];
    // Pods and nodes of this machine only: a resolver that answers everyone can be abused for
    // amplification attacks.
    let mut clients: Vec<IpNet> = settings.pod_cidr.iter().collect();
    clients.push(IpNet::new_assert(Ipv4Addr::LOCALHOST.into(), 8).trunc());
    clients.extend(settings.node_addresses().map(IpNet::from));
    clients.extend(settings.link_ranges());
    args.extend(clients.iter().map(|range| format!("--allow={range}")));
    if settings.runs_pods() {
        // The server binds its port as root, and then serves untrusted pods without any rights.
        args.push(format!("--user={DNS_USER}"));
    }
    args
}

impl Builder<'_> {
    pub(super) fn pki_path(&self, name: &str) -> PathBuf {
        self.layout.pki().join(name)
    }

    pub(super) fn process(
        &self,
        name: &str,
        args: Vec<String>,
        inputs: &[PathBuf],
        ready: Ready,
        after: &[&str],
    ) -> Process {
        let mut argv = vec![path_text(&self.settings.bin_dir.join(name))];
        argv.extend(args);
        let verbosity = self.settings.verbosity;
        argv.extend((verbosity > 0).then(|| format!("-v={verbosity}")));
        Process {
            name: name.to_owned(),
            // The control plane runs on the machine itself, which is the first node.
            node: self.settings.node_name.clone(),
            namespaces: None,
            argv,
            after: after.iter().map(|&name| name.to_owned()).collect(),
            required: Vec::new(),
            needs_data: false,
            socket: None,
            ready,
            inputs: inputs.to_vec(),
            stamp: String::new(),
        }
    }

    pub(super) fn store(&self) -> Process {
        let ports = &self.settings.ports;
        let [listen, client, peer] = self.store_urls();
        let joined = self.settings.joined_control_plane();
        let initial = match joined {
            Some(joined) => {
                let members = joined.start_members();
                members.map_or_else(String::new, |members| members.initial_cluster.clone())
            }
            None => format!("{}={peer}", self.settings.node_name),
        };
        // Members authenticate each other: a peer may write anything to the store.
        let files = [
            ("cert-file", "etcd/server.crt"),
            ("key-file", "etcd/server.key"),
            ("trusted-ca-file", "etcd/ca.crt"),
            ("peer-cert-file", "etcd/peer.crt"),
            ("peer-key-file", "etcd/peer.key"),
            ("peer-trusted-ca-file", "etcd/ca.crt"),
        ];
        let mut args = vec![
            format!("--name={}", self.settings.node_name),
            format!("--data-dir={}", path_text(&self.layout.store())),
            format!("--listen-client-urls={listen}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={initial}"),
            "--client-cert-auth=true".to_owned(),
            "--peer-client-cert-auth=true".to_owned(),
        ];
        if joined.is_some() {
            // With this value a member takes the IDs of the cluster from its peers; by default it
            // derives them from its flags.
            args.push("--initial-cluster-state=existing".to_owned());
        }
        args.extend(
            files
                .iter()
                .map(|(flag, file)| format!("--{flag}={}", path_text(&self.pki_path(file)))),
        );
        let ready = Ready::Tcp(loopback_address(ports.store));
        Process {
            needs_data: true,
            ..self.process("kvstore", args, &[], ready, &[])
        }
    }

    /// Returns the store's URLs: those it listens on for clients, and those that clients and peers
    /// use.
    ///
    /// They are on the loopback address only, unless other machines have members of the store.
    fn store_urls(&self) -> [String; 3] {
        let ports = &self.settings.ports;
        let local = format!("https://127.0.0.1:{}", ports.store);
        if self.settings.control_plane.is_none() {
            let peer = format!("https://127.0.0.1:{}", ports.store_peer);
            return [local.clone(), local, peer];
        }
        let address = self.settings.node_address;
        let client = format_member_url(address, ports.store);
        let peer = format_member_url(address, ports.store_peer);
        [format!("{local},{client}"), client, peer]
    }

    pub(super) fn api_server(&self) -> Process {
        let ports = &self.settings.ports;
        let authentication = self.layout.config("authentication.yaml");
        let audit_policy = self.layout.config("audit-policy.yaml");
        let mut args = vec![
            format!("--etcd-servers=https://127.0.0.1:{}", ports.store),
            format!("--secure-port={}", ports.api),
            format!("--bind-address={}", self.api_bind()),
            format!("--advertise-address={}", self.settings.node_address),
            format!("--service-cluster-ip-range={}", self.settings.service_cidr),
            format!(
                "--service-account-issuer={}",
                self.settings.service_account_issuer()
            ),
            // Node limits each kubelet to the objects of its own pods; RBAC alone would give them
            // all.
            "--authorization-mode=Node,RBAC".to_owned(),
            // External IPs let each user who creates Services intercept traffic (CVE-2020-8554).
            "--enable-admission-plugins=NodeRestriction,DenyServiceExternalIPs".to_owned(),
            format!("--authentication-config={}", path_text(&authentication)),
            format!("--audit-policy-file={}", path_text(&audit_policy)),
            format!("--audit-log-path={}", path_text(&self.layout.audit_log())),
            // With the current file, at most 1.1 GiB before the compression.
            "--audit-log-maxbackup=10".to_owned(),
            "--audit-log-compress=true".to_owned(),
            // With these, other machines join. Without a token's Secret they give no access.
            "--enable-bootstrap-token-auth=true".to_owned(),
            // Only the aggregation proxy may name users; other certificates of its CA may not.
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            // Upstream's default tries names first, which this machine may not resolve.
            "--kubelet-preferred-address-types=InternalIP,Hostname".to_owned(),
        ];
        args.extend(
            API_SERVER_FILES
                .iter()
                .map(|(flag, file)| format!("--{flag}={}", path_text(&self.pki_path(file)))),
        );
        if self.settings.has_enforced_policies() {
            args.push("--network-policies-enforced".to_owned());
        }
        let inputs = [authentication, audit_policy];
        self.process(
            "kube-apiserver",
            args,
            &inputs,
            Ready::Tcp(loopback_address(ports.api)),
            &["kvstore"],
        )
    }

    /// Returns the proxy between this machine's components and the API servers, if there are
    /// several.
    pub(super) fn api_proxy(&self) -> Option<Process> {
        if !self.settings.has_api_proxy() {
            return None;
        }
        // On the loopback address only: the proxy passes on what it receives without a check.
        let address = loopback_address(self.settings.ports.api_proxy);
        let ready = Ready::Tcp(address);
        let folder = format!("--data-dir={}", path_text(&self.settings.data_dir));
        let mut process = self.process("ironclad", Vec::new(), &[], ready, &[]);
        process.name = API_PROXY.to_owned();
        process.socket = Some(address);
        // After the flag for the verbosity, which is one of the program and not of its commands.
        process.argv.extend([API_PROXY.to_owned(), folder]);
        Some(process)
    }

    /// Returns the components before which a client of the API servers should not start.
    pub(super) fn servers(&self) -> Vec<&'static str> {
        let mut all = vec!["kube-apiserver"];
        if self.settings.has_api_proxy() {
            all.push(API_PROXY);
        }
        all
    }

    /// Returns the API server's listen address: all addresses if pods really run, or other machines
    /// have API servers; otherwise only loopback.
    fn api_bind(&self) -> IpAddr {
        if self.settings.runs_pods() || self.settings.control_plane.is_some() {
            // Other machines and pods reach the API server by the address of the node.
            self.settings.any_address()
        } else {
            Ipv4Addr::LOCALHOST.into()
        }
    }

    pub(super) fn controller_manager(&self) -> Process {
        let ports = &self.settings.ports;
        let kubeconfig = self.layout.kubeconfig("controller-manager");
        let mut args = vec![
            format!("--kubeconfig={}", path_text(&kubeconfig)),
            format!("--authentication-kubeconfig={}", path_text(&kubeconfig)),
            format!("--authorization-kubeconfig={}", path_text(&kubeconfig)),
            "--bind-address=127.0.0.1".to_owned(),
            // Off unless they are named.
            "--controllers=*,bootstrapsigner,tokencleaner,kubelet-serving-approver".to_owned(),
            format!("--secure-port={}", ports.controller_manager),
            "--leader-elect=true".to_owned(),
            // Each controller gets an account with its own rights instead of those of the whole
            // process.
            "--use-service-account-credentials=true".to_owned(),
            "--allocate-node-cidrs=true".to_owned(),
            format!("--cluster-cidr={}", self.settings.pod_cidr),
            format!("--service-cluster-ip-range={}", self.settings.service_cidr),
            format!(
                "--service-account-private-key-file={}",
                path_text(&self.pki_path("sa.key"))
            ),
            format!("--root-ca-file={}", path_text(&self.pki_path("ca.crt"))),
            format!(
                "--cluster-signing-cert-file={}",
                path_text(&self.pki_path("ca.crt"))
            ),
            format!(
                "--cluster-signing-key-file={}",
                path_text(&self.pki_path("ca.key"))
            ),
        ];
        args.extend(list_mask_arguments(&self.settings.pod_cidr));
        args.extend(pool_argument(self.settings));
        let ready = Ready::Tcp(loopback_address(ports.controller_manager));
        self.process(
            "kube-controller-manager",
            args,
            &[kubeconfig],
            ready,
            &self.servers(),
        )
    }

    pub(super) fn scheduler(&self) -> Process {
        let ports = &self.settings.ports;
        let kubeconfig = self.layout.kubeconfig("scheduler");
        let args = vec![
            format!("--kubeconfig={}", path_text(&kubeconfig)),
            format!("--authentication-kubeconfig={}", path_text(&kubeconfig)),
            format!("--authorization-kubeconfig={}", path_text(&kubeconfig)),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", ports.scheduler),
            "--leader-elect=true".to_owned(),
        ];
        let ready = Ready::Tcp(loopback_address(ports.scheduler));
        self.process(
            "kube-scheduler",
            args,
            &[kubeconfig],
            ready,
            &self.servers(),
        )
    }

    pub(super) fn dns(&self) -> Process {
        let ports = &self.settings.ports;
        let kubeconfig = self.layout.kubeconfig("dns");
        let listen = SocketAddr::new(self.settings.dns_listen_address(), ports.dns);
        let mut args = vec![
            format!("--kubeconfig={}", path_text(&kubeconfig)),
            format!("--health-address={}", loopback_address(ports.dns_health)),
        ];
        args.extend(list_dns_arguments(self.settings, listen));
        // Other networks may masquerade what pods send to the node of this server.
        args.extend(
            self.settings
                .has_foreign_network()
                .then(|| "--allow-nodes".to_owned()),
        );
        self.process(
            "cluster-dns",
            args,
            &[kubeconfig],
            Ready::Tcp(loopback_address(ports.dns_health)),
            &self.servers(),
        )
    }
}
