//! Minimum that the runtime needs: runs a sandbox, creates a container and starts it, directly
//! through CRI.

use crate::stats;
use futures::{StreamExt, TryStreamExt, stream};
use node_runtime::Runtime;
use node_runtime::v1::{
    ContainerConfig, ContainerMetadata, ImageSpec, LinuxPodSandboxConfig, PodSandboxConfig,
    PodSandboxMetadata,
};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Parameters of the measurement.
#[derive(clap::Args)]
pub struct Options {
    /// Socket of the runtime
    #[arg(long)]
    endpoint: String,
    /// Image with a `sleep` program
    #[arg(long, default_value = "ironclad.local/busybox:1")]
    image: String,
    /// Number of pods
    #[arg(long, default_value_t = 20)]
    count: usize,
    /// Number of concurrent callers
    #[arg(long, default_value_t = 1)]
    callers: usize,
}

/// Runs the measurement and removes its sandboxes.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let runtime = Runtime::new(&options.endpoint)?;
    let begun = Instant::now();
    let started = stream::iter(0..options.count).map(|i| start(&runtime, &options.image, i));
    let started: Vec<(String, Duration)> = started
        .buffer_unordered(options.callers)
        .try_collect()
        .await?;
    let whole = begun.elapsed();
    for (sandbox, _) in &started {
        runtime.stop_sandbox(sandbox).await?;
        runtime.remove_sandbox(sandbox).await?;
    }
    Ok(stats::summary(
        started.into_iter().map(|(_, took)| took).collect(),
        whole,
    ))
}

async fn start(runtime: &Runtime, image: &str, i: usize) -> anyhow::Result<(String, Duration)> {
    let name = format!("floor-{i}-{}", std::process::id());
    let sandbox_config = PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: name.clone(),
            uid: name.clone(),
            namespace: "bench".into(),
            attempt: 0,
        }),
        hostname: name,
        linux: Some(LinuxPodSandboxConfig::default()),
        ..PodSandboxConfig::default()
    };
    let config = ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: "c".into(),
            attempt: 0,
        }),
        image: Some(ImageSpec {
            image: image.into(),
            ..ImageSpec::default()
        }),
        command: vec!["sleep".into(), "1000".into()],
        ..ContainerConfig::default()
    };
    let begun = Instant::now();
    let sandbox = runtime
        .run_sandbox(sandbox_config.clone(), String::new())
        .await?;
    let container = runtime
        .create_container(&sandbox, config, sandbox_config)
        .await?;
    runtime.start_container(&container).await?;
    Ok((sandbox, begun.elapsed()))
}
