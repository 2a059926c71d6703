//! Command line of `ironclad`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use base_telemetry::LogOptions;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use operator_cluster::{CniBackend, CniPlugin, NodeDns, Ranges};
use operator_discovery::{Endpoint, KeyPin};

/// A Kubernetes cluster on this machine, or this machine as a node of another one.
#[derive(Debug, Parser)]
#[command(name = "ironclad", version, about, long_about = None)]
pub struct Cli {
    /// Logging
    #[command(flatten)]
    pub logs: LogOptions,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start a cluster, or repair an existing one; ends when its nodes are Ready
    // Boxed, since this variant is several times as large as the others.
    Up(Box<Up>),
    /// Start a cluster whose control plane other machines can join, or make an existing one such a
    /// cluster
    Init(Box<Init>),
    /// Join this machine to the cluster of another one, or repair its components; ends when its
    /// node is Ready
    Join(Box<Join>),
    /// Replace the programs of the components one after the other; rolls all back if one does not
    /// become healthy
    Upgrade(Upgrade),
    /// Stop the cluster, or what `join` started; the data remain unless --purge is given
    Down(Down),
    /// Remove from this machine everything that `join` made; the Node object stays in the cluster
    Reset(Folder),
    /// Save the objects, keys and settings of the running cluster in one file
    Backup(Backup),
    /// Make the cluster from a backup, on this machine or another one; `up` starts it
    Restore(Restore),
    /// Show component status
    Status(Status),
    /// Look for problems and print a command for each; ends with 1 if something does not work
    Doctor(Status),
    /// The certificates of the cluster
    #[command(subcommand)]
    Certs(Certs),
    /// Bootstrap tokens, with which other machines join the cluster
    #[command(subcommand)]
    Token(Token),
    /// Pass connections on to the API servers of the cluster (started by `up`; runs until it is
    /// stopped)
    ApiProxy(Folder),
    /// Keep the components running (started by `up`; runs until it is stopped)
    Supervise(Folder),
    /// Print completions for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Write manual pages
    Man {
        /// The directory to write to
        folder: PathBuf,
    },
}

/// Selects a cluster.
#[derive(Debug, Clone, Args)]
pub struct Folder {
    /// The cluster's data directory
    #[arg(long, value_name = "DIR", default_value = "/var/lib/ironclad")]
    pub data_dir: PathBuf,
}

/// Options of `up`.
#[derive(Debug, Args)]
pub struct Up {
    #[command(flatten)]
    pub folder: Folder,
    /// Directory of the component binaries [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Use this container runtime instead of starting one
    #[arg(long, value_name = "unix:///PATH", conflicts_with = "simulated", value_parser = parse_endpoint)]
    pub runtime_endpoint: Option<String>,
    /// Simulate containers: needs neither root nor a runtime
    #[arg(long)]
    pub simulated: bool,
    /// Pod network: bridge (the CNI project's plugins), ironclad (ironclad-cni), or none: one that
    /// you install [default: bridge; ironclad with IPv6]
    #[arg(long, value_name = "NETWORK", conflicts_with_all = ["simulated", "runtime_endpoint"])]
    pub cni: Option<CniPlugin>,
    /// Backend of --cni ironclad, the same on all machines: direct (routes), vxlan (tunnels),
    /// wireguard (encrypted tunnels), or auto: routes to nodes on a link, vxlan to the others
    /// [default: auto]
    #[arg(long, value_name = "BACKEND", conflicts_with_all = ["simulated", "runtime_endpoint"])]
    pub cni_backend: Option<CniBackend>,
    /// The network that you install with --cni none, or that of --runtime-endpoint, enforces
    /// NetworkPolicies: no warning at each write of a policy [default: false]
    // The name is that of the API server's flag.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", conflicts_with = "simulated")]
    pub network_policies_enforced: Option<bool>,
    /// Run a DNS server for pods on each node except workers that join, at this address [default
    /// address: 169.254.20.10]
    #[arg(long, value_name = "IP", num_args = 0..=1, require_equals = true, default_missing_value = "auto", conflicts_with = "simulated")]
    pub node_local_dns: Option<NodeDns>,
    /// Number of nodes; all but the first are network and mount namespaces of this machine
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=i64::from(operator_cluster::MAX_NODES)))]
    pub nodes: Option<u8>,
    /// The first node's name [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// The first node's address, or one of each family, separated by a comma [default: that of the
    /// default route]
    #[arg(long, value_name = "IP,IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// Address range of pods, or one of each family, separated by a comma; the first family is the
    /// primary one [default: 10.244.0.0/16]
    #[arg(long, value_name = "CIDR,CIDR")]
    pub pod_cidr: Option<Ranges>,
    /// Address range of Services, or one of each family in the same order [default: 10.96.0.0/16]
    #[arg(long, value_name = "CIDR,CIDR")]
    pub service_cidr: Option<Ranges>,
    /// Addresses for Services of type LoadBalancer, which the nodes announce on their network:
    /// CIDRs, FIRST-LAST or addresses, separated by commas; empty for none [default: none]
    #[arg(long, value_name = "RANGE,...")]
    pub load_balancer_pool: Option<String>,
    /// AuthenticationConfiguration (apiserver.config.k8s.io) with issuers of tokens for the API
    /// servers; its content is stored, and an empty value removes it [default: none]
    #[arg(long, value_name = "FILE", value_parser = parse_optional_file)]
    pub authentication_config: Option<PathBuf>,
    /// Use any free ports, so that several clusters fit on one machine
    #[arg(long)]
    pub pick_ports: bool,
    /// Port of the API server, 0 for any [default: 6443]
    #[arg(long, value_name = "PORT")]
    pub api_port: Option<u16>,
    /// Port of the store, 0 for any [default: 2379]
    #[arg(long, value_name = "PORT")]
    pub store_port: Option<u16>,
    /// Port of the store's peers, 0 for any [default: 2380]
    #[arg(long, value_name = "PORT")]
    pub store_peer_port: Option<u16>,
    /// Port of the kubelet, 0 for any [default: 10250]
    #[arg(long, value_name = "PORT")]
    pub kubelet_port: Option<u16>,
    /// Port of the cluster DNS on the node, 0 for any [default: 10053]
    #[arg(long, value_name = "PORT")]
    pub dns_port: Option<u16>,
    /// Verbosity of the components' logs
    #[arg(long, value_name = "N")]
    pub component_verbosity: Option<u8>,
}

/// Options of `init`.
#[derive(Debug, Args)]
pub struct Init {
    #[command(flatten)]
    pub up: Up,
    /// Additional names and addresses in the API servers' certificates, comma-separated
    #[arg(long, value_name = "NAME|IP", value_delimiter = ',')]
    pub apiserver_cert_extra_sans: Vec<String>,
    /// Address of a load balancer or virtual IP before the API servers
    #[arg(long, value_name = "HOST:PORT")]
    pub control_plane_endpoint: Option<Endpoint>,
}

/// Options of `join`.
#[derive(Debug, Args)]
// The members of a group exclude each other: with two tokens it would be open which one counts.
#[command(group(ArgGroup::new("credential").args(["token", "token_file"])))]
pub struct Join {
    /// Address of the API server, HOST:PORT; omit it to repair a machine that has joined
    #[arg(
        value_name = "HOST:PORT",
        // The token verifies cluster-info, and then authenticates the request for the certificate.
        requires = "credential",
        // The file has an address of its own.
        conflicts_with = "discovery_file"
    )]
    pub endpoint: Option<String>,
    #[command(flatten)]
    pub folder: Folder,
    /// Bootstrap token, made by `ironclad token create`. Other users see it in the list of
    /// processes: --token-file hides it
    // Checked by the command: the parser's message would repeat the value.
    #[arg(long, value_name = "ID.SECRET")]
    pub token: Option<String>,
    /// File with the bootstrap token; - for standard input
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Expected public key of the cluster's CA; may be given several times
    #[arg(long, value_name = "sha256:HEX")]
    // A bundle with a former and a new CA has one pin for each.
    pub discovery_token_ca_cert_hash: Vec<KeyPin>,
    /// Do not verify the CA of the cluster: every holder of the token can pose as the cluster
    #[arg(long, conflicts_with_all = ["discovery_token_ca_cert_hash", "discovery_file"])]
    pub discovery_token_unsafe_skip_ca_verification: bool,
    /// Read address and CA from this kubeconfig, copied from the cluster, instead of reading them
    /// from the API server
    #[arg(long, value_name = "FILE", requires = "credential")]
    pub discovery_file: Option<PathBuf>,
    /// Join the control plane, too: the machine gets the keys of the cluster, a member of the store
    /// and an API server
    #[arg(long)]
    pub control_plane: bool,
    /// The key that `ironclad token create --control-plane` prints. Other users see it in the list
    /// of processes: --certificate-key-file hides it
    // Checked by the command: the parser's message would repeat the value.
    #[arg(long, value_name = "HEX", requires = "control_plane")]
    pub certificate_key: Option<String>,
    /// File with the certificate key
    #[arg(
        long,
        value_name = "FILE",
        // Without --control-plane the machine would become a worker, and the file would have no
        // effect.
        requires = "control_plane",
        conflicts_with = "certificate_key"
    )]
    pub certificate_key_file: Option<PathBuf>,
    /// Directory of the component binaries [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Use this container runtime instead of starting one
    #[arg(long, value_name = "unix:///PATH", conflicts_with = "simulated", value_parser = parse_endpoint)]
    pub runtime_endpoint: Option<String>,
    /// Simulate containers: needs neither root nor a runtime
    #[arg(long)]
    pub simulated: bool,
    /// Pod network: bridge (the CNI project's plugins), ironclad (ironclad-cni), or none: one that
    /// you install [default: that of the cluster]
    #[arg(long, value_name = "NETWORK", conflicts_with_all = ["simulated", "runtime_endpoint"])]
    pub cni: Option<CniPlugin>,
    /// Backend of --cni ironclad: direct (routes), vxlan (tunnels), wireguard (encrypted tunnels)
    /// or auto [default: that of the cluster]
    #[arg(long, value_name = "BACKEND", conflicts_with_all = ["simulated", "runtime_endpoint"])]
    pub cni_backend: Option<CniBackend>,
    /// Name of the node [default: the host's]
    #[arg(long, value_name = "NAME")]
    pub node_name: Option<String>,
    /// Address of the node, or one of each family of the cluster, separated by a comma [default:
    /// that of the route to the API server]
    #[arg(long, value_name = "IP,IP", value_delimiter = ',')]
    pub node_ip: Vec<IpAddr>,
    /// Labels with which the node registers, comma-separated
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Taints with which the node registers, comma-separated
    #[arg(long, value_name = "KEY=VALUE:EFFECT", value_delimiter = ',')]
    pub register_with_taints: Vec<String>,
    /// Use any free ports
    #[arg(long)]
    pub pick_ports: bool,
    /// Port of the kubelet, 0 for any [default: 10250]
    #[arg(long, value_name = "PORT")]
    pub kubelet_port: Option<u16>,
    /// Verbosity of the components' logs
    #[arg(long, value_name = "N")]
    pub component_verbosity: Option<u8>,
}

/// Options of `upgrade`.
#[derive(Debug, Args)]
pub struct Upgrade {
    #[command(flatten)]
    pub folder: Folder,
    /// Directory of the new programs, another one than that of the running ones
    #[arg(long, value_name = "DIR", required_unless_present = "rollback")]
    pub bin_dir: Option<PathBuf>,
    /// Undo an upgrade that was interrupted
    #[arg(long, conflicts_with_all = ["bin_dir", "allow_downgrade"])]
    pub rollback: bool,
    /// Accept programs of an older release
    #[arg(long)]
    pub allow_downgrade: bool,
    /// Time until a component must be healthy, such as 90s; at least 5s
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = base_duration::parse_unsigned)]
    pub timeout: Duration,
    /// Check the programs and the cluster, and print the steps; change nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// Options of `down`.
#[derive(Debug, Args)]
pub struct Down {
    #[command(flatten)]
    pub folder: Folder,
    /// Remove the data as well, so that nothing of the cluster remains
    #[arg(long)]
    pub purge: bool,
}

/// Options of `backup`.
#[derive(Debug, Args)]
pub struct Backup {
    #[command(flatten)]
    pub folder: Folder,
    /// The file to write, which must not exist. It contains the keys of the cluster and all Secrets
    /// in plain text
    pub file: PathBuf,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    #[command(flatten)]
    pub folder: Folder,
    /// Directory of the component binaries [default: that of this program]
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// The backup
    pub file: PathBuf,
}

/// Options of `status`, `doctor`, `certs list` and `token list`.
#[derive(Debug, Args)]
pub struct Status {
    #[command(flatten)]
    pub folder: Folder,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// Output formats.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Output {
    /// Human-readable
    #[default]
    Text,
    /// Machine-readable
    Json,
}

/// Commands for certificates.
#[derive(Debug, Subcommand)]
pub enum Certs {
    /// List the certificates, soonest expiration first
    List(Status),
    /// Renew leaf certificates; the components use them within about a minute, without a restart
    Renew(RenewCertificates),
}

/// Options of `certs renew`.
#[derive(Debug, Args)]
pub struct RenewCertificates {
    /// Names of the certificates as `certs list` shows them, such as scheduler or etcd/peer
    /// [default: all]
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// Renew all, which is the default. Certificates of CAs are never renewed
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    #[command(flatten)]
    pub folder: Folder,
}

/// Commands for bootstrap tokens.
#[derive(Debug, Subcommand)]
pub enum Token {
    /// Create a token and print it; a client that has it can add nodes to the cluster until it
    /// expires
    Create(CreateToken),
    /// List the tokens without their secret parts
    List(Status),
    /// Delete a token; nodes that joined with it stay
    Delete(DeleteToken),
    /// Print a random token without creating it
    Generate,
}

/// Options of `token create`.
#[derive(Debug, Args)]
pub struct CreateToken {
    #[command(flatten)]
    pub folder: Folder,
    /// Time until the token expires, such as 90m; 0 for a token that never expires. With
    /// --control-plane at most 2 hours
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = base_duration::parse_unsigned)]
    // 24 hours are the default of `kubeadm token create`, too.
    pub ttl: Duration,
    /// Text to recognize the token by
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub description: String,
    /// Let machines join the control plane with it, for 2 hours; requires `ironclad init`. Prints
    /// the certificate key, too, which is stored nowhere
    #[arg(long)]
    pub control_plane: bool,
    /// Print the command with which another machine joins, instead of the token
    #[arg(long)]
    pub print_join_command: bool,
}

/// Options of `token delete`.
#[derive(Debug, Args)]
pub struct DeleteToken {
    #[command(flatten)]
    pub folder: Folder,
    /// The part of the token before the dot. The whole token works, too, but other users see it in
    /// the list of processes
    // Checked by the command: the parser's message would repeat the value, which may be a mistyped
    // secret.
    pub id: String,
}

/// Parses the name of a file; an empty text removes what a former file set. The parser of clap
/// rejects it.
fn parse_optional_file(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

fn parse_endpoint(text: &str) -> Result<String, String> {
    match text.strip_prefix("unix://") {
        // Relative paths would depend on the directory in which the supervisor restarts the
        // kubelet.
        // Upstream's kubelet still accepts a bare path, but calls that form deprecated.
        Some(path) if path.starts_with('/') => Ok(text.to_owned()),
        _ => {
            Err("a runtime endpoint is unix:// and an absolute path, such as unix:///run/containerd/containerd.sock"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The supervisor starts commands of this program.
    #[test]
    fn planned_proxy_is_a_valid_command_with_any_verbosity() {
        use operator_cluster::{ControlPlane, Layout, Settings, make_plan};
        for verbosity in [0, 3] {
            let settings: Settings = serde_json::from_value(serde_json::json!({
                "layout": 3,
                "dataDir": "/data",
                "binDir": "/bin",
                "nodeName": "n1",
                "nodeAddress": "192.0.2.2",
                "runtime": "simulated",
                "podCidr": "10.244.0.0/16",
                "serviceCidr": "10.96.0.0/16",
                "domain": "cluster.local",
                "ports": operator_cluster::Ports::default(),
                "verbosity": verbosity,
                "controlPlane": ControlPlane::default(),
            }))
            .unwrap();
            let plan = make_plan(&settings, &Layout::for_settings(&settings));
            let mut processes = plan.processes.iter();
            let proxy = processes.find(|process| process.name == "api-proxy");
            let cli = Cli::try_parse_from(&proxy.unwrap().argv).unwrap();
            assert_eq!(cli.logs.verbosity, verbosity);
            let Command::ApiProxy(folder) = cli.command else {
                panic!("{:?}", cli.command);
            };
            assert_eq!(folder.data_dir, settings.data_dir);
        }
    }

    #[test]
    fn runtime_endpoint_is_a_unix_socket_with_an_absolute_path() {
        for (text, valid) in [
            ("unix:///run/containerd/containerd.sock", true),
            ("unix://run/containerd.sock", false),
            ("/run/containerd/containerd.sock", false),
            ("tcp://127.0.0.1:1", false),
        ] {
            assert_eq!(parse_endpoint(text).is_ok(), valid, "{text}");
        }
    }

    #[test]
    fn options_that_contradict_or_are_not_supported_are_rejected() {
        for (options, valid) in [
            (&["up"][..], true),
            (&["up", "--simulated"], true),
            (
                &["up", "--simulated", "--runtime-endpoint=unix:///x"],
                false,
            ),
            (&["up", "--nodes=2"], true),
            (&["up", "--simulated", "--nodes=32"], true),
            (&["up", "--nodes=0"], false),
            (&["up", "--pod-cidr=10.1.0.0/16,fd00::/48"], true),
            (&["up", "--pod-cidr=10.1.0.0/16,10.2.0.0/16"], false),
            (&["up", "--service-cidr=x"], false),
            (&["up", "--node-ip=192.0.2.1,fd00::1"], true),
            (&["up", "--node-ip=n1"], false),
            (&["up", "--cni=none"], true),
            (&["up", "--cni=flannel"], false),
            (&["up", "--cni=ironclad", "--cni-backend=vxlan"], true),
            (&["up", "--cni=ironclad", "--cni-backend=wireguard"], true),
            (&["up", "--cni-backend=ipsec"], false),
            (&["up", "--cni=none", "--network-policies-enforced"], true),
            (&["init", "--network-policies-enforced=false"], true),
            (&["up", "--network-policies-enforced=maybe"], false),
            (&["up", "--simulated", "--network-policies-enforced"], false),
            (&["up", "--node-local-dns"], true),
            (&["up", "--node-local-dns=169.254.1.1"], true),
            (&["up", "--node-local-dns=x"], false),
            (&["up", "--node-local-dns", "--simulated"], false),
            (&["up", "--nodes=33"], false),
            (&["status", "--output=json"], true),
            (&["status", "--output=yaml"], false),
            (&["completion"], false),
            (&["token", "create", "--ttl=90m", "--description=x"], true),
            (&["token", "create", "--ttl=0"], true),
            (&["token", "create", "--ttl=-1s"], false),
            (&["token", "create", "--ttl=day"], false),
            (&["token", "list", "-o", "json"], true),
            (&["token", "delete", "abcdef"], true),
            (&["token", "delete", "abcdef.0123456789abcdef"], true),
            (&["token", "delete"], false),
            (&["token", "create", "--print-join-command"], true),
            (&["token", "generate"], true),
            (&["token"], false),
            (&["join"], true),
            (&["join", "h:1", "--token=x"], true),
            (&["join", "h:1", "--token-file=-"], true),
            (&["join", "h:1"], false),
            (&["join", "h:1", "--token=x", "--token-file=-"], false),
            (&["join", "--discovery-file=f", "--token=x"], true),
            (&["join", "--discovery-file=f"], false),
            (&["join", "h:1", "--discovery-file=f", "--token=x"], false),
            (
                &[
                    "join",
                    "h:1",
                    "--token=x",
                    "--discovery-token-ca-cert-hash=x",
                ],
                false,
            ),
            (&["backup", "file"], true),
            (&["backup"], false),
            (&["restore", "file", "--bin-dir=x"], true),
            (&["restore"], false),
            (&["certs", "list", "-o", "json"], true),
            (&["certs", "renew"], true),
            (&["certs", "renew", "--all"], true),
            (&["certs", "renew", "scheduler", "etcd/peer"], true),
            (&["certs", "renew", "--all", "scheduler"], false),
            (&["certs"], false),
            (&["init"], true),
            (
                &["init", "--simulated", "--control-plane-endpoint=h:1"],
                true,
            ),
            (&["init", "--control-plane-endpoint=h"], false),
            (&["join", "--control-plane"], true),
            (
                &[
                    "join",
                    "h:1",
                    "--token=x",
                    "--control-plane",
                    "--certificate-key=x",
                ],
                true,
            ),
            (&["join", "h:1", "--token=x", "--certificate-key=x"], false),
            (
                &["token", "create", "--control-plane", "--print-join-command"],
                true,
            ),
            (&["reset"], true),
            (&["reset", "--purge"], false),
        ] {
            let words = ["ironclad"].iter().chain(options);
            assert_eq!(Cli::try_parse_from(words).is_ok(), valid, "{options:?}");
        }
    }
}
