//! The observed state of a pod: its sandboxes and containers in the runtime.

use super::Nanos;
use node_runtime::labels;
use node_runtime::v1::{
    ContainerResources, ContainerState, ContainerStatus, PodSandboxState, PodSandboxStatus,
};
use std::collections::{BTreeMap, BTreeSet};

/// A CRI sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) attempt: u32,
    pub(crate) ready: bool,
    pub(crate) created_at: Nanos,
    /// Addresses, the primary one first.
    pub(crate) ips: Vec<String>,
}

impl Sandbox {
    pub(crate) fn from_status(status: PodSandboxStatus) -> Self {
        let network = status.network.unwrap_or_default();
        let more = network.additional_ips.into_iter().map(|ip| ip.ip);
        Sandbox {
            ready: status.state == PodSandboxState::SandboxReady as i32,
            id: status.id,
            attempt: status.metadata.map(|m| m.attempt).unwrap_or_default(),
            created_at: status.created_at,
            ips: std::iter::once(network.ip)
                .chain(more)
                .filter(|ip| !ip.is_empty())
                .collect(),
        }
    }
}

/// State of a CRI container.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CriState {
    /// Created, not started.
    #[default]
    Created,
    Running,
    Exited,
    Unknown,
}

/// One CRI container, created for a container of the spec.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CriContainer {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) attempt: u32,
    pub(crate) state: CriState,
    pub(crate) created_at: Nanos,
    pub(crate) started_at: Nanos,
    pub(crate) finished_at: Nanos,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) image: String,
    pub(crate) image_id: String,
    pub(crate) log_path: String,
    pub(crate) resources: Option<ContainerResources>,
    pub(crate) message_path: Option<String>,
    pub(crate) message_policy: String,
    /// Hash of the spec's fields at creation.
    pub(crate) hash: String,
    /// Mount paths that are recursively read-only.
    pub(crate) recursive_read_only: BTreeSet<String>,
}

impl CriContainer {
    pub(crate) fn from_status(status: ContainerStatus) -> Self {
        let state = match ContainerState::try_from(status.state) {
            Ok(ContainerState::ContainerCreated) => CriState::Created,
            Ok(ContainerState::ContainerRunning) => CriState::Running,
            Ok(ContainerState::ContainerExited) => CriState::Exited,
            _ => CriState::Unknown,
        };
        let inside = labels::read_label(&status.annotations, labels::MESSAGE_PATH);
        let recursive = status
            .mounts
            .iter()
            .filter(|m| m.recursive_read_only)
            .map(|m| m.container_path.clone());
        let recursive_read_only = recursive.collect();
        let mount = status
            .mounts
            .iter()
            .find(|m| !inside.is_empty() && m.container_path == inside);
        let metadata = status.metadata.unwrap_or_default();
        let restarts = labels::read_label(&status.annotations, labels::RESTART_COUNT).parse();
        CriContainer {
            name: metadata.name,
            // The annotation is upstream's restart count, also for containers of a stock kubelet.
            attempt: restarts.unwrap_or(metadata.attempt),
            state,
            created_at: status.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code,
            reason: status.reason,
            message: status.message,
            image: status.image.map(|i| i.image).unwrap_or_default(),
            // A reference with a digest, where the runtime has one: it identifies the image in a
            // registry, too.
            image_id: if status.image_ref.is_empty() {
                status.image_id
            } else {
                status.image_ref
            },
            log_path: status.log_path,
            resources: status.resources,
            message_path: mount.map(|m| m.host_path.clone()),
            message_policy: labels::read_label(&status.annotations, labels::MESSAGE_POLICY)
                .to_owned(),
            recursive_read_only,
            hash: labels::read_label(&status.annotations, labels::HASH).to_owned(),
            id: status.id,
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.state == CriState::Running
    }
}

/// All sandboxes and containers of one pod, newest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observed {
    pub(crate) sandboxes: Vec<Sandbox>,
    pub(crate) containers: BTreeMap<String, Vec<CriContainer>>,
}

impl Observed {
    pub(crate) fn new(mut sandboxes: Vec<Sandbox>, containers: Vec<CriContainer>) -> Self {
        sandboxes.sort_by_key(|s| std::cmp::Reverse((s.attempt, s.created_at)));
        let mut all = Observed {
            sandboxes,
            containers: BTreeMap::new(),
        };
        containers.into_iter().for_each(|i| all.record(i));
        all
    }

    /// Returns the sandbox in which containers run.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|s| s.ready)
    }

    pub(crate) fn put_sandbox(&mut self, sandbox: Sandbox) {
        self.sandboxes.retain(|s| s.id != sandbox.id);
        self.sandboxes.push(sandbox);
        self.sandboxes
            .sort_by_key(|s| std::cmp::Reverse((s.attempt, s.created_at)));
    }

    /// Records the observed state of a container; a stale observation does not replace a known
    /// exit.
    pub(crate) fn record(&mut self, container: CriContainer) {
        if self
            .by_id(&container.id)
            .is_some_and(|known| known.state == CriState::Exited)
        {
            return;
        }
        let of_name = self.containers.entry(container.name.clone()).or_default();
        of_name.retain(|i| i.id != container.id);
        of_name.push(container);
        of_name.sort_by_key(|i| std::cmp::Reverse((i.attempt, i.created_at)));
    }

    pub(crate) fn latest(&self, name: &str) -> Option<&CriContainer> {
        self.containers.get(name)?.first()
    }

    pub(crate) fn previous(&self, name: &str) -> Option<&CriContainer> {
        self.containers.get(name)?.get(1)
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&CriContainer> {
        self.iter_containers().find(|i| i.id == id)
    }

    pub(crate) fn iter_containers(&self) -> impl Iterator<Item = &CriContainer> {
        self.containers.values().flatten()
    }

    pub(crate) fn any_running(&self) -> bool {
        self.iter_containers().any(CriContainer::is_running)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use node_runtime::v1::{ContainerMetadata, Mount, PodIp, PodSandboxNetworkStatus};

    #[test]
    fn addresses_of_a_sandbox_are_the_primary_one_first_and_never_empty() {
        let of = |ip: &str, more: &[&str]| {
            let additional_ips = more.iter().map(|ip| PodIp { ip: (*ip).into() });
            let network = PodSandboxNetworkStatus {
                ip: ip.into(),
                additional_ips: additional_ips.collect(),
            };
            Sandbox::from_status(PodSandboxStatus {
                network: Some(network),
                ..PodSandboxStatus::default()
            })
            .ips
        };
        assert_eq!(of("10.0.0.1", &["fd00::1"]), ["10.0.0.1", "fd00::1"]);
        assert_eq!(of("", &[]), Vec::<String>::new());
    }

    /// After a restart of the kubelet only the annotation knows how often the container restarted.
    #[test]
    fn container_is_read_with_its_annotations_and_mounts() {
        let annotations = [
            (labels::RESTART_COUNT, "4"),
            (labels::MESSAGE_PATH, "/dev/termination-log"),
            (labels::MESSAGE_POLICY, "File"),
            (labels::HASH, "abc"),
        ];
        let mount = |inside: &str, host: &str, recursive_read_only| Mount {
            container_path: inside.into(),
            host_path: host.into(),
            recursive_read_only,
            ..Mount::default()
        };
        let container = CriContainer::from_status(ContainerStatus {
            id: "id".into(),
            metadata: Some(ContainerMetadata {
                name: "c".into(),
                attempt: 1,
            }),
            state: ContainerState::ContainerRunning as i32,
            image_ref: "repo@sha256:1".into(),
            image_id: "sha256:2".into(),
            mounts: vec![
                mount("/data", "/v", true),
                mount("/dev/termination-log", "/kubelet/0", false),
            ],
            annotations: annotations.map(|(k, v)| (k.into(), v.into())).into(),
            ..ContainerStatus::default()
        });
        assert_eq!((container.name.as_str(), container.attempt), ("c", 4));
        assert!(container.is_running());
        assert_eq!(container.image_id, "repo@sha256:1");
        assert_eq!(container.message_path.as_deref(), Some("/kubelet/0"));
        assert_eq!(container.recursive_read_only, ["/data".to_owned()].into());
        assert_eq!(container.hash, "abc");
    }

    fn container(id: &str, attempt: u32, state: CriState) -> CriContainer {
        CriContainer {
            id: id.into(),
            name: "c".into(),
            attempt,
            state,
            ..CriContainer::default()
        }
    }

    #[test]
    fn stale_observation_does_not_replace_a_known_exit() {
        let mut observed = Observed::default();
        observed.record(container("c0", 0, CriState::Exited));
        observed.record(container("c0", 0, CriState::Running));
        assert_eq!(observed.by_id("c0").unwrap().state, CriState::Exited);
        assert!(!observed.any_running());
    }

    #[test]
    fn latest_container_is_the_one_of_the_highest_attempt() {
        let all = [10, 9, 11].map(|n| container(&format!("c{n}"), n, CriState::Exited));
        let observed = Observed::new(Vec::new(), all.into());
        let id = |c: Option<&CriContainer>| c.map(|c| c.id.clone());
        assert_eq!(id(observed.latest("c")).as_deref(), Some("c11"));
        assert_eq!(id(observed.previous("c")).as_deref(), Some("c10"));
        assert_eq!(observed.latest("other"), None);
    }
}
