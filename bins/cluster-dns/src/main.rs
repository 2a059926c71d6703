//! cluster-dns: the cluster's DNS server.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use base_cli::CancellationToken;
use base_task::Tasks;
use base_telemetry::LogOptions;
use clap::Parser;
use client::{Client, Config};
use ipnet::IpNet;
use net_dns::{SearchPaths, Settings, StubDomain};

/// Serves DNS for Services and pods, and forwards other names to upstream resolvers
#[derive(Debug, Parser)]
#[command(name = "cluster-dns", version, about)]
struct Cli {
    #[command(flatten)]
    logs: LogOptions,
    /// Kubeconfig of the API server [default: the pod's service account]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address and port to serve on, UDP and TCP
    #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:53")]
    listen: SocketAddr,
    /// The cluster's domain
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    domain: String,
    /// Upstream resolver; may be repeated [default: those of --resolv-conf]
    #[arg(long, value_name = "IP:PORT")]
    upstream: Vec<SocketAddr>,
    /// Domain with resolvers of its own; may be repeated, the longest domain applies
    #[arg(long, value_name = "DOMAIN=IP[:PORT],...")]
    stub_domain: Vec<StubDomain>,
    /// File with the node's resolvers
    #[arg(long, value_name = "FILE", default_value = "/etc/resolv.conf")]
    resolv_conf: PathBuf,
    /// Answer the first name of a pod's search path for the whole path. Needs the right to list and
    /// watch pods
    #[arg(long)]
    autopath: bool,
    /// Maximum seconds for which answers of resolvers are cached; 0 disables the cache
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    cache_ttl: u32,
    /// Range of clients to serve; may be repeated [default: private and loopback addresses]
    #[arg(long, value_name = "CIDR")]
    allow: Vec<IpNet>,
    /// Serve the addresses of the cluster's nodes, too: requests of pods come from them if the pod
    /// network masquerades. Needs the right to list and watch nodes
    #[arg(long)]
    allow_nodes: bool,
    /// Address of health checks and metrics
    #[arg(long, value_name = "IP:PORT")]
    health_address: Option<SocketAddr>,
    /// User and group ID to switch to after the ports are bound, if started as root. This user must
    /// be able to read the kubeconfig and the files named there: they are read again after a
    /// renewal
    #[arg(long, value_name = "UID")]
    user: Option<u32>,
}

fn main() -> ExitCode {
    base_cli::run_component("cluster-dns", &[], |cli: &Cli| cli.logs.clone(), run)
}

async fn run(cli: Cli, shutdown: CancellationToken) -> anyhow::Result<()> {
    let path = cli.resolv_conf.display();
    let read = || base_task::blocking(|| std::fs::read_to_string(&cli.resolv_conf));
    let read = || read().with_context(|| format!("can't read {path}"));
    let mut upstreams = cli.upstream;
    // The pod's own resolv.conf is the node's with dnsPolicy Default, which DNS pods use. Any other
    // would forward to this server itself.
    if upstreams.is_empty() {
        upstreams = net_dns::parse_name_servers(&read()?);
    }
    let search_paths = if cli.autopath {
        // Pods have the search domains of the node behind those of the cluster.
        let has_node_domains = net_dns::has_search_domains(&read()?);
        Some(SearchPaths { has_node_domains })
    } else {
        None
    };
    let config =
        load_config(cli.kubeconfig.as_deref(), cli.user.is_some())?.user_agent("cluster-dns");
    let settings = Settings {
        listen: cli.listen,
        domain: cli.domain,
        upstreams,
        stub_domains: cli.stub_domain,
        cache_ttl: (cli.cache_ttl > 0).then(|| Duration::from_secs(cli.cache_ttl.into())),
        allow: cli.allow,
        allow_nodes: cli.allow_nodes,
        health: cli.health_address,
        search_paths,
        user: cli.user,
    };
    let tasks = Tasks::new(shutdown);
    let ran = net_dns::run(&Client::new(config), settings, tasks.clone()).await;
    // The tasks are awaited even if the server failed, and the server's error is reported first.
    let finished = tasks.finish(Duration::from_secs(5)).await;
    ran?;
    Ok(finished?)
}

/// Loads the kubeconfig or the pod's service account.
///
/// A process that drops root reads a renewed kubeconfig again as another user, to whom the
/// directories above may be closed. So it enters the directory of the kubeconfig, and opens the
/// file, and those that the file names, by relative paths.
fn load_config(kubeconfig: Option<&Path>, drops_root: bool) -> anyhow::Result<Config> {
    if let Some(path) = kubeconfig.filter(|_| drops_root)
        && let (Some(directory), Some(name)) = (path.parent(), path.file_name())
        && !directory.as_os_str().is_empty()
    {
        std::env::set_current_dir(directory)
            .with_context(|| format!("can't enter {}", directory.display()))?;
        let config = Config::from_kubeconfig(name);
        return config.with_context(|| format!("can't load {}", path.display()));
    }
    Ok(Config::from_kubeconfig_or_in_cluster(kubeconfig)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_relative_kubeconfig_are_found_in_its_directory() -> anyhow::Result<()> {
        let root = tempfile::tempdir()?;
        let folder = root.path().join("conf");
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("ca.crt"), "")?;
        let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\n\
                    clusters: [{name: k, cluster: {server: 'https://h', certificate-authority: ca.crt}}]\n";
        std::fs::write(folder.join("k"), text)?;
        std::env::set_current_dir(&root)?;
        load_config(Some(Path::new("conf/k")), true)?.check_files()?;
        Ok(std::env::set_current_dir("/")?)
    }

    #[test]
    fn defaults_are_those_of_a_pod_and_lists_may_be_repeated() {
        let parse = |options: &[&str]| Cli::try_parse_from([&["x"], options].concat());
        let defaults = parse(&[]).map(|cli| (cli.listen.port(), cli.domain, cli.upstream.len()));
        assert_eq!(defaults.ok(), Some((53, "cluster.local".to_owned(), 0)));
        let repeated = parse(&[
            "--upstream=1.1.1.1:53",
            "--upstream=8.8.8.8:53",
            "--allow=10.0.0.0/8",
        ]);
        let counts = repeated.map(|cli| (cli.upstream.len(), cli.allow.len()));
        assert_eq!(counts.ok(), Some((2, 1)));
        let stubs = [
            "--stub-domain=a.corp=10.0.0.53,10.0.0.54:5353",
            "--stub-domain=b=fd00::1",
        ];
        assert_eq!(parse(&stubs).map(|cli| cli.stub_domain.len()).ok(), Some(2));
        assert!(parse(&["--allow=10.0.0.0/33"]).is_err());
        assert!(parse(&["--stub-domain=a.corp"]).is_err());
    }
}
