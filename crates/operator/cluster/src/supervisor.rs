//! The supervisor: starts the processes of the plan in order, restarts exited ones with growing
//! back-off, adopts those of an earlier supervisor, and restarts those whose program or
//! configuration changed.
//!
//! Invariant: the end of the supervisor ends no other process. It stops components only when it is
//! stopped (SIGTERM) or when the plan changes (SIGHUP).

mod process_loop;
mod rotate;
mod sockets;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use operator_pki::Renewal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::certificates::log_warnings;
use crate::cluster_files;
use crate::command_lock::CommandLock;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::network;
use crate::plan::{Plan, Process};
use crate::process::{Record, read_boot_id, read_start_time};
use crate::restore_state::reject_unfinished_restore;
use crate::routes::follow_nodes;
use crate::settings::Settings;
use crate::supervisor_record::{NAME, lock_cluster};
use crate::upgrade_state::is_unfinished;

use process_loop::Dependencies;
pub(crate) use process_loop::is_ready;
use sockets::Sockets;

/// Interval between two checks of certificates.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(12 * 3600);
/// Interval between two checks of log sizes, which bounds a log to what is written in a minute
/// above the limit.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

struct SupervisedProcess {
    process: Process,
    stop: CancellationToken,
    /// The one task that keeps it.
    process_loop: JoinSet<()>,
}

/// Supervises the cluster of `data_dir` until `shutdown`.
pub async fn run_supervisor(data_dir: &Path, shutdown: CancellationToken) -> Result<()> {
    let settings = Settings::load(data_dir)?.ok_or_else(|| {
        Error::Refused(format!(
            "{} holds no cluster; run `ironclad up` first",
            data_dir.display()
        ))
    })?;
    let layout = Layout::for_settings(&settings);
    reject_unfinished_restore(&layout)?;
    // Leaves the caller's terminal and session; fails harmlessly for a session leader.
    let _ = rustix::process::setsid();
    // Install the handler before the record is visible to others: without it the signal would end
    // this process.
    let mut hangup = signal(SignalKind::hangup()).map_err(Error::io(layout.run()))?;
    // Held until the process exits. Two supervisors would restart each other's processes.
    let _lock = lock_supervisor(&layout)?;
    if settings.has_pod_network() {
        network::prepare_network(&settings, &layout)?;
    }
    let (mut kept, sockets) = (HashMap::new(), Sockets::default());
    adjust_processes(&mut kept, Plan::load(&layout)?, &layout, &sockets).await;
    let mut routes = start_routes(&settings, &layout);
    let mut log_check = tokio::time::interval(LOG_INTERVAL);
    let mut renewal = tokio::time::interval_at(Instant::now() + RENEWAL_INTERVAL, RENEWAL_INTERVAL);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = hangup.recv() => {}
            _ = log_check.tick() => {
                rotate::rotate_logs(&layout.logs());
                continue;
            }
            _ = renewal.tick() => {
                renew_if_due(&settings, &layout);
                continue;
            }
        }
        match Plan::load(&layout) {
            Ok(plan) => {
                adjust_processes(&mut kept, plan, &layout, &sockets).await;
                routes = start_routes(&reload_settings(&settings), &layout);
            }
            // A plan that is half written or of another release must not stop a running cluster.
            Err(error) => tracing::error!(%error, "the new plan can't be read; the old one stays"),
        }
    }
    // Reached by SIGTERM only: a supervisor that is killed leaves its processes to the next one.
    drop(routes);
    stop_all(&mut kept, &layout).await;
    let _ = tokio::fs::remove_file(layout.record(NAME)).await;
    Ok(())
}

/// Renews the certificates that are due, and warns of those that expire soon.
fn renew_if_due(settings: &Settings, layout: &Layout) {
    let renewed = match CommandLock::try_acquire(layout) {
        // The settings that a command has stored before it released the lock.
        Ok(Some(_lock)) => renew_certificates(&reload_settings(settings), layout),
        // A command is running, perhaps `ironclad upgrade`. The next interval is soon enough.
        Ok(None) => Ok(Vec::new()),
        Err(error) => Err(error),
    };
    match renewed {
        Ok(written) if written.is_empty() => {}
        Ok(written) => tracing::info!(?written, "certificates renewed"),
        Err(error) => {
            tracing::error!(%error, "certificates can't be renewed; they expire within 90 days");
        }
    }
    log_warnings(&reload_settings(settings));
}

/// Starts the task that keeps the routes to the pods of other machines, unless the machine has no
/// pod network, or one that keeps its own routes.
fn start_routes(settings: &Settings, layout: &Layout) -> JoinSet<()> {
    let mut routes = JoinSet::new();
    let has_routes = settings.has_bridge() && !settings.has_network_agent();
    if settings.has_pod_network() && has_routes {
        let (settings, layout) = (settings.clone(), layout.clone());
        let follow = move || follow_nodes(settings.clone(), layout.clone());
        routes.spawn(async move {
            restart_after_panic("routes", Duration::from_secs(1), follow).await;
        });
    }
    routes
}

/// Returns the settings on disk: a later `up` may have added nodes, and a plan for the old settings
/// would stop them.
fn reload_settings(settings: &Settings) -> Settings {
    let stored = Settings::load(&settings.data_dir);
    stored.ok().flatten().unwrap_or_else(|| settings.clone())
}

/// Renews certificates in their last 90 days; the lock of commands is held. Returns the names of
/// the written ones. Components follow their files, so none is restarted.
fn renew_certificates(settings: &Settings, layout: &Layout) -> Result<Vec<String>> {
    // The kubelet of a machine that joined renews its own certificate.
    if settings.membership.is_some() {
        return Ok(Vec::new());
    }
    // It writes these files, too.
    if is_unfinished(layout) {
        tracing::warn!(
            "certificates are not renewed before the interrupted upgrade has ended; run `ironclad upgrade` again"
        );
        return Ok(Vec::new());
    }
    cluster_files::write_credentials(settings, layout, Renewal::Due)
}

/// Makes this process the cluster's only supervisor. The kernel releases the lock when the process
/// exits.
fn lock_supervisor(layout: &Layout) -> Result<std::fs::File> {
    let file = lock_cluster(layout)?;
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    let start = read_start_time(pid).unwrap_or_default();
    let record = Record {
        pid,
        start,
        boot: read_boot_id(),
        stamp: String::new(),
        restarts: 0,
    };
    let text = serde_json::to_string(&record).unwrap_or_default();
    crate::files::write_file(&layout.record(NAME), text.as_bytes())?;
    Ok(file)
}

/// Applies a plan: removed and changed processes stop, in reverse order; the others keep running.
async fn adjust_processes(
    kept: &mut HashMap<String, SupervisedProcess>,
    plan: Plan,
    layout: &Layout,
    sockets: &Sockets,
) {
    let outdated = kept.extract_if(|_, old| !plan.processes.contains(&old.process));
    // Waits for the end: the new processes need the ports of the old ones.
    stop_processes(outdated.map(|(_, old)| old).collect(), async |_| {}).await;
    sockets.retain_planned(&plan);
    let all = plan.processes.clone();
    for process in plan.processes {
        if kept.contains_key(&process.name) {
            continue;
        }
        let stop = CancellationToken::new();
        // Readiness checks and not names: the dependency may be replaced while this process waits
        // for it.
        let find_checks = |names: &[String]| {
            let named = all.iter().filter(|other| names.contains(&other.name));
            named.map(|process| process.ready.clone()).collect()
        };
        let dependencies = Dependencies {
            after: find_checks(&process.after),
            required: find_checks(&process.required),
        };
        let mut process_loop = JoinSet::new();
        process_loop.spawn(run_after(
            process.clone(),
            dependencies,
            layout.clone(),
            sockets.clone(),
            stop.clone(),
        ));
        kept.insert(
            process.name.clone(),
            SupervisedProcess {
                process,
                stop,
                process_loop,
            },
        );
    }
}

/// Keeps a process running until `stop`. If its loop panics, a new loop adopts the process.
async fn run_after(
    process: Process,
    dependencies: Dependencies,
    layout: Layout,
    sockets: Sockets,
    stop: CancellationToken,
) {
    let name = process.name.clone();
    let process_loop = || {
        process_loop::run_process(
            process.clone(),
            dependencies.clone(),
            layout.clone(),
            sockets.clone(),
            stop.clone(),
        )
    };
    restart_after_panic(&name, Duration::from_secs(1), process_loop).await;
}

/// Runs a task to its end, again after each panic. The supervisor must survive its own defects:
/// without systemd nothing restarts it.
async fn restart_after_panic<F>(name: &str, pause: Duration, mut task: impl FnMut() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut running = JoinSet::new();
    running.spawn(task());
    while let Some(Err(error)) = running.join_next().await {
        tracing::error!(name, %error, "the keeper of a process failed; a new one takes over");
        tokio::time::sleep(pause).await;
        running.spawn(task());
    }
}

/// Stops everything, dependent processes first.
async fn stop_all(kept: &mut HashMap<String, SupervisedProcess>, layout: &Layout) {
    let all = kept.drain().map(|(_, kept)| kept).collect();
    stop_processes(all, async |name| {
        // The record of a stopped process would look like that of a crash to the next supervisor.
        let _ = tokio::fs::remove_file(layout.record(name)).await;
    })
    .await;
}

/// Stops processes, dependent ones first: processes on which no remaining one depends stop
/// together, layer by layer. Calls `on_stopped` with the name of each.
async fn stop_processes(mut left: Vec<SupervisedProcess>, on_stopped: impl AsyncFn(&str)) {
    while !left.is_empty() {
        let needed: Vec<String> = left
            .iter()
            .flat_map(|kept| kept.process.after.clone())
            .collect();
        let (stay, mut go): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|kept| needed.contains(&kept.process.name));
        left = stay;
        if go.is_empty() {
            // Only a damaged plan has dependencies in a circle.
            go.append(&mut left);
        }
        for kept in &go {
            kept.stop.cancel();
        }
        for kept in &mut go {
            kept.process_loop.join_next().await;
            on_stopped(&kept.process.name).await;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used)]
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn renewal_restarts_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: dir.path().into(),
            runtime: crate::settings::Runtime::Simulated,
            ..Settings::with_nodes(2)
        };
        let layout = Layout::new(dir.path(), false);
        renew_certificates(&settings, &layout).unwrap();
        let none: [String; 0] = [];
        assert_eq!(renew_certificates(&settings, &layout).unwrap(), none);
        let stamped = || {
            let mut plan = crate::plan::make_plan(&settings, &layout);
            plan.set_stamps();
            plan
        };
        let before = stamped();
        for name in ["apiserver", "scheduler", "etcd/peer", "kubelet-serving-n"] {
            let _ = std::fs::remove_file(layout.pki().join(format!("{name}.crt")));
        }
        let renewed = renew_certificates(&settings, &layout).unwrap();
        assert!(renewed.contains(&"scheduler".to_owned()), "{renewed:?}");
        cluster_files::write_credentials(&settings, &layout, Renewal::All).unwrap();
        assert_eq!(stamped(), before);
        for name in [
            "ca.crt",
            "ca.key",
            "etcd/ca.crt",
            "etcd/ca.key",
            "sa.key",
            "sa.pub",
        ] {
            std::fs::remove_file(layout.pki().join(name)).unwrap();
        }
        cluster_files::write_credentials(&settings, &layout, Renewal::All).unwrap();
        assert_eq!(
            stamped(),
            before,
            "CAs and keys of ServiceAccounts are followed"
        );
    }

    /// Returns a process that writes its name to `log` when it is stopped.
    fn chained_process(name: &str, after: &[&str], dir: &Path) -> Process {
        let script = format!(
            "trap 'echo {name} >>{0}/stopped; exit' TERM; : >{0}/{name}.up; while :; do sleep 0.02; done",
            dir.display()
        );
        Process {
            after: after.iter().map(|&name| name.to_owned()).collect(),
            ..Process::example(name, &["sh", "-c", &script])
        }
    }

    /// A client that outlives its server would log errors, or write to a server that ends.
    #[tokio::test]
    async fn processes_of_an_earlier_plan_stop_before_those_on_which_they_depend() {
        let names = ["a", "b", "c", "d", "e"];
        for is_circle in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path(), false);
            let make = |index: usize| {
                let before = match (index, is_circle) {
                    (0, false) => Vec::new(),
                    (0, true) => vec!["e"],
                    _ => vec![names[index - 1]],
                };
                chained_process(names[index], &before, dir.path())
            };
            let plan = Plan {
                processes: (0..names.len()).map(make).collect(),
            };
            let (mut kept, sockets) = (HashMap::new(), Sockets::default());
            adjust_processes(&mut kept, plan, &layout, &sockets).await;
            let up = |name: &&str| dir.path().join(format!("{name}.up")).exists();
            while !names.iter().all(up) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            adjust_processes(&mut kept, Plan::default(), &layout, &sockets).await;
            assert!(kept.is_empty());
            let stopped = std::fs::read_to_string(dir.path().join("stopped")).unwrap();
            match is_circle {
                false => assert_eq!(stopped.lines().collect::<String>(), "edcba"),
                true => assert_eq!(stopped.lines().count(), 5),
            }
        }
    }

    #[test]
    fn renewal_waits_for_the_end_of_an_interrupted_upgrade() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            data_dir: dir.path().into(),
            runtime: crate::settings::Runtime::Simulated,
            ..Settings::example()
        };
        let layout = Layout::new(dir.path(), false);
        std::fs::write(layout.upgrade(), "{}").unwrap();
        renew_if_due(&settings, &layout);
        assert!(!layout.pki().exists());
        crate::upgrade_state::end_upgrade(&layout).unwrap();
        renew_if_due(&settings, &layout);
        assert!(layout.pki().join("scheduler.crt").exists());
    }

    #[test]
    fn nodes_that_were_added_later_are_known_to_the_renewal() {
        let dir = tempfile::tempdir().unwrap();
        let at_start = Settings {
            data_dir: dir.path().into(),
            ..Settings::example()
        };
        assert_eq!(reload_settings(&at_start), at_start);
        let grown = Settings {
            data_dir: dir.path().into(),
            ..Settings::with_nodes(2)
        };
        grown.save().unwrap();
        assert_eq!(reload_settings(&at_start).nodes().len(), 2);
    }

    #[tokio::test]
    async fn process_loop_that_panics_is_replaced() {
        let runs = Arc::new(AtomicUsize::new(0));
        let task = || {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            async move {
                if run < 2 {
                    panic!("planted");
                }
            }
        };
        restart_after_panic("kubelet", Duration::from_millis(1), task).await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
    }

    fn sleeping(name: &str, after: &[&str], stamp: &str) -> Process {
        Process {
            after: after.iter().map(|&name| name.to_owned()).collect(),
            stamp: stamp.into(),
            ..Process::example(name, &["sleep", "60"])
        }
    }

    async fn pid_of(layout: &Layout, name: &str) -> i32 {
        loop {
            let record = Record::load(&layout.record(name));
            if let Some(record) = record.filter(Record::is_alive) {
                return record.pid;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn new_plan_restarts_only_the_changed_processes() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let (mut kept, sockets) = (HashMap::new(), Sockets::default());
        let plan = |stamp| Plan {
            processes: vec![sleeping("a", &[], "s"), sleeping("b", &["a"], stamp)],
        };
        adjust_processes(&mut kept, plan("old"), &layout, &sockets).await;
        let before = (pid_of(&layout, "a").await, pid_of(&layout, "b").await);
        adjust_processes(&mut kept, plan("new"), &layout, &sockets).await;
        let after = (pid_of(&layout, "a").await, pid_of(&layout, "b").await);
        assert_eq!(after.0, before.0);
        assert_ne!(after.1, before.1);
        let less = Plan {
            processes: vec![sleeping("a", &[], "s")],
        };
        adjust_processes(&mut kept, less, &layout, &sockets).await;
        assert!(!Record::load(&layout.record("b")).is_some_and(|record| record.is_alive()));
        stop_all(&mut kept, &layout).await;
        assert!(Record::load(&layout.record("a")).is_none());
    }

    #[test]
    fn second_supervisor_of_a_cluster_is_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let first = lock_supervisor(&layout).unwrap();
        let error = lock_supervisor(&layout).unwrap_err().to_string();
        assert!(error.contains("another supervisor"), "{error}");
        drop(first);
        lock_supervisor(&layout).unwrap();
    }
}
