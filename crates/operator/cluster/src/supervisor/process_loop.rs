//! One process's loop: start or adopt, wait for the exit, back off, repeat.

use std::time::{Duration, Instant};

use tokio::net::{TcpStream, UnixStream};
use tokio_util::sync::CancellationToken;

use super::sockets::Sockets;
use crate::error::Result;
use crate::layout::Layout;
use crate::namespaces::connect_inside;
use crate::plan::{Process, Ready};
use crate::process::{Running, choose_grace};

const INITIAL_BACKOFF: Duration = Duration::from_millis(200);
const MAX_BACKOFF: Duration = Duration::from_secs(20);
/// Running time after which the back-off is reset.
const STABLE_AFTER: Duration = Duration::from_secs(30);
/// Maximum wait for dependencies: after that the process is started anyway, because components wait
/// for them themselves.
const DEPENDENCY_TIMEOUT: Duration = Duration::from_secs(20);

/// The readiness checks of the processes on which one depends.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependencies {
    /// Those that it waits for, as long as [`DEPENDENCY_TIMEOUT`].
    pub after: Vec<Ready>,
    /// Those without which it does not start.
    pub required: Vec<Ready>,
}

/// Keeps `process` running until `stop`.
pub(crate) async fn run_process(
    process: Process,
    dependencies: Dependencies,
    layout: Layout,
    sockets: Sockets,
    stop: CancellationToken,
) {
    let mut pause = INITIAL_BACKOFF;
    let mut restarts = 0;
    // Before the dependencies are waited for: a process that runs has them.
    let mut adopted = adopt_process(&process, &layout, &sockets).await;
    loop {
        let began = Instant::now();
        let started = match adopted.take() {
            Some(running) => Ok(running),
            None => {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = wait_for_dependencies(&process, &dependencies) => {}
                }
                start_process(&process, &layout, &sockets, restarts)
            }
        };
        match started {
            Ok(mut running) => {
                // An adopted process brings the count of the earlier supervisor.
                restarts = running.record.restarts;
                tracing::info!(name = process.name, pid = running.record.pid, "running");
                tokio::select! {
                    () = stop.cancelled() => {
                        running.stop(choose_grace(&process.name)).await;
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
            pause = INITIAL_BACKOFF;
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(MAX_BACKOFF);
        restarts += 1;
    }
}

fn start_process(
    process: &Process,
    layout: &Layout,
    sockets: &Sockets,
    restarts: u32,
) -> Result<Running> {
    let socket = process.socket.map(|address| sockets.open(address));
    Running::start(process, layout, restarts, socket.transpose()?.as_deref())
}

/// Adopts the process of an earlier supervisor, unless its stamp differs from the plan's.
async fn adopt_process(process: &Process, layout: &Layout, sockets: &Sockets) -> Option<Running> {
    let mut running = Running::adopt(&process.name, layout)?;
    if let Some(address) = process.socket {
        sockets.adopt(address, &running);
    }
    if running.record.stamp == process.stamp {
        tracing::info!(name = process.name, pid = running.record.pid, "adopted");
        return Some(running);
    }
    tracing::info!(
        name = process.name,
        "changed since it was started; starting it again"
    );
    running.stop(choose_grace(&process.name)).await;
    None
}

async fn wait_for_dependencies(process: &Process, dependencies: &Dependencies) {
    // A dependency that does not become ready is a fault to be seen in its own log; the process
    // retries by itself.
    let all = wait_until_ready(&dependencies.after);
    let _ = tokio::time::timeout(DEPENDENCY_TIMEOUT, all).await;
    let required = wait_until_ready(&dependencies.required);
    tokio::pin!(required);
    let is_late = tokio::time::timeout(DEPENDENCY_TIMEOUT, &mut required).await;
    if is_late.is_err() {
        tracing::warn!(
            name = process.name,
            required = process.required.join(", "),
            "does not start before a process that it requires is ready; see the log of that process"
        );
        required.await;
    }
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
            Ready::TcpInside(namespaces, address) => {
                let connected = connect_inside(namespaces.clone(), *address).await;
                connected.is_some()
            }
            Ready::Unix(path) => UnixStream::connect(path).await.is_ok(),
            Ready::Started => true,
        }
    };
    tokio::time::timeout(Duration::from_secs(1), attempt)
        .await
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::checks::wait_until_port_free;
    use crate::process::Record;

    fn process(script: &str, stamp: &str) -> Process {
        Process {
            stamp: stamp.into(),
            ..Process::example("test", &["sh", "-c", script])
        }
    }

    /// Runs the loop until `holds` is true of the process's record, and stops it.
    async fn run_until(
        process: Process,
        layout: &Layout,
        holds: impl Fn(&Record) -> bool,
    ) -> Record {
        let stop = CancellationToken::new();
        let watch = async {
            loop {
                let record = Record::load(&layout.record("test")).filter(|record| holds(record));
                if let Some(record) = record {
                    stop.cancel();
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let dependencies = Dependencies::default();
        let run = run_process(
            process,
            dependencies,
            layout.clone(),
            Sockets::default(),
            stop.clone(),
        );
        let both = async { tokio::join!(run, watch).1 };
        tokio::time::timeout(Duration::from_secs(20), both)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn process_that_exits_is_started_again_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let record = run_until(process("exit 3", "s"), &layout, |r| r.restarts == 2).await;
        assert_eq!(record.restarts, 2);
    }

    /// A restart of the supervisor does not restart the components, unless they changed.
    #[tokio::test]
    async fn process_of_an_earlier_supervisor_is_adopted_unless_its_stamp_differs() {
        for (stamp, adopted) in [("s", true), ("other", false)] {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path(), false);
            let earlier = Running::start(&process("exec sleep 60", "s"), &layout, 5, None).unwrap();
            let before = earlier.record.pid;
            // Reaps the child, as the init process does for the one of a supervisor that ended.
            let reaper = async move {
                let mut earlier = earlier;
                earlier.wait_for_exit().await;
            };
            let run = run_until(process("exec sleep 60", stamp), &layout, |record| {
                record.stamp == stamp && record.is_alive()
            });
            let (record, ()) = tokio::join!(run, reaper);
            assert_eq!(record.pid == before, adopted, "{stamp}");
            assert!(!record.is_alive(), "the loop stops the process");
        }
    }

    /// The API server responds to requests for up to 60 s.
    #[tokio::test(start_paused = true)]
    async fn api_server_is_killed_after_its_request_timeout_only() {
        for (name, is_longer) in [("kube-apiserver", true), ("kube-scheduler", false)] {
            let dir = tempfile::tempdir().unwrap();
            let layout = Layout::new(dir.path(), false);
            let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
            let process = Process::example(name, &["sh", "-c", script]);
            let _child = Running::start(&process, &layout, 0, None).unwrap();
            while std::fs::read(layout.log(name)).unwrap().is_empty() {
                std::thread::yield_now();
            }
            let stop = CancellationToken::new();
            stop.cancel();
            let (dependencies, sockets) = (Dependencies::default(), Sockets::default());
            let begun = tokio::time::Instant::now();
            run_process(process, dependencies, layout, sockets, stop).await;
            let lasts_longer = begun.elapsed() > Duration::from_secs(64);
            assert_eq!(lasts_longer, is_longer, "{name}");
        }
    }

    /// A pod in the network of the machine could take the port of the proxy to the API servers.
    #[tokio::test]
    async fn port_of_a_process_stays_taken_over_restarts_and_a_new_supervisor() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        // Other tests start processes, which have all sockets for a moment.
        assert!(wait_until_port_free(address.port()));
        let is_taken = || std::net::TcpListener::bind(address).is_err();
        let process = Process {
            socket: Some(address),
            ..process("exec sleep 60", "s")
        };
        let sockets = Sockets::default();
        let mut first = start_process(&process, &layout, &sockets, 0).unwrap();
        first.stop(choose_grace("test")).await;
        assert!(is_taken(), "while it restarts");
        let mut second = start_process(&process, &layout, &sockets, 1).unwrap();
        drop(sockets);
        assert!(is_taken(), "the supervisor was killed");
        let sockets = Sockets::default();
        adopt_process(&process, &layout, &sockets).await.unwrap();
        second.stop(choose_grace("test")).await;
        assert!(
            is_taken(),
            "the new supervisor has the socket of the process"
        );
        drop(sockets);
        assert!(wait_until_port_free(address.port()));
    }

    /// Pods must not start without the rules of NetworkPolicies, and other processes must not wait
    /// for ever.
    #[tokio::test(start_paused = true)]
    async fn process_starts_without_a_dependency_and_not_without_a_required_one() {
        let absent = vec![Ready::Unix("/nonexistent/socket".into())];
        for (required, starts) in [(Vec::new(), true), (absent.clone(), false)] {
            let dependencies = Dependencies {
                after: absent.clone(),
                required,
            };
            let process = process("true", "s");
            let waits = wait_for_dependencies(&process, &dependencies);
            let waited = tokio::time::timeout(Duration::from_secs(3600), waits).await;
            assert_eq!(waited.is_ok(), starts);
        }
    }

    #[tokio::test]
    async fn readiness_is_a_connection() {
        let dir = tempfile::tempdir().unwrap();
        // Bound and not listening: no other program can take the port.
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let tcp = Ready::Tcp(socket.local_addr().unwrap());
        let path = dir.path().join("s.sock");
        let unix = Ready::Unix(path.clone());
        assert!(!is_ready(&tcp).await && !is_ready(&unix).await);
        let _listeners = (
            socket.listen(1).unwrap(),
            tokio::net::UnixListener::bind(&path).unwrap(),
        );
        assert!(is_ready(&tcp).await && is_ready(&unix).await);
        assert!(is_ready(&Ready::Started).await);
    }
}
