//! Events that reach the API server.

use crate::rows::Rows;
use client::events::Recorder;
use client::{Api, Client, Config};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use serde_json::Value;
use std::time::{Duration, Instant};
use testkit_control_plane::{ControlPlane, Options as Parts};

/// Sizes to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Sizes of bursts, in events about as many pods
    #[arg(long, value_delimiter = ',', default_value = "900,5000")]
    bursts: Vec<usize>,
    /// The store's engine; `memory` writes nothing to the disk
    #[arg(long, default_value = "fjall")]
    engine: String,
}

/// Runs all measurements.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let store = vec![format!("--engine={}", options.engine)];
    let plane = ControlPlane::start_with(Parts {
        store,
        ..Parts::default()
    })
    .await;
    let client = Client::new(Config::from_kubeconfig(plane.kubeconfig("admin"))?);
    let api = client.namespaced::<Event>("default");
    let mut rows = Rows::default();
    for &size in &options.bursts {
        let before = api.count().await?;
        let recorder = Recorder::new(client.clone(), format!("burst-of-{size}"), "");
        let begun = Instant::now();
        (0..size).for_each(|i| {
            recorder.normal(
                &pod(size, i),
                "Scheduled",
                format!("Successfully assigned pod {i}"),
            )
        });
        let (written, took) = wait_until_still(&api, begun).await?;
        let written = written - before;
        rows.add_count("events written of a burst", size, written as u64);
        rows.add_count(
            "events written per second",
            size,
            (written as f64 / took.as_secs_f64()).round() as u64,
        );
    }
    Ok(rows.into_json())
}

fn pod(size: usize, i: usize) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: Some("default".into()),
        name: Some(format!("p-{size}-{i}")),
        uid: Some(format!("u-{size}-{i}")),
        ..ObjectReference::default()
    }
}

/// Waits until no event was added for two seconds. Returns their number, and when it was reached.
async fn wait_until_still(api: &Api<Event>, begun: Instant) -> anyhow::Result<(usize, Duration)> {
    let (mut count, mut at) = (0, begun.elapsed());
    while begun.elapsed() - at < Duration::from_secs(2) {
        let now = api.count().await?;
        if now != count {
            (count, at) = (now, begun.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok((count, at))
}
