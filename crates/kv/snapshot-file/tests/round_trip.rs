//! Export and import of a state, and damaged files.
#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use kv_engine::MemoryEngine;
use kv_machine::{Command, Envelope, Machine, Options, SnapshotItem, encode_into};
use kv_mvcc::Mark;
use kv_snapshot_file::{
    Contents, SnapshotFileError, export_snapshot, file_status, import_snapshot, open_snapshot,
};
use proto_etcd::etcdserverpb as pb;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn put(key: &'static str, lease: i64) -> Command {
    Command::Put(pb::PutRequest {
        key: key.into(),
        value: "v".into(),
        lease,
        ..pb::PutRequest::default()
    })
}

/// Exports a state after these commands.
async fn export(folder: &Path, commands: Vec<Command>) -> PathBuf {
    let options = Options {
        member: 1,
        max_txn_ops: 128,
        max_learners: 1,
        value_cache: 0,
        own_thread: true,
        token_ttl: Duration::from_secs(300),
        on_store: Arc::new(|_| {}),
        slow_apply: Duration::MAX,
    };
    let machine = Machine::open(Arc::new(MemoryEngine::default()), options).unwrap();
    for (index, command) in (1_u64..).zip(commands) {
        let mut entry = BytesMut::new();
        let envelope = Envelope {
            internal: true,
            command: Some(command),
            ..Envelope::default()
        };
        encode_into(&mut entry, &envelope);
        let position = Bytes::copy_from_slice(&[index.to_be_bytes(), 7_u64.to_be_bytes()].concat());
        machine.apply(index, position, None, Some(entry.freeze()));
    }
    let path = folder.join("snapshot.db");
    let snapshot = machine.start_snapshot().await.unwrap();
    export_snapshot(snapshot, &path).unwrap();
    path
}

fn import(path: &Path) -> (Contents, Vec<SnapshotItem>) {
    let source = open_snapshot(path, true).unwrap();
    let mut records = Vec::new();
    let contents = import_snapshot::<SnapshotFileError>(&source, |record| {
        records.push(record);
        Ok(())
    });
    (contents.unwrap(), records)
}

#[tokio::test]
async fn exported_state_is_imported() {
    let folder = tempfile::tempdir().unwrap();
    let user = pb::AuthUserAddRequest {
        name: "u".to_owned(),
        hashed_password: "hash".to_owned(),
        ..pb::AuthUserAddRequest::default()
    };
    let checkpoint = pb::LeaseCheckpoint {
        id: 1,
        remaining_ttl: 40,
    };
    let checkpoints = pb::LeaseCheckpointRequest {
        checkpoints: vec![checkpoint],
    };
    let compaction = pb::CompactionRequest {
        revision: 2,
        physical: false,
    };
    let path = export(
        folder.path(),
        vec![
            Command::LeaseGrant(pb::LeaseGrantRequest { id: 1, ttl: 100 }),
            put("a", 1),
            put("b", 0),
            put("a", 1),
            Command::LeaseCheckpoint(checkpoints),
            Command::UserAdd(user),
            Command::Compact(compaction),
        ],
    )
    .await;
    let (contents, records) = import(&path);
    assert_eq!((contents.revision, contents.compacted), (4, 2));
    assert_eq!(contents.leases, [(1, 100, 40)]);
    assert_eq!(contents.auth.find_user("u").unwrap().password, "hash");
    let revisions: Vec<i64> = records
        .iter()
        .map(|(_, key, _)| Mark::from_key(key).unwrap().main())
        .collect();
    assert_eq!(revisions, [2, 3, 4]);
}

#[tokio::test]
async fn status_is_that_of_the_exported_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = export(folder.path(), vec![put("a", 0), put("b", 0), put("a", 0)]).await;
    let status = file_status(&open_snapshot(&path, true).unwrap()).unwrap();
    assert_eq!((status.revision, status.total_keys), (4, 2));
    assert_eq!(status.version, "3.6.0");
    let size = std::fs::metadata(&path).unwrap().len();
    assert_eq!(status.total_size, size - 32, "without the hash");
}

#[tokio::test]
async fn empty_state_has_revision_one() {
    let folder = tempfile::tempdir().unwrap();
    let (contents, records) = import(&export(folder.path(), Vec::new()).await);
    assert_eq!((contents.revision, contents.compacted), (1, 0));
    assert!(records.is_empty() && contents.leases.is_empty());
    assert!(!contents.auth.enabled);
}

#[tokio::test]
async fn changed_or_missing_hash_is_rejected_unless_it_is_not_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = export(folder.path(), vec![put("a", 0)]).await;
    let whole = std::fs::read(&path).unwrap();
    let mut changed = whole.clone();
    changed[5_000] ^= 1;
    let without_hash = &whole[..whole.len() - 32];
    let cut = &whole[..whole.len() - 1];
    for (name, bytes, checked, unchecked) in [
        ("whole", &whole[..], Ok(()), true),
        ("changed", &changed, Err("its hash does not match"), true),
        (
            "without hash",
            without_hash,
            Err("has no hash at its end"),
            true,
        ),
        ("cut", cut, Err("has no hash at its end"), true),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let found = open_snapshot(&path, true)
            .map(drop)
            .map_err(|error| error.to_string());
        match checked {
            Ok(()) => assert_eq!(found, Ok(()), "{name}"),
            Err(text) => assert!(
                found.as_ref().is_err_and(|error| error.contains(text)),
                "{name}: {found:?}"
            ),
        }
        assert_eq!(open_snapshot(&path, false).is_ok(), unchecked, "{name}");
    }
}

#[tokio::test]
async fn error_of_the_caller_ends_the_import() {
    let folder = tempfile::tempdir().unwrap();
    let path = export(folder.path(), vec![put("a", 0), put("b", 0)]).await;
    let source = open_snapshot(&path, true).unwrap();
    let mut count = 0;
    let imported = import_snapshot::<SnapshotFileError>(&source, |_| {
        count += 1;
        Err(SnapshotFileError::Record("full".to_owned()))
    });
    assert_eq!(imported.err().unwrap().to_string(), "full");
    assert_eq!(count, 1);
}
