//! Starts and stops the scheduler.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use base_duration::parse_unsigned;
use base_task::{CancellationToken, Tasks};
use client::election::{self, LeaderConfig};
use client::events::Recorder;
use client::{Client, Config};
use component::{Check, DelegatedAccess, Endpoints, HttpVersions};
use scheduler_framework::Cluster;

use crate::cluster::ClusterView;
use crate::config::Configuration;
use crate::flags::Flags;
use crate::handlers::{self, Watched};
use crate::metrics::SchedulerMetrics;
use crate::nominated::Nominator;
use crate::outcome::OutcomeWriter;
use crate::profiles::{DEFAULT_NAME, build_profiles};
use crate::queue::{Queue, QueueDelays, QueuePlugins};
use crate::scheduler::{Profiles, Scheduler};

const DRAIN: Duration = Duration::from_secs(5);

const NAME: &str = "kube-scheduler";

fn connect_client(kubeconfig: Option<&Path>) -> client::Result<Client> {
    let config = Config::from_kubeconfig_or_in_cluster(kubeconfig)?;
    Ok(Client::new(config.user_agent(NAME)))
}

/// Returns the leader election: of flags that the command line sets, else of the file, else of the
/// flags' defaults; None without leader election.
fn merge_election_settings(
    flags: &Flags,
    config: &Configuration,
) -> anyhow::Result<Option<LeaderConfig>> {
    let mut merged = flags.election.values.clone();
    let is_explicit = |name| flags.election.is_explicit(name);
    let file = &config.leader_election;
    for (given, name, duration) in [
        (
            &file.lease_duration,
            "leader_elect_lease_duration",
            &mut merged.leader_elect_lease_duration,
        ),
        (
            &file.renew_deadline,
            "leader_elect_renew_deadline",
            &mut merged.leader_elect_renew_deadline,
        ),
        (
            &file.retry_period,
            "leader_elect_retry_period",
            &mut merged.leader_elect_retry_period,
        ),
    ] {
        if let Some(text) = given {
            // Parsed in any case: a flag must not hide a mistake in the file.
            let parsed = parse_unsigned(text)?;
            if !is_explicit(name) {
                *duration = parsed;
            }
        }
    }
    for (given, name, value) in [
        (
            &file.resource_namespace,
            "leader_elect_resource_namespace",
            &mut merged.leader_elect_resource_namespace,
        ),
        (
            &file.resource_name,
            "leader_elect_resource_name",
            &mut merged.leader_elect_resource_name,
        ),
    ] {
        if let Some(text) = given
            && !is_explicit(name)
        {
            value.clone_from(text);
        }
    }
    if let Some(elects) = file.leader_elect
        && !is_explicit("leader_elect")
    {
        merged.leader_elect = elects;
    }
    Ok(merged.leader_config()?)
}

fn build_scheduler(
    config: &Configuration,
    delays: QueueDelays,
    client: &Client,
    view: &Arc<ClusterView>,
    tasks: &Tasks,
) -> anyhow::Result<Arc<Scheduler>> {
    let cluster: Arc<dyn Cluster> = view.clone() as Arc<dyn Cluster>;
    let made = Arc::new(Profiles(build_profiles(config, client, &cluster)?));
    let name = made
        .0
        .first()
        .map_or(DEFAULT_NAME, |profile| &profile.name)
        .to_owned();
    let events = Recorder::new(client.clone(), name.clone(), "");
    Ok(Arc::new(Scheduler {
        cache: Default::default(),
        queue: Queue::new(made.clone() as Arc<dyn QueuePlugins>, delays),
        nominations: Nominator::default(),
        profiles: made,
        waiting: view.waiting_pods(),
        writer: OutcomeWriter {
            client: client.clone(),
            events,
            name,
        },
        metrics: SchedulerMetrics::new(),
        tasks: tasks.clone(),
    }))
}

/// Runs the scheduler until `shutdown`.
///
/// The future is boxed, so that its code is compiled here and not once more in the program.
pub fn run(
    flags: Flags,
    shutdown: CancellationToken,
) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> {
    Box::pin(run_scheduler(flags, shutdown))
}

async fn run_scheduler(flags: Flags, shutdown: CancellationToken) -> anyhow::Result<()> {
    let config = flags
        .config
        .as_deref()
        .map(Configuration::load)
        .transpose()?
        .unwrap_or_default();
    let lease = merge_election_settings(&flags, &config)?;
    let kubeconfig = config
        .client_connection
        .kubeconfig
        .as_ref()
        .or(flags.kubeconfig.as_ref());
    let client = connect_client(kubeconfig.map(PathBuf::as_path))?;
    let access = flags.access.build_access(&client, NAME)?;
    let view = Arc::new(ClusterView::default());
    let tasks = Tasks::new(shutdown.clone());
    let delays = config.queue_delays(flags.pod_max_in_unschedulable_pods_duration);
    let scheduler = build_scheduler(&config, delays, &client, &view, &tasks)?;
    let woken = scheduler.clone();
    // After the scheduler is built: the handlers of these informers use its queue.
    view.start_informers(&client, &tasks, move |event| woken.queue.move_pods(event));
    // Informers run without leadership, too, so that a standby takes over with warm caches.
    let watched = Arc::new(handlers::start_informers(&scheduler, &client, &tasks));
    let open = flags.access.authorization_always_allow_paths.clone();
    let endpoints = build_endpoints(&client, &scheduler, &watched, access, open);
    // Served before leadership: probes must reach a standby as well.
    let versions = match flags.disable_http2_serving {
        true => HttpVersions::OnlyHttp1,
        false => HttpVersions::All,
    };
    flags
        .serving
        .start_server(endpoints, versions, &tasks)
        .await?;
    schedule_while_leading(&client, lease, &scheduler, &watched, &shutdown).await;
    // Ends the loop that waits for a pod; the bindings that already run get the drain time.
    scheduler.queue.close();
    Ok(tasks.finish(DRAIN).await?)
}

fn build_endpoints(
    client: &Client,
    scheduler: &Arc<Scheduler>,
    watched: &Arc<Watched>,
    access: DelegatedAccess,
    open: Vec<String>,
) -> Endpoints {
    let (scheduler, watched) = (scheduler.clone(), watched.clone());
    let synced = Check::new(
        "informer-sync",
        "not all informers have synced",
        move || watched.has_synced(),
    );
    Endpoints::new()
        .with_health(vec![synced])
        .with_client_metrics(client, move || {
            scheduler.metrics.encode(scheduler.queue.count_pending())
        })
        .with_zpages("kube-scheduler", component::flag_values())
        .with_protection(access, open)
}

/// Schedules while leading, or always without leader election.
async fn schedule_while_leading(
    client: &Client,
    lease: Option<LeaderConfig>,
    scheduler: &Arc<Scheduler>,
    watched: &Arc<Watched>,
    shutdown: &CancellationToken,
) {
    let term = |token: CancellationToken| {
        let (scheduler, watched) = (scheduler.clone(), watched.clone());
        async move {
            tokio::select! {
                () = token.cancelled() => return,
                // Scheduling on a part of the pods would overcommit nodes.
                () = watched.wait_until_synced() => {}
            }
            tracing::info!("scheduling");
            scheduler.run(token).await;
        }
    };
    match lease {
        Some(lease) => election::run_leader_election(client, lease, shutdown.clone(), term).await,
        None => term(shutdown.clone()).await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::config::LeaderElection;
    use std::ffi::OsString;

    fn merge(flags: &[&str], file: LeaderElection) -> anyhow::Result<Option<LeaderConfig>> {
        let words = ["kube-scheduler"].iter().chain(flags);
        let arguments: Vec<OsString> = words.map(OsString::from).collect();
        let mut config = Configuration::default();
        config.leader_election = file;
        merge_election_settings(&base_cli::parse_arguments(&arguments).unwrap(), &config)
    }

    fn file() -> LeaderElection {
        LeaderElection {
            leader_elect: Some(true),
            lease_duration: Some("60s".into()),
            renew_deadline: Some("40s".into()),
            retry_period: Some("5s".into()),
            resource_name: Some("of-file".into()),
            resource_namespace: Some("file".into()),
        }
    }

    fn summary(config: &LeaderConfig) -> (String, [u64; 3]) {
        let durations = [
            config.lease_duration,
            config.renew_deadline,
            config.retry_period,
        ];
        let name = format!("{}/{}", config.namespace, config.name);
        (name, durations.map(|duration| duration.as_secs()))
    }

    #[test]
    fn leader_election_of_the_file_overrides_defaults_of_flags() {
        let merged = merge(&[], file()).unwrap().unwrap();
        assert_eq!(summary(&merged), ("file/of-file".into(), [60, 40, 5]));
        let merged = merge(&[], LeaderElection::default()).unwrap().unwrap();
        let defaults = ("kube-system/kube-scheduler".into(), [15, 10, 2]);
        assert_eq!(summary(&merged), defaults);
    }

    #[test]
    fn explicit_flags_of_leader_election_override_the_file() {
        for (flag, expect) in [
            (
                "--leader-elect-lease-duration=50s",
                ("file/of-file", [50, 40, 5]),
            ),
            (
                "--leader-elect-renew-deadline=30s",
                ("file/of-file", [60, 30, 5]),
            ),
            // A default counts, too, if the command line sets it.
            (
                "--leader-elect-retry-period=2s",
                ("file/of-file", [60, 40, 2]),
            ),
            (
                "--leader-elect-resource-name=flag",
                ("file/flag", [60, 40, 5]),
            ),
            (
                "--leader-elect-resource-namespace=flag",
                ("flag/of-file", [60, 40, 5]),
            ),
        ] {
            let merged = merge(&[flag], file()).unwrap().unwrap();
            let expect = (expect.0.to_owned(), expect.1);
            assert_eq!(summary(&merged), expect, "{flag}");
        }
    }

    #[test]
    fn explicit_leader_elect_flag_overrides_the_file() {
        let elects = |flags: &[&str], file_elects| {
            let file = LeaderElection {
                leader_elect: Some(file_elects),
                ..file()
            };
            merge(flags, file).unwrap().is_some()
        };
        assert!(!elects(&["--leader-elect=false"], true));
        assert!(elects(&["--leader-elect"], false));
        assert!(!elects(&[], false));
    }

    #[test]
    fn malformed_duration_of_the_file_is_an_error_despite_a_flag() {
        let file = LeaderElection {
            lease_duration: Some("soon".into()),
            ..LeaderElection::default()
        };
        assert!(merge(&["--leader-elect-lease-duration=50s"], file).is_err());
    }
}
