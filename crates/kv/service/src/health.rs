//! Health checks of this member.

use kv_rpc::ServerContext;
use proto_etcd::etcdserverpb::AlarmType;
use std::time::Duration;

const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the reason why the member is unhealthy, ignoring excluded alarms, or `None` if it is
/// healthy.
pub(crate) async fn find_unhealthy(
    core: &ServerContext,
    serializable: bool,
    excluded: impl Fn(AlarmType) -> bool,
) -> Option<String> {
    let status = core.node.status();
    // Only a restart helps, so it is reported even if the reader excludes alarms.
    if let Some(reason) = status.stopped {
        return Some(format!("REPLICATION STOPPED: {reason}"));
    }
    let mut raised = core
        .machine
        .list_alarms()
        .into_iter()
        .map(|alarm| alarm.alarm());
    if let Some(alarm) = raised.find(|alarm| *alarm != AlarmType::None && !excluded(*alarm)) {
        return Some(format!("ALARM {}", alarm.as_str_name()));
    }
    // A serializable check covers this member alone, so that a liveness probe does not restart all
    // members when the quorum is lost.
    if serializable {
        return None;
    }
    if !status.has_leader {
        return Some("RAFT NO LEADER".to_owned());
    }
    match core.node.read_index(RESPONSE_TIMEOUT).await {
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
    /// Returns the name in paths and responses.
    pub fn name(self) -> &'static str {
        match self {
            Check::SerializableRead => "serializable_read",
            Check::DataCorruption => "data_corruption",
            Check::NonLearner => "non_learner",
            Check::LinearizableRead => "linearizable_read",
        }
    }
}

/// Returns the checks of `/readyz` or `/livez`.
pub(crate) fn health_checks(ready: bool) -> &'static [Check] {
    const READY: &[Check] = &[
        Check::SerializableRead,
        Check::DataCorruption,
        Check::NonLearner,
        Check::LinearizableRead,
    ];
    if ready {
        READY
    } else {
        &[Check::SerializableRead]
    }
}

/// Runs a check. Returns the reason if it fails.
pub(crate) async fn run_check(core: &ServerContext, check: Check) -> Result<(), String> {
    match check {
        Check::SerializableRead => core.node.status().stopped.map_or(Ok(()), Err),
        Check::DataCorruption => {
            let corrupt = core
                .machine
                .list_alarms()
                .iter()
                .any(|alarm| alarm.alarm() == AlarmType::Corrupt);
            if corrupt {
                Err("alarm activated: CORRUPT".to_owned())
            } else {
                Ok(())
            }
        }
        Check::NonLearner if core.is_learner() => Err("not supported for learner".to_owned()),
        Check::NonLearner => Ok(()),
        Check::LinearizableRead => core
            .node
            .read_index(RESPONSE_TIMEOUT)
            .await
            .map_err(|e| e.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::member::{Member, Tuning};
    use kv_engine::MemoryEngine;
    use kv_machine::{Machine, Options};
    use kv_raft::{Clock, Config, PeerTrust};
    use kv_wal::Wal;
    use std::collections::BTreeSet;
    use std::path::Path;
    use std::sync::Arc;

    /// Starts a single-member cluster.
    async fn leading(folder: &Path) -> Member {
        let options = Options {
            member: 1,
            max_txn_ops: 128,
            max_learners: 1,
            value_cache: 1 << 20,
            own_thread: true,
            token_ttl: Duration::from_secs(300),
            on_store: Arc::new(drop),
            slow_apply: Duration::MAX,
        };
        let machine = Machine::open(Arc::new(MemoryEngine::default()), options).unwrap();
        let config = Config {
            cluster: 1,
            member: 1,
            heartbeat: Duration::from_millis(100),
            election_timeout: Duration::from_secs(1),
            snapshot_entries: 1_000,
            kept_entries: 1_000,
            spool: folder.to_path_buf(),
            tls: Arc::default(),
            trust: PeerTrust::Unverified,
            max_command: 1 << 20,
            dial: None,
            sync_micros: Arc::default(),
            clock: Clock::boot(),
        };
        let log = Wal::open(&folder.join("wal"), Arc::new(|_| {})).unwrap();
        let tuning = Tuning {
            quota: u64::MAX,
            checkpoint_every: Duration::from_secs(300),
        };
        let member = proto_etcd::etcdserverpb::Member {
            id: 1,
            ..Default::default()
        };
        let member = Member::start(machine, log, config, tuning, vec![member], Arc::new(|| {}))
            .await
            .unwrap();
        member.join(&BTreeSet::from([1]), "a", &[]).await.unwrap();
        member
    }

    async fn all_well(core: &ServerContext) -> bool {
        let failed =
            futures::future::join_all(health_checks(true).iter().map(|one| run_check(core, *one)))
                .await;
        failed.iter().all(Result::is_ok)
    }

    #[tokio::test]
    async fn member_is_not_ready_and_stops_after_the_end_of_replication() {
        for loops in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            std::fs::create_dir(folder.path().join("wal")).unwrap();
            let member = leading(folder.path()).await;
            let core = member.core().clone();
            assert!(all_well(&core).await, "ready");
            if loops {
                member
                    .loops()
                    .spawn_critical("heartbeats", async { panic!("planted") });
            } else {
                core.node.shutdown().await;
            }
            let seen = async {
                while all_well(&core).await {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                core.shutdown.cancelled().await;
            };
            tokio::time::timeout(Duration::from_secs(30), seen)
                .await
                .unwrap();
            assert!(core.node.status().stopped.is_some());
            member.stop().await;
        }
    }
}
