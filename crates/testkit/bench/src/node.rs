//! A kubelet on the simulated runtime, and work that could delay its heartbeat.

use crate::rows::Rows;
use anyhow::{Context, ensure};
use base_task::CancellationToken;
use clap::Parser;
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use testkit_cri::FakeRuntime;

/// Sizes to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Number of static pods with one container
    #[arg(long, default_value_t = 20)]
    pods: usize,
    /// Files of each of the two trees that are measured
    #[arg(long, default_value_t = 50_000)]
    files: usize,
}

/// Runs all measurements.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let mut rows = Rows::default();
    rows.add_count(
        "runtime calls of pods of one container that start",
        options.pods,
        calls_of_starts(options.pods).await?,
    );
    let folder = tempfile::tempdir()?;
    for tree in ["a", "b"] {
        fill(&folder.path().join(tree), options.files)?;
    }
    let path = folder.path().to_owned();
    // A runtime can't be made, nor waited for, on a thread of another one.
    let delays = move || {
        Ok::<_, anyhow::Error>([
            longest_delay(&path, &[])?,
            longest_delay(&path, &["a", "b"])?,
        ])
    };
    let [alone, beside] = tokio::task::spawn_blocking(delays).await??;
    rows.add_time(
        "longest delay of a task every 10 ms on two threads, nothing else",
        0,
        alone,
    );
    rows.add_time(
        "longest delay of a task every 10 ms on two threads, two trees measured",
        options.files,
        beside,
    );
    Ok(rows.into_json())
}

/// Starts pods one after the other. Returns the calls of the runtime for all of them.
async fn calls_of_starts(pods: usize) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir()?;
    let manifests = folder.path().join("manifests");
    tokio::fs::create_dir(&manifests).await?;
    let words = [
        "kubelet".to_owned(),
        "--simulated".to_owned(),
        "--address=127.0.0.1".to_owned(),
        "--port=0".to_owned(),
        "--healthz-port=0".to_owned(),
        "--hostname-override=bench".to_owned(),
        format!("--root-dir={}", folder.path().display()),
        format!("--pod-manifest-path={}", manifests.display()),
    ];
    let settings = node_kubelet::read_settings(&node_kubelet::Flags::try_parse_from(words)?)?;
    let runtime = FakeRuntime::start(&settings.root_dir).await?;
    let stop = CancellationToken::new();
    let kubelet = async {
        node_kubelet::run(settings, runtime.endpoint(), stop.clone())
            .await
            .context("the kubelet")
    };
    let starts = async {
        let before = wait_until_still(&runtime).await;
        for i in 0..pods {
            let name = format!("p{i}");
            let container = json!({"name": "c", "image": "example.com/c:1"});
            let spec = json!({"containers": [container]});
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
            tokio::fs::write(manifests.join(format!("{name}.yaml")), pod.to_string()).await?;
            wait_for_start(folder.path(), i + 1).await?;
        }
        let calls = wait_until_still(&runtime).await - before;
        stop.cancel();
        Ok(calls)
    };
    let ((), calls) = tokio::try_join!(kubelet, starts)?;
    Ok(calls)
}

/// Waits until the runtime was not called for 5 s. Returns the number of calls.
async fn wait_until_still(runtime: &FakeRuntime) -> u64 {
    let (mut calls, mut since) = (runtime.calls(), Instant::now());
    while since.elapsed() < Duration::from_secs(5) {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = runtime.calls();
        if now != calls {
            (calls, since) = (now, Instant::now());
        }
    }
    calls
}

/// Counts the pods whose container has written to its log.
fn count_logs(root: &Path) -> usize {
    let pods = std::fs::read_dir(root.join("logs"));
    let pods = pods.into_iter().flatten().flatten();
    pods.filter(|pod| pod.path().join("c/0.log").exists())
        .count()
}

/// Waits until `count` containers have written their first line.
async fn wait_for_start(root: &Path, count: usize) -> anyhow::Result<()> {
    let begun = Instant::now();
    while base_task::blocking(|| count_logs(root)) < count {
        ensure!(
            begun.elapsed() < Duration::from_secs(30),
            "container {count} did not start within 30 s"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn fill(tree: &Path, files: usize) -> std::io::Result<()> {
    for i in 0..files {
        let folder = tree.join((i / 1_000).to_string());
        if i % 1_000 == 0 {
            std::fs::create_dir_all(&folder)?;
        }
        std::fs::write(folder.join(i.to_string()), "")?;
    }
    Ok(())
}

/// Runs a task that wakes every 10 ms on a runtime of two threads, and then measures the trees on
/// it. Returns the longest delay until all are measured, at least of one second.
fn longest_delay(folder: &Path, trees: &[&str]) -> anyhow::Result<Duration> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()?;
    let left = Arc::new(AtomicUsize::new(trees.len()));
    let (ready, wait) = std::sync::mpsc::channel();
    let ticks = runtime.spawn(tick(left.clone(), ready));
    // The caller's own thread starts the walks: both threads of the runtime are free for them, and
    // the task runs.
    wait.recv()?;
    for tree in trees {
        let (tree, left) = (folder.join(tree), left.clone());
        runtime.spawn(async move {
            base_task::blocking(|| node_volumes::disk_usage(&tree));
            left.fetch_sub(1, Ordering::Release);
        });
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "outside of the runtime that is measured"
    )]
    while !ticks.is_finished() {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(runtime.block_on(ticks)?)
}

async fn tick(left: Arc<AtomicUsize>, ready: std::sync::mpsc::Sender<()>) -> Duration {
    const EVERY: Duration = Duration::from_millis(10);
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    // The receiver waits for it.
    let _ = ready.send(());
    while begun.elapsed() < Duration::from_secs(1) || left.load(Ordering::Acquire) > 0 {
        let asleep = Instant::now();
        tokio::time::sleep(EVERY).await;
        longest = longest.max(asleep.elapsed().saturating_sub(EVERY));
    }
    longest
}
