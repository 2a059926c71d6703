//! The store against a naive model: random commands, the same answers.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::{NoLeases, Store};
use bytes::Bytes;
use kv_engine::{Batch, Engine, MemoryEngine};
use proptest::prelude::*;
use proto_etcd::etcdserverpb::{DeleteRangeRequest, PutRequest, RangeRequest};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Clone, Debug)]
enum Command {
    Put(u8, u8),
    Delete(u8, u8),
    Compact(u8),
    Restart,
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let one = prop_oneof![
        6 => (0..6u8, any::<u8>()).prop_map(|(key, value)| Command::Put(key, value)),
        2 => (0..6u8, 0..7u8).prop_map(|(key, end)| Command::Delete(key, end)),
        1 => any::<u8>().prop_map(Command::Compact),
        1 => Just(Command::Restart),
    ];
    proptest::collection::vec(one, 1..60)
}

/// Key, value, create revision, version.
type Row = (u8, u8, i64, i64);

/// The rows of every revision there ever was.
#[derive(Default)]
struct Model {
    revisions: Vec<BTreeMap<u8, Row>>,
    compacted: i64,
}

impl Model {
    fn current(&self) -> i64 {
        self.revisions.len() as i64
    }
    fn change(&mut self, change: impl FnOnce(&mut BTreeMap<u8, Row>, i64) -> bool) {
        let mut next = self.revisions.last().unwrap().clone();
        if change(&mut next, self.current() + 1) {
            self.revisions.push(next);
        }
    }
}

fn key(number: u8) -> Bytes {
    Bytes::from(vec![b'a' + number])
}

fn carry_out(store: &Store, engine: &Arc<dyn Engine>, model: &mut Model, command: &Command) {
    let mut batch = Batch::default();
    let mut writer = store.writer();
    match command {
        Command::Put(number, value) => {
            let request = PutRequest { key: key(*number), value: Bytes::from(vec![*value]), ..PutRequest::default() };
            writer.put(&request, &mut NoLeases).unwrap();
            model.change(|rows, revision| {
                let (create, version) = rows.get(number).map_or((revision, 1), |row| (row.2, row.3 + 1));
                rows.insert(*number, (*number, *value, create, version));
                true
            });
        }
        Command::Delete(from, end) => {
            let request = DeleteRangeRequest { key: key(*from), range_end: key(*end), prev_kv: true };
            let answer = writer.delete_range(&request, &mut NoLeases).unwrap();
            assert_eq!(answer.deleted as usize, answer.prev_kvs.len());
            model.change(|rows, _| {
                let before = rows.len();
                rows.retain(|number, _| !(from..end).contains(&number));
                assert_eq!(before - rows.len(), answer.deleted as usize);
                before != rows.len()
            });
        }
        Command::Compact(share) => {
            let revision = model.current() * i64::from(*share) / 255;
            if writer.compact(revision, &mut batch).is_ok() {
                model.compacted = revision;
            }
        }
        Command::Restart => {}
    }
    writer.commit(&mut batch);
    drop(writer);
    engine.write(batch).unwrap();
    store.stored(store.revision());
}

fn same(store: &Store, model: &Model) {
    assert_eq!(store.revision(), model.current());
    for revision in 1..=model.current() {
        let request =
            RangeRequest { key: key(0), range_end: Bytes::from_static(b"\0"), revision, ..Default::default() };
        let answer = store.range(&request);
        if revision < model.compacted {
            assert!(answer.is_err());
            continue;
        }
        let rows: Vec<Row> = answer
            .unwrap()
            .0
            .kvs
            .iter()
            .map(|kv| (kv.key[0] - b'a', kv.value[0], kv.create_revision, kv.version))
            .collect();
        let wanted: Vec<Row> = model.revisions[revision as usize - 1].values().copied().collect();
        assert_eq!(rows, wanted, "at revision {revision}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn answers_as_the_model_does(commands in commands()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let engine: Arc<dyn Engine> = Arc::new(MemoryEngine::default());
        let mut store = Arc::new(Store::open(engine.clone(), 100).unwrap());
        let mut model = Model { revisions: vec![BTreeMap::new()], compacted: 0 };
        for command in &commands {
            carry_out(&store, &engine, &mut model, command);
            if matches!(command, Command::Restart) {
                let hash = store.hash(0).unwrap();
                store = Arc::new(Store::open(engine.clone(), 100).unwrap());
                assert_eq!(store.hash(0).unwrap(), hash);
            }
            let reclaiming = store.clone();
            let compacted = model.compacted;
            runtime.block_on(async {
                tokio::select! {
                    _ = reclaiming.reclaim_forever() => {}
                    () = reclaiming.reclaimed_upto(compacted) => {}
                }
            });
        }
        same(&store, &model);
    }
}
