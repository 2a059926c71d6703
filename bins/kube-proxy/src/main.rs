//! kube-proxy: implements Services in the kernel with nftables or iptables.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use base_cli::CancellationToken;
use base_task::Tasks;
use client::{Client, Config};
use net_proxy::{Args, UPSTREAM_FLAGS};

fn main() -> ExitCode {
    base_cli::run_component(
        "kube-proxy",
        UPSTREAM_FLAGS,
        |args: &Args| args.logs.clone(),
        run,
    )
}

async fn run(args: Args, shutdown: CancellationToken) -> anyhow::Result<()> {
    if args.cleanup {
        return net_proxy::remove_rules()
            .await
            .context("rules can't be removed");
    }
    let (init_only, master) = (args.init_only, args.master.clone());
    let (kubeconfig, settings) = args.settings()?;
    if init_only {
        // The settings of connection tracking need a writable /proc/sys. The process that runs
        // afterwards with CAP_NET_ADMIN alone finds them as they should be.
        net_proxy::apply_conntrack_settings(&settings).await?;
        let checked = net_proxy::check_programs(&settings.mode).await;
        return checked.map(drop).context("rules can't be installed");
    }
    net_proxy::apply_oom_score(settings.oom_score_adj);
    let mut config =
        Config::from_kubeconfig_or_in_cluster(kubeconfig.as_deref())?.user_agent("kube-proxy");
    // `--master` wins over the kubeconfig, as in upstream; an empty value counts as absent.
    config.server = master
        .filter(|url| !url.is_empty())
        .unwrap_or(config.server);
    let tasks = Tasks::new(shutdown);
    let ran = net_proxy::run(Client::new(config), settings, tasks.clone()).await;
    let finished = tasks.finish(Duration::from_secs(5)).await;
    ran?;
    Ok(finished?)
}
