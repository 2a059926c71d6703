//! Starts and stops the scheduler.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use base_cli::parse_duration;
use base_task::{CancellationToken, Tasks};
use client::election::{self, LeaderConfig};
use client::events::Recorder;
use client::{Client, Config};
use component::{AnswerLifetimes, DelegatedAccess, host_name};
use scheduler_framework::{Cluster, ClusterEvent};

use crate::cluster::View;
use crate::config::Configuration;
use crate::flags::Flags;
use crate::handlers::{self, Watched};
use crate::health::{self, Shown};
use crate::metrics::Numbers;
use crate::nominated::NominationIndex;
use crate::outcome::Writer;
use crate::profiles::{DEFAULT_NAME, profiles};
use crate::queue::{Judge, Queue, Waits};
use crate::scheduler::{Profiles, Scheduler};

const DRAIN: Duration = Duration::from_secs(5);

fn client(kubeconfig: Option<&PathBuf>) -> anyhow::Result<Client> {
    let config = Config::from_kubeconfig_or_in_cluster(kubeconfig.map(PathBuf::as_path))?;
    Ok(Client::new(config.user_agent("kube-scheduler")))
}

/// Returns the check of those who read metrics.
fn access(flags: &Flags, own: &Client) -> anyhow::Result<DelegatedAccess> {
    let connect = |kubeconfig: &Option<PathBuf>| match kubeconfig {
        Some(path) => client(Some(path)),
        None => Ok(own.clone()),
    };
    let lifetimes = AnswerLifetimes {
        tokens: flags.authentication_token_webhook_cache_ttl,
        authorized: flags.authorization_webhook_cache_authorized_ttl,
        unauthorized: flags.authorization_webhook_cache_unauthorized_ttl,
    };
    let authentication = connect(&flags.authentication_kubeconfig)?;
    Ok(DelegatedAccess::new(
        authentication,
        connect(&flags.authorization_kubeconfig)?,
        lifetimes,
    ))
}

/// Returns the Lease settings, from the file or else from the flags; None without leader election.
fn lease(flags: &Flags, config: &Configuration) -> anyhow::Result<Option<LeaderConfig>> {
    let file = &config.leader_election;
    if !file.leader_elect.unwrap_or(flags.leader_elect) {
        return Ok(None);
    }
    let time = |given: &Option<String>, flag: Duration| match given {
        Some(text) => parse_duration(text),
        None => Ok(flag),
    };
    let text =
        |given: &Option<String>, flag: &str| given.clone().unwrap_or_else(|| flag.to_owned());
    let lease = LeaderConfig {
        namespace: text(
            &file.resource_namespace,
            &flags.leader_elect_resource_namespace,
        ),
        name: text(&file.resource_name, &flags.leader_elect_resource_name),
        identity: format!("{}_{}", host_name(), uuid::Uuid::new_v4()),
        lease_duration: time(&file.lease_duration, flags.leader_elect_lease_duration)?,
        renew_deadline: time(&file.renew_deadline, flags.leader_elect_renew_deadline)?,
        retry_period: time(&file.retry_period, flags.leader_elect_retry_period)?,
    };
    if lease.lease_duration <= lease.renew_deadline || lease.renew_deadline <= lease.retry_period {
        bail!(
            "leader election: the lease duration must exceed the renew deadline, and that the retry period"
        );
    }
    Ok(Some(lease))
}

fn build(
    config: &Configuration,
    waits: Waits,
    client: &Client,
    view: &Arc<View>,
    tasks: &Tasks,
) -> anyhow::Result<Arc<Scheduler>> {
    let cluster: Arc<dyn Cluster> = Arc::clone(view) as Arc<dyn Cluster>;
    let made = Arc::new(Profiles(profiles(config, client, &cluster)?));
    let name = made
        .0
        .first()
        .map_or(DEFAULT_NAME, |profile| &profile.name)
        .to_owned();
    let events = Recorder::new(client.clone(), name.clone(), "");
    Ok(Arc::new(Scheduler {
        cache: Default::default(),
        queue: Queue::new(Arc::clone(&made) as Arc<dyn Judge>, waits),
        nominations: NominationIndex::default(),
        profiles: made,
        waiting: view.waiting_pods(),
        writer: Writer {
            client: client.clone(),
            events,
            name,
        },
        numbers: Numbers::new(),
        tasks: tasks.clone(),
    }))
}

/// Runs the scheduler until `shutdown`.
pub async fn run(flags: Flags, shutdown: CancellationToken) -> anyhow::Result<()> {
    let config = flags
        .config
        .as_deref()
        .map(Configuration::load)
        .transpose()?
        .unwrap_or_default();
    let lease = lease(&flags, &config)?;
    let kubeconfig = config
        .client_connection
        .kubeconfig
        .as_ref()
        .or(flags.kubeconfig.as_ref());
    let client = client(kubeconfig)?;
    let access = access(&flags, &client)?;
    let view = Arc::new(View::default());
    let tasks = Tasks::new(shutdown.clone());
    let waits = config.waits(flags.pod_max_in_unschedulable_pods_duration);
    let scheduler = build(&config, waits, &client, &view, &tasks)?;
    let woken = Arc::clone(&scheduler);
    view.fill(&client, &tasks, move || {
        woken.queue.event(ClusterEvent::StorageChanged)
    });
    let watched = Arc::new(handlers::watch(&scheduler, &client, &tasks));
    let open = flags.authorization_always_allow_paths.clone();
    health::serve(&flags, shown(&scheduler, &watched, access, open), &tasks).await?;
    work(&client, lease, &scheduler, &watched, &shutdown).await;
    scheduler.queue.close();
    Ok(tasks.finish(DRAIN).await?)
}

fn shown(
    scheduler: &Arc<Scheduler>,
    watched: &Arc<Watched>,
    access: DelegatedAccess,
    open: Vec<String>,
) -> Shown {
    let (scheduler, watched) = (Arc::clone(scheduler), Arc::clone(watched));
    Shown {
        access,
        metrics: Box::new(move || scheduler.numbers.encode(scheduler.queue.counts())),
        ready: Box::new(move || watched.has_synced()),
        open,
    }
}

/// Schedules while leading, or always without leader election.
async fn work(
    client: &Client,
    lease: Option<LeaderConfig>,
    scheduler: &Arc<Scheduler>,
    watched: &Arc<Watched>,
    shutdown: &CancellationToken,
) {
    let term = |token: CancellationToken| {
        let (scheduler, watched) = (Arc::clone(scheduler), Arc::clone(watched));
        async move {
            tokio::select! {
                () = token.cancelled() => return,
                () = watched.synced() => {}
            }
            tracing::info!("scheduling");
            scheduler.run(token).await;
        }
    };
    match lease {
        Some(lease) => election::run(client, lease, shutdown.clone(), term).await,
        None => term(shutdown.clone()).await,
    }
}
