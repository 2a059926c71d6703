//! Imports snapshot files.

use crate::error::SnapshotFileError;
use crate::records::{HASH, LeaseRecord, hash_of};
use bytes::Bytes;
use kv_bbolt::{BoltError, File, FileSource, Source};
use kv_engine::Table;
use kv_machine::{Auth, SnapshotItem};
use kv_mvcc::Mark;
use prost::{DecodeError, Message};
use proto_etcd::authpb::{Role, User};
use proto_etcd::mvccpb::KeyValue;
use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

/// A database file is a multiple of this size in bytes; a snapshot file has a hash in addition.
const SECTOR: u64 = 512;

/// Status of a snapshot file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileStatus {
    /// CRC-32C of the buckets' names, keys and values, in order.
    pub hash: u32,
    /// The newest revision.
    pub revision: i64,
    /// Number of keys at that revision, counted like etcd 3.6. Its older tools count all records.
    pub total_keys: u64,
    /// Size in bytes, without the hash.
    pub total_size: u64,
    /// Version of etcd, such as `3.6.0`; empty before etcd 3.6.
    pub version: String,
}

/// Opens a file without the hash at its end, which is verified if `check_hash` is set.
///
/// # Errors
/// Reading the file failed, or the hash is required and missing or wrong.
pub fn open_snapshot(path: &Path, check_hash: bool) -> Result<FileSource, SnapshotFileError> {
    let unreadable = SnapshotFileError::io(path, "read");
    let mut file = std::fs::File::open(path).map_err(&unreadable)?;
    let length = file.metadata().map_err(&unreadable)?.len();
    // A database is a multiple of the sector size; the hash shows by its size, as in `etcdutl`.
    if length % SECTOR != HASH {
        if check_hash {
            return Err(SnapshotFileError::NoHash(path.to_path_buf()));
        }
        return Ok(FileSource::new(file, length));
    }
    if check_hash {
        let found = hash_of(&mut (&mut file).take(length - HASH)).map_err(&unreadable)?;
        let mut expected = [0; HASH as usize];
        file.read_exact(&mut expected).map_err(&unreadable)?;
        if found != expected {
            return Err(SnapshotFileError::Hash(path.to_path_buf()));
        }
    }
    Ok(FileSource::new(file, length - HASH))
}

/// Counts and hashes the content of a file.
///
/// # Errors
/// Reading the file failed, or it is not a database.
pub fn file_status(source: &dyn Source) -> Result<FileStatus, SnapshotFileError> {
    let file = File::open(source)?;
    let mut status = FileStatus {
        total_size: source.length(),
        ..FileStatus::default()
    };
    // Names of live keys only: values are not kept, so the memory is that of the key index.
    let mut live = HashSet::new();
    for bucket in file.bucket_names()? {
        status.hash = crc32c::crc32c_append(status.hash, &bucket);
        file.visit_pairs::<SnapshotFileError>(&bucket, &mut |key, value| {
            status.hash = crc32c::crc32c_append(crc32c::crc32c_append(status.hash, key), value);
            if bucket == b"key" {
                let mark = Mark::from_key(key).ok_or_else(|| no_mark(key))?;
                status.revision = status.revision.max(mark.main());
                let name = KeyValue::decode(value)
                    .map_err(damaged_record("a pair"))?
                    .key;
                // Records come in the order of revisions, so the last one of a key decides.
                if mark.is_tombstone() {
                    live.remove(&name)
                } else {
                    live.insert(name)
                };
            } else if bucket == b"meta" && key == b"storageVersion" {
                status.version = String::from_utf8_lossy(value).into_owned();
            }
            Ok(())
        })?;
    }
    status.total_keys = live.len() as u64;
    Ok(status)
}

/// Content of a file except its records.
#[derive(Default)]
pub struct Contents {
    /// The newest revision.
    pub revision: i64,
    /// The compacted revision.
    pub compacted: i64,
    /// ID, TTL and remaining TTL of each lease, in seconds; the latter from a checkpoint.
    pub leases: Vec<(i64, i64, i64)>,
    /// Users, roles and the auth status.
    pub auth: Auth,
}

/// Reads a file. Passes its records to `record` one by one and returns the rest.
///
/// # Errors
/// Errors of `record`, and of reading or decoding the file.
pub fn import_snapshot<E>(
    source: &dyn Source,
    mut record: impl FnMut(SnapshotItem) -> Result<(), E>,
) -> Result<Contents, E>
where
    E: From<BoltError> + From<SnapshotFileError>,
{
    let file = File::open(source)?;
    let mut contents = Contents {
        revision: 1,
        ..Contents::default()
    };
    file.visit_pairs::<E>(b"key", &mut |key, value| {
        let Some(mark) = Mark::from_key(key) else {
            return Err(no_mark(key).into());
        };
        contents.revision = contents.revision.max(mark.main());
        // Records without a sub-revision were written by old versions only.
        record((
            Table::Revisions as u8,
            Bytes::from(mark.engine_key()),
            Bytes::copy_from_slice(value),
        ))
    })?;
    let names = file.bucket_names()?;
    // Older versions of etcd lack some of the buckets.
    let has = |name: &[u8]| names.iter().any(|bucket| bucket == name);
    if has(b"meta") {
        file.visit_pairs::<SnapshotFileError>(b"meta", &mut |key, value| {
            if key == b"finishedCompactRev" || key == b"scheduledCompactRev" {
                let revision = value
                    .get(..8)
                    .and_then(|b| b.try_into().ok())
                    .map_or(0, i64::from_be_bytes);
                // Revisions of a compaction that was only scheduled are not readable in etcd
                // either.
                contents.compacted = contents.compacted.max(revision);
            }
            Ok(())
        })?;
    }
    if has(b"lease") {
        file.visit_pairs::<SnapshotFileError>(b"lease", &mut |_, value| {
            let lease = LeaseRecord::decode(value).map_err(damaged_record("a lease"))?;
            contents.leases.push((lease.id, lease.ttl, lease.remaining));
            Ok(())
        })?;
    }
    contents.auth = import_auth(&file, &has)?;
    Ok(contents)
}

fn import_auth(file: &File<'_>, has: &dyn Fn(&[u8]) -> bool) -> Result<Auth, SnapshotFileError> {
    let (mut users, mut roles, mut auth) = (Vec::new(), Vec::new(), Auth::default());
    if has(b"authUsers") {
        file.visit_pairs::<SnapshotFileError>(b"authUsers", &mut |_, value| {
            users.push(User::decode(value).map_err(damaged_record("a user"))?);
            Ok(())
        })?;
    }
    if has(b"authRoles") {
        file.visit_pairs::<SnapshotFileError>(b"authRoles", &mut |_, value| {
            roles.push(Role::decode(value).map_err(damaged_record("a role"))?);
            Ok(())
        })?;
    }
    if has(b"auth") {
        file.visit_pairs::<SnapshotFileError>(b"auth", &mut |key, value| {
            match key {
                b"authEnabled" => auth.enabled = value == [1],
                b"authRevision" => auth.revision = value.try_into().map_or(0, u64::from_be_bytes),
                _ => {}
            }
            Ok(())
        })?;
    }
    auth.restore(users, roles);
    Ok(auth)
}

fn no_mark(key: &[u8]) -> SnapshotFileError {
    SnapshotFileError::Record(format!("a revision has a key that is none: {key:x?}"))
}

fn damaged_record(what: &'static str) -> impl Fn(DecodeError) -> SnapshotFileError {
    move |reason| SnapshotFileError::Record(format!("{what} is damaged: {reason}"))
}
