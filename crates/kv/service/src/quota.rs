//! The bound on space: an alarm when data take more, and its end when enough is free again.

use crate::core::Core;
use kv_machine::{Caller, Command};
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::{AlarmRequest, AlarmType};
use std::sync::Arc;
use std::time::Duration;

/// How often the size is looked at while writes come; it changes slowly, and looking at it costs a little.
const STEP: Duration = Duration::from_millis(100);
/// How often while the alarm is raised: space is given back after a compaction, whether anything is written or not.
const RAISED_STEP: Duration = Duration::from_secs(1);

/// Watches the size whenever something was written, or is to be given back. An alarm that an operator has disarmed stays so
/// until something is written.
pub(crate) async fn watch(core: Arc<Core>) {
    let mut applied = core.machine.applied();
    // The store's revision when the alarm was last seen raised.
    let mut raised_at = None;
    loop {
        applied.borrow_and_update();
        let (raised, revision) = (raised(&core), core.store().revision());
        if raised {
            raised_at = Some(revision);
        }
        let disarmed = !raised && raised_at == Some(revision);
        let needed = !disarmed && needed(core.machine.size(), core.bounds.quota, raised);
        if needed != raised && set(&core, needed).await && needed {
            // It may be disarmed before this looks again.
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
        tokio::time::sleep(STEP).await;
    }
}

/// Whether the alarm is to be raised. It ends with a twentieth of the quota free, so that it does not come back with the
/// next put.
fn needed(size: u64, quota: u64, raised: bool) -> bool {
    size > if raised { quota - quota / 20 } else { quota }
}

fn raised(core: &Core) -> bool {
    let mine = core.identity.member;
    core.machine.alarms().iter().any(|alarm| alarm.member_id == mine && alarm.alarm() == AlarmType::Nospace)
}

/// Whether it was done.
async fn set(core: &Core, on: bool) -> bool {
    let action = if on { AlarmAction::Activate } else { AlarmAction::Deactivate };
    let request =
        AlarmRequest { action: action.into(), member_id: core.identity.member, alarm: AlarmType::Nospace.into() };
    let done = core.submit_raw(&Caller::internal(), Command::Alarm(request)).await;
    match &done {
        Ok(_) if on => {
            tracing::warn!("data take more space than the quota allows: puts are refused until some is given back")
        }
        Ok(_) => tracing::info!("data take less space than the quota again: puts are allowed"),
        Err(refusal) => tracing::debug!(%refusal, "the space alarm can't be set"),
    }
    done.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_ends_with_a_twentieth_free() {
        assert!(!needed(1_000, 1_000, false));
        assert!(needed(1_001, 1_000, false));
        assert!(needed(951, 1_000, true));
        assert!(!needed(950, 1_000, true));
        assert!(!needed(u64::MAX - 1, u64::MAX, false));
    }
}
