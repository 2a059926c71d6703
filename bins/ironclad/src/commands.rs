//! Implementation of the commands: converts arguments to library calls, and results to text.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use base_cli::{CancellationToken, escape_json_controls};
use clap::CommandFactory;
use operator_cluster::{Layout, Report, SharedOptions};

use crate::args::{Backup, Cli, Command, Down, Init, Output, Restore, Status, Up};
use crate::progress::print_progress;
use crate::{certs, doctor, join, token, upgrade};

/// Executes the command.
pub async fn run_command(cli: Cli, shutdown: CancellationToken) -> anyhow::Result<()> {
    match cli.command {
        // Not through `run_until_interrupted`: the supervisor handles the token itself, because it
        // must stop its components before it ends.
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
        // Like the supervisor, it handles the token itself: its end by a signal is no error.
        Command::ApiProxy(folder) => {
            Ok(operator_cluster::run_api_proxy(&folder.data_dir, shutdown).await?)
        }
        Command::Up(options) => run_until_interrupted(run_up(*options, None), shutdown).await,
        Command::Init(options) => run_until_interrupted(run_init(*options), shutdown).await,
        Command::Join(options) => run_until_interrupted(join::run_join(*options), shutdown).await,
        Command::Reset(folder) => run_until_interrupted(join::run_reset(folder), shutdown).await,
        Command::Upgrade(options) => {
            run_until_interrupted(upgrade::run_upgrade(options), shutdown).await
        }
        Command::Down(options) => run_until_interrupted(run_down(options), shutdown).await,
        Command::Backup(options) => run_until_interrupted(run_backup(options), shutdown).await,
        Command::Restore(options) => run_until_interrupted(run_restore(options), shutdown).await,
        Command::Status(options) => run_until_interrupted(run_status(options), shutdown).await,
        Command::Doctor(options) => {
            run_until_interrupted(doctor::run_doctor(options), shutdown).await
        }
        Command::Certs(command) => {
            run_until_interrupted(certs::run_certs_command(command), shutdown).await
        }
        Command::Token(command) => {
            run_until_interrupted(token::run_token_command(command), shutdown).await
        }
    }
}

async fn run_until_interrupted(
    work: impl Future<Output = anyhow::Result<()>>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    tokio::select! {
        done = work => done,
        // Every command can be repeated, so an interruption needs no cleaning up.
        () = shutdown.cancelled() => bail!("interrupted; run the same command again to go on"),
    }
}

async fn run_init(options: Init) -> anyhow::Result<()> {
    let shared = SharedOptions {
        endpoint: options
            .control_plane_endpoint
            .map(|endpoint| endpoint.to_string()),
        extra_sans: options.apiserver_cert_extra_sans,
    };
    run_up(options.up, Some(shared)).await
}

async fn run_up(options: Up, shared: Option<SharedOptions>) -> anyhow::Result<()> {
    let is_shared = shared.is_some();
    let library_options = operator_cluster::UpOptions {
        data_dir: options.folder.data_dir,
        bin_dir: options.bin_dir,
        runtime_endpoint: options.runtime_endpoint,
        simulated: options.simulated,
        cni: options.cni,
        cni_backend: options.cni_backend,
        network_policies_enforced: options.network_policies_enforced,
        node_dns: options.node_local_dns,
        nodes: options.nodes,
        node_name: options.node_name,
        node_addresses: options.node_ip,
        pod_cidr: options.pod_cidr,
        service_cidr: options.service_cidr,
        load_balancer_pool: options.load_balancer_pool,
        authentication_config: options.authentication_config,
        pick_ports: options.pick_ports,
        api_port: options.api_port,
        store_port: options.store_port,
        store_peer_port: options.store_peer_port,
        kubelet_port: options.kubelet_port,
        dns_port: options.dns_port,
        shared,
        verbosity: options.component_verbosity,
    };
    let settings = operator_cluster::start_cluster(&library_options, &print_progress).await?;
    // CAs are not renewed, so the commands that are run often warn before one expires.
    certs::print_warnings(&settings.data_dir);
    let kubeconfig = Layout::for_settings(&settings).admin_kubeconfig();
    writeln!(
        std::io::stdout(),
        "\nThe cluster runs. Next:\n\n  export KUBECONFIG={}\n  kubectl get nodes -o wide\n  kubectl apply -f {}",
        kubeconfig.display(),
        choose_example(&settings.bin_dir)
    )?;
    if is_shared {
        writeln!(
            std::io::stdout(),
            "\nOther machines join its control plane with the command that this one prints:\n\n  ironclad token create --control-plane --print-join-command"
        )?;
    }
    Ok(())
}

async fn run_down(options: Down) -> anyhow::Result<()> {
    let library_options = operator_cluster::DownOptions {
        // The supervisor may have been started from another directory.
        data_dir: std::path::absolute(options.folder.data_dir)?,
        purge: options.purge,
    };
    if !operator_cluster::stop_cluster(&library_options, &print_progress).await? {
        // The library has reported already that there is nothing to stop.
        return Ok(());
    }
    print_progress(if options.purge {
        "removed"
    } else {
        "stopped; `ironclad up`, or `ironclad join` on a machine that joined a cluster, starts it again"
    });
    Ok(())
}

async fn run_backup(options: Backup) -> anyhow::Result<()> {
    let library_options = operator_cluster::BackupOptions {
        data_dir: options.folder.data_dir,
        file: options.file,
    };
    let size = operator_cluster::save_backup(&library_options, &print_progress).await?;
    print_progress(&format!(
        "saved {} ({size} bytes), with the keys of the cluster and all Secrets in plain text: keep it as safe as they are",
        library_options.file.display()
    ));
    Ok(())
}

async fn run_restore(options: Restore) -> anyhow::Result<()> {
    let library_options = operator_cluster::RestoreOptions {
        data_dir: options.folder.data_dir,
        file: options.file,
        bin_dir: options.bin_dir,
    };
    let kept = operator_cluster::restore_cluster(&library_options, &print_progress).await?;
    if let Some(kept) = kept {
        print_progress(&format!(
            "what was here before is in {}; remove it when everything is right",
            kept.display()
        ));
    }
    print_progress(
        // After `ironclad init` the name is fixed: the store knows its member by it.
        "restored; `ironclad up` starts the cluster, on another machine with --node-ip if its address differs, and with \
         --node-name if its name does and the cluster was not made by `ironclad init`",
    );
    Ok(())
}

async fn run_status(options: Status) -> anyhow::Result<()> {
    let report =
        operator_cluster::cluster_status(&std::path::absolute(options.folder.data_dir)?).await?;
    let text = match options.output {
        Output::Json => escape_json_controls(&serde_json::to_string_pretty(&report)?),
        Output::Text => format_table(&report),
    };
    writeln!(std::io::stdout(), "{}", text.trim_end())?;
    certs::print_warnings(Path::new(&report.data_dir));
    for warning in &report.warnings {
        print_progress(&format!("warning: {warning}"));
    }
    // The report is printed in any case; the exit code lets scripts wait for a healthy cluster.
    if !report.is_healthy() {
        // `up` rejects a machine that joined the cluster of another one.
        let command = if report.is_joined { "join" } else { "up" };
        bail!(
            "not everything runs; `ironclad {command} --data-dir={}` repairs it",
            report.data_dir
        );
    }
    Ok(())
}

fn format_table(report: &Report) -> String {
    let mut text = format!(
        "{:<26}{:<16}{:<10}{:<9}{:<10}LOG\n",
        "COMPONENT", "NODE", "STATE", "PID", "RESTARTS"
    );
    for component in &report.components {
        let state = match (component.running, component.ready) {
            (true, true) => "ready",
            (true, false) => "starting",
            _ => "down",
        };
        let pid = component.pid.map_or("-".to_owned(), |pid| pid.to_string());
        text += &format!(
            "{:<26}{:<16}{state:<10}{pid:<9}{:<10}{}\n",
            component.name, component.node, component.restarts, component.log
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

/// Returns the path of the example: the file of the Debian package, or that of the repository.
fn choose_example(bin_dir: &Path) -> &'static str {
    match bin_dir == Path::new("/usr/lib/ironclad") {
        true => "/usr/share/doc/ironclad/hello.yaml",
        false => "deploy/examples/hello.yaml",
    }
}

fn write_manual(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("can't make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command(), folder)
        .with_context(|| format!("can't write to {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator_cluster::Component;

    #[test]
    fn example_of_the_package_is_named_for_its_programs() {
        let package = include_str!("../../../deploy/package");
        for (bin_dir, example) in [
            ("/usr/lib/ironclad", "/usr/share/doc/ironclad/hello.yaml"),
            ("/src/target/release", "deploy/examples/hello.yaml"),
        ] {
            assert_eq!(choose_example(Path::new(bin_dir)), example);
        }
        assert!(package.contains("library=$root/usr/lib/ironclad\n"));
        assert!(package.contains("hello.yaml"), "{package}");
    }

    #[test]
    fn status_table_has_a_row_for_each_component_and_its_state() {
        let component = |name: &str, running, ready, pid| Component {
            name: name.to_owned(),
            node: "n1".to_owned(),
            running,
            ready,
            pid,
            restarts: 2,
            log: format!("/l/{name}.log"),
        };
        let report = Report {
            data_dir: "/d".to_owned(),
            run_dir: "/r".to_owned(),
            server: "https://h:6443".to_owned(),
            kubeconfig: "/d/k".to_owned(),
            is_joined: false,
            supervised: false,
            supervisor: None,
            components: vec![
                component("kubelet", true, true, Some(7)),
                component("kube-proxy", true, false, Some(8)),
                component("kvstore", false, false, None),
            ],
            warnings: Vec::new(),
        };
        let table = format_table(&report);
        let rows: Vec<Vec<&str>> = table
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            rows[1],
            ["kubelet", "n1", "ready", "7", "2", "/l/kubelet.log"]
        );
        assert_eq!(rows[2][2..4], ["starting", "8"]);
        assert_eq!(rows[3][2..4], ["down", "-"]);
        assert!(table.contains("supervisor not running"), "{table}");
    }
}
