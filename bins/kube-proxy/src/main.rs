//! kube-proxy: Services in the kernel, by nftables.

mod args;

use std::process::ExitCode;

use anyhow::Context;
use args::Cli;
use base_cli::CancellationToken;
use base_task::Tasks;
use client::{Client, Config};

/// Upstream's flags for other modes and platforms.
const IGNORED: [&str; 28] = [
    "bind-address-hard-fail",
    "config-sync-period",
    "conntrack-max-per-core",
    "conntrack-min",
    "conntrack-tcp-be-liberal",
    "conntrack-tcp-timeout-close-wait",
    "conntrack-tcp-timeout-established",
    "conntrack-udp-timeout",
    "conntrack-udp-timeout-stream",
    "bind-address",
    "detect-local-mode",
    "feature-gates",
    "init-only",
    "iptables-localhost-nodeports",
    "iptables-masquerade-bit",
    "iptables-min-sync-period",
    "iptables-sync-period",
    "ipvs-exclude-cidrs",
    "ipvs-min-sync-period",
    "ipvs-scheduler",
    "ipvs-strict-arp",
    "ipvs-sync-period",
    "kube-api-burst",
    "kube-api-content-type",
    "kube-api-qps",
    "oom-score-adj",
    "pod-interface-name-prefix",
    "profiling",
];

fn main() -> ExitCode {
    base_cli::run("kube-proxy", &IGNORED, |cli: &Cli| cli.logs.clone(), run)
}

async fn run(cli: Cli, shutdown: CancellationToken) -> anyhow::Result<()> {
    if cli.cleanup {
        return net_proxy::cleanup().await.context("rules can't be removed");
    }
    let (kubeconfig, settings) = cli.settings()?;
    let config = Config::from_kubeconfig_or_in_cluster(kubeconfig.as_deref())?.user_agent("kube-proxy");
    let tasks = Tasks::new(shutdown);
    net_proxy::run(Client::new(config), settings, tasks.clone()).await?;
    tasks.wait(std::time::Duration::from_secs(5)).await;
    Ok(())
}
