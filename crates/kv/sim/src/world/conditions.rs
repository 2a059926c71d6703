//! The conditions that hold during a run, at rest, and in the end.

use super::{PANICS, World};
use crate::check::{self, Evidence};
use crate::operator::host_of;
use crate::watch_check;
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinHandle;

impl World {
    /// Checks the conditions that must always hold.
    pub(super) fn check_invariants(&mut self) -> Result<(), String> {
        let now = self.net.now();
        if let Some(panic) = PANICS.with_borrow_mut(Option::take) {
            return Err(format!("at {now} ms: {panic}"));
        }
        let mut ended = Vec::new();
        for (id, host) in &mut self.hosts {
            if let Some(reason) = host.take_violation() {
                return Err(format!("at {now} ms: {reason}"));
            }
            if host.has_exited() {
                ended.push(*id);
            }
            let Some(member) = host.member() else {
                continue;
            };
            let from = self.compared.get(id).copied().unwrap_or(0);
            let next = self
                .ledger
                .record_revisions(member.machine(), from, now)
                .map_err(|e| format!("member {id} at {now} ms: {e}"))?;
            self.compared.insert(*id, next);
        }
        for id in ended {
            let power = self.rng.once_in(2);
            let away = self.rng.range(10, 500);
            self.crash_host(id, power, away);
        }
        Ok(())
    }

    pub(super) fn at_rest(&self) -> bool {
        let last = self.ledger.last_revision();
        let agree = self.hosts.iter().all(|(_, host)| {
            host.is_serving()
                && host
                    .member()
                    .is_some_and(|member| member.machine().store().current_revision() == last)
        });
        let watched = (crate::ledger::FIRST..=last).rev().find(|at| {
            self.ledger
                .get(*at)
                .is_some_and(|entry| entry.changes.iter().any(|c| c.key.starts_with(b"k")))
        });
        agree
            && self.operator.as_ref().is_none_or(JoinHandle::is_finished)
            && self.has_settled()
            && self.history.all_over()
            && self
                .watches
                .iter()
                .all(|log| log.last_received() >= watched.unwrap_or(0))
    }

    /// Returns whether members and alarms have settled.
    fn has_settled(&self) -> bool {
        let running: BTreeMap<u64, _> = self
            .hosts
            .iter()
            .filter_map(|(id, host)| Some((self.member_at(*id), host.member()?)))
            .collect();
        let mut leading = running.values().map(|member| (member, member.status()));
        let Some((leader, status)) = leading.find(|(_, status)| status.leading) else {
            return false;
        };
        let members = leader.machine().with_members(|members| members.list());
        let listed: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
        let voters = members
            .iter()
            .filter(|member| !member.is_learner && self.hosts.contains_key(&host_of(member)));
        let voting = voters
            .map(|member| member.id)
            .all(|id| status.voters.contains(&id));
        // Removed members must have left the hosts.
        let here = running.keys().all(|id| listed.contains(id));
        let fits = |id: &u64| {
            running.get(id).is_some_and(|member| {
                member.machine().data_size() <= self.plan.quota - self.plan.quota / 10
            })
        };
        let alarms = leader.machine().list_alarms();
        let alarms = alarms
            .iter()
            .all(|alarm| listed.contains(&alarm.member_id) && !fits(&alarm.member_id));
        voting && here && alarms
    }

    pub(super) fn check_results(&self) -> Result<(), String> {
        let states = self.ledger.replay()?;
        let operations = self.history.take();
        self.history.put_back(&operations);
        for log in &self.watches {
            watch_check::check_watches(
                &log.take(),
                &self.ledger,
                &states,
                self.ledger.last_revision(),
            )?;
        }
        check::check_history(&Evidence {
            ledger: &self.ledger,
            states,
            operations: &operations,
            drift: self.plan.drift,
        })
    }
}
