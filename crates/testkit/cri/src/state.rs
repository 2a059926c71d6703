//! Simulated sandboxes and containers.

use base_task::Tasks;
use parking_lot::Mutex;
use proto_cri::v1::{
    ContainerConfig, ContainerEventResponse, ContainerEventType, ContainerState, ContainerStatus,
    PodSandboxConfig, PodSandboxNetworkStatus, PodSandboxState, PodSandboxStatus,
};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{broadcast, watch};

pub(crate) struct Sandbox {
    pub(crate) config: PodSandboxConfig,
    pub(crate) status: PodSandboxStatus,
    pub(crate) handler: String,
}

pub(crate) struct Container {
    pub(crate) config: ContainerConfig,
    pub(crate) sandbox: String,
    pub(crate) status: ContainerStatus,
    /// Becomes true when the container has exited.
    pub(crate) ended: watch::Sender<bool>,
}

#[derive(Default)]
pub(crate) struct Things {
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
}

pub(crate) struct State {
    pub(crate) things: Mutex<Things>,
    pub(crate) events: broadcast::Sender<ContainerEventResponse>,
    /// Calls of both services so far.
    pub(crate) calls: AtomicU64,
    serial: AtomicU64,
    /// The /16 of the sandboxes' addresses.
    network: Ipv4Addr,
    /// Ends the containers that exit by themselves.
    pub(crate) tasks: Tasks,
}

pub(crate) fn now() -> i64 {
    i64::try_from(jiff::Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX)
}

impl State {
    pub(crate) fn new(tasks: Tasks, network: Ipv4Addr) -> Arc<Self> {
        let (events, _) = broadcast::channel(1024);
        Arc::new(State {
            things: Mutex::default(),
            events,
            calls: AtomicU64::new(0),
            serial: AtomicU64::new(1),
            network,
            tasks,
        })
    }

    /// Returns an ID in the form of a real one, which is not reused after a restart.
    pub(crate) fn id(&self) -> (String, u64) {
        let serial = self.serial.fetch_add(1, Ordering::Relaxed);
        (format!("{:016x}{serial:048x}", now()), serial)
    }

    /// Returns an address for the sandbox with this serial number.
    pub(crate) fn address(&self, serial: u64) -> String {
        let [a, b, ..] = self.network.octets();
        format!("{a}.{b}.{}.{}", serial / 250 % 256, serial % 250 + 2)
    }

    pub(crate) fn network(ip: String) -> PodSandboxNetworkStatus {
        PodSandboxNetworkStatus {
            ip,
            additional_ips: Vec::new(),
        }
    }

    /// Exits a container, unless it has exited already.
    pub(crate) fn end(&self, id: &str, code: i32, reason: &str) {
        let event = {
            let mut things = self.things.lock();
            let Some(container) = things.containers.get_mut(id) else {
                return;
            };
            if container.status.state == ContainerState::ContainerExited as i32 {
                return;
            }
            container.status.state = ContainerState::ContainerExited as i32;
            container.status.finished_at = now();
            container.status.exit_code = code;
            container.status.reason = reason.to_owned();
            container.ended.send_replace(true);
            let sandbox = container.sandbox.clone();
            event(
                &things,
                id,
                &sandbox,
                ContainerEventType::ContainerStoppedEvent,
            )
        };
        // There may be no listener.
        let _ = self.events.send(event);
    }

    /// Sends an event about a container, as runtimes do for whatever happens to it.
    pub(crate) fn notify(&self, id: &str, kind: ContainerEventType) {
        let things = self.things.lock();
        let Some(container) = things.containers.get(id) else {
            return;
        };
        let _ = self
            .events
            .send(event(&things, id, &container.sandbox, kind));
    }

    /// Returns whether the pod's annotation `stop-failures` makes this stop fail.
    pub(crate) fn stop_fails(&self, id: &str) -> bool {
        self.count_failure(id, "simulated.ironclad/stop-failures")
    }

    /// Returns whether the pod's annotation `cpu-update-failures` makes this update fail.
    pub(crate) fn cpu_update_fails(&self, id: &str) -> bool {
        self.count_failure(id, "simulated.ironclad/cpu-update-failures")
    }

    /// Counts one of the failures in a pod's annotation; returns whether any was left.
    fn count_failure(&self, id: &str, annotation: &str) -> bool {
        let mut things = self.things.lock();
        let Some(sandbox) = things.containers.get(id).map(|c| c.sandbox.clone()) else {
            return false;
        };
        let Some(sandbox) = things.sandboxes.get_mut(&sandbox) else {
            return false;
        };
        let Some(left) = sandbox.config.annotations.get_mut(annotation) else {
            return false;
        };
        let failures: u32 = left.parse().unwrap_or_default();
        *left = failures.saturating_sub(1).to_string();
        failures > 0
    }

    pub(crate) fn stop_sandbox(&self, id: &str) {
        let inside: Vec<String> = {
            let mut things = self.things.lock();
            if let Some(sandbox) = things.sandboxes.get_mut(id) {
                sandbox.status.state = PodSandboxState::SandboxNotready as i32;
            }
            things
                .containers
                .iter()
                .filter(|(_, c)| c.sandbox == id)
                .map(|(id, _)| id.clone())
                .collect()
        };
        inside.iter().for_each(|id| self.end(id, 137, "Error"));
    }
}

fn event(
    things: &Things,
    id: &str,
    sandbox: &str,
    kind: ContainerEventType,
) -> ContainerEventResponse {
    let statuses = things
        .containers
        .values()
        .filter(|c| c.sandbox == sandbox)
        .map(|c| c.status.clone());
    ContainerEventResponse {
        container_id: id.to_owned(),
        container_event_type: kind as i32,
        created_at: now(),
        pod_sandbox_status: things.sandboxes.get(sandbox).map(|s| s.status.clone()),
        containers_statuses: statuses.collect(),
    }
}
