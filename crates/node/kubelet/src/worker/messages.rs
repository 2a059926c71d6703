//! What a worker is told, and what its work reports.

use crate::pod::memory::Waiting;
use crate::pod::view::{Instance, Sandbox};
use crate::volumes::Volumes;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements};
use node_probes::{ProbeKind, ProbeReport};
use std::sync::Arc;

/// News for a worker.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// The pod as it is wanted now.
    Pod(Arc<Pod>),
    /// The pod is no longer wanted here; its last state.
    Removed(Arc<Pod>),
    /// The runtime says that something changed; the container, where it is known that it ended.
    Changed(Option<String>),
    /// Memory of this container ran out.
    OutOfMemory(String),
    /// Something that the pod's volumes or environment are made from changed.
    Refresh,
    /// The mirror of a static pod was made: it has no status yet.
    Mirrored,
    /// A container runs, its hook not yet.
    Started(Instance),
    /// A probe of an instance has something to say.
    Probe { name: String, id: String, kind: ProbeKind, report: ProbeReport },
    /// The pod must go: reason and message.
    Evict(String, String),
}

/// What ended.
#[derive(Debug)]
pub(crate) enum Done {
    /// None: given up, because the pod ends.
    Volumes(Option<Result<Volumes, String>>),
    Sandbox(Result<Sandbox, String>),
    SandboxStopped(Result<(), String>),
    Start {
        name: String,
        /// What the container was made with.
        resources: ResourceRequirements,
        result: Result<Instance, NotStarted>,
    },
    Kill {
        name: String,
        /// False: the runtime failed, and the instance may still run.
        stopped: bool,
    },
    /// A container has these resources now; None: the runtime failed.
    Resize {
        name: String,
        resources: Option<ResourceRequirements>,
    },
    /// Nothing that anybody waits for.
    Aside,
}

/// Why a container did not start.
#[derive(Clone, Debug)]
pub(crate) struct NotStarted {
    pub(crate) waiting: Waiting,
    /// A pull was tried and failed.
    pub(crate) pulled: bool,
    /// Kept from pulling by the back-off.
    pub(crate) backed_off: bool,
    /// The runtime has an instance all the same.
    pub(crate) made: bool,
}
