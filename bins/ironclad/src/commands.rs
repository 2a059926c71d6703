//! Implementation of the commands: converts arguments to library calls, and results to text.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use base_cli::CancellationToken;
use clap::CommandFactory;
use operator_cluster::{Layout, Report};

use crate::args::{Cli, Command, Down, Output, Status, Up};

/// Executes the command.
pub async fn run_command(cli: Cli, shutdown: CancellationToken) -> anyhow::Result<()> {
    match cli.command {
        Command::Supervise(folder) => {
            Ok(operator_cluster::run_supervisor(&folder.data_dir, shutdown).await?)
        }
        Command::Completion { shell } => {
            clap_complete::generate(
                shell,
                &mut Cli::command(),
                "ironclad",
                &mut std::io::stdout(),
            );
            Ok(())
        }
        Command::Man { folder } => write_manual(&folder),
        Command::Up(options) => run_until_interrupted(run_up(*options), shutdown).await,
        Command::Down(options) => run_until_interrupted(run_down(options), shutdown).await,
        Command::Status(options) => run_until_interrupted(run_status(options), shutdown).await,
    }
}

async fn run_until_interrupted(
    work: impl Future<Output = anyhow::Result<()>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    tokio::select! {
        done = work => done,
        () = shutdown.cancelled() => bail!("interrupted; run the same command again to go on"),
    }
}

/// Prints progress to standard error, so that the final output can be piped.
fn print_progress(text: &str) {
    let _ = writeln!(std::io::stderr(), "ironclad: {text}");
}

async fn run_up(options: Up) -> anyhow::Result<()> {
    let wanted = operator_cluster::UpOptions {
        data_dir: options.folder.data_dir,
        bin_dir: options.bin_dir,
        runtime_endpoint: options.runtime_endpoint,
        simulated: options.simulated,
        node_name: options.node_name,
        node_address: options.node_ip,
        pod_cidr: options.pod_cidr,
        service_cidr: options.service_cidr,
        pick_ports: options.pick_ports,
        api_port: options.api_port,
        store_port: options.store_port,
        store_peer_port: options.store_peer_port,
        kubelet_port: options.kubelet_port,
        dns_port: options.dns_port,
        verbosity: options.component_verbosity,
    };
    let settings = operator_cluster::start_cluster(&wanted, &print_progress).await?;
    let kubeconfig = Layout::for_settings(&settings).admin_kubeconfig();
    writeln!(
        std::io::stdout(),
        "\nThe cluster runs. Next:\n\n  export KUBECONFIG={}\n  kubectl get nodes -o wide\n  kubectl apply -f deploy/examples/hello.yaml",
        kubeconfig.display()
    )?;
    Ok(())
}

async fn run_down(options: Down) -> anyhow::Result<()> {
    let wanted = operator_cluster::DownOptions {
        data_dir: std::path::absolute(options.folder.data_dir)?,
        purge: options.purge,
    };
    if !operator_cluster::stop_cluster(&wanted, &print_progress).await? {
        return Ok(());
    }
    print_progress(if options.purge {
        "removed"
    } else {
        "stopped; `ironclad up` starts it again"
    });
    Ok(())
}

async fn run_status(options: Status) -> anyhow::Result<()> {
    let report =
        operator_cluster::cluster_status(&std::path::absolute(options.folder.data_dir)?).await?;
    let text = match options.output {
        Output::Json => serde_json::to_string_pretty(&report)?,
        Output::Text => format_table(&report),
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    if !report.is_healthy() {
        bail!(
            "not everything runs; `ironclad up --data-dir={}` repairs it",
            report.data_dir
        );
    }
    Ok(())
}

fn format_table(report: &Report) -> String {
    let mut text = format!(
        "{:<26}{:<10}{:<9}{:<10}LOG\n",
        "COMPONENT", "STATE", "PID", "RESTARTS"
    );
    for component in &report.components {
        let state = match (component.running, component.ready) {
            (true, true) => "ready",
            (true, false) => "starting",
            _ => "down",
        };
        let pid = component.pid.map_or("-".to_owned(), |pid| pid.to_string());
        text += &format!(
            "{:<26}{state:<10}{pid:<9}{:<10}{}\n",
            component.name, component.restarts, component.log
        );
    }
    let keeper = if report.supervised {
        "running"
    } else {
        "not running"
    };
    text + &format!(
        "\nserver {}, supervisor {keeper}, kubeconfig {}\n",
        report.server, report.kubeconfig
    )
}

fn write_manual(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("can't write to {}", folder.display()))
}
