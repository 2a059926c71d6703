//! `--force-new-cluster`: restarts the survivor of a cluster as a single-member cluster with all
//! its data.
//!
//! The change is one write to the log before anything else reads it. It sets the voters and the
//! members, so an interrupted start has either applied it completely or not at all. Repeating it is
//! harmless.

use anyhow::{Context, Result};
use bytes::BytesMut;
use kv_config::WAL_DIR;
use kv_machine::{Command, Envelope, encode_into};
use kv_raft::NewClusterRecords;
use kv_wal::{DataFolder, Done, Identity, Wal, WrittenBy};
use proto_etcd::etcdserverpb::Member;
use std::sync::{Arc, mpsc};

/// Makes the owner of a data directory the only member of its cluster. `me` describes the member if
/// its state does not contain it.
pub fn force_new_cluster(folder: &DataFolder, identity: Identity, me: Member) -> Result<()> {
    let (wal, contents) = Wal::open(&folder.create_subfolder(WAL_DIR)?, Arc::new(|_| {}))?;
    let envelope = Envelope {
        internal: true,
        command: Some(Command::MemberAlone(me)),
        ..Envelope::default()
    };
    let mut commands = BytesMut::new();
    encode_into(&mut commands, &envelope);
    let takeover = kv_raft::force_new_cluster(&contents, identity.member, commands.freeze());
    let NewClusterRecords { vote, entries } = takeover.with_context(|| {
        format!(
            "--force-new-cluster: the log in {} has no readable entry; start the member without the flag",
            folder.path().display()
        )
    })?;
    // The vote first: it has the term of the new entries. Alone it has no effect, because it is not
    // marked as won.
    on_disk(|done| wal.save_vote(vote, done))?;
    on_disk(|done| wal.append(entries, WrittenBy::Thread, done))?;
    tracing::warn!(
        member = format!("{:x}", identity.member),
        cluster = format!("{:x}", identity.cluster),
        "restarted as a single-member cluster; remove --force-new-cluster before the next start, or members that are added until then are removed"
    );
    Ok(())
}

fn on_disk(ask: impl FnOnce(Done)) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    ask(Box::new(move || {
        let _ = sender.send(());
    }));
    receiver.recv().context("writing the log failed")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn empty_log_is_rejected_and_stays_as_it_is() {
        let root = tempfile::tempdir().unwrap();
        let folder = DataFolder::open(root.path()).unwrap();
        let identity = Identity {
            cluster: 1,
            member: 2,
        };
        let rejected = force_new_cluster(&folder, identity, Member::default()).unwrap_err();
        assert!(
            rejected.to_string().contains("no readable entry"),
            "{rejected}"
        );
        let (_, contents) =
            Wal::open(&folder.create_subfolder(WAL_DIR).unwrap(), Arc::new(|_| {})).unwrap();
        assert!(contents.entries.is_empty());
    }
}
