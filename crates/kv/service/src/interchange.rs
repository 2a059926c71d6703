//! The state as a file of etcd's, and back.

use crate::settings::API_VERSION;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use kv_bolt::{BoltError, File, OnDisk, Source, Writer};
use kv_engine::Table;
use kv_machine::{Auth, SnapshotItem, SnapshotReader, auth_row, lease_row};
use kv_mvcc::Mark;
use prost::Message;
use proto_etcd::authpb::{Role, User};
use proto_etcd::etcdserverpb::Member;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// etcd's record of a lease.
#[derive(Clone, PartialEq, prost::Message)]
struct LeaseRecord {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl: i64,
    #[prost(int64, tag = "3")]
    remaining: i64,
}

/// Rows of the small tables, by table and key.
type Small = BTreeMap<(u8, Bytes), Bytes>;

fn rows(small: &Small, table: Table) -> impl Iterator<Item = (&Bytes, &Bytes)> {
    small.iter().filter(move |((number, _), _)| *number == table as u8).map(|((_, key), value)| (key, value))
}

/// Writes a picture of the state, with its hash behind it as a snapshot has it.
pub(crate) fn export(mut picture: SnapshotReader, path: &Path) -> Result<()> {
    let file = std::fs::File::create(path)?;
    let mut writer = Writer::new(BufWriter::new(file))?;
    let mut small = Small::new();
    writer.bucket("key")?;
    while let Some(chunk) = picture.next_rows()? {
        for (table, key, value) in chunk {
            if table == Table::Revisions as u8 {
                writer.put(&key, &value)?;
            } else {
                small.insert((table, key), value);
            }
        }
    }
    write_small(&mut writer, &small, &picture)?;
    let (file, _) = writer.finish()?;
    let mut file = file.into_inner().map_err(std::io::IntoInnerError::into_error)?;
    file.seek(SeekFrom::End(0))?;
    let hash = hash_of(&mut std::fs::File::open(path)?)?;
    file.write_all(&hash)?;
    file.sync_all()?;
    Ok(())
}

fn hash_of(file: &mut impl Read) -> Result<[u8; 32]> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash.finalize().into()),
            count => hash.update(buffer.get(..count).unwrap_or_default()),
        }
    }
}

fn write_small<W: Write + Seek>(writer: &mut Writer<W>, small: &Small, picture: &SnapshotReader) -> Result<()> {
    writer.bucket("alarm")?;
    let auth = rows(small, Table::Auth).next().and_then(|(_, row)| auth_row(row)).unwrap_or_default();
    writer.bucket("auth")?;
    writer.put(b"authEnabled", &[u8::from(auth.enabled)])?;
    writer.put(b"authRevision", &auth.revision.to_be_bytes())?;
    writer.bucket("authRoles")?;
    for role in auth.roles() {
        writer.put(&role.name, &role.encode_to_vec())?;
    }
    writer.bucket("authUsers")?;
    for user in auth.users() {
        writer.put(&user.name, &user.encode_to_vec())?;
    }
    writer.bucket("cluster")?;
    writer.put(b"clusterVersion", b"3.6.0")?;
    writer.bucket("lease")?;
    for (key, row) in rows(small, Table::Leases) {
        let id = key.as_ref().try_into().map_or(0, i64::from_be_bytes);
        if let Some((ttl, remaining)) = lease_row(row) {
            writer.put(key, &LeaseRecord { id, ttl, remaining }.encode_to_vec())?;
        }
    }
    write_members(writer, small)?;
    write_meta(writer, small, picture)
}

fn write_members<W: Write + Seek>(writer: &mut Writer<W>, small: &Small) -> Result<()> {
    let hex = |key: &Bytes| format!("{:x}", key.as_ref().try_into().map_or(0, u64::from_be_bytes));
    let mut present = BTreeMap::new();
    let mut removed = BTreeMap::new();
    for (key, row) in rows(small, Table::Members) {
        match Member::decode(row.clone()) {
            Ok(member) if !row.is_empty() => present.insert(hex(key), member_json(&member)),
            _ => removed.insert(hex(key), "removed".to_owned()),
        };
    }
    writer.bucket("members")?;
    for (key, value) in present {
        writer.put(key.as_bytes(), value.as_bytes())?;
    }
    writer.bucket("members_removed")?;
    for (key, value) in removed {
        writer.put(key.as_bytes(), value.as_bytes())?;
    }
    Ok(())
}

fn member_json(member: &Member) -> String {
    let mut json = serde_json::json!({
        "id": member.id, "peerURLs": member.peer_ur_ls, "name": member.name, "clientURLs": member.client_ur_ls,
    });
    if member.is_learner {
        json["isLearner"] = true.into();
    }
    json.to_string()
}

fn write_meta<W: Write + Seek>(writer: &mut Writer<W>, small: &Small, picture: &SnapshotReader) -> Result<()> {
    let position = &picture.place().position;
    let number = |at: usize| position.get(at..at + 8).unwrap_or(&[0; 8]).to_vec();
    let compacted = rows(small, Table::Meta).find(|(key, _)| key[..] == *b"compacted").map(|(_, row)| row.clone());
    let voters: Vec<u64> = rows(small, Table::Members)
        .filter(|(_, row)| !row.is_empty())
        .filter_map(|(key, row)| {
            Some((u64::from_be_bytes(key.as_ref().try_into().ok()?), Member::decode(row.clone()).ok()?))
        })
        .filter(|(_, member)| !member.is_learner)
        .map(|(id, _)| id)
        .collect();
    writer.bucket("meta")?;
    writer.put(b"confState", serde_json::json!({ "voters": voters, "auto_leave": false }).to_string().as_bytes())?;
    writer.put(b"consistent_index", &number(0))?;
    if let Some(compacted) = compacted {
        let key = [&compacted[..], b"_", &[0; 8]].concat();
        writer.put(b"finishedCompactRev", &key)?;
        writer.put(b"scheduledCompactRev", &key)?;
    }
    writer.put(b"storageVersion", b"3.6.0")?;
    writer.put(b"term", &number(8))?;
    Ok(())
}

/// What a snapshot file says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileStatus {
    pub hash: u32,
    pub revision: i64,
    pub total_keys: u64,
    pub total_size: u64,
    pub version: String,
}

/// Bytes of a hash behind a file.
const HASH: u64 = 32;

/// Opens a file without the hash at its end, which is checked where that is asked for.
pub(crate) fn open(path: &Path, check_hash: bool) -> Result<OnDisk> {
    let unreadable = || format!("can't read {}", path.display());
    let mut file = std::fs::File::open(path).with_context(unreadable)?;
    let length = file.metadata().with_context(unreadable)?.len();
    if length % 512 != HASH {
        if check_hash {
            bail!(
                "{} has no hash at its end: it is cut off, or a copy of a database file; for the latter use --skip-hash-check",
                path.display()
            );
        }
        return Ok(OnDisk::new(file, length));
    }
    if check_hash {
        let found = hash_of(&mut (&mut file).take(length - HASH)).with_context(unreadable)?;
        let mut wanted = [0; HASH as usize];
        file.read_exact(&mut wanted).with_context(unreadable)?;
        if found != wanted {
            bail!("{} is damaged: its hash does not match; use another copy", path.display());
        }
    }
    Ok(OnDisk::new(file, length - HASH))
}

/// Counts and hashes what is in a file.
pub(crate) fn file_status(path: &Path) -> Result<FileStatus> {
    let source = open(path, false)?;
    let file = File::open(&source).with_context(|| path.display().to_string())?;
    let mut status =
        FileStatus { hash: 0, revision: 0, total_keys: 0, total_size: source.length(), version: String::new() };
    for bucket in file.buckets()? {
        status.hash = crc32c::crc32c_append(status.hash, &bucket);
        file.each::<BoltError>(&bucket, &mut |key, value| {
            status.hash = crc32c::crc32c_append(crc32c::crc32c_append(status.hash, key), value);
            if bucket == b"key" {
                status.revision = status.revision.max(Mark::from_key(key).map_or(0, Mark::main));
            } else if bucket == b"meta" && key == b"storageVersion" {
                status.version = String::from_utf8_lossy(value).into_owned();
            }
            status.total_keys += 1;
            Ok(())
        })?;
    }
    Ok(status)
}

/// Everything of a file but the records.
#[derive(Default)]
pub(crate) struct Contents {
    pub revision: i64,
    pub compacted: i64,
    pub leases: Vec<(i64, i64, i64)>,
    pub auth: Auth,
}

/// Reads a file: its records are handed over one by one, the rest is returned.
pub(crate) fn import(source: &OnDisk, mut record: impl FnMut(SnapshotItem) -> Result<()>) -> Result<Contents> {
    let file = File::open(source)?;
    let mut contents = Contents { revision: 1, ..Contents::default() };
    file.each::<anyhow::Error>(b"key", &mut |key, value| {
        let Some(mark) = Mark::from_key(key) else { bail!("a revision has a key that is none: {key:x?}") };
        contents.revision = contents.revision.max(mark.main());
        // Records without a position in a transaction were written by versions long gone.
        record((Table::Revisions as u8, Bytes::from(mark.key()), Bytes::copy_from_slice(value)))
    })?;
    let names = file.buckets()?;
    let has = |name: &[u8]| names.iter().any(|bucket| bucket == name);
    if has(b"meta") {
        file.each::<anyhow::Error>(b"meta", &mut |key, value| {
            if key == b"finishedCompactRev" || key == b"scheduledCompactRev" {
                let revision = value.get(..8).and_then(|b| b.try_into().ok()).map_or(0, i64::from_be_bytes);
                contents.compacted = contents.compacted.max(revision);
            }
            Ok(())
        })?;
    }
    if has(b"lease") {
        file.each::<anyhow::Error>(b"lease", &mut |_, value| {
            let lease = LeaseRecord::decode(value).context("a lease is damaged")?;
            contents.leases.push((lease.id, lease.ttl, lease.remaining));
            Ok(())
        })?;
    }
    contents.auth = import_auth(&file, &has)?;
    Ok(contents)
}

fn import_auth(file: &File<'_>, has: &dyn Fn(&[u8]) -> bool) -> Result<Auth> {
    let (mut users, mut roles, mut auth) = (Vec::new(), Vec::new(), Auth::default());
    if has(b"authUsers") {
        file.each::<anyhow::Error>(b"authUsers", &mut |_, value| {
            users.push(User::decode(value).context("a user is damaged")?);
            Ok(())
        })?;
    }
    if has(b"authRoles") {
        file.each::<anyhow::Error>(b"authRoles", &mut |_, value| {
            roles.push(Role::decode(value).context("a role is damaged")?);
            Ok(())
        })?;
    }
    if has(b"auth") {
        file.each::<anyhow::Error>(b"auth", &mut |key, value| {
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

/// The version that a snapshot stream says it is of.
pub(crate) fn stream_version() -> String {
    API_VERSION.to_owned()
}
