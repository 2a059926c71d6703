//! `--force-new-cluster`: the one member that is left of a cluster goes on as a cluster of one, with all that it has.
//!
//! The log is told before anything else reads it: one write says who votes and who is a member, so that a start which is
//! interrupted has happened or has not. To do it again is harmless.

use anyhow::{Context, Result};
use bytes::BytesMut;
use kv_machine::{Command, Envelope, encode_into};
use kv_raft::Takeover;
use kv_wal::{DataFolder, Done, Identity, Wal, WrittenBy};
use proto_etcd::etcdserverpb::Member;
use std::sync::{Arc, mpsc};

/// Makes the owner of a folder, which `me` describes where its state does not, the only member of its cluster.
pub(crate) fn go_on(folder: &DataFolder, identity: Identity, me: Member) -> Result<()> {
    let (wal, contents) = Wal::open(&folder.below("member/wal")?, Arc::new(|_| {}))?;
    let envelope = Envelope { internal: true, command: Some(Command::MemberAlone(me)), ..Envelope::default() };
    let mut commands = BytesMut::new();
    encode_into(&mut commands, &envelope);
    let takeover = kv_raft::alone(&contents, identity.member, commands.freeze());
    let Takeover { vote, entries } = takeover.with_context(|| {
        format!(
            "--force-new-cluster: the log in {} has nothing to go on with; start the member without the flag",
            folder.path().display()
        )
    })?;
    on_disk(|done| wal.save_vote(vote, done))?;
    on_disk(|done| wal.append(entries, WrittenBy::Thread, done))?;
    tracing::warn!(
        member = format!("{:x}", identity.member),
        cluster = format!("{:x}", identity.cluster),
        "forced to go on as the only member; leave --force-new-cluster out at the next start, or whoever was added until then is removed"
    );
    Ok(())
}

fn on_disk(ask: impl FnOnce(Done)) -> Result<()> {
    let (sender, receiver) = mpsc::channel();
    ask(Box::new(move || {
        let _ = sender.send(());
    }));
    receiver.recv().context("the log can't be written")
}
