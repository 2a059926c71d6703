//! A pod's lifecycle on this node: running, terminating, terminated, as in upstream's pod workers.
//!
//! Invariant: no transition leads back. A pod that terminates is never started again, and its grace
//! period only becomes shorter.

use super::{Nanos, SECOND};

/// The progress of a pod on this node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum PodLifecycle {
    /// Containers are started and restarted.
    #[default]
    Running,
    /// Containers are stopped and not started again.
    Terminating(Termination),
    /// Containers and sandbox have stopped, and the pod's resources are released.
    Terminated(Termination),
}

/// A pod's termination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Termination {
    /// The first cause, for the status.
    pub(crate) cause: TerminationCause,
    /// End of the grace period; 0 if there is none.
    pub(crate) deadline: Nanos,
    /// May follow later than the termination: a pod that failed is deleted some time afterwards.
    pub(crate) deletion: Deletion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TerminationCause {
    /// The status in the API was Succeeded or Failed before this worker started. It is final, so
    /// the worker does not compute it again.
    AlreadyFinished,
    /// All containers have terminated.
    Finished,
    /// Deleted through the API.
    Deleted,
    /// Removed from its source: no status to report.
    Removed,
    /// Failed by the kubelet: reason and message of the status.
    Failed { reason: String, message: String },
    /// Another client wrote a final phase to the pod's status. A pod never leaves it.
    SetByClient {
        phase: &'static str,
        reason: Option<String>,
        message: Option<String>,
    },
}

/// The deletion of a pod, in the order of its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deletion {
    NotRequested,
    /// `deletionTimestamp` is set.
    Requested,
    /// The pod object was removed from the API server, or the manifest from its directory.
    Removed,
}

/// The effect of a request to terminate a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    Begun,
    /// The grace period became shorter: stops that are running must end sooner.
    Shortened,
    Unchanged,
}

impl TerminationCause {
    fn deletion(&self) -> Deletion {
        match self {
            TerminationCause::Deleted => Deletion::Requested,
            TerminationCause::Removed => Deletion::Removed,
            _ => Deletion::NotRequested,
        }
    }
}

impl PodLifecycle {
    /// Begins the termination with a grace period in seconds, or shortens the period of one that
    /// has begun.
    pub(crate) fn terminate(
        &mut self,
        cause: TerminationCause,
        grace: i64,
        now: Nanos,
    ) -> Transition {
        let deletion = cause.deletion();
        // 0 stands for no grace period; it is smaller than every time, so it can only shorten.
        let deadline = if grace <= 0 { 0 } else { now + grace * SECOND };
        match self {
            PodLifecycle::Running => {
                *self = PodLifecycle::Terminating(Termination {
                    cause,
                    deadline,
                    deletion,
                });
                Transition::Begun
            }
            PodLifecycle::Terminating(begun) | PodLifecycle::Terminated(begun) => {
                begun.deletion = begun.deletion.max(deletion);
                if deadline >= begun.deadline {
                    return Transition::Unchanged;
                }
                begun.deadline = deadline;
                Transition::Shortened
            }
        }
    }

    /// Records that the containers and the sandbox of a terminating pod have stopped.
    pub(crate) fn complete_termination(&mut self) {
        if let PodLifecycle::Terminating(termination) = self {
            *self = PodLifecycle::Terminated(termination.clone());
        }
    }

    /// Returns the termination once it has begun.
    pub(crate) fn termination(&self) -> Option<&Termination> {
        match self {
            PodLifecycle::Running => None,
            PodLifecycle::Terminating(begun) | PodLifecycle::Terminated(begun) => Some(begun),
        }
    }

    pub(crate) fn cause(&self) -> Option<&TerminationCause> {
        self.termination().map(|t| &t.cause)
    }

    pub(crate) fn is_running(&self) -> bool {
        matches!(self, PodLifecycle::Running)
    }

    pub(crate) fn is_terminated(&self) -> bool {
        matches!(self, PodLifecycle::Terminated(_))
    }

    /// Returns whether the status in the API is final and must not change.
    pub(crate) fn is_status_final(&self) -> bool {
        self.cause() == Some(&TerminationCause::AlreadyFinished)
    }

    /// Returns whether the pod is to be cleaned up once it has terminated.
    pub(crate) fn is_deletion_requested(&self) -> bool {
        self.deletion() >= Deletion::Requested
    }

    /// Returns whether the pod's source no longer has it, so that no status can be written.
    pub(crate) fn is_removed(&self) -> bool {
        self.deletion() == Deletion::Removed
    }

    fn deletion(&self) -> Deletion {
        self.termination()
            .map_or(Deletion::NotRequested, |t| t.deletion)
    }
}

#[cfg(test)]
mod tests {
    use super::Deletion::{NotRequested, Requested};
    use super::*;

    const NOW: Nanos = 100 * SECOND;

    fn failed() -> TerminationCause {
        TerminationCause::Failed {
            reason: "Evicted".into(),
            message: String::new(),
        }
    }

    fn termination(cause: TerminationCause, seconds: i64, deletion: Deletion) -> Termination {
        Termination {
            cause,
            deadline: seconds * SECOND,
            deletion,
        }
    }

    #[test]
    fn lifecycle_terminate_moves_only_forward() {
        use PodLifecycle::{Running, Terminated, Terminating};
        use TerminationCause::{AlreadyFinished, Deleted, Finished, Removed};
        use Transition::{Begun, Shortened, Unchanged};
        let deleted = |seconds| termination(Deleted, seconds, Requested);
        let removed = |seconds| termination(Deleted, seconds, Deletion::Removed);
        for (case, before, cause, grace, transition, after) in [
            (
                "deletion of a running pod",
                Running,
                Deleted,
                30,
                Begun,
                Terminating(deleted(130)),
            ),
            (
                "deletion without a grace period",
                Running,
                Deleted,
                0,
                Begun,
                Terminating(deleted(0)),
            ),
            (
                "failure of a running pod requests no deletion",
                Running,
                failed(),
                0,
                Begun,
                Terminating(termination(failed(), 0, NotRequested)),
            ),
            (
                "pod that finished under an earlier kubelet",
                Running,
                AlreadyFinished,
                0,
                Begun,
                Terminating(termination(AlreadyFinished, 0, NotRequested)),
            ),
            (
                "second deletion with a shorter grace period",
                Terminating(deleted(130)),
                Deleted,
                5,
                Shortened,
                Terminating(deleted(105)),
            ),
            (
                "second deletion with a longer grace period",
                Terminating(deleted(130)),
                Deleted,
                60,
                Unchanged,
                Terminating(deleted(130)),
            ),
            (
                "second deletion with the same end",
                Terminating(deleted(130)),
                Deleted,
                30,
                Unchanged,
                Terminating(deleted(130)),
            ),
            (
                "no grace period can't be shortened",
                Terminating(deleted(0)),
                Deleted,
                0,
                Unchanged,
                Terminating(deleted(0)),
            ),
            (
                "removal of a terminating pod keeps the first cause",
                Terminating(deleted(130)),
                Removed,
                30,
                Unchanged,
                Terminating(removed(130)),
            ),
            (
                "deletion after the removal",
                Terminating(removed(130)),
                Deleted,
                1,
                Shortened,
                Terminating(removed(101)),
            ),
            (
                "failure of a terminating pod keeps the first cause",
                Terminating(deleted(130)),
                failed(),
                0,
                Shortened,
                Terminating(deleted(0)),
            ),
            (
                "deletion of a terminated pod",
                Terminated(termination(Finished, 0, NotRequested)),
                Deleted,
                30,
                Unchanged,
                Terminated(termination(Finished, 0, Requested)),
            ),
        ] {
            let mut lifecycle = before;
            assert_eq!(lifecycle.terminate(cause, grace, NOW), transition, "{case}");
            assert_eq!(lifecycle, after, "{case}");
        }
    }

    #[test]
    fn lifecycle_completes_termination_only_after_it_has_begun() {
        let begun = || termination(failed(), 0, NotRequested);
        for (before, after) in [
            (PodLifecycle::Running, PodLifecycle::Running),
            (
                PodLifecycle::Terminating(begun()),
                PodLifecycle::Terminated(begun()),
            ),
            (
                PodLifecycle::Terminated(begun()),
                PodLifecycle::Terminated(begun()),
            ),
        ] {
            let mut lifecycle = before.clone();
            lifecycle.complete_termination();
            assert_eq!(lifecycle, after, "{before:?}");
        }
    }

    #[test]
    fn lifecycle_reports_final_status_and_deletion() {
        use TerminationCause::{AlreadyFinished, Deleted, Removed};
        for (cause, status_final, deletion_requested, removed) in [
            (None, false, false, false),
            (Some(failed()), false, false, false),
            (Some(AlreadyFinished), true, false, false),
            (Some(Deleted), false, true, false),
            (Some(Removed), false, true, true),
        ] {
            let mut lifecycle = PodLifecycle::default();
            if let Some(cause) = cause.clone() {
                lifecycle.terminate(cause, 1, NOW);
            }
            assert_eq!(
                (
                    lifecycle.is_status_final(),
                    lifecycle.is_deletion_requested(),
                    lifecycle.is_removed(),
                ),
                (status_final, deletion_requested, removed),
                "{cause:?}"
            );
        }
    }
}
