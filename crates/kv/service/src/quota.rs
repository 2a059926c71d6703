//! Quota of the data: raises the NOSPACE alarm above it and deactivates the alarm below it.

use kv_machine::{Caller, Command};
use kv_rpc::ServerContext;
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::{AlarmRequest, AlarmType};
use std::sync::Arc;
use std::time::Duration;

/// Interval between two checks while there are writes.
const STEP: Duration = Duration::from_millis(100);
/// Interval while the alarm is raised: a compaction frees space without any write.
const RAISED_STEP: Duration = Duration::from_secs(1);

/// Checks the size after writes and after space was freed. If an operator has disarmed the alarm,
/// it is not raised again before the next write.
pub(crate) async fn watch_quota(core: Arc<ServerContext>) {
    let mut applied = core.machine.subscribe_applied();
    // Revision at which the alarm was last seen raised.
    let mut raised_at = None;
    loop {
        applied.borrow_and_update();
        let (raised, revision) = (is_alarm_raised(&core), core.store().current_revision());
        if raised {
            raised_at = Some(revision);
        }
        // An operator who disarms the alarm gets one write before it is raised again.
        let disarmed = !raised && raised_at == Some(revision);
        let needed = !disarmed && is_alarm_due(core.machine.data_size(), core.bounds.quota, raised);
        if needed != raised && set_alarm(&core, needed).await && needed {
            // The alarm may be disarmed before the next check.
            raised_at = Some(revision);
        }
        let changed = applied.changed();
        let ended = if raised || needed {
            matches!(tokio::time::timeout(RAISED_STEP, changed).await, Ok(Err(_)))
        } else {
            changed.await.is_err()
        };
        if ended {
            return;
        }
        // Each write changes `applied`, so without a pause this would run once for each.
        tokio::time::sleep(STEP).await;
    }
}

/// Returns whether the alarm must be raised. It is deactivated below 95 % of the quota, so that the
/// next put does not raise it again.
fn is_alarm_due(size: u64, quota: u64, raised: bool) -> bool {
    size > if raised { quota - quota / 20 } else { quota }
}

fn is_alarm_raised(core: &ServerContext) -> bool {
    let mine = core.identity.member;
    core.machine
        .list_alarms()
        .iter()
        .any(|alarm| alarm.member_id == mine && alarm.alarm() == AlarmType::Nospace)
}

/// Raises or deactivates the alarm. Returns whether that succeeded.
async fn set_alarm(core: &ServerContext, on: bool) -> bool {
    let action = if on {
        AlarmAction::Activate
    } else {
        AlarmAction::Deactivate
    };
    let request = AlarmRequest {
        action: action.into(),
        member_id: core.identity.member,
        alarm: AlarmType::Nospace.into(),
    };
    let done = core
        .submit_raw(&Caller::internal(), Command::Alarm(request))
        .await;
    match &done {
        Ok(_) if on => {
            tracing::warn!(
                "the data exceed the quota: puts are rejected until a compaction frees space"
            )
        }
        Ok(_) => tracing::info!("the data are below the quota again: puts are allowed"),
        Err(refusal) => tracing::debug!(%refusal, "setting the NOSPACE alarm failed"),
    }
    done.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_ends_with_a_twentieth_free() {
        assert!(!is_alarm_due(1_000, 1_000, false));
        assert!(is_alarm_due(1_001, 1_000, false));
        assert!(is_alarm_due(951, 1_000, true));
        assert!(!is_alarm_due(950, 1_000, true));
        assert!(!is_alarm_due(u64::MAX - 1, u64::MAX, false));
    }
}
