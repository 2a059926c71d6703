//! Actions that a plan consists of.

use crate::pod::Nanos;

/// An action of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PodAction {
    SetUpVolumes,
    /// Prepare the devices of the pod's claims.
    PrepareDevices,
    /// Release them, since no container runs any more.
    ReleaseDevices,
    CreateSandbox {
        attempt: u32,
    },
    /// Stop a sandbox that is not ready or not needed, with its containers.
    StopSandbox {
        id: String,
    },
    Start {
        name: String,
        attempt: u32,
    },
    Kill {
        name: String,
        id: String,
        why: String,
        grace: i64,
    },
    /// Terminate the pod: its containers are done, or it failed.
    Terminate,
    /// The pod has terminated.
    CompleteTermination,
    /// Plan again at this time.
    WakeAt(Nanos),
}

impl PodAction {
    /// Returns the action, or a wake-up if its time has not come.
    pub(crate) fn due_at(self, not_before: Nanos, now: Nanos) -> PodAction {
        if not_before > now {
            PodAction::WakeAt(not_before)
        } else {
            self
        }
    }
}
