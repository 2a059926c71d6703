//! Whether this member is alive and fit to serve.

use crate::core::Core;
use proto_etcd::etcdserverpb::AlarmType;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(2);

/// Why the member is not healthy, alarms that do not matter left out; none: it is.
pub(crate) async fn unhealthy(core: &Core, serializable: bool, excluded: impl Fn(AlarmType) -> bool) -> Option<String> {
    let status = core.node.status();
    if let Some(reason) = status.stopped {
        return Some(format!("REPLICATION STOPPED: {reason}"));
    }
    let mut raised = core.machine.alarms().into_iter().map(|alarm| alarm.alarm());
    if let Some(alarm) = raised.find(|alarm| *alarm != AlarmType::None && !excluded(*alarm)) {
        return Some(format!("ALARM {}", alarm.as_str_name()));
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

/// A named check of `/livez` or `/readyz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    SerializableRead,
    DataCorruption,
    NonLearner,
    LinearizableRead,
}

impl Check {
    /// As it is written in paths and answers.
    pub fn name(self) -> &'static str {
        match self {
            Check::SerializableRead => "serializable_read",
            Check::DataCorruption => "data_corruption",
            Check::NonLearner => "non_learner",
            Check::LinearizableRead => "linearizable_read",
        }
    }
}

/// The checks of `/readyz`, or those of `/livez`.
pub(crate) fn checks(ready: bool) -> &'static [Check] {
    const READY: &[Check] =
        &[Check::SerializableRead, Check::DataCorruption, Check::NonLearner, Check::LinearizableRead];
    if ready { READY } else { &[Check::SerializableRead] }
}

/// What is wrong, if something is.
pub(crate) async fn check(core: &Core, check: Check) -> Result<(), String> {
    match check {
        Check::SerializableRead => core.node.status().stopped.map_or(Ok(()), Err),
        Check::DataCorruption => {
            let corrupt = core.machine.alarms().iter().any(|alarm| alarm.alarm() == AlarmType::Corrupt);
            if corrupt { Err("alarm activated: CORRUPT".to_owned()) } else { Ok(()) }
        }
        Check::NonLearner if core.is_learner() => Err("not supported for learner".to_owned()),
        Check::NonLearner => Ok(()),
        Check::LinearizableRead => core.node.read_barrier(PATIENCE).await.map_err(|e| e.to_string()),
    }
}
