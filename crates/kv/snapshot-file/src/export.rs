//! Exports the state as a snapshot file.

use crate::error::SnapshotFileError;
use crate::records::{LeaseRecord, hash_of};
use bytes::Bytes;
use kv_bbolt::Writer;
use kv_engine::Table;
use kv_machine::{AppliedPosition, SnapshotReader, decode_auth_row, decode_lease_row};
use prost::Message;
use proto_etcd::etcdserverpb::Member;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

/// Rows of the small tables, by table and key.
type Small = BTreeMap<(u8, Bytes), Bytes>;

fn small_rows(small: &Small, table: Table) -> impl Iterator<Item = (&Bytes, &Bytes)> {
    small
        .iter()
        .filter(move |((number, _), _)| *number == table as u8)
        .map(|((_, key), value)| (key, value))
}

/// Writes a snapshot of the state to a new file, followed by its hash, and syncs it.
///
/// # Errors
/// Writing the file or reading the state failed. The file is then incomplete.
pub fn export_snapshot(mut snapshot: SnapshotReader, path: &Path) -> Result<(), SnapshotFileError> {
    let failed = SnapshotFileError::io(path, "write");
    let mut writer = File::create(path)
        .map(BufWriter::new)
        .and_then(Writer::new)
        .map_err(&failed)?;
    let mut small = Small::new();
    writer.start_bucket("key").map_err(&failed)?;
    // The small tables come first and stay in memory. Revisions may exceed it, so they are written
    // as they arrive.
    while let Some(chunk) = snapshot.next_rows()? {
        for (table, key, value) in chunk {
            if table == Table::Revisions as u8 {
                writer.put(&key, &value).map_err(&failed)?;
            } else {
                small.insert((table, key), value);
            }
        }
    }
    write_small(&mut writer, &small, snapshot.applied_position())
        .and_then(|()| finish_file(writer, path))
        .map_err(&failed)
}

fn finish_file(writer: Writer<BufWriter<File>>, path: &Path) -> io::Result<()> {
    // The hash covers the meta pages, which are written last. So the whole file is read once more.
    let (file, _) = writer.finish()?;
    let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.seek(SeekFrom::End(0))?;
    file.write_all(&hash_of(&mut File::open(path)?)?)?;
    file.sync_all()
}

fn write_small<W: Write + Seek>(
    writer: &mut Writer<W>,
    small: &Small,
    place: &AppliedPosition,
) -> io::Result<()> {
    // All buckets of etcd 3.6, in its formats, although the alarms stay behind: they belong to
    // members, and a restored cluster has new ones.
    writer.start_bucket("alarm")?;
    let auth = small_rows(small, Table::Auth)
        .next()
        .and_then(|(_, row)| decode_auth_row(row))
        .unwrap_or_default();
    writer.start_bucket("auth")?;
    writer.put(b"authEnabled", &[u8::from(auth.enabled)])?;
    writer.put(b"authRevision", &auth.revision.to_be_bytes())?;
    writer.start_bucket("authRoles")?;
    for role in auth.roles() {
        writer.put(&role.name, &role.encode_to_vec())?;
    }
    writer.start_bucket("authUsers")?;
    for user in auth.users() {
        writer.put(&user.name, &user.encode_to_vec())?;
    }
    writer.start_bucket("cluster")?;
    writer.put(b"clusterVersion", b"3.6.0")?;
    writer.start_bucket("lease")?;
    for (key, row) in small_rows(small, Table::Leases) {
        let id = key.as_ref().try_into().map_or(0, i64::from_be_bytes);
        if let Some((ttl, remaining)) = decode_lease_row(row) {
            writer.put(key, &LeaseRecord { id, ttl, remaining }.encode_to_vec())?;
        }
    }
    write_members(writer, small)?;
    write_meta(writer, small, place)
}

fn write_members<W: Write + Seek>(writer: &mut Writer<W>, small: &Small) -> io::Result<()> {
    let hex = |key: &Bytes| {
        format!(
            "{:x}",
            key.as_ref().try_into().map_or(0, u64::from_be_bytes)
        )
    };
    let mut present = BTreeMap::new();
    // Two buckets, in which etcd keeps members by their hexadecimal IDs. The writer needs them in
    // order.
    let mut removed = BTreeMap::new();
    for (key, row) in small_rows(small, Table::Members) {
        match Member::decode(row.clone()) {
            Ok(member) if !row.is_empty() => present.insert(hex(key), member_json(&member)),
            _ => removed.insert(hex(key), "removed".to_owned()),
        };
    }
    writer.start_bucket("members")?;
    for (key, value) in present {
        writer.put(key.as_bytes(), value.as_bytes())?;
    }
    writer.start_bucket("members_removed")?;
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

fn write_meta<W: Write + Seek>(
    writer: &mut Writer<W>,
    small: &Small,
    place: &AppliedPosition,
) -> io::Result<()> {
    let position = &place.position;
    let number = |at: usize| position.get(at..at + 8).unwrap_or(&[0; 8]).to_vec();
    let compacted = small_rows(small, Table::Meta)
        .find(|(key, _)| key[..] == *b"compacted")
        .map(|(_, row)| row.clone());
    let voters: Vec<u64> = small_rows(small, Table::Members)
        .filter(|(_, row)| !row.is_empty())
        .filter_map(|(key, row)| {
            Some((
                u64::from_be_bytes(key.as_ref().try_into().ok()?),
                Member::decode(row.clone()).ok()?,
            ))
        })
        .filter(|(_, member)| !member.is_learner)
        .map(|(id, _)| id)
        .collect();
    writer.start_bucket("meta")?;
    writer.put(
        b"confState",
        serde_json::json!({ "voters": voters, "auto_leave": false })
            .to_string()
            .as_bytes(),
    )?;
    writer.put(b"consistent_index", &number(0))?;
    // Both keys, because etcd continues a compaction at its start that was scheduled and not
    // finished.
    if let Some(compacted) = compacted {
        let key = [&compacted[..], b"_", &[0; 8]].concat();
        writer.put(b"finishedCompactRev", &key)?;
        writer.put(b"scheduledCompactRev", &key)?;
    }
    writer.put(b"storageVersion", b"3.6.0")?;
    writer.put(b"term", &number(8))?;
    Ok(())
}
