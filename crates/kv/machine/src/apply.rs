//! Applies log entries to the state machine.

use crate::caller::Caller;
use crate::command::{Command, Envelope, decode_batch};
use crate::engine_writer::Work;
use crate::error::EtcdError;
use crate::machine::{Machine, Outcome, Reply};
use crate::persist;
use crate::replicated_state::{AppliedPosition, ReplicatedState, alarm_list};
use crate::rights::Rights;
use crate::tokens::Tokens;
use bytes::Bytes;
use kv_engine::Batch;
use kv_lease::{Leases, MAX_TTL};
use kv_mvcc::{LeaseBook, Writer};
use prost::Message;
use proto_etcd::etcdserverpb as pb;
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::request_op::Request;
use std::sync::atomic::Ordering;
use tokio::sync::watch;
use tokio::time::Instant;

/// Adapter that gives the key-value store access to the leases.
struct Book<'a>(&'a mut Leases);

impl LeaseBook for Book<'_> {
    fn lease_exists(&self, lease: i64) -> bool {
        self.0.contains(lease)
    }
    fn attach_key(&mut self, lease: i64, key: &[u8]) {
        self.0.attach_key(lease, key);
    }
    fn detach_key(&mut self, lease: i64, key: &[u8]) {
        self.0.detach_key(lease, key);
    }
}

/// Mutable state during one entry.
pub(crate) struct ApplyContext<'a> {
    pub writer: Writer<'a>,
    pub leases: &'a mut Leases,
    pub replicated: &'a mut ReplicatedState,
    pub batch: Batch,
    pub members_changed: bool,
    pub tokens: &'a mut Tokens,
    pub rights_changed: &'a watch::Sender<u64>,
    /// Index of the entry.
    pub index: u64,
    max_learners: usize,
}

/// Results of an entry, the changes that the engine does not have yet, and whether members changed.
struct EntryEffects {
    replies: Vec<Reply>,
    work: Work,
    members_changed: bool,
}

type ApplyResult = Result<Outcome, EtcdError>;

impl Machine {
    /// Applies a log entry: its commands become visible, then the requests that wait for them
    /// receive their results.
    pub fn apply(
        &self,
        index: u64,
        position: Bytes,
        membership: Option<Bytes>,
        entry: Option<Bytes>,
    ) {
        let envelopes = decode_entry(index, entry);
        let applied = self.execute_commands(index, &envelopes);
        // Position and changes reach the engine in one batch. After a crash the log replays exactly
        // the entries that the engine lacks.
        self.persist_applied_position(applied.work, position, membership);
        // Before the replies: a client that has one finds its write in any later read here.
        self.applied.send_replace(index);
        if applied.members_changed {
            self.members_changed.send_modify(|count| *count += 1);
        }
        for (envelope, reply) in envelopes.iter().zip(applied.replies) {
            self.log_slow_apply(index, envelope, &reply);
            self.send_reply(envelope, reply);
        }
    }

    /// Executes the commands of an entry in memory.
    fn execute_commands(&self, index: u64, envelopes: &[Envelope]) -> EntryEffects {
        // `with_rights` locks leases after `replicated` too. The other order could deadlock.
        let mut replicated = self.replicated.write();
        let mut leases = self.leases.lock();
        let mut tokens = self.tokens.lock();
        let next_deadline = leases.next_deadline();
        let mut context = ApplyContext {
            writer: self.store.writer(),
            leases: &mut leases,
            replicated: &mut replicated,
            batch: Batch::default(),
            members_changed: false,
            tokens: &mut tokens,
            rights_changed: &self.rights_changed,
            index,
            max_learners: self.options.max_learners,
        };
        let replies = context.execute_envelopes(envelopes);
        let applied = EntryEffects {
            replies,
            work: Work {
                batch: std::mem::take(&mut context.batch),
                revision: context.writer.read_revision(),
            },
            members_changed: context.members_changed,
        };
        drop(context);
        // Only for another deadline: most entries change no lease, and a wake-up costs a task
        // switch.
        if leases.next_deadline() != next_deadline {
            self.notify_lease_change();
        }
        applied
    }

    /// Counts a slow command. If a request of this member waits for it, that request's own log line
    /// reports it.
    fn log_slow_apply(&self, index: u64, envelope: &Envelope, reply: &Reply) {
        let took = reply.applied.saturating_duration_since(reply.begun);
        if took <= self.options.slow_apply {
            return;
        }
        self.slow_applies.fetch_add(1, Ordering::Relaxed);
        // A command of this member's client is logged with its phases by the service instead.
        if envelope.origin != self.options.member || envelope.internal {
            let expected = self.options.slow_apply;
            tracing::warn!(
                index,
                ?took,
                ?expected,
                bytes = envelope.encoded_len(),
                "applying a command took long"
            );
        }
    }

    fn persist_applied_position(&self, mut work: Work, position: Bytes, membership: Option<Bytes>) {
        persist::put_applied_position(&mut work.batch, &position, membership.as_ref());
        let mut place = self.place.lock();
        *place = AppliedPosition {
            position,
            membership: membership.unwrap_or_else(|| std::mem::take(&mut place.membership)),
        };
        drop(place);
        self.engine_writer.queue_changes(work);
    }
}

fn decode_entry(index: u64, entry: Option<Bytes>) -> Vec<Envelope> {
    match entry.map(decode_batch) {
        Some(Some(envelopes)) => envelopes,
        Some(None) => {
            // All members hold the same bytes and skip the same entry, so that their states stay
            // equal.
            tracing::error!(index, "a log entry can't be decoded and is skipped");
            Vec::new()
        }
        None => Vec::new(),
    }
}

impl ApplyContext<'_> {
    fn execute_envelopes(&mut self, envelopes: &[Envelope]) -> Vec<Reply> {
        let mut replies = Vec::with_capacity(envelopes.len());
        let mut begun = Instant::now();
        for envelope in envelopes {
            let result = self.execute_command(envelope);
            // Each command is a revision of its own, although group commit put several into one
            // entry.
            self.writer.commit(&mut self.batch);
            let applied = Instant::now();
            replies.push(Reply {
                result,
                revision: self.writer.read_revision(),
                begun,
                applied,
            });
            begun = applied;
        }
        replies
    }

    fn execute_command(&mut self, envelope: &Envelope) -> ApplyResult {
        let Some(command) = &envelope.command else {
            return Ok(Outcome::Done);
        };
        let caller = Caller {
            user: envelope.user.clone(),
            auth_revision: envelope.auth_revision,
            internal: envelope.internal,
        };
        // Checked again although the service has checked it: permissions may have changed since the
        // proposal.
        Rights {
            auth: &self.replicated.auth,
            leases: self.leases,
            caller: &caller,
        }
        .check_command(command)?;
        self.check_alarms(command)?;
        match command {
            Command::Put(request) => self.apply_put(request),
            Command::DeleteRange(request) => {
                let response = self.writer.delete_range(request, &mut Book(self.leases))?;
                Ok(Outcome::DeleteRange(response))
            }
            Command::Txn(request) => Ok(Outcome::Txn(
                self.writer.execute_txn(request, &mut Book(self.leases))?,
            )),
            Command::Compact(request) => {
                if request.physical {
                    self.writer
                        .compact_physically(request.revision, &mut self.batch)?;
                } else {
                    self.writer.compact(request.revision, &mut self.batch)?;
                }
                Ok(Outcome::Done)
            }
            Command::LeaseGrant(request) => self.apply_lease_grant(request),
            Command::LeaseRevoke(request) => self.apply_lease_revoke(request.id),
            Command::LeaseCheckpoint(request) => self.apply_lease_checkpoint(request),
            Command::Alarm(request) => self.apply_alarm(request),
            Command::Barrier(_) => Ok(Outcome::Done),
            Command::MembersInit(_)
            | Command::MemberAdd(_)
            | Command::MemberRemove(_)
            | Command::MemberUpdate(_)
            | Command::MemberPromote(_)
            | Command::MemberPublish(_)
            | Command::MemberAlone(_) => self.change_members(command),
            // Only commands of auth are left. An unknown one, of a later version, has no effect.
            _ => self.change_auth(command),
        }
    }

    /// Rejects writes while an alarm is raised: with NOSPACE those that grow the data, with CORRUPT
    /// all.
    fn check_alarms(&self, command: &Command) -> Result<(), EtcdError> {
        let raised = |kind: pb::AlarmType| {
            self.replicated
                .alarms
                .iter()
                .any(|(_, alarm)| *alarm == kind as i32)
        };
        let writes = matches!(
            command,
            Command::Put(_)
                | Command::Txn(_)
                | Command::DeleteRange(_)
                | Command::Compact(_)
                | Command::LeaseGrant(_)
                | Command::LeaseRevoke(_)
        );
        // Members already differ, and further writes would make it harder to find out which of them
        // is right.
        if writes && raised(pb::AlarmType::Corrupt) {
            return Err(EtcdError::Corrupt);
        }
        // Deletions and compactions must stay possible, because they free space. etcd's NOSPACE
        // alarm makes the same distinction.
        let grows = match command {
            Command::Put(_) | Command::LeaseGrant(_) => true,
            Command::Txn(request) => contains_put(request),
            _ => false,
        };
        if grows && raised(pb::AlarmType::Nospace) {
            Err(EtcdError::NoSpace)
        } else {
            Ok(())
        }
    }

    fn apply_put(&mut self, request: &pb::PutRequest) -> ApplyResult {
        // Same checks as for a put in a transaction.
        let mut book = Book(self.leases);
        self.writer.check_put(request, &book)?;
        Ok(Outcome::Put(self.writer.put(request, &mut book)?))
    }

    fn apply_lease_grant(&mut self, request: &pb::LeaseGrantRequest) -> ApplyResult {
        // A larger value would overflow the deadline.
        if request.ttl > MAX_TTL {
            return Err(EtcdError::LeaseTtlTooLarge);
        }
        // The time only sets a deadline on the leader. It is no part of the replicated state.
        if !self
            .leases
            .grant(request.id, request.ttl, Instant::now().into_std())
        {
            return Err(EtcdError::LeaseExists);
        }
        // In the batch of the entry, so that a crash keeps lease and applied index together.
        persist::put_lease(&mut self.batch, request.id, request.ttl, 0);
        Ok(Outcome::LeaseGrant {
            id: request.id,
            ttl: request.ttl,
        })
    }

    fn apply_lease_revoke(&mut self, id: i64) -> ApplyResult {
        let keys = self.leases.revoke(id).ok_or(EtcdError::LeaseNotFound)?;
        // In the order of keys, so that all members give them the same sub-revisions.
        for key in keys {
            self.writer.delete_key(&key, &mut Book(self.leases));
        }
        persist::delete_lease(&mut self.batch, id);
        Ok(Outcome::Done)
    }

    fn apply_lease_checkpoint(&mut self, request: &pb::LeaseCheckpointRequest) -> ApplyResult {
        for checkpoint in &request.checkpoints {
            if let Some(ttl) = self
                .leases
                .apply_checkpoint(checkpoint.id, checkpoint.remaining_ttl)
            {
                persist::put_lease(
                    &mut self.batch,
                    checkpoint.id,
                    ttl,
                    checkpoint.remaining_ttl,
                );
            }
        }
        Ok(Outcome::Done)
    }

    fn apply_alarm(&mut self, request: &pb::AlarmRequest) -> ApplyResult {
        let entry = (request.member_id, request.alarm);
        match request.action() {
            AlarmAction::Get => {}
            // A removed member can't deactivate its alarm.
            AlarmAction::Activate if self.replicated.members.was_removed(request.member_id) => {}
            AlarmAction::Activate => {
                self.replicated.alarms.insert(entry);
                persist::put_alarm(&mut self.batch, entry, true);
            }
            AlarmAction::Deactivate => {
                let removed = self
                    .lower_alarms(request.member_id, request.alarm)
                    .into_iter();
                let list = removed
                    .map(|(member_id, alarm)| pb::AlarmMember { member_id, alarm })
                    .collect();
                return Ok(Outcome::Alarms(list));
            }
        }
        Ok(Outcome::Alarms(alarm_list(self.replicated)))
    }

    fn change_members(&mut self, command: &Command) -> ApplyResult {
        let members = &mut self.replicated.members;
        match command {
            // Every initial member proposes this list. The first one in the log counts.
            Command::MembersInit(list) if members.is_empty() => {
                for member in &list.members {
                    members.restore(member.clone());
                }
            }
            Command::MemberAdd(member) => members.add(member.clone(), self.max_learners)?,
            Command::MemberRemove(request) => {
                members.remove(request.id)?;
                // The alarms of a removed member end with it.
                self.lower_alarms(request.id, pb::AlarmType::None as i32);
            }
            Command::MemberAlone(member) => {
                for removed in members.keep_only(member) {
                    self.lower_alarms(removed, pb::AlarmType::None as i32);
                }
            }
            Command::MemberUpdate(request) => members.update(request.id, &request.peer_ur_ls)?,
            Command::MemberPromote(request) => members.promote(request.id)?,
            Command::MemberPublish(member) => {
                members.publish(member.id, &member.name, &member.client_ur_ls)?
            }
            _ => {}
        }
        let members = &self.replicated.members;
        persist::put_members(&mut self.batch, members);
        self.members_changed = true;
        Ok(Outcome::Members(members.list()))
    }

    /// Deactivates alarms of a member (0: of all) and of a kind (None: any). Returns those that
    /// were raised.
    fn lower_alarms(&mut self, member: u64, kind: i32) -> Vec<(u64, i32)> {
        let any_kind = kind == pb::AlarmType::None as i32;
        let of = |entry: &&(u64, i32)| {
            // As in etcd, member 0 means all: `etcdctl alarm disarm` sends it.
            (member == 0 || entry.0 == member) && (any_kind || entry.1 == kind)
        };
        let lowered: Vec<(u64, i32)> = self.replicated.alarms.iter().filter(of).copied().collect();
        for entry in &lowered {
            self.replicated.alarms.remove(entry);
            persist::put_alarm(&mut self.batch, *entry, false);
        }
        lowered
    }
}

/// Returns whether any branch contains a put.
fn contains_put(request: &pb::TxnRequest) -> bool {
    request
        .success
        .iter()
        .chain(&request.failure)
        .any(|op| match &op.request {
            Some(Request::RequestPut(_)) => true,
            // Every branch counts, although only one runs: the decision must not depend on the
            // data.
            Some(Request::RequestTxn(nested)) => contains_put(nested),
            _ => false,
        })
}
