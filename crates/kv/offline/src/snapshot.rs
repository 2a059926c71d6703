//! Commands that need no server: snapshot files, and data directories restored from them.

use crate::print_line;
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use kv_bbolt::FileSource;
use kv_config::{
    STATE_DIR, SnapshotCommand, SnapshotRestore, SnapshotStatus, WAL_DIR, cluster_id,
    initial_members,
};
use kv_engine::{Batch, Engine, Table};
use kv_machine::{AppliedPosition, Members, write_seed};
use kv_snapshot_file::FileStatus;
use kv_wal::{DataFolder, Identity, Wal};
use prost::Message;
use proto_etcd::mvccpb::KeyValue;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

const CACHE: u64 = 32 << 20;
const BATCH_BYTES: usize = 4 << 20;

/// Shows the status of a snapshot file, or restores it.
pub fn run_snapshot_command(command: SnapshotCommand) -> Result<()> {
    match command {
        SnapshotCommand::Status(flags) => print_status(&flags),
        SnapshotCommand::Restore(flags) => restore_snapshot(&flags),
    }
}

fn print_status(flags: &SnapshotStatus) -> Result<()> {
    let source = kv_snapshot_file::open_snapshot(&flags.file, false)?;
    let found =
        kv_snapshot_file::file_status(&source).with_context(|| flags.file.display().to_string())?;
    let FileStatus {
        hash,
        revision,
        total_keys,
        total_size,
        version,
    } = found;
    match flags.write_out.as_str() {
        "json" => print_line(
            &serde_json::json!({
                "hash": hash, "revision": revision, "totalKey": total_keys, "totalSize": total_size, "version": version,
            })
            .to_string(),
        ),
        "fields" => print_line(&format!(
            "\"Hash\" : {hash}\n\"Revision\" : {revision}\n\"Keys\" : {total_keys}\n\"Size\" : {total_size}\n\"Version\" : \"{version}\""
        )),
        "table" => print_line(&format_table(
            ["HASH", "REVISION", "TOTAL KEYS", "TOTAL SIZE", "VERSION"],
            [format!("{hash:x}"), revision.to_string(), total_keys.to_string(), format_size(total_size), version.to_string()],
        )),
        _ => print_line(&format!("{hash:x}, {revision}, {total_keys}, {total_size}, {version}")),
    }
}

/// Formats a row and its headings as a table like etcd's tools.
fn format_table<const N: usize>(heads: [&str; N], row: [String; N]) -> String {
    let cells = || {
        heads
            .iter()
            .zip(&row)
            .map(|(head, cell)| (*head, cell, head.len().max(cell.len())))
    };
    let line: String = cells()
        .map(|(_, _, width)| format!("+{}", "-".repeat(width + 2)))
        .collect::<String>()
        + "+";
    let head: String = cells()
        .map(|(head, _, width)| format!("| {head:^width$} "))
        .collect::<String>()
        + "|";
    let row: String = cells()
        .map(|(_, cell, width)| format!("| {cell:>width$} "))
        .collect::<String>()
        + "|";
    [line.as_str(), &head, &line, &row, &line].join("\n")
}

/// Formats a number of bytes with a unit.
fn format_size(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut unit = "B";
    for larger in ["kB", "MB", "GB", "TB"] {
        if size < 1000.0 {
            break;
        }
        (size, unit) = (size / 1000.0, larger);
    }
    if size < 10.0 && unit != "B" {
        format!("{size:.1} {unit}")
    } else {
        format!("{size:.0} {unit}")
    }
}

/// Returns the directory to restore into, which must be absent or empty.
fn choose_target(flags: &SnapshotRestore) -> Result<PathBuf> {
    let target = flags
        .data_dir
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{}.etcd", flags.name)));
    if flags
        .wal_dir
        .as_ref()
        .is_some_and(|wal| *wal != target.join(WAL_DIR))
    {
        bail!(
            "--wal-dir is not supported: the log is in {}; leave it out",
            target.join(WAL_DIR).display()
        );
    }
    let taken = target.is_file()
        || std::fs::read_dir(&target).is_ok_and(|mut entries| entries.next().is_some());
    if taken {
        bail!(
            "{} exists and is not empty: restore into another folder, or remove it first",
            target.display()
        );
    }
    Ok(target)
}

fn restore_snapshot(flags: &SnapshotRestore) -> Result<()> {
    let target = choose_target(flags)?;
    let members = initial_members(&flags.initial_cluster, &flags.initial_cluster_token)?;
    let voters: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
    let mine = members.iter().find(|member| member.name == flags.name);
    let mine = mine.with_context(|| {
        format!(
            "--name {:?} is not in --initial-cluster {:?}",
            flags.name, flags.initial_cluster
        )
    })?;
    let source = kv_snapshot_file::open_snapshot(&flags.file, !flags.skip_hash_check)?;
    // The file is read completely once before anything is created.
    kv_snapshot_file::import_snapshot::<anyhow::Error>(&source, |_| Ok(()))
        .with_context(|| format!("{} is damaged", flags.file.display()))?;
    let mut folder = DataFolder::open(&target)?;
    let (index, position, membership) = kv_raft::make_origin(&voters);
    // State first, then the log's origin, then the identity: a directory without an identity is no
    // data directory, so an interrupted restore can be repeated.
    let engine = kv_engine::open_engine(&folder.create_subfolder(STATE_DIR)?, None, CACHE)?;
    fill_engine(
        &*engine,
        &source,
        flags,
        &AppliedPosition {
            position: position.clone(),
            membership,
        },
        members.clone(),
    )?;
    let (wal, _) = Wal::open(&folder.create_subfolder(WAL_DIR)?, Arc::new(|_| {}))?;
    let (sender, receiver) = mpsc::channel();
    // The log begins after the restored state. Without this, the member would expect entries from
    // the first on.
    wal.purge(
        index,
        position,
        Box::new(move || {
            let _ = sender.send(());
        }),
    );
    receiver.recv().context("the log can't be written")?;
    // The directory gets its identity only after its content is complete.
    folder.set_identity(Identity {
        cluster: cluster_id(&voters),
        member: mine.id,
    })?;
    print_line(&format!(
        "restored {} to {}",
        flags.file.display(),
        target.display()
    ))
}

/// Returns whether the record is one of a key that is omitted.
fn is_omitted(record: &Bytes, omitted: &[String]) -> Result<bool> {
    let pair = KeyValue::decode(record.clone()).context("a record is damaged")?;
    Ok(omitted.iter().any(|name| match name.ends_with('/') {
        true => pair.key.starts_with(name.as_bytes()),
        false => pair.key == name.as_bytes(),
    }))
}

fn fill_engine(
    engine: &dyn Engine,
    source: &FileSource,
    flags: &SnapshotRestore,
    place: &AppliedPosition,
    initial: Vec<proto_etcd::etcdserverpb::Member>,
) -> Result<()> {
    let mut batch = Batch::default();
    let contents =
        kv_snapshot_file::import_snapshot::<anyhow::Error>(source, |(_, key, value)| {
            if !flags.omit.is_empty() && is_omitted(&value, &flags.omit)? {
                return Ok(());
            }
            batch.put(Table::Revisions, key.to_vec(), value);
            // Bounds the memory of a restore, whatever the size of the file.
            if batch.size_bytes() > BATCH_BYTES {
                engine.write_batch(std::mem::take(&mut batch))?;
            }
            Ok(())
        })?;
    let mut members = Members::default();
    for member in initial {
        members.restore(member);
    }
    let bump = i64::try_from(flags.bump_revision).context("--bump-revision is too large")?;
    let revision = contents.revision + bump;
    // With --mark-compacted, watchers of the former cluster are cancelled and list again, instead
    // of missing the revisions that the restored cluster lacks.
    let compacted = if flags.mark_compacted {
        revision
    } else {
        contents.compacted
    };
    batch.append(write_seed(
        place,
        revision,
        compacted,
        &contents.leases,
        &contents.auth,
        &members,
    ));
    engine.write_batch(batch)?;
    engine.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use bytes::BytesMut;
    use kv_engine::MemoryEngine;
    use kv_machine::{Command, Envelope, Machine, Options, encode_into};
    use proto_etcd::etcdserverpb::{PutRequest, RangeRequest};
    use std::path::Path;
    use std::time::Duration;

    #[test]
    fn table_has_a_frame_and_aligned_columns() {
        assert_eq!(
            format_table(
                ["HASH", "TOTAL SIZE"],
                ["3a8dbf1f".to_owned(), format_size(20_480)]
            ),
            "+----------+------------+\n|   HASH   | TOTAL SIZE |\n+----------+------------+\n| 3a8dbf1f |      20 kB |\n+----------+------------+"
        );
        assert_eq!(
            [999, 1_500, 82_854_982].map(format_size),
            ["999 B", "1.5 kB", "83 MB"]
        );
    }

    fn open_machine(engine: Arc<dyn Engine>) -> Arc<Machine> {
        let options = Options {
            member: 1,
            max_txn_ops: 128,
            max_learners: 1,
            value_cache: 0,
            own_thread: true,
            token_ttl: Duration::ZERO,
            on_store: Arc::new(drop),
            slow_apply: Duration::MAX,
        };
        Machine::open(engine, options).unwrap()
    }

    /// Writes a snapshot file of a store with `keys`.
    async fn write_snapshot(path: &Path, keys: &[&'static str]) {
        let machine = open_machine(Arc::new(MemoryEngine::default()));
        for (index, key) in (1..).zip(keys) {
            let put = PutRequest {
                key: Bytes::from_static(key.as_bytes()),
                ..PutRequest::default()
            };
            let envelope = Envelope {
                internal: true,
                command: Some(Command::Put(put)),
                ..Envelope::default()
            };
            let mut entry = BytesMut::new();
            encode_into(&mut entry, &envelope);
            let position = [u64::to_be_bytes(index), 7_u64.to_be_bytes()].concat();
            machine.apply(index, position.into(), None, Some(entry.freeze()));
        }
        let snapshot = machine.start_snapshot().await.unwrap();
        kv_snapshot_file::export_snapshot(snapshot, path).unwrap();
    }

    fn flags(folder: &Path) -> SnapshotRestore {
        SnapshotRestore {
            file: folder.join("snapshot.db"),
            name: "a".to_owned(),
            data_dir: Some(folder.join("data")),
            wal_dir: None,
            initial_cluster: "a=http://h:1,b=http://h:2".to_owned(),
            initial_cluster_token: "t".to_owned(),
            initial_advertise_peer_urls: "http://h:1".to_owned(),
            skip_hash_check: false,
            bump_revision: 0,
            mark_compacted: false,
            omit: Vec::new(),
        }
    }

    #[tokio::test]
    async fn restored_directory_belongs_to_the_member_and_passes_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let flags = flags(folder.path());
        write_snapshot(&flags.file, &[]).await;
        restore_snapshot(&flags).unwrap();
        let data = flags.data_dir.as_deref().unwrap();
        let identity = DataFolder::open_existing(data).unwrap().identity().unwrap();
        let members = initial_members(&flags.initial_cluster, "t").unwrap();
        assert_eq!(identity.member, members[0].id);
        crate::check_folder(data, folder.path()).unwrap();

        std::fs::remove_dir_all(data.join(STATE_DIR)).unwrap();
        let damage = crate::check_folder(data, folder.path())
            .unwrap_err()
            .to_string();
        assert!(damage.contains("is damaged: state"), "{damage}");
    }

    #[tokio::test]
    async fn omitted_keys_are_not_restored_and_revisions_stay() {
        let folder = tempfile::tempdir().unwrap();
        let flags = SnapshotRestore {
            omit: ["/r/leases/", "/r/slice"].map(str::to_owned).into(),
            bump_revision: 100,
            mark_compacted: true,
            ..flags(folder.path())
        };
        let keys = [
            "/r/leases/a",
            "/r/slice",
            "/r/slice-2",
            "/r/leases",
            "/r/leases/b",
        ];
        write_snapshot(&flags.file, &keys).await;
        restore_snapshot(&flags).unwrap();
        let state = flags.data_dir.as_deref().unwrap().join(STATE_DIR);
        let machine = open_machine(kv_engine::open_engine(&state, None, CACHE).unwrap());
        let all = RangeRequest {
            key: "/".into(),
            range_end: "0".into(),
            ..RangeRequest::default()
        };
        let (response, revision) = machine.store().range(&all).unwrap();
        let left: Vec<_> = response.kvs.iter().map(|pair| pair.key.clone()).collect();
        assert_eq!(left, ["/r/leases", "/r/slice-2"]);
        assert_eq!(
            revision, 106,
            "that of the last record, which is omitted, and 100"
        );
    }

    #[tokio::test]
    async fn damaged_snapshot_is_rejected_before_anything_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let flags = flags(folder.path());
        write_snapshot(&flags.file, &[]).await;
        let mut bytes = std::fs::read(&flags.file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&flags.file, bytes).unwrap();
        assert!(restore_snapshot(&flags).is_err());
        assert!(!folder.path().join("data").exists());
    }

    #[test]
    fn restore_is_rejected_where_it_would_mix_clusters() {
        let folder = tempfile::tempdir().unwrap();
        let full = folder.path().join("full");
        std::fs::create_dir(&full).unwrap();
        std::fs::write(full.join("x"), "").unwrap();
        for (flags, text) in [
            (
                SnapshotRestore {
                    data_dir: Some(full),
                    ..flags(folder.path())
                },
                "is not empty",
            ),
            (
                SnapshotRestore {
                    wal_dir: Some(folder.path().join("wal")),
                    ..flags(folder.path())
                },
                "--wal-dir",
            ),
            (
                SnapshotRestore {
                    name: "c".to_owned(),
                    ..flags(folder.path())
                },
                "--initial-cluster",
            ),
        ] {
            let rejected = restore_snapshot(&flags).unwrap_err().to_string();
            assert!(rejected.contains(text), "{rejected}");
        }
    }
}
