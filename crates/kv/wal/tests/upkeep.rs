//! Maintenance must not block writers.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use kv_wal::{Contents, FileSystem, SegmentMaintenance, Wal, Writer, WrittenBy};
use std::path::Path;
use std::sync::Arc;

const SEGMENT_BYTES: u64 = 8 << 10;

fn segments(folder: &Path) -> usize {
    let names = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".wal"))
        .count()
}

fn open(folder: &Path) -> (Wal, Contents, Writer) {
    Wal::open_on(
        Arc::new(FileSystem),
        folder,
        SEGMENT_BYTES,
        Arc::new(|_| {}),
    )
    .unwrap()
}

/// Executes waiting requests. Returns the maintenance that is due.
fn carry_out(writer: &mut Writer) -> Vec<SegmentMaintenance> {
    let mut upkeep = Vec::new();
    while let Some(mut frame) = writer.next_frame() {
        writer.write_frame(&mut frame).unwrap();
        writer.sync_frame(&frame).unwrap();
        frame.acknowledge();
        upkeep.extend(writer.take_maintenance());
    }
    upkeep
}

/// Returns a log of many segments, of which all but the last are purged and still exist.
fn purged(folder: &Path) -> (Wal, Vec<SegmentMaintenance>) {
    let (wal, _, mut writer) = open(folder);
    for index in 1..=50 {
        wal.append(
            vec![(index, vec![7; 4_000].into())],
            WrittenBy::Thread,
            Box::new(|| {}),
        );
        carry_out(&mut writer);
    }
    let before = segments(folder);
    assert!(before > 10);
    wal.purge(49, Bytes::from_static(b"purged"), Box::new(|| {}));
    let upkeep = carry_out(&mut writer);
    assert_eq!(segments(folder), before);
    (wal, upkeep)
}

#[test]
fn purge_does_not_wait_for_the_recycling_of_segments() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, upkeep) = purged(folder.path());
    upkeep.into_iter().for_each(|upkeep| upkeep.run().unwrap());
    assert_eq!(segments(folder.path()), 1);
    drop(wal);
    assert_eq!(open(folder.path()).1.entries.len(), 1);
}

#[test]
fn failed_recycling_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let (_wal, upkeep) = purged(folder.path());
    std::fs::remove_dir_all(folder.path()).unwrap();
    assert!(upkeep.into_iter().any(|upkeep| upkeep.run().is_err()));
}
