//! Conformance suite that every engine passes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::{Batch, Engine, Kind, MemoryEngine, Table, open_engine};

fn put(engine: &dyn Engine, rows: &[(Table, &str, &str)]) {
    let mut batch = Batch::default();
    for (table, key, value) in rows {
        batch.put(*table, key.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    engine.write_batch(batch).unwrap();
}

fn keys(engine: &dyn Engine, table: Table, from: &str, to: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    engine
        .scan_rows(
            table,
            from.as_bytes(),
            to.map(str::as_bytes),
            &mut |key, _| {
                found.push(String::from_utf8(key.to_vec()).unwrap());
                true
            },
        )
        .unwrap();
    found
}

fn conforms(engine: &dyn Engine) {
    put(
        engine,
        &[
            (Table::Meta, "b", "1"),
            (Table::Meta, "a", "2"),
            (Table::Revisions, "a", "3"),
        ],
    );
    assert_eq!(
        engine.get(Table::Meta, b"a").unwrap().unwrap().as_ref(),
        b"2"
    );
    assert_eq!(
        engine
            .get(Table::Revisions, b"a")
            .unwrap()
            .unwrap()
            .as_ref(),
        b"3"
    );
    assert!(engine.get(Table::Leases, b"a").unwrap().is_none());
    assert_eq!(keys(engine, Table::Meta, "", None), ["a", "b"]);
    assert_eq!(keys(engine, Table::Meta, "a", Some("b")), ["a"]);
    assert!(keys(engine, Table::Meta, "b", Some("a")).is_empty());
    assert_eq!(keys(engine, Table::Revisions, "", None), ["a"]);

    // The last write of a key in a batch wins; deleting an absent key is allowed.
    let mut batch = Batch::default();
    batch.put(Table::Meta, b"c".to_vec(), b"1".to_vec());
    batch.delete(Table::Meta, b"c".to_vec());
    batch.delete(Table::Meta, b"absent".to_vec());
    batch.delete(Table::Meta, b"a".to_vec());
    batch.put(Table::Meta, b"b".to_vec(), b"new".to_vec());
    engine.write_batch(batch).unwrap();
    assert_eq!(keys(engine, Table::Meta, "", None), ["b"]);
    assert_eq!(
        engine.get(Table::Meta, b"b").unwrap().unwrap().as_ref(),
        b"new"
    );

    // A scan can be stopped, and returns empty and binary keys in order.
    put(
        engine,
        &[
            (Table::Auth, "", "e"),
            (Table::Auth, "\u{1}", "1"),
            (Table::Auth, "\0", "0"),
        ],
    );
    assert_eq!(keys(engine, Table::Auth, "", None), ["", "\0", "\u{1}"]);
    let mut seen = 0;
    engine
        .scan_rows(Table::Auth, b"", None, &mut |_, _| {
            seen += 1;
            seen < 2
        })
        .unwrap();
    assert_eq!(seen, 2);

    engine.flush().unwrap();
    assert!(engine.disk_size() > 0);
    engine.clear().unwrap();
    assert!(keys(engine, Table::Meta, "", None).is_empty());
}

#[test]
fn memory_conforms() {
    conforms(&MemoryEngine::default());
}

fn conforms_and_keeps_what_it_flushed(kind: Kind, other: Kind) {
    let folder = tempfile::tempdir().unwrap();
    {
        let engine = open_engine(folder.path(), Some(kind), 1 << 20).unwrap();
        conforms(&*engine);
        put(&*engine, &[(Table::Meta, "kept", "1")]);
        engine.flush().unwrap();
    }
    let Err(refusal) = open_engine(folder.path(), Some(other), 1 << 20) else {
        panic!("opened as {other:?}")
    };
    assert!(
        refusal.to_string().contains(&format!("kept by {kind:?}")),
        "{refusal}"
    );
    let engine = open_engine(folder.path(), None, 1 << 20).unwrap();
    assert_eq!(
        engine.get(Table::Meta, b"kept").unwrap().unwrap().as_ref(),
        b"1"
    );
}

#[test]
fn fjall_conforms_and_keeps_what_it_flushed() {
    conforms_and_keeps_what_it_flushed(Kind::Fjall, Kind::Sled);
}

#[test]
fn space_of_removed_revisions_is_given_back() {
    const ROWS: u32 = 48;
    const ROW: usize = 1 << 20;
    let folder = tempfile::tempdir().unwrap();
    let engine = open_engine(folder.path(), Some(Kind::Fjall), 1 << 20).unwrap();
    for row in 0..ROWS {
        let mut batch = Batch::default();
        batch.put(
            Table::Revisions,
            row.to_be_bytes().to_vec(),
            vec![b'v'; ROW],
        );
        engine.write_batch(batch).unwrap();
    }
    engine.release_space().unwrap();
    let before = engine.disk_size();
    let mut batch = Batch::default();
    (1..ROWS).for_each(|row| batch.delete(Table::Revisions, row.to_be_bytes().to_vec()));
    engine.write_batch(batch).unwrap();
    engine.release_space().unwrap();
    let after = engine.disk_size();
    assert!(
        after + 40 * ROW as u64 <= before,
        "{before} bytes became {after}"
    );
    assert_eq!(
        engine
            .get(Table::Revisions, &0_u32.to_be_bytes())
            .unwrap()
            .unwrap()
            .len(),
        ROW
    );
    assert!(
        engine
            .get(Table::Revisions, &1_u32.to_be_bytes())
            .unwrap()
            .is_none()
    );
}

#[test]
fn sled_conforms_and_keeps_what_it_flushed() {
    conforms_and_keeps_what_it_flushed(Kind::Sled, Kind::Fjall);
}
