//! The bound on space: an alarm when data take more, and its end when they no longer do.

use crate::core::Core;
use kv_machine::{Caller, Command};
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::{AlarmRequest, AlarmType};
use std::sync::Arc;
use std::time::Duration;

/// Watches the size whenever something was written.
pub(crate) async fn watch(core: Arc<Core>) {
    let mut applied = core.machine.applied();
    loop {
        applied.borrow_and_update();
        let over = core.machine.size() > core.bounds.quota;
        let raised = raised(&core);
        if over != raised {
            set(&core, over).await;
        }
        if applied.changed().await.is_err() {
            return;
        }
        // The size changes slowly; looking at it costs a little.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn raised(core: &Core) -> bool {
    let mine = core.identity.member;
    core.machine.alarms().iter().any(|alarm| alarm.member_id == mine && alarm.alarm() == AlarmType::Nospace)
}

async fn set(core: &Core, on: bool) {
    let action = if on { AlarmAction::Activate } else { AlarmAction::Deactivate };
    let request =
        AlarmRequest { action: action.into(), member_id: core.identity.member, alarm: AlarmType::Nospace.into() };
    match core.submit_raw(&Caller::internal(), Command::Alarm(request)).await {
        Ok(_) if on => {
            tracing::warn!("data take more space than the quota allows: puts are refused until some is given back")
        }
        Ok(_) => tracing::info!("data take less space than the quota again: puts are allowed"),
        Err(refusal) => tracing::debug!(%refusal, "the space alarm can't be set"),
    }
}
