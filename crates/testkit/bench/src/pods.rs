//! Time from the POST of a pod until a watch shows it Running, sequentially or concurrently.

use crate::stats;
use anyhow::{Context, bail};
use client::{Api, Client, Config, DeleteParams, ListParams, WatchEvent};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const LABEL: &str = "bench=pod-start";

/// Parameters of the measurement.
#[derive(clap::Args)]
pub struct Options {
    /// Kubeconfig of a user who may create pods
    #[arg(long)]
    kubeconfig: PathBuf,
    /// Image with a `sleep` program
    #[arg(long, default_value = "ironclad.local/busybox:1")]
    image: String,
    /// Number of pods
    #[arg(long, default_value_t = 20)]
    count: usize,
    /// Create all pods at once instead of sequentially
    #[arg(long)]
    together: bool,
}

/// Runs the measurement and removes its pods.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let client = Client::new(Config::from_kubeconfig(&options.kubeconfig)?);
    let api = client.namespaced::<Pod>("default");
    let result = tokio::time::timeout(Duration::from_secs(300), run(&api, options)).await;
    let none_left = DeleteParams::background().grace_period(0);
    api.delete_collection(&none_left, &ListParams::new().with_labels(LABEL))
        .await?;
    result.context("the pods did not run within five minutes")?
}

async fn run(api: &Api<Pod>, options: &Options) -> anyhow::Result<Value> {
    let params = ListParams::new().with_labels(LABEL);
    let version = api.list(&params).await?.resource_version().to_owned();
    let mut watch = api.watch(&params, &version, 600).await?;
    let begun = Instant::now();
    let mut posted = HashMap::new();
    let mut took = Vec::new();
    let wave = if options.together { options.count } else { 1 };
    for first in (0..options.count).step_by(wave) {
        let names: Vec<String> = (first..first + wave)
            .map(|i| format!("bench-{i}"))
            .collect();
        posted.extend(names.iter().map(|n| (n.clone(), Instant::now())));
        let pods = names
            .iter()
            .map(|name| pod(name, &options.image))
            .collect::<Result<Vec<_>, _>>()?;
        futures::future::try_join_all(pods.iter().map(|pod| api.create(pod))).await?;
        while !posted.is_empty() {
            let name = next_running(&mut watch).await?;
            took.extend(posted.remove(&name).map(|at| at.elapsed()));
        }
    }
    Ok(stats::summary(took, begun.elapsed()))
}

async fn next_running(watch: &mut client::Watch<Pod>) -> anyhow::Result<String> {
    while let Some(event) = watch.next().await {
        let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event? else {
            continue;
        };
        if pod.status.and_then(|s| s.phase).as_deref() == Some("Running") {
            return Ok(pod.metadata.name.unwrap_or_default());
        }
    }
    bail!("the watch ended before all pods ran")
}

fn pod(name: &str, image: &str) -> anyhow::Result<Pod> {
    Ok(serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"bench": "pod-start"}},
        "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": image, "command": ["sleep", "1000"]}]},
    }))?)
}
