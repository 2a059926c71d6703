//! HorizontalPodAutoscalers: scale the target within its bounds by metrics.
//!
//! Metrics come from `metrics.k8s.io`, `custom.metrics.k8s.io` and `external.metrics.k8s.io`. If
//! they can't be read, the autoscaler reports it in its conditions and only keeps the target within
//! its bounds.

mod config;
mod decide;
mod history;
mod metrics;
mod proposal;
mod quantity;
mod replicas;
mod resources;

use std::collections::HashMap;
use std::sync::Arc;

use api_meta::Selector;
use async_trait::async_trait;
use client::{Client, Error, Event, Request};
use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use controllers_runtime::{Action, Cache, Drive, Executor, Meta, Queue, Setup};

pub use config::Config;
use decide::{Metrics, Need};
use history::History;
use metrics::escape_segment;
use replicas::{Context, Tolerances};
use resources::Resources;

/// Maximum number of attempts to write a size that conflicts with other writes: upstream's.
const MAX_ATTEMPTS: usize = 5;

/// An autoscaler's state in memory.
#[derive(Debug, Default)]
struct Memory {
    /// UID of the autoscaler. Another one of the same name starts with nothing.
    uid: String,
    history: History,
    /// Selector of the target's pods, for the detection of two autoscalers of one target.
    selector: Option<Arc<Selector>>,
}

struct Autoscaler {
    scalers: Cache<HorizontalPodAutoscaler>,
    pods: Cache<Pod>,
    config: Config,
    /// By key, so that a deleted autoscaler leaves nothing behind.
    memories: Mutex<HashMap<String, Memory>>,
    resources: Resources,
}

/// Sets up the autoscaler.
pub fn add_horizontal_pod_autoscaler(setup: &mut Setup, config: Config) {
    let queue = Queue::new();
    let changed = queue.clone();
    let scalers = setup
        .informers
        .for_kind::<HorizontalPodAutoscaler>()
        .on_event(move |event| {
            if needs_reconcile(event) {
                changed.add(event.object().key());
            }
        })
        .cache();
    let pods = setup.informers.for_kind::<Pod>().index_namespace().cache();
    let workers = config.workers;
    setup.add_driver(
        "horizontal-pod-autoscaler",
        workers,
        queue,
        Autoscaler {
            scalers,
            pods,
            config,
            memories: Mutex::default(),
            resources: Resources::default(),
        },
    );
}

/// Returns whether an event is more than a write of the status. Each such write would start the
/// next reconcile, and a target could double its size several times within a period.
fn needs_reconcile(event: &Event<HorizontalPodAutoscaler>) -> bool {
    match event {
        Event::Applied { old, new } => old
            .as_ref()
            .is_none_or(|old| old.spec != new.spec || old.meta().uid != new.meta().uid),
        Event::Deleted(_) => true,
    }
}

#[async_trait]
impl Drive for Autoscaler {
    async fn reconcile(&self, key: &str, executor: &Executor) -> Result<Vec<Action>, Error> {
        let Some(scaler) = self.scalers.get(key) else {
            self.memories.lock().remove(key);
            return Ok(Vec::new());
        };
        let client = executor.client().await?;
        let mut actions = match self.find_target(&client, &scaler).await? {
            Ok((path, scale)) => self.scale_target(key, &client, &scaler, &path, scale).await,
            Err(problem) => decide::no_target(&scaler, &problem, Timestamp::now()),
        };
        // Metrics have no watch, so they are read again after the period even if no object has
        // changed.
        actions.push(Action::Requeue(self.config.period));
        Ok(actions)
    }
}

impl Autoscaler {
    async fn scale_target(
        &self,
        key: &str,
        client: &Client,
        scaler: &HorizontalPodAutoscaler,
        path: &str,
        scale: Scale,
    ) -> Vec<Action> {
        let metrics = match decide::assess_need(scaler, &scale) {
            Need::Metrics => Some(self.read_metrics(key, client, scaler, &scale).await),
            Need::Disabled | Need::Bounded(..) => None,
        };
        let now = Timestamp::now();
        let decision = self.with_memory(key, scaler, |memory| {
            let history = &mut memory.history;
            decide::decide_size(scaler, &scale, metrics, history, &self.config, now)
        });
        let written = match &decision.rescale {
            // Before the status, which must not report a size that the target has rejected.
            Some(rescale) => rescale_target(client, path, scale, rescale.size).await,
            None => Ok(()),
        };
        let written = written.map_err(|error| error.to_string());
        self.with_memory(key, scaler, |memory| {
            decision.into_actions(written, &mut memory.history, &self.config)
        })
    }

    fn with_memory<T>(
        &self,
        key: &str,
        scaler: &HorizontalPodAutoscaler,
        change: impl FnOnce(&mut Memory) -> T,
    ) -> T {
        let uid = scaler.meta().uid.clone().unwrap_or_default();
        let mut memories = self.memories.lock();
        let memory = memories.entry(key.to_owned()).or_default();
        if memory.uid != uid {
            *memory = Memory {
                uid,
                ..Memory::default()
            };
        }
        change(memory)
    }

    async fn read_metrics(
        &self,
        key: &str,
        client: &Client,
        scaler: &HorizontalPodAutoscaler,
        scale: &Scale,
    ) -> Metrics {
        let status = scale.status.as_ref();
        let selector = status.and_then(|s| s.selector.as_deref());
        let selector = selector.unwrap_or_default();
        let pods = match self.select_pods(key, scaler, selector) {
            Ok(pods) => pods,
            Err(problem) => return problem,
        };
        let reader = metrics::Reader {
            client,
            resources: &self.resources,
            namespace: scaler.namespace(),
            selector,
        };
        let mut proposals = Vec::new();
        for spec in scaler.spec.metrics.iter().flatten() {
            let reading = reader.read_metric(spec).await;
            let context = Context {
                pods: &pods,
                current: decide::current_size(scale),
                observed: status.map_or(0, |s| s.replicas),
                tolerances: Tolerances::of_autoscaler(scaler, self.config.tolerance),
                config: &self.config,
                now: Timestamp::now(),
            };
            proposals.push(proposal::propose_size(&context, spec, &reading));
        }
        Metrics::Proposals(proposals)
    }

    /// Returns the pods that the target's selector matches, or the problem with the selector.
    fn select_pods(
        &self,
        key: &str,
        scaler: &HorizontalPodAutoscaler,
        text: &str,
    ) -> Result<Vec<Arc<Pod>>, Metrics> {
        let selector = parse_selector(text)?;
        let mut pods = self.pods.in_namespace(scaler.namespace());
        pods.retain(|pod| selector.matches(|label| pod.label(label)));
        self.with_memory(key, scaler, |memory| {
            memory.selector = Some(Arc::new(selector));
        });
        let known = self.selectors_in(scaler.namespace());
        let selects = |s: &Selector| pods.iter().any(|pod| s.matches(|label| pod.label(label)));
        let rivals = known.iter().filter(|(_, selector)| selects(selector));
        let mut rivals: Vec<&str> = rivals.map(|(key, _)| key.as_str()).collect();
        if rivals.len() > 1 {
            rivals.sort_unstable();
            return Err(ambiguous_selector(text, &rivals));
        }
        Ok(pods)
    }

    // A copy, so that the matching does not hold up the autoscalers of other namespaces.
    fn selectors_in(&self, namespace: &str) -> Vec<(String, Arc<Selector>)> {
        let prefix = format!("{namespace}/");
        let memories = self.memories.lock();
        let own = memories.iter().filter(|(key, _)| key.starts_with(&prefix));
        own.filter_map(|(key, memory)| Some((key.clone(), memory.selector.clone()?)))
            .collect()
    }

    /// Returns the target's scale and its path, or the reason why there is none.
    async fn find_target(
        &self,
        client: &Client,
        scaler: &HorizontalPodAutoscaler,
    ) -> Result<Result<(String, Scale), String>, Error> {
        let target = &scaler.spec.scale_target_ref;
        let version = target.api_version.as_deref().unwrap_or("v1");
        let (group, _) = version.rsplit_once('/').unwrap_or(("", version));
        let Some(resource) = self.resources.find(client, group, &target.kind).await? else {
            return Ok(Err(format!(
                "no matches for kind \"{}\" in group \"{group}\"",
                target.kind
            )));
        };
        // Nothing of the author's text is part of the path but the name, which is escaped: the
        // controller may write the scales of all namespaces.
        let path = format!(
            "{}/namespaces/{}/{}/{}/scale",
            resource.root(),
            scaler.namespace(),
            resource.plural,
            escape_segment(&target.name)
        );
        match client.request::<Scale>(Request::get(path.clone())).await {
            Ok(scale) => Ok(Ok((path, scale))),
            // With a response the target is wrong, which the condition must show. Without one the
            // server is only unreachable.
            Err(error) if error.status().is_some() => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }
}

/// Parses the target's selector.
fn parse_selector(text: &str) -> Result<Selector, Metrics> {
    // An empty selector would match every pod of the namespace.
    if text.is_empty() {
        return Err(Metrics::BadSelector {
            reasons: ["InvalidSelector", "SelectorRequired"],
            messages: [
                "the HPA target's scale is missing a selector".to_owned(),
                "selector is required".to_owned(),
            ],
        });
    }
    Selector::parse(text).map_err(|error| {
        let message = format!(
            "couldn't convert selector into a corresponding internal selector object: {error}"
        );
        Metrics::BadSelector {
            reasons: ["InvalidSelector", "InvalidSelector"],
            messages: [message.clone(), message],
        }
    })
}

fn ambiguous_selector(selector: &str, keys: &[&str]) -> Metrics {
    let message = format!(
        "pods by selector {selector} are controlled by multiple HPAs: [{}]",
        keys.join(" ")
    );
    Metrics::BadSelector {
        reasons: ["AmbiguousSelector", "AmbiguousSelector"],
        messages: [message.clone(), message],
    }
}

/// Writes a size, again after a conflict with another write.
async fn rescale_target(
    client: &Client,
    path: &str,
    mut scale: Scale,
    size: i32,
) -> Result<(), Error> {
    let mut attempts = 0;
    loop {
        scale.spec.get_or_insert_default().replicas = Some(size);
        let mut request = Request::post(path.to_owned(), &scale)?;
        request.method = http::Method::PUT;
        attempts += 1;
        match client.bytes(request).await {
            Err(error) if error.code() == Some(409) && attempts < MAX_ATTEMPTS => {
                scale = client.request::<Scale>(Request::get(path)).await?;
            }
            written => return written.map(drop),
        }
    }
}

#[cfg(test)]
mod tests;
