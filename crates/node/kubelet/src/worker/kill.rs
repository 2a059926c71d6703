//! Stopping a container: preStop hook, stop signal, kill signal.

use super::observe::list_name;
use super::probing::ContainerCommands;
use super::start::hook_limit;
use crate::context::{KubeletContext, reference};
use crate::pod::spec;
use k8s_openapi::api::core::v1::Pod;
use node_probes::{Outcome, handler_of_lifecycle};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time left for the container if preStop used up the grace period (as upstream's
/// minimumGracePeriodInSeconds).
const LEAST: Duration = Duration::from_secs(2);

/// Stops the CRI container `id` of the container `name` within `grace` seconds; returns false if
/// the runtime failed.
pub(crate) async fn kill(
    node: Arc<KubeletContext>,
    pod: Arc<Pod>,
    name: String,
    id: String,
    why: String,
    grace: i64,
    ip: String,
) -> bool {
    let about = reference(&pod, Some((list_name(&pod, &name), &name)));
    let message = if why.is_empty() {
        format!("Stopping container {name}")
    } else {
        why
    };
    node.recorder.normal(&about, "Killing", message);
    let begun = Instant::now();
    let grace = Duration::from_secs(u64::try_from(grace).unwrap_or_default());
    let container = spec::find(&pod, &name).map(|(_, c)| c);
    let hook = container
        .as_ref()
        .and_then(|c| c.lifecycle.as_ref()?.pre_stop.clone());
    if let (Some(hook), Some(container), false) = (hook, &container, grace.is_zero()) {
        let handler = handler_of_lifecycle(&hook, container, &ip);
        let commands = ContainerCommands {
            node: node.clone(),
            id: id.clone(),
        };
        let limit = hook_limit(&handler);
        let limit = if limit.is_zero() { grace } else { limit };
        match tokio::time::timeout(grace, node_probes::check(&handler, limit, &commands)).await {
            Ok(Outcome::Answer(node_probes::Health::Healthy, _)) | Err(_) => {}
            Ok(Outcome::Answer(_, why) | Outcome::Unknown(why)) => {
                node.recorder.warning(
                    &about,
                    "FailedPreStopHook",
                    format!("PreStopHook failed: {why}"),
                );
            }
        }
    }
    let left = if grace.is_zero() {
        grace
    } else {
        grace.saturating_sub(begun.elapsed()).max(LEAST.min(grace))
    };
    if let Err(e) = node.runtime.stop_container(&id, left).await {
        tracing::warn!(container = name, id, error = %e, "container can't be stopped; trying again");
        tokio::time::sleep(Duration::from_secs(1)).await;
        return false;
    }
    true
}
