//! Alarms: which members may raise them, and their end when the member is removed.
#![allow(clippy::unwrap_used)]

use bytes::{Bytes, BytesMut};
use kv_engine::MemoryEngine;
use kv_machine::{Command, Envelope, Machine, Options, encode_into};
use proto_etcd::etcdserverpb::alarm_request::AlarmAction;
use proto_etcd::etcdserverpb::{AlarmRequest, AlarmType, Member, MemberRemoveRequest};
use std::sync::Arc;
use std::time::Duration;

fn machine(engine: &Arc<MemoryEngine>) -> Arc<Machine> {
    let options = Options {
        member: 1,
        max_txn_ops: 128,
        max_learners: 1,
        value_cache: 0,
        own_thread: false,
        token_ttl: Duration::from_secs(300),
        on_store: Arc::new(|_| {}),
        slow_apply: Duration::MAX,
    };
    Machine::open(engine.clone(), options).unwrap()
}

fn apply(machine: &Machine, index: u64, command: Command) {
    let envelope = Envelope {
        internal: true,
        command: Some(command),
        ..Envelope::default()
    };
    let mut entry = BytesMut::new();
    encode_into(&mut entry, &envelope);
    machine.apply(index, Bytes::new(), None, Some(entry.freeze()));
}

fn no_space(member_id: u64) -> Command {
    Command::Alarm(AlarmRequest {
        action: AlarmAction::Activate.into(),
        member_id,
        alarm: AlarmType::Nospace.into(),
    })
}

fn raised_by(machine: &Machine) -> Vec<u64> {
    machine
        .list_alarms()
        .iter()
        .map(|alarm| alarm.member_id)
        .collect()
}

#[test]
fn they_go_with_their_member_and_do_not_come_back() {
    let engine = Arc::new(MemoryEngine::default());
    let opened = machine(&engine);
    for id in [1, 2] {
        let peer_ur_ls = vec![format!("http://{id}:1")];
        apply(
            &opened,
            id,
            Command::MemberAdd(Member {
                id,
                peer_ur_ls,
                ..Member::default()
            }),
        );
        apply(&opened, 10 + id, no_space(id));
    }
    assert_eq!(raised_by(&opened), [1, 2]);
    apply(
        &opened,
        20,
        Command::MemberRemove(MemberRemoveRequest { id: 2 }),
    );
    assert_eq!(raised_by(&opened), [1]);
    apply(&opened, 21, no_space(2));
    assert_eq!(
        raised_by(&opened),
        [1],
        "it was proposed before the member was removed"
    );
    while opened.drain_queue() {}
    assert_eq!(raised_by(&machine(&engine)), [1], "after a restart");
}
