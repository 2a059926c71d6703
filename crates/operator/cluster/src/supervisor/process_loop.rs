//! One process's loop: start or adopt, wait for the exit, back off, repeat.

use std::time::{Duration, Instant};

use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

use crate::layout::Layout;
use crate::plan::{Process, Ready};
use crate::process::Running;

/// Grace period of a component.
pub(crate) const GRACE: Duration = Duration::from_secs(15);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// Running time after which the back-off is reset.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Maximum wait for dependencies: after that the process is started anyway, because components wait
/// for them themselves.
const DEPENDENCY_TIMEOUT: Duration = Duration::from_secs(20);

/// Keeps `process` running until `stop`.
pub(crate) async fn run_process(
    process: Process,
    after: Vec<Ready>,
    layout: Layout,
    stop: CancellationToken,
) {
    let mut pause = FIRST_PAUSE;
    let mut restarts = 0;
    let mut adopted = adopt_process(&process, &layout).await;
    loop {
        let began = Instant::now();
        let started = match adopted.take() {
            Some(running) => Ok(running),
            None => {
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = tokio::time::timeout(DEPENDENCY_TIMEOUT, wait_until_ready(&after)) => {}
                }
                Running::start(&process, &layout, restarts)
            }
        };
        match started {
            Ok(mut running) => {
                restarts = running.record.restarts;
                tracing::info!(name = process.name, pid = running.record.pid, "running");
                tokio::select! {
                    () = stop.cancelled() => {
                        running.stop(GRACE).await;
                        tracing::info!(name = process.name, "stopped");
                        return;
                    }
                    exit = running.wait_for_exit() => tracing::warn!(name = process.name, exit = exit.0, "ended by itself"),
                }
            }
            Err(error) => tracing::error!(name = process.name, %error, "can't be started"),
        }
        // Only a process that ran for a while resets the back-off, so that a crash loop does not
        // restart quickly.
        if began.elapsed() > STABLE_AFTER {
            pause = FIRST_PAUSE;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
        restarts += 1;
    }
}

/// Adopts the process of an earlier supervisor, unless its stamp differs from the plan's.
async fn adopt_process(process: &Process, layout: &Layout) -> Option<Running> {
    let mut running = Running::adopt(&process.name, layout)?;
    if running.record.stamp == process.stamp {
        tracing::info!(name = process.name, pid = running.record.pid, "adopted");
        return Some(running);
    }
    tracing::info!(
        name = process.name,
        "changed since it was started; starting it again"
    );
    running.stop(GRACE).await;
    None
}

async fn wait_until_ready(what: &[Ready]) {
    for one in what {
        while !is_ready(one).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns whether the readiness check passes.
pub(crate) async fn is_ready(what: &Ready) -> bool {
    let attempt = async {
        match what {
            Ready::Tcp(address) => TcpStream::connect(address).await.is_ok(),
            Ready::Unix(path) => UnixStream::connect(path).await.is_ok(),
            Ready::Started => true,
        }
    };
    tokio::time::timeout(Duration::from_secs(1), attempt)
        .await
        .unwrap_or(false)
}
