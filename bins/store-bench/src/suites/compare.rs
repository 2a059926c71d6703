//! Order of the measurements: the servers alternate for each workload, so that other load on the
//! machine affects both.

use crate::figures::{Figure, Measurement};
use crate::flags::Flags;
use crate::host::disk;
use crate::host::server::Cluster;
use crate::report;
use crate::suites::{memory, scale, soak};
use crate::workloads::calls::{self, Work};
use crate::workloads::leases;
use crate::workloads::watches::{Shape, Watchers};
use anyhow::Result;
use std::path::PathBuf;
use std::time::Duration;

/// Duration of a round with watchers. They need more time because puts are rare: a percentile
/// requires some hundreds.
const WATCHED: Duration = Duration::from_secs(10);

/// A planned row of the table.
#[derive(Clone, Copy)]
enum Task {
    Calls(Work, usize),
    Watch,
    KeepAlive(usize),
}

impl Task {
    fn title(self) -> &'static str {
        match self {
            Task::Calls(work, _) => work.title(),
            Task::Watch => "watch: a put seen by 1,000",
            Task::KeepAlive(_) => "lease keep-alive",
        }
    }

    fn clients(self) -> usize {
        match self {
            Task::Calls(_, clients) | Task::KeepAlive(clients) => clients,
            Task::Watch => Shape::ONE_KEY.total_watchers(),
        }
    }

    async fn run_round(self, cluster: &Cluster, duration: Duration) -> Result<Measurement> {
        match self {
            Task::Calls(work, clients) => {
                calls::measure_work(cluster, work, clients, duration).await
            }
            Task::Watch => {
                let watchers = Watchers::open(cluster, Shape::ONE_KEY).await?;
                watchers
                    .measure_deliveries(cluster, duration.max(WATCHED), false)
                    .await
            }
            Task::KeepAlive(clients) => leases::keep_alive(cluster, clients, duration).await,
        }
    }
}

fn list_tasks(flags: &Flags) -> Vec<Task> {
    let mut tasks: Vec<Task> = flags
        .clients
        .iter()
        .map(|clients| Task::Calls(Work::Put, *clients))
        .collect();
    tasks.extend([Work::Txn, Work::Read, Work::Serializable].map(|work| Task::Calls(work, 100)));
    tasks.extend([
        Task::Calls(Work::Range, 4),
        Task::Watch,
        Task::KeepAlive(100),
    ]);
    tasks
}

/// Runs the measurements that the flags select.
pub async fn run_comparison(flags: Flags) -> Result<()> {
    let below = match &flags.folder {
        Some(folder) => folder.clone(),
        None => std::env::current_dir()?,
    };
    let chosen: Vec<Task> = list_tasks(&flags)
        .into_iter()
        .filter(|task| flags.selects_work(task.title()))
        .collect();
    let Some(kvstore) = flags.kvstore.clone() else {
        let cluster = Cluster::use_running(&flags.endpoints).await?;
        return report::print_table(&measure_tasks(&flags, vec![cluster], &chosen).await?);
    };
    let mut kinds = vec![("kvstore", kvstore)];
    // Without etcd the figures are still useful, only without a ratio.
    match std::process::Command::new(&flags.etcd)
        .arg("--version")
        .output()
    {
        Ok(_) => kinds.push(("etcd", flags.etcd.clone())),
        Err(e) => report::print_line(&format!("etcd is not measured: {e}\n"))?,
    }
    if let Some(seconds) = flags.soak {
        return soak::run_soak(&kinds, &below, Duration::from_secs_f64(seconds)).await;
    }
    if !flags.scale.is_empty() {
        return scale::run_scale_tests(&kinds, &below, &flags.scale).await;
    }
    let mut disks = Vec::new();
    // Both, because a sync of a file that grows also writes metadata, and servers may preallocate
    // their logs.
    for written_before in [false, true] {
        disks.push(disk::sync_latency(&below, written_before)?);
    }
    report::print_disk_latency(&disks)?;
    let mut figures = Vec::new();
    for size in &flags.members {
        figures.extend(measure_side_by_side(&flags, &kinds, *size, &chosen, &below).await?);
    }
    report::print_table(&figures)?;
    let quantities = match flags.selects_work("memory") {
        true => memory::measure_memory(&kinds, &below, flags.rounds).await?,
        false => Vec::new(),
    };
    report::print_quantities(&quantities)?;
    match &flags.json {
        Some(path) => report::write_json(path, &disks, &figures, &quantities),
        None => Ok(()),
    }
}

async fn measure_side_by_side(
    flags: &Flags,
    kinds: &[(&str, PathBuf)],
    size: usize,
    tasks: &[Task],
    below: &std::path::Path,
) -> Result<Vec<Figure>> {
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let mut clusters = Vec::new();
    for (name, binary) in kinds {
        // All clusters keep running, because a restart between rounds would begin with empty
        // caches.
        clusters.push(Cluster::start(name, binary, size, below, &[]).await?);
    }
    measure_tasks(flags, clusters, tasks).await
}

async fn measure_tasks(
    flags: &Flags,
    clusters: Vec<Cluster>,
    tasks: &[Task],
) -> Result<Vec<Figure>> {
    for cluster in &clusters {
        calls::fill_keys(
            cluster,
            calls::KEYS,
            |number| format!("{number:08}"),
            calls::VALUE,
        )
        .await?;
    }
    let duration = Duration::from_secs_f64(flags.seconds);
    let mut figures = Vec::new();
    for task in tasks {
        let mut seen: Vec<Measurement> = clusters.iter().map(|_| Measurement::default()).collect();
        for _ in 0..flags.rounds {
            // Rounds alternate between the servers, so that a change of the machine's speed affects
            // both.
            for (cluster, seen) in clusters.iter().zip(&mut seen) {
                // The round before was on the other server; this one may have work left from its
                // own last round.
                calls::settle_cluster(cluster).await?;
                seen.add_round(task.run_round(cluster, duration).await?);
            }
        }
        for (cluster, seen) in clusters.iter().zip(seen) {
            figures.push(seen.into_figure(
                &cluster.name,
                cluster.member_count(),
                task.title(),
                task.clients(),
            ));
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    fn selected(arguments: &[&str]) -> Vec<&'static str> {
        let arguments = ["store-bench", "--kvstore", "kvstore"]
            .iter()
            .chain(arguments);
        let flags = Flags::try_parse_from(arguments).unwrap();
        let tasks = list_tasks(&flags).into_iter();
        tasks
            .map(Task::title)
            .filter(|title| flags.selects_work(title))
            .collect()
    }

    #[test]
    fn every_number_of_clients_is_a_task() {
        let puts = |arguments: &[&str]| {
            let titles = selected(arguments);
            titles.iter().filter(|title| **title == "put").count()
        };
        assert_eq!(puts(&[]), 3, "1, 100 and 1000");
        assert_eq!(puts(&["--clients", "5,6"]), 2);
    }

    #[test]
    fn tasks_are_selected_by_prefixes_of_their_names() {
        assert_eq!(
            selected(&["--only", "watch"]),
            ["watch: a put seen by 1,000"]
        );
        assert_eq!(
            selected(&["--only", "lin,ser"]),
            ["linearizable read", "serializable read"]
        );
        assert!(selected(&["--only", "memory"]).is_empty());
    }

    #[test]
    fn verification_needs_running_servers() {
        for (arguments, valid) in [
            (&["--endpoints", "a:1", "--verify", "10"][..], true),
            (&["--kvstore", "k", "--verify", "10"], false),
            (&["--endpoints", "a:1", "--kvstore", "k"], false),
            (&["--endpoints", "a:1", "--soak", "9"], false),
            (&[], false),
        ] {
            let arguments = std::iter::once(&"store-bench").chain(arguments);
            let parsed = Flags::try_parse_from(arguments.clone());
            assert_eq!(parsed.is_ok(), valid, "{:?}", arguments.collect::<Vec<_>>());
        }
    }
}
