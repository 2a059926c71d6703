//! What can wait does not hold up who writes.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use kv_wal::{FileSystem, Upkeep, Wal, WrittenBy};
use std::path::Path;
use std::sync::Arc;

const SEGMENT_BYTES: u64 = 8 << 10;

fn segments(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.filter(|name| name.to_string_lossy().ends_with(".wal")).count()
}

#[test]
fn a_purge_is_done_before_its_segments_are_given_back() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) =
        Wal::open_on(Arc::new(FileSystem), folder.path(), SEGMENT_BYTES, Arc::new(|_| {})).unwrap();
    let mut carry_out = || -> Vec<Upkeep> {
        let mut upkeep = Vec::new();
        while let Some(mut frame) = writer.waiting() {
            writer.write(&mut frame).unwrap();
            writer.sync(&frame).unwrap();
            frame.finish();
            upkeep.extend(writer.upkeep());
        }
        upkeep
    };
    for index in 1..=50 {
        wal.append(vec![(index, vec![7; 4_000].into())], WrittenBy::Thread, Box::new(|| {}));
        carry_out();
    }
    let before = segments(folder.path());
    assert!(before > 10);
    wal.purge(49, Bytes::from_static(b"purged"), Box::new(|| {}));
    let upkeep = carry_out();
    assert_eq!(segments(folder.path()), before);
    upkeep.into_iter().for_each(Upkeep::run);
    assert_eq!(segments(folder.path()), 1);
    drop(wal);
    let (_, contents, _) = Wal::open_on(Arc::new(FileSystem), folder.path(), SEGMENT_BYTES, Arc::new(|_| {})).unwrap();
    assert_eq!(contents.entries.len(), 1);
}
