//! Stopping a container: preStop hook, stop signal, kill signal.

use super::observe::list_name;
use super::probing::ContainerCommands;
use crate::context::{KubeletContext, build_reference};
use crate::pod::spec;
use crate::worker::hook_timeout::hook_timeout;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use node_probes::{CheckResult, resolve_hook_handler};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that a container has after its stop signal in every case (upstream's
/// minimumGracePeriodInSeconds).
const MINIMUM_GRACE: Duration = Duration::from_secs(2);

/// Returns the time between stop signal and kill signal. A grace period of 0, or one that preStop
/// used up, still leaves the minimum: an unnecessary SIGKILL loses data.
pub(crate) fn remaining_grace(grace: Duration, elapsed: Duration) -> Duration {
    grace.saturating_sub(elapsed).max(MINIMUM_GRACE)
}

/// The stop of one CRI container.
#[derive(Debug)]
pub(crate) struct StopContainer {
    pub(crate) name: String,
    pub(crate) id: String,
    /// Message of the event; empty for the usual one.
    pub(crate) why: String,
    /// Grace period in seconds, preStop included.
    pub(crate) grace: i64,
}

impl StopContainer {
    /// Stops the container; returns false if the runtime failed.
    pub(crate) async fn run(
        &self,
        kubelet: &Arc<KubeletContext>,
        pod: &Pod,
        ip: Option<&String>,
    ) -> bool {
        let about = build_reference(pod, Some((list_name(pod, &self.name), &self.name)));
        let message = if self.why.is_empty() {
            format!("Stopping container {}", self.name)
        } else {
            self.why.clone()
        };
        kubelet.recorder.normal(&about, "Killing", message);
        let begun = Instant::now();
        let grace = Duration::from_secs(u64::try_from(self.grace).unwrap_or_default());
        // A forced deletion (grace period 0) skips the hook, as upstream does.
        if !grace.is_zero() {
            self.run_pre_stop(kubelet, pod, ip, &about).await;
        }
        let left = remaining_grace(grace, begun.elapsed());
        if let Err(e) = kubelet.runtime.stop_container(&self.id, left).await {
            tracing::warn!(container = self.name, id = self.id, error = %e, "container can't be stopped; trying again");
            // The plan orders the stop again at once, so the delay is here.
            tokio::time::sleep(Duration::from_secs(1)).await;
            return false;
        }
        true
    }

    /// Runs the preStop hook, at most for the grace period.
    async fn run_pre_stop(
        &self,
        kubelet: &Arc<KubeletContext>,
        pod: &Pod,
        ip: Option<&String>,
        about: &ObjectReference,
    ) {
        let Some((_, container)) = spec::find_container(pod, &self.name) else {
            return;
        };
        let hook = container
            .lifecycle
            .as_ref()
            .and_then(|l| l.pre_stop.as_ref());
        let Some(hook) = hook else { return };
        let grace = Duration::from_secs(u64::try_from(self.grace).unwrap_or_default());
        let ip = ip.map(String::as_str).unwrap_or_default();
        let handler = resolve_hook_handler(hook, &container, ip);
        let commands = ContainerCommands {
            kubelet: kubelet.clone(),
            id: self.id.clone(),
        };
        // An exec hook has no timeout of its own: the grace period is its limit.
        let limit = hook_timeout(&handler);
        let limit = if limit.is_zero() { grace } else { limit };
        match tokio::time::timeout(grace, node_probes::run_check(&handler, limit, &commands)).await
        {
            Ok(CheckResult::Completed(node_probes::Health::Healthy, _)) | Err(_) => {}
            Ok(CheckResult::Completed(_, why) | CheckResult::Unknown(why)) => {
                let message = format!("PreStopHook failed: {why}");
                kubelet
                    .recorder
                    .warning(about, "FailedPreStopHook", message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_has_at_least_two_seconds_to_stop() {
        for (grace, elapsed, expected) in [
            (30, 0, 30),
            (30, 10, 20),
            (30, 29, 2),
            (30, 60, 2),
            (1, 0, 2),
            (0, 0, 2),
        ] {
            let found = remaining_grace(Duration::from_secs(grace), Duration::from_secs(elapsed));
            assert_eq!(
                found,
                Duration::from_secs(expected),
                "{grace} s, {elapsed} s passed"
            );
        }
    }
}
