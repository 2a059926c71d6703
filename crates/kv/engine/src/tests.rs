//! Conformance suite that every engine passes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::{Batch, Engine, EngineError, Kind, MemoryEngine, Table, open_engine};

fn put_rows(engine: &dyn Engine, rows: &[(Table, &str, &str)]) {
    let mut batch = Batch::default();
    for (table, key, value) in rows {
        batch.put(*table, key.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    engine.write_batch(batch).unwrap();
}

fn scan_keys(engine: &dyn Engine, table: Table, from: &str, to: Option<&str>) -> Vec<String> {
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

fn check_conformance(engine: &dyn Engine) {
    put_rows(
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
    assert_eq!(scan_keys(engine, Table::Meta, "", None), ["a", "b"]);
    assert_eq!(scan_keys(engine, Table::Meta, "a", Some("b")), ["a"]);
    assert!(scan_keys(engine, Table::Meta, "b", Some("a")).is_empty());
    assert_eq!(scan_keys(engine, Table::Revisions, "", None), ["a"]);

    // The last write of a key in a batch wins; deleting an absent key is allowed.
    let mut batch = Batch::default();
    batch.put(Table::Meta, b"c".to_vec(), b"1".to_vec());
    batch.delete(Table::Meta, b"c".to_vec());
    batch.delete(Table::Meta, b"absent".to_vec());
    batch.delete(Table::Meta, b"a".to_vec());
    batch.put(Table::Meta, b"b".to_vec(), b"new".to_vec());
    engine.write_batch(batch).unwrap();
    assert_eq!(scan_keys(engine, Table::Meta, "", None), ["b"]);
    assert_eq!(
        engine.get(Table::Meta, b"b").unwrap().unwrap().as_ref(),
        b"new"
    );

    // A scan can be stopped, and returns empty and binary keys in order.
    put_rows(
        engine,
        &[
            (Table::Auth, "", "e"),
            (Table::Auth, "\u{1}", "1"),
            (Table::Auth, "\0", "0"),
        ],
    );
    assert_eq!(
        scan_keys(engine, Table::Auth, "", None),
        ["", "\0", "\u{1}"]
    );
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
    assert!(scan_keys(engine, Table::Meta, "", None).is_empty());
}

#[test]
fn memory_engine_conforms() {
    check_conformance(&MemoryEngine::default());
}

fn check_conformance_and_restart(kind: Kind, other: Kind) {
    let folder = tempfile::tempdir().unwrap();
    {
        let engine = open_engine(folder.path(), Some(kind), 1 << 20).unwrap();
        check_conformance(&*engine);
        put_rows(&*engine, &[(Table::Meta, "kept", "1")]);
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
fn fjall_conforms_and_survives_a_restart() {
    check_conformance_and_restart(Kind::Fjall, Kind::Sled);
}

#[test]
fn release_space_returns_the_space_of_deleted_revisions() {
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
fn sled_conforms_and_survives_a_restart() {
    check_conformance_and_restart(Kind::Sled, Kind::Fjall);
}

#[test]
fn engine_of_a_directory_is_detected_by_its_files() {
    for kind in [Kind::Fjall, Kind::Sled] {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Kind::detect(folder.path()), None);
        drop(open_engine(folder.path(), Some(kind), 1 << 20).unwrap());
        assert_eq!(Kind::detect(folder.path()), Some(kind));
        assert!(open_engine(folder.path(), None, 1 << 20).is_ok());
    }
    assert_eq!(Kind::detect(std::path::Path::new("/absent")), None);
}

#[test]
fn damaged_files_are_an_error_and_never_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open_engine(folder.path(), Some(Kind::Fjall), 1 << 20).unwrap();
    put_rows(&*engine, &[(Table::Meta, "a", "1")]);
    engine.flush().unwrap();
    drop(engine);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && std::fs::metadata(&path).unwrap().len() > 0 {
            std::fs::write(&path, b"nonsense").unwrap();
        }
    }
    match open_engine(folder.path(), None, 1 << 20) {
        Err(EngineError::Damaged { path, .. }) => assert_eq!(path, folder.path()),
        Err(other) => panic!("{other}"),
        // fjall may detect the damage only when it reads. Then the row is missing, never wrong.
        Ok(engine) => assert!(engine.get(Table::Meta, b"a").ok().flatten().is_none()),
    }
}

/// A full disk or a crash leaves zeros for the rest of a write: the journal is created at its size.
#[test]
fn torn_end_of_the_journal_is_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let engine = open_engine(folder.path(), Some(Kind::Fjall), 1 << 20).unwrap();
    put_rows(&*engine, &[(Table::Meta, "whole", "1")]);
    put_rows(&*engine, &[(Table::Meta, "torn-key", "a value")]);
    engine.flush().unwrap();
    drop(engine);
    let journals = std::fs::read_dir(folder.path()).unwrap();
    let mut torn = 0;
    for path in journals.map(|entry| entry.unwrap().path()) {
        let Ok(mut bytes) = std::fs::read(&path) else {
            continue;
        };
        let name = b"torn-key";
        if let Some(at) = bytes.windows(name.len()).position(|found| found == name) {
            // The table's byte and the second length of the value come before the key.
            bytes[at - 5..].fill(0);
            std::fs::write(&path, bytes).unwrap();
            torn += 1;
        }
    }
    assert_eq!(torn, 1);
    let engine = open_engine(folder.path(), None, 1 << 20).unwrap();
    let get = |key: &str| engine.get(Table::Meta, key.as_bytes()).unwrap();
    assert_eq!(get("whole").as_deref(), Some(b"1".as_slice()));
    assert_eq!(get("torn-key"), None);
}

#[test]
fn directory_that_is_in_use_is_not_reported_as_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let _engine = open_engine(folder.path(), Some(Kind::Fjall), 1 << 20).unwrap();
    match open_engine(folder.path(), Some(Kind::Fjall), 1 << 20) {
        Err(EngineError::Open { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("opened twice"),
    }
}

#[test]
fn batch_counts_its_rows_and_bytes() {
    let mut batch = Batch::default();
    assert!(batch.is_empty());
    batch.put(Table::Meta, b"key".to_vec(), b"value".to_vec());
    batch.delete(Table::Meta, b"other".to_vec());
    assert_eq!((batch.len(), batch.size_bytes()), (2, 13));
    let mut all = Batch::default();
    all.append(batch.clone());
    all.append(batch);
    assert_eq!((all.len(), all.size_bytes()), (4, 26));
}
