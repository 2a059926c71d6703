//! Messages to a pod worker, and the results of its jobs.

use crate::pod::backoff::FailedStep;
use crate::pod::memory::WaitingReason;
use crate::pod::resize_plan::ResizeOutcome;
use crate::pod::view::{CriContainer, Sandbox};
use crate::volumes::Volumes;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use node_probes::{ProbeKind, ProbeReport};
use std::sync::Arc;

/// A message to a pod worker.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// The pod's desired state.
    Pod(Arc<Pod>),
    /// The pod was removed from its source; its last state.
    Removed(Arc<Pod>),
    /// The runtime reported a change; with the container's id if it is known to have exited.
    Changed(Option<String>),
    /// The container with this id ran out of memory.
    OutOfMemory(String),
    /// An object that the pod's volumes or environment are made from changed.
    Refresh,
    /// The mirror pod of a static pod was created: it has no status yet.
    MirrorCreated,
    /// The mirror pod of a static pod, as the API server shows it.
    MirrorUpdated(Arc<Pod>),
    /// A container runs; its postStart hook has not run yet.
    Started(CriContainer),
    /// Report of a container's probe.
    Probe {
        name: String,
        id: String,
        kind: ProbeKind,
        report: ProbeReport,
    },
    /// The pod is evicted: reason and message.
    Evict(String, String),
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum JobResult {
    /// None if the job was aborted because the pod terminates.
    VolumesSetUp(Option<Result<Volumes, String>>),
    /// None if the job was aborted because the pod terminates.
    DevicesPrepared(Option<Result<(), String>>),
    DevicesReleased(Result<(), String>),
    SandboxCreated(Result<Sandbox, String>),
    SandboxStopped(Result<(), String>),
    ContainerStart {
        name: String,
        /// Resources that the container was created with.
        resources: ResourceRequirements,
        result: Result<CriContainer, StartError>,
    },
    ContainerStop {
        name: String,
        /// False if the runtime failed; the container may still run.
        stopped: bool,
    },
    /// None if the job was aborted because the pod terminates.
    Resize(Option<ResizeOutcome>),
    /// A job whose result changes nothing.
    Other,
}

/// The reason why a container did not start.
#[derive(Clone, Debug)]
pub(crate) struct StartError {
    pub(crate) waiting: WaitingReason,
    pub(crate) step: FailedStep,
}
