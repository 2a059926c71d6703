//! Commands that need no server: snapshot files, and data folders made of them.

use crate::bootstrap::{cluster_id, initial_members};
use crate::interchange::{self, FileStatus};
use crate::settings::{SnapshotCommand, SnapshotRestore, SnapshotStatus};
use anyhow::{Context, Result, bail};
use kv_bolt::OnDisk;
use kv_engine::{Batch, Engine, Table};
use kv_machine::{Members, Place, seed};
use kv_wal::{DataFolder, Identity, Wal};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};

const CACHE: u64 = 32 << 20;
const BATCH_BYTES: usize = 4 << 20;

/// Looks at a snapshot file or restores it.
pub(crate) fn snapshot(command: SnapshotCommand) -> Result<()> {
    match command {
        SnapshotCommand::Status(flags) => status(&flags),
        SnapshotCommand::Restore(flags) => restore(&flags),
    }
}

pub(crate) fn print(text: &str) -> Result<()> {
    Ok(writeln!(std::io::stdout(), "{text}")?)
}

fn status(flags: &SnapshotStatus) -> Result<()> {
    let FileStatus { hash, revision, total_keys, total_size, version } = interchange::file_status(&flags.file)?;
    match flags.write_out.as_str() {
        "json" => print(
            &serde_json::json!({
                "hash": hash, "revision": revision, "totalKey": total_keys, "totalSize": total_size, "version": version,
            })
            .to_string(),
        ),
        "fields" => print(&format!(
            "\"Hash\" : {hash}\n\"Revision\" : {revision}\n\"Keys\" : {total_keys}\n\"Size\" : {total_size}\n\"Version\" : \"{version}\""
        )),
        _ => print(&format!("{hash:x}, {revision}, {total_keys}, {total_size}, {version}")),
    }
}

fn restore(flags: &SnapshotRestore) -> Result<()> {
    let target = flags.data_dir.clone().unwrap_or_else(|| PathBuf::from(format!("{}.etcd", flags.name)));
    let taken = target.is_file() || std::fs::read_dir(&target).is_ok_and(|mut entries| entries.next().is_some());
    if taken {
        bail!("{} exists and is not empty: restore into another folder, or remove it first", target.display());
    }
    let members = initial_members(&flags.initial_cluster, &flags.initial_cluster_token)?;
    let voters: BTreeSet<u64> = members.iter().map(|member| member.id).collect();
    let mine = members.iter().find(|member| member.name == flags.name);
    let mine = mine
        .with_context(|| format!("--name {:?} is not in --initial-cluster {:?}", flags.name, flags.initial_cluster))?;
    let source = interchange::open(&flags.file, !flags.skip_hash_check)?;
    // All of it is read once before anything is made.
    interchange::import(&source, |_| Ok(())).with_context(|| format!("{} is damaged", flags.file.display()))?;
    let mut folder = DataFolder::open(&target)?;
    let (index, position, membership) = kv_raft::origin(&voters);
    let engine = kv_engine::open(&folder.below("member/state")?, None, CACHE)?;
    fill(&*engine, &source, flags, &Place { position: position.clone(), membership }, members.clone())?;
    let (wal, _) = Wal::open(&folder.below("member/wal")?, Arc::new(|_| {}))?;
    let (sender, receiver) = mpsc::channel();
    wal.purge(
        index,
        position,
        Box::new(move || {
            let _ = sender.send(());
        }),
    );
    receiver.recv().context("the log can't be written")?;
    // The folder is somebody's only when everything in it is there.
    folder.claim(Identity { cluster: cluster_id(&voters), member: mine.id })?;
    print(&format!("restored {} to {}", flags.file.display(), target.display()))
}

fn fill(
    engine: &dyn Engine,
    source: &OnDisk,
    flags: &SnapshotRestore,
    place: &Place,
    initial: Vec<proto_etcd::etcdserverpb::Member>,
) -> Result<()> {
    let mut batch = Batch::default();
    let contents = interchange::import(source, |(_, key, value)| {
        batch.put(Table::Revisions, key.to_vec(), value);
        if batch.bytes() > BATCH_BYTES {
            engine.write(std::mem::take(&mut batch))?;
        }
        Ok(())
    })?;
    let mut members = Members::default();
    for member in initial {
        members.restore(member);
    }
    let bump = i64::try_from(flags.bump_revision).context("--bump-revision is too large")?;
    let revision = contents.revision + bump;
    let compacted = if flags.mark_compacted { revision } else { contents.compacted };
    batch.append(seed(place, revision, compacted, &contents.leases, &contents.auth, &members));
    engine.write(batch)?;
    engine.flush()?;
    Ok(())
}
