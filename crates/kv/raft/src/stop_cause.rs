//! The cause of the end of replication.

use base_task::TaskFailed;
use openraft::error::Fatal;

/// Returns the cause of the stop, or `None` while replication runs.
///
/// An error of openraft comes first: the tasks that call openraft end because of it, and such an
/// end may be recorded before the error. openraft's regular stop comes last, because a failed task
/// leads to it.
pub(crate) fn find_stop_cause(
    running: Result<(), Fatal<u64>>,
    task: Option<TaskFailed>,
) -> Option<String> {
    match (running, task) {
        (Err(fatal), task) if fatal != Fatal::Stopped || task.is_none() => Some(fatal.to_string()),
        (_, task) => task.map(|failure| failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base_task::TaskEnd;
    use openraft::{AnyError, StorageError, StorageIOError};

    fn disk_is_full() -> Fatal<u64> {
        let cause = AnyError::error("No space left on device");
        StorageError::from(StorageIOError::<u64>::write_logs(cause)).into()
    }

    const TASK: TaskFailed = TaskFailed {
        name: "heartbeats",
        end: TaskEnd::Returned,
    };

    #[test]
    fn a_full_disk_is_the_cause_even_if_a_task_has_ended_because_of_it() {
        for task in [None, Some(TASK)] {
            let cause = find_stop_cause(Err(disk_is_full()), task).unwrap_or_default();
            assert!(cause.contains("No space left on device"), "{cause}");
        }
    }

    #[test]
    fn a_failed_task_is_the_cause_of_a_regular_stop() {
        for running in [Ok(()), Err(Fatal::Stopped)] {
            assert_eq!(find_stop_cause(running, Some(TASK)), Some(TASK.to_string()));
        }
        assert!(find_stop_cause(Err(Fatal::Stopped), None).is_some());
        assert_eq!(find_stop_cause(Ok(()), None), None);
    }
}
