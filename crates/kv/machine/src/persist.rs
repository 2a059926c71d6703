//! Tables of the state machine in the engine.
//!
//! Small tables are written as a whole when they change. They change rarely, and no stale
//! rows can remain.

use crate::error::MachineError;
use crate::members::Members;
use crate::replicated_state::{AppliedPosition, ReplicatedState};
use bytes::Bytes;
use kv_auth::Auth;
use kv_engine::{Batch, Engine, EngineError, Table};
use kv_lease::Leases;
use kv_mvcc::Store;
use prost::Message;
use proto_etcd::authpb::{Role, User};
use proto_etcd::etcdserverpb::Member;

const POSITION: &[u8] = b"position";
const MEMBERSHIP: &[u8] = b"membership";
const INSTALLING: &[u8] = b"installing";
/// Maximum number of rows deleted in one batch.
// Bounds the memory of a batch while a large state is deleted.
const WIPED_AT_ONCE: usize = 10_000;

/// State loaded from an engine.
pub(crate) struct LoadedState {
    pub replicated: ReplicatedState,
    pub leases: Leases,
    pub place: AppliedPosition,
    pub index: u64,
}

pub(crate) fn put_applied_position(
    batch: &mut Batch,
    position: &Bytes,
    membership: Option<&Bytes>,
) {
    batch.put(Table::Meta, POSITION.to_vec(), position.clone());
    if let Some(membership) = membership {
        batch.put(Table::Meta, MEMBERSHIP.to_vec(), membership.clone());
    }
}

pub(crate) fn put_lease(batch: &mut Batch, id: i64, ttl: i64, remaining: i64) {
    let value = [ttl.to_be_bytes(), remaining.to_be_bytes()].concat();
    batch.put(Table::Leases, id.to_be_bytes().to_vec(), value);
}

pub(crate) fn delete_lease(batch: &mut Batch, id: i64) {
    batch.delete(Table::Leases, id.to_be_bytes().to_vec());
}

pub(crate) fn put_alarm(batch: &mut Batch, (member, kind): (u64, i32), raised: bool) {
    let mut key = member.to_be_bytes().to_vec();
    key.extend(kind.to_be_bytes());
    if raised {
        batch.put(Table::Alarms, key, Bytes::new());
    } else {
        batch.delete(Table::Alarms, key);
    }
}

pub(crate) fn put_members(batch: &mut Batch, members: &Members) {
    for member in members.list() {
        batch.put(
            Table::Members,
            member.id.to_be_bytes().to_vec(),
            member.encode_to_vec(),
        );
    }
    for id in members.removed_ids() {
        // An empty row marks a removed member, which must stay known over restarts.
        batch.put(Table::Members, id.to_be_bytes().to_vec(), Bytes::new());
    }
}

/// Decodes a lease's row as its TTL and the remaining TTL of its last checkpoint.
pub fn decode_lease_row(row: &[u8]) -> Option<(i64, i64)> {
    let number = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
    Some((number(row.get(..8)?)?, number(row.get(8..)?)?))
}

/// Decodes users and roles from their row.
pub fn decode_auth_row(row: &Bytes) -> Option<Auth> {
    let revision = row
        .get(1..9)
        .and_then(|b| b.try_into().ok())
        .map(u64::from_be_bytes)?;
    let book = AuthBook::decode(row.slice(9..)).ok()?;
    let mut auth = Auth::default();
    (auth.enabled, auth.revision) = (row.first() == Some(&1), revision);
    auth.restore(book.users, book.roles);
    Some(auth)
}

/// Returns the rows of a complete state except the key records, for an empty engine.
pub fn write_seed(
    place: &AppliedPosition,
    revision: i64,
    compacted: i64,
    leases: &[(i64, i64, i64)],
    auth: &Auth,
    members: &Members,
) -> Batch {
    let mut batch = Batch::default();
    put_applied_position(&mut batch, &place.position, Some(&place.membership));
    batch.put(
        Table::Meta,
        b"revision".to_vec(),
        revision.to_be_bytes().to_vec(),
    );
    if compacted > 0 {
        batch.put(
            Table::Meta,
            b"compacted".to_vec(),
            compacted.to_be_bytes().to_vec(),
        );
    }
    for (id, ttl, remaining) in leases {
        put_lease(&mut batch, *id, *ttl, *remaining);
    }
    put_auth(&mut batch, auth);
    put_members(&mut batch, members);
    batch
}

pub(crate) fn put_auth(batch: &mut Batch, auth: &Auth) {
    // A single row, so that deleted users and roles leave no rows behind.
    let mut row = vec![u8::from(auth.enabled)];
    row.extend(auth.revision.to_be_bytes());
    let roles = auth.roles().cloned().collect();
    let book = AuthBook {
        users: auth.users().cloned().collect(),
        roles,
    };
    row.extend(book.encode_to_vec());
    batch.put(Table::Auth, b"auth".to_vec(), row);
}

#[derive(Clone, PartialEq, prost::Message)]
struct AuthBook {
    #[prost(message, repeated, tag = "1")]
    users: Vec<User>,
    #[prost(message, repeated, tag = "2")]
    roles: Vec<Role>,
}

pub(crate) fn installing_marker(on: bool) -> Batch {
    let mut batch = Batch::default();
    if on {
        batch.put(Table::Meta, INSTALLING.to_vec(), Bytes::from_static(b"1"));
    } else {
        batch.delete(Table::Meta, INSTALLING.to_vec());
    }
    batch
}

/// Deletes everything except the installation marker, in batches. The marker remains if this is
/// interrupted.
pub(crate) fn wipe_engine(engine: &dyn Engine) -> Result<(), EngineError> {
    for table in SMALL.into_iter().chain([Table::Revisions]) {
        loop {
            // Only a bounded number of keys is in memory. The scan starts again, because its rows
            // are deleted.
            let mut batch = Batch::default();
            engine.scan_rows(table, b"", None, &mut |key, _| {
                // The marker stays until the new rows are durable; without it, a crash would leave
                // a mixture of two states.
                if (table, key) != (Table::Meta, INSTALLING) {
                    batch.delete(table, key.to_vec());
                }
                batch.len() < WIPED_AT_ONCE
            })?;
            if batch.is_empty() {
                break;
            }
            engine.write_batch(batch)?;
        }
    }
    Ok(())
}

pub(crate) fn is_install_interrupted(engine: &dyn Engine) -> Result<bool, EngineError> {
    Ok(engine.get(Table::Meta, INSTALLING)?.is_some())
}

pub(crate) fn load_state(engine: &dyn Engine, store: &Store) -> Result<LoadedState, MachineError> {
    let (place, _) = read_applied_position(engine)?;
    let index = place
        .position
        .get(..8)
        .and_then(|b| b.try_into().ok())
        .map_or(0, u64::from_be_bytes);
    let replicated = ReplicatedState {
        auth: load_auth(engine)?,
        members: load_members(engine)?,
        alarms: load_alarms(engine)?,
    };
    Ok(LoadedState {
        replicated,
        leases: load_leases(engine, store)?,
        place,
        index,
    })
}

/// Reads the log position of an engine and the store's revision at it.
pub(crate) fn read_applied_position(
    engine: &dyn Engine,
) -> Result<(AppliedPosition, i64), EngineError> {
    let meta = |key: &[u8]| -> Result<Bytes, EngineError> {
        Ok(engine.get(Table::Meta, key)?.unwrap_or_default())
    };
    let place = AppliedPosition {
        position: meta(POSITION)?,
        membership: meta(MEMBERSHIP)?,
    };
    let revision = meta(b"revision")?
        .as_ref()
        .try_into()
        // An empty store is at revision 1, as in etcd.
        .map_or(1, i64::from_be_bytes);
    Ok((place, revision))
}

fn load_auth(engine: &dyn Engine) -> Result<Auth, MachineError> {
    let Some(row) = engine.get(Table::Auth, b"auth")? else {
        return Ok(Auth::default());
    };
    // An error, not an empty book: that would disable authentication.
    decode_auth_row(&row).ok_or(MachineError::Damaged("users and roles"))
}

fn load_members(engine: &dyn Engine) -> Result<Members, MachineError> {
    let mut members = Members::default();
    let mut damaged = false;
    engine.scan_rows(Table::Members, b"", None, &mut |key, value| {
        match (
            key.try_into().map(u64::from_be_bytes),
            Member::decode(value),
        ) {
            (Ok(id), _) if value.is_empty() => members.restore_removed(id),
            (Ok(_), Ok(member)) => members.restore(member),
            _ => damaged = true,
        }
        !damaged
    })?;
    if damaged {
        Err(MachineError::Damaged("members"))
    } else {
        Ok(members)
    }
}

fn load_alarms(
    engine: &dyn Engine,
) -> Result<std::collections::BTreeSet<(u64, i32)>, MachineError> {
    let mut alarms = std::collections::BTreeSet::new();
    engine.scan_rows(Table::Alarms, b"", None, &mut |key, _| {
        let member = key
            .get(..8)
            .and_then(|b| b.try_into().ok())
            .map(u64::from_be_bytes);
        let kind = key
            .get(8..)
            .and_then(|b| b.try_into().ok())
            .map(i32::from_be_bytes);
        alarms.extend(member.zip(kind));
        true
    })?;
    Ok(alarms)
}

fn load_leases(engine: &dyn Engine, store: &Store) -> Result<Leases, MachineError> {
    let mut leases = Leases::default();
    let mut damaged = false;
    engine.scan_rows(Table::Leases, b"", None, &mut |key, value| {
        let number = |bytes: &[u8]| bytes.try_into().ok().map(i64::from_be_bytes);
        let ttl = value.get(..8).and_then(number);
        let remaining = value.get(8..).and_then(number);
        match (number(key), ttl, remaining) {
            (Some(id), Some(ttl), Some(remaining)) => leases.restore(id, ttl, remaining),
            _ => damaged = true,
        }
        !damaged
    })?;
    if damaged {
        return Err(MachineError::Damaged("leases"));
    }
    // Attachments are not stored twice: each record holds its lease, and this rebuilds the index.
    store.visit_leased_keys(|lease, key| leases.attach_key(lease, key));
    Ok(leases)
}

pub(crate) const SMALL: [Table; 5] = [
    Table::Meta,
    Table::Leases,
    Table::Auth,
    Table::Members,
    Table::Alarms,
];
