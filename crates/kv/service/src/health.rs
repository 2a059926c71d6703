//! Whether this member is alive and fit to serve.

use crate::core::Core;
use proto_etcd::etcdserverpb::AlarmType;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

/// Why the member is not healthy; none: it is.
pub(crate) async fn unhealthy(core: &Core, serializable: bool) -> Option<String> {
    let status = core.node.status();
    if let Some(reason) = status.stopped {
        return Some(format!("REPLICATION STOPPED: {reason}"));
    }
    for alarm in core.machine.alarms() {
        match alarm.alarm() {
            AlarmType::Nospace => return Some("ALARM NOSPACE".to_owned()),
            AlarmType::Corrupt => return Some("ALARM CORRUPT".to_owned()),
            AlarmType::None => {}
        }
    }
    if serializable {
        return None;
    }
    if status.leader.is_none() {
        return Some("RAFT NO LEADER".to_owned());
    }
    match core.node.read_barrier(PATIENCE).await {
        Ok(()) => None,
        Err(e) => Some(format!("RANGE ERROR:{e}")),
    }
}

/// The named checks of `/livez` and `/readyz` and what is wrong with each.
pub(crate) async fn checks(core: &Core, ready: bool) -> Vec<(&'static str, Result<(), String>)> {
    let status = core.node.status();
    let running = status.stopped.map_or(Ok(()), Err);
    let mut checks = vec![("serializable_read", running)];
    if ready {
        let alarms = core.machine.alarms();
        let corrupt = alarms.iter().any(|alarm| alarm.alarm() == AlarmType::Corrupt);
        checks.push(("data_corruption", if corrupt { Err("alarm activated: CORRUPT".into()) } else { Ok(()) }));
        let learner = if core.is_learner() { Err("not supported for learner".into()) } else { Ok(()) };
        checks.push(("non_learner", learner));
        let read = core.node.read_barrier(PATIENCE).await.map_err(|e| e.to_string());
        checks.push(("linearizable_read", read));
    }
    checks
}
