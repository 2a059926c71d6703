//! Requests of controllers that ask the API server before they decide.

use crate::rows::Rows;
use anyhow::Context;
use client::{Client, Config};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use testkit_control_plane::{Caller, ControlPlane};

/// Resources of a quota whose objects the controller manager does not cache and counts through the
/// API server.
const COUNTED: [&str; 5] = [
    "configmaps",
    "secrets",
    "count/deployments.apps",
    "count/jobs.batch",
    "count/ingresses.networking.k8s.io",
];

/// Sizes to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Number of ConfigMaps in the namespace
    #[arg(long, default_value_t = 1000)]
    objects: usize,
}

/// Runs all measurements.
pub async fn measure(options: &Options) -> anyhow::Result<Value> {
    let plane = ControlPlane::start().await;
    let client = Client::new(Config::from_kubeconfig(plane.kubeconfig("admin"))?);
    let maps = client.namespaced::<ConfigMap>("default");
    for i in 0..options.objects {
        maps.create(&serde_json::from_value(
            json!({"metadata": {"name": format!("m{i}")}}),
        )?)
        .await?;
    }
    let server = Server {
        admin: plane.admin(),
    };
    let mut rows = Rows::default();
    let before = server.count().await?;
    let found = controllers_runtime::discovery::discover_resources(&client).await?;
    let discovery = server.since(before).await?;
    rows.add_count(
        "requests of one discovery",
        found.resources.len(),
        discovery.requests,
    );
    rows.add_count(
        "bytes of one discovery",
        found.resources.len(),
        discovery.bytes,
    );
    let names = COUNTED.map(str::to_owned).into();
    let before = server.count().await?;
    controllers_namespaces::quota::count_objects(&client, "default", names).await?;
    let quota = server.since(before).await?;
    rows.add_count(
        "requests of one quota with 5 counted resources",
        options.objects,
        quota.requests,
    );
    rows.add_count(
        "bytes of one quota with 5 counted resources",
        options.objects,
        quota.bytes,
    );
    Ok(rows.into_json())
}

/// The API server's own counters.
struct Server {
    admin: Caller,
}

#[derive(Clone, Copy)]
struct Counters {
    requests: u64,
    bytes: u64,
}

impl Server {
    async fn count(&self) -> anyhow::Result<Counters> {
        let page = self.admin.get("/metrics").await.expect_success().text();
        Ok(Counters {
            requests: sum(&page, "apiserver_request_total{")?,
            bytes: sum(&page, "apiserver_response_sizes_sum{")?,
        })
    }

    /// Counts from `before` on, without the request for `before` itself.
    async fn since(&self, before: Counters) -> anyhow::Result<Counters> {
        let now = self.count().await?;
        Ok(Counters {
            requests: now.requests - before.requests - 1,
            bytes: now.bytes - before.bytes,
        })
    }
}

/// Sums a metric over all its labels.
fn sum(page: &str, start: &str) -> anyhow::Result<u64> {
    let values = page
        .lines()
        .filter(|line| line.starts_with(start))
        .map(|line| {
            let value = line
                .rsplit(' ')
                .next()
                .and_then(|text| text.parse::<f64>().ok());
            value.with_context(|| format!("no number: {line}"))
        });
    Ok(values.sum::<anyhow::Result<f64>>()? as u64)
}
