//! Keeps the processes of the plan running: starts them in order, starts them again with growing pauses when they end,
//! adopts those that an earlier supervisor left, restarts those whose program or configuration changed.
//!
//! Invariant: the end of the supervisor ends nothing else. Components are stopped only when it is asked to stop
//! (SIGTERM) or when the plan changes (SIGHUP).

mod keeper;
mod rotate;

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::network;
use crate::plan::{Plan, Process};
use crate::process::{Record, boot, start_of};
use crate::settings::Settings;

pub(crate) use keeper::GRACE;
pub(crate) use keeper::ready;

/// The supervisor's own name among the records.
pub(crate) const NAME: &str = "supervisor";

struct Kept {
    process: Process,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Supervises the cluster of `data_dir` until `shutdown`.
pub async fn supervise(data_dir: &Path, shutdown: CancellationToken) -> Result<()> {
    let settings = Settings::load(data_dir)?
        .ok_or_else(|| Error::Refused(format!("{} holds no cluster; run `ironclad up` first", data_dir.display())))?;
    let layout = Layout::of(&settings);
    // Without a terminal and a session of somebody else's; fails harmlessly for the leader of one.
    let _ = rustix::process::setsid();
    // Before the record is there for others to see: without a handler the signal would end this process.
    let mut hangup = signal(SignalKind::hangup()).map_err(Error::io(layout.run()))?;
    let _lock = own(&layout)?;
    if settings.real() {
        network::prepare(&settings)?;
    }
    let mut kept = HashMap::new();
    adjust(&mut kept, load(&layout)?, &layout).await;
    let mut rotation = tokio::time::interval(Duration::from_secs(60));
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            _ = hangup.recv() => match load(&layout) {
                Ok(plan) => adjust(&mut kept, plan, &layout).await,
                Err(error) => tracing::error!(%error, "the new plan can't be read; the old one stays"),
            },
            _ = rotation.tick() => rotate::rotate(&layout.logs()),
        }
    }
    stop_all(&mut kept, &layout).await;
    let _ = std::fs::remove_file(layout.record(NAME));
    Ok(())
}

fn load(layout: &Layout) -> Result<Plan> {
    let path = layout.plan();
    let text = std::fs::read(&path).map_err(Error::io(&path))?;
    serde_json::from_slice(&text).map_err(|cause| Error::Settings { path, cause })
}

/// Makes this process the cluster's only supervisor. The lock goes with the process.
fn own(layout: &Layout) -> Result<std::fs::File> {
    crate::files::create_dir(layout.run(), 0o711)?;
    let path = layout.run().join("supervisor.lock");
    let file = std::fs::File::create(&path).map_err(Error::io(&path))?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| Error::Refused(format!("another supervisor holds {}", path.display())))?;
    let pid = i32::try_from(std::process::id()).unwrap_or_default();
    let start = start_of(pid).unwrap_or_default();
    let record = Record { pid, start, boot: boot(), stamp: String::new(), restarts: 0 };
    let text = serde_json::to_string(&record).unwrap_or_default();
    crate::files::write(&layout.record(NAME), text.as_bytes())?;
    Ok(file)
}

/// Brings what is kept in line with a plan: removed and changed processes stop, in reverse order; the rest stays.
async fn adjust(kept: &mut HashMap<String, Kept>, plan: Plan, layout: &Layout) {
    let gone: Vec<String> = kept
        .values()
        .filter(|old| !plan.processes.contains(&old.process))
        .map(|old| old.process.name.clone())
        .collect();
    for name in gone {
        if let Some(old) = kept.remove(&name) {
            old.stop.cancel();
            let _ = old.task.await;
        }
    }
    let all = plan.processes.clone();
    for process in plan.processes {
        if kept.contains_key(&process.name) {
            continue;
        }
        let stop = CancellationToken::new();
        let after = all.iter().filter(|other| process.after.contains(&other.name)).map(|p| p.ready.clone()).collect();
        let task = tokio::spawn(keeper::keep(process.clone(), after, layout.clone(), stop.clone()));
        kept.insert(process.name.clone(), Kept { process, stop, task });
    }
}

/// Stops everything, those that depend on others first.
async fn stop_all(kept: &mut HashMap<String, Kept>, layout: &Layout) {
    let mut left: Vec<Kept> = kept.drain().map(|(_, kept)| kept).collect();
    while !left.is_empty() {
        let needed: Vec<String> = left.iter().flat_map(|kept| kept.process.after.clone()).collect();
        let (stay, mut go): (Vec<_>, Vec<_>) = left.into_iter().partition(|kept| needed.contains(&kept.process.name));
        left = stay;
        for kept in &go {
            kept.stop.cancel();
        }
        for kept in &mut go {
            let _ = (&mut kept.task).await;
            let _ = std::fs::remove_file(layout.record(&kept.process.name));
        }
    }
}
