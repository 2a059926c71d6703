//! HorizontalPodAutoscalers: scale the target within its bounds by CPU and memory usage of its
//! pods.
//!
//! Metrics come from `metrics.k8s.io`. If that API is not served, the autoscaler reports it in its
//! conditions and only keeps the target within its bounds.

mod decide;
mod metrics;

use std::time::Duration;

use async_trait::async_trait;
use client::{Client, Error, Request};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;

use controllers_runtime::{Action, Cache, Drive, Executor, Meta, Queue, Setup, discovery, wake};

struct Autoscaler {
    scalers: Cache<HorizontalPodAutoscaler>,
    pods: Cache<Pod>,
    client: Client,
    period: Duration,
}

/// Sets up the autoscaler; it reads metrics every `period`.
pub fn add_horizontal_pod_autoscaler(setup: &mut Setup, period: Duration) {
    let queue = Queue::new();
    let scalers = setup
        .informers
        .for_kind::<HorizontalPodAutoscaler>()
        .on_event(wake::enqueue_object(&queue))
        .cache();
    let pods = setup.informers.for_kind::<Pod>().index_namespace().cache();
    let client = setup.client.clone();
    setup.add_driver(
        "horizontal-pod-autoscaler",
        2,
        queue,
        Autoscaler {
            scalers,
            pods,
            client,
            period,
        },
    );
}

#[async_trait]
impl Drive for Autoscaler {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(scaler) = self.scalers.get(key) else {
            return Ok(Vec::new());
        };
        let client = executor.client().await?;
        let now = Timestamp::now();
        let mut actions = match self.find_target(&client, &scaler).await? {
            Ok((path, scale)) => {
                let pods = self.pods.in_namespace(scaler.namespace());
                let readings = metrics::read_metrics(&self.client, &scaler, &scale, &pods).await;
                let outcome = decide::decide_size(&scaler, &scale, &readings, now);
                // Before the status, which must not report a size that the target has rejected.
                if let Some(size) = outcome.rescale {
                    self.rescale_target(&client, &path, scale, size).await?;
                }
                outcome.actions
            }
            Err(problem) => decide::no_target(&scaler, &problem, now),
        };
        // Metrics have no watch, so they are read again after the period even if no object has
        // changed.
        actions.push(Action::Requeue(self.period));
        Ok(actions)
    }
}

impl Autoscaler {
    /// Returns the target's scale and its path, or the reason why there is none.
    async fn find_target(
        &self,
        client: &Client,
        scaler: &HorizontalPodAutoscaler,
    ) -> Result<Result<(String, Scale), String>, Error> {
        let target = &scaler.spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("v1");
        let (group, _) = version.rsplit_once('/').unwrap_or(("", version));
        let Some(plural) = self.find_plural(group, &target.kind).await? else {
            return Ok(Err(format!(
                "no matches for kind \"{}\" in group \"{group}\"",
                target.kind
            )));
        };
        let root = if group.is_empty() {
            format!("/api/{version}")
        } else {
            format!("/apis/{version}")
        };
        let path = format!(
            "{root}/namespaces/{}/{plural}/{}/scale",
            scaler.namespace(),
            target.name
        );
        match client.request::<Scale>(Request::get(path.clone())).await {
            Ok(scale) => Ok(Ok((path, scale))),
            // With a response the target is wrong, which the condition must show. Without one the
            // server is only unreachable.
            Err(error) if error.status().is_some() => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    async fn find_plural(&self, group: &str, kind: &str) -> Result<Option<String>, Error> {
        // Discovery at every period would be expensive, and nearly all targets are of these kinds.
        let usual = match (group, kind) {
            ("apps", "Deployment") => "deployments",
            ("apps", "ReplicaSet") => "replicasets",
            ("apps", "StatefulSet") => "statefulsets",
            ("", "ReplicationController") => "replicationcontrollers",
            _ => {
                let found = discovery::discover_resources(&self.client).await?;
                let served = found
                    .resources
                    .into_iter()
                    .find(|s| s.resource.group == group && s.resource.kind == kind);
                return Ok(served.map(|s| s.resource.plural));
            }
        };
        Ok(Some(usual.to_owned()))
    }

    async fn rescale_target(
        &self,
        client: &Client,
        path: &str,
        mut scale: Scale,
        size: i32,
    ) -> Result<(), Error> {
        scale.spec.get_or_insert_default().replicas = Some(size);
        let mut request = Request::post(path.to_owned(), &scale)?;
        // With the resourceVersion that was read: a size that another client has set in the
        // meantime is not overwritten.
        request.method = http::Method::PUT;
        client.bytes(request).await.map(drop)
    }
}
