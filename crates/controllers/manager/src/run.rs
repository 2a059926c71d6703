//! Starts the controllers from flags.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use base_task::{CancellationToken, TaskFailed, Tasks};
use base_telemetry::Metrics;
use client::election::{self, LeaderConfig};
use client::{Client, Config};
use component::{Endpoints, HttpVersions};
use controllers_runtime::{Deletions, ReconcileMetrics, Setup};

use crate::options::Options;
use crate::table::{self, Files, Inputs, Row};

/// Maximum time for controllers to stop.
const DRAIN: Duration = Duration::from_secs(5);
const USER_AGENT: &str = concat!("kube-controller-manager/", env!("CARGO_PKG_VERSION"));

/// Runs the controllers until `shutdown`.
///
/// # Errors
/// A flag, file or port can't be used.
pub async fn run(options: Options, shutdown: CancellationToken) -> anyhow::Result<()> {
    // Checked before the election: a wrong flag must end the process at once and not when it
    // becomes the leader.
    options.node_ranges()?;
    options.check_load_balancer_pool()?;
    let gates = options.gates()?;
    let is_enabled = |gate: &str| gates.is_enabled(gate);
    let rows = Arc::new(table::select_controllers(&options.controllers, is_enabled)?);
    for gate in gates.without_switch {
        tracing::warn!(
            gate,
            "--feature-gates has no effect: this feature has no switch"
        );
    }
    let lease = options.election.leader_config()?;
    // Key files are read before the election as well: a file that can't be read must not be found
    // only at a failover.
    let files = Arc::new(Files::read_files(&options)?);
    let client = connect_client(options.kubeconfig.as_deref())?;
    let tasks = Tasks::new(shutdown.clone());
    let metrics = Metrics::new();
    let passes = ReconcileMetrics::new(&metrics);
    let access = options.access.build_access(&client, USER_AGENT)?;
    let open = options.access.authorization_always_allow_paths.clone();
    let endpoints = Endpoints::new()
        .with_health(Vec::new())
        .with_certificate_metrics(&client, options.list_certificate_files(), move || {
            metrics.encode()
        })
        .with_zpages("kube-controller-manager", component::flag_values())
        .with_protection(access, open);
    // The server starts before the election: a replica without the lease must pass its probes, too,
    // or its kubelet restarts it.
    let serving = &options.serving;
    serving
        .start_server(endpoints, HttpVersions::All, &tasks)
        .await?;
    let inputs = TermInputs {
        options: Arc::new(options),
        files,
        rows,
        client,
        passes,
    };
    let failure = match lease {
        Some(lease) => run_elected_terms(lease, inputs, shutdown).await,
        None => {
            run_term(inputs, shutdown.clone()).await?;
            None
        }
    };
    tasks.finish(DRAIN).await?;
    failure.map_or(Ok(()), |error| Err(error.into()))
}

/// Inputs of every term of leadership.
#[derive(Clone)]
struct TermInputs {
    options: Arc<Options>,
    files: Arc<Files>,
    rows: Arc<Vec<&'static Row>>,
    client: Client,
    passes: ReconcileMetrics,
}

/// Runs a term whenever this process holds the lease; returns the failure of a term.
async fn run_elected_terms(
    lease: LeaderConfig,
    inputs: TermInputs,
    shutdown: CancellationToken,
) -> Option<TermFailed> {
    // The election returns no result of a term, so a failed term leaves its error here and stops
    // the process through `shutdown`.
    let failure = Arc::new(OnceLock::new());
    let client = inputs.client.clone();
    let (stop, failed) = (shutdown.clone(), failure.clone());
    let lead = move |term: CancellationToken| {
        let term = run_term(inputs.clone(), term);
        let (stop, failed) = (stop.clone(), failed.clone());
        async move {
            if let Err(error) = term.await {
                let _ = failed.set(error);
                stop.cancel();
            }
        }
    };
    election::run_leader_election(&client, lease, shutdown, lead).await;
    failure.get().copied()
}

fn connect_client(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let config = Config::from_kubeconfig_or_in_cluster(kubeconfig)
        .context("no API server to talk to: name one with --kubeconfig")?;
    Ok(Client::new(config.user_agent(USER_AGENT)))
}

/// Reasons why a term of leadership ends the process; its supervisor then starts a new one.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum TermFailed {
    /// A task of the controllers failed.
    #[error(transparent)]
    Task(#[from] TaskFailed),
    /// A write may still be running although another process leads.
    #[error("controllers did not end within {DRAIN:?} after the term")]
    Overdue,
}

/// Runs one term: everything is set up again, so that no state of an earlier term is trusted.
///
/// # Errors
/// A task failed, or outlived the term.
async fn run_term(inputs: TermInputs, term: CancellationToken) -> Result<(), TermFailed> {
    let TermInputs {
        options,
        files,
        rows,
        client,
        passes,
    } = inputs;
    let tasks = Tasks::new(term.clone());
    let mut setup = Setup::new(
        client,
        tasks.clone(),
        options.use_service_account_credentials,
        passes,
    );
    // Listeners belong to the term: those of an earlier term would fill queues that are closed.
    let deletions = Deletions::default();
    let inputs = Inputs {
        options: &options,
        files: &files,
        stop: &term,
        deletions: &deletions,
    };
    // Every controller adds its handlers before `Setup::run` starts the informers, so none misses
    // an object of the first list.
    for row in rows.iter() {
        row.start_controller(&mut setup, &inputs);
    }
    setup.run(term.clone()).await;
    // A controller that ended by itself must take the others of this term with it.
    term.cancel();
    // A write that is still running when the lease expires could race with those of the next
    // leader.
    let ended = tasks.wait(DRAIN).await;
    tasks.failure().map_or(Ok(()), Err)?;
    if ended {
        Ok(())
    } else {
        // Only the end of the process stops such a task for certain, so there is no further
        // campaign.
        Err(TermFailed::Overdue)
    }
}
