//! Content of a log that was closed or damaged and is opened again.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use kv_wal::{Contents, FileSystem, Wal, WalError, Writer, WrittenBy, read_log};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SEGMENT_BYTES: u64 = 8 << 10;

fn open(folder: &Path) -> Result<(Wal, Contents, Writer), WalError> {
    Wal::open_on(
        Arc::new(FileSystem),
        folder,
        SEGMENT_BYTES,
        Arc::new(|_| {}),
    )
}

fn run_writer(writer: &mut Writer) {
    while let Some(mut frame) = writer.next_frame() {
        writer.write_frame(&mut frame).unwrap();
        writer.sync_frame(&frame).unwrap();
        frame.acknowledge();
        if let Some(maintenance) = writer.take_maintenance() {
            maintenance.run().unwrap();
        }
    }
}

fn value(index: u64) -> Bytes {
    format!("value of {index}").into()
}

/// Appends entries, each in a frame of its own.
fn append(wal: &Wal, writer: &mut Writer, indexes: impl IntoIterator<Item = u64>) {
    for index in indexes {
        wal.append(
            vec![(index, value(index))],
            WrittenBy::Thread,
            Box::new(|| {}),
        );
        run_writer(writer);
    }
}

fn segments(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "wal"))
        .collect();
    found.sort();
    found
}

fn indexes(contents: &Contents) -> Vec<u64> {
    contents.entries.iter().map(|(index, _)| *index).collect()
}

/// Returns the offset of the frame with this entry in the only segment.
fn frame_of(bytes: &[u8], index: u64) -> usize {
    let text = format!("value of {index}");
    let at = bytes
        .windows(text.len())
        .rposition(|window| window == text.as_bytes())
        .unwrap();
    // Headers of record and frame precede the data.
    at - 17 - 24
}

#[test]
fn appended_entry_replaces_that_index_and_all_later_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    append(&wal, &mut writer, [1, 2, 3, 4]);
    wal.append(
        vec![(2, Bytes::from_static(b"new"))],
        WrittenBy::Thread,
        Box::new(|| {}),
    );
    run_writer(&mut writer);
    assert_eq!(wal.index_bounds(), Some((1, 2)));
    drop((wal, writer));
    let contents = read_log(folder.path()).unwrap();
    assert_eq!(indexes(&contents), [1, 2]);
    assert_eq!(contents.entries[1].1, "new");
}

#[test]
fn truncate_and_purge_survive_a_restart() {
    for (truncate, purge, expect, first_index) in [
        (None, None, vec![1, 2, 3, 4, 5], Some((1, 5))),
        (Some(4), None, vec![1, 2, 3], Some((1, 3))),
        (None, Some(2), vec![3, 4, 5], Some((3, 5))),
        (Some(4), Some(2), vec![3], Some((3, 3))),
        (Some(1), None, vec![], None),
        (None, Some(5), vec![], None),
        (None, Some(9), vec![], None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let (wal, _, mut writer) = open(folder.path()).unwrap();
        append(&wal, &mut writer, 1..=5);
        if let Some(from) = truncate {
            wal.truncate(from, Box::new(|| {}));
        }
        if let Some(upto) = purge {
            wal.purge(upto, Bytes::from_static(b"p"), Box::new(|| {}));
        }
        run_writer(&mut writer);
        let shown = format!("truncate {truncate:?}, purge {purge:?}");
        assert_eq!(wal.index_bounds(), first_index, "{shown}");
        drop((wal, writer));
        let (wal, contents, _writer) = open(folder.path()).unwrap();
        assert_eq!(indexes(&contents), expect, "{shown}");
        assert_eq!(contents.purged.map(|(upto, _)| upto), purge, "{shown}");
        assert_eq!(wal.index_bounds(), first_index, "{shown}");
    }
}

#[test]
fn entries_continue_after_a_purge_beyond_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    append(&wal, &mut writer, 1..=3);
    // A follower that received a snapshot up to 100 has no entry before it.
    wal.purge(100, Bytes::from_static(b"snapshot"), Box::new(|| {}));
    append(&wal, &mut writer, 101..=102);
    drop((wal, writer));
    let contents = read_log(folder.path()).unwrap();
    assert_eq!(indexes(&contents), [101, 102]);
    assert_eq!(
        contents.purged,
        Some((100, Bytes::from_static(b"snapshot")))
    );
}

#[test]
fn vote_and_purge_survive_the_deletion_of_their_segment() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    wal.save_vote(Bytes::from_static(b"old"), Box::new(|| {}));
    wal.save_vote(Bytes::from_static(b"vote"), Box::new(|| {}));
    append(&wal, &mut writer, 1..=300);
    wal.purge(290, Bytes::from_static(b"p"), Box::new(|| {}));
    append(&wal, &mut writer, 301..=600);
    wal.purge(595, Bytes::from_static(b"q"), Box::new(|| {}));
    run_writer(&mut writer);
    drop((wal, writer));
    assert_eq!(segments(folder.path()).len(), 1);
    let contents = read_log(folder.path()).unwrap();
    assert_eq!(contents.vote.as_deref(), Some(&b"vote"[..]));
    assert_eq!(contents.purged, Some((595, Bytes::from_static(b"q"))));
    assert_eq!(indexes(&contents), (596..=600).collect::<Vec<_>>());
}

#[test]
fn missing_segment_is_named_and_nothing_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    append(&wal, &mut writer, 1..=400);
    drop((wal, writer));
    let all = segments(folder.path());
    assert!(all.len() >= 3, "{all:?}");
    std::fs::remove_file(&all[1]).unwrap();
    match open(folder.path()).err() {
        Some(WalError::Missing { path }) => assert_eq!(path, all[2]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn directory_without_a_log_is_not_an_empty_log() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_path_buf(), folder.path().join("absent")] {
        let error = read_log(&path).unwrap_err();
        assert!(matches!(error, WalError::Empty { .. }), "{error}");
    }
}

/// Cuts and bit flips, by their position.
#[test]
fn only_the_end_of_the_last_write_may_be_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    append(&wal, &mut writer, 1..=10);
    drop((wal, writer));
    let segment = segments(folder.path()).pop().unwrap();
    let whole = std::fs::read(&segment).unwrap();
    let (first, middle, last) = (
        frame_of(&whole, 2),
        frame_of(&whole, 5),
        frame_of(&whole, 10),
    );
    let end = last + (24 + 17 + value(10).len()).next_multiple_of(8);

    for (cut, expect) in [
        (end, Some(10)),
        (end - 1, Some(9)),
        (last + 24, Some(9)),
        (last, Some(9)),
        (middle, Some(4)),
        (first, Some(1)),
        (0, None),
    ] {
        std::fs::write(&segment, &whole[..cut]).unwrap();
        let found = read_log(folder.path())
            .ok()
            .map(|contents| contents.entries.len());
        assert_eq!(found, expect, "cut at {cut} of {end}");
    }
    for (what, at) in [
        ("magic", middle),
        ("length", middle + 4),
        ("checksum", middle + 8),
        ("seal", middle + 12),
        ("sequence", middle + 16),
        ("record", middle + 24),
        ("data", middle + 24 + 17),
        ("last data", last + 24 + 17),
    ] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(&segment, &bytes).unwrap();
        let error = read_log(folder.path()).err();
        assert!(
            matches!(error, Some(WalError::Corrupt { .. })),
            "{what}: {error:?}"
        );
    }
}

#[test]
fn torn_write_is_reported_with_its_size_and_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    append(&wal, &mut writer, 1..=2);
    wal.append(
        vec![(3, vec![7; 2_000].into())],
        WrittenBy::Thread,
        Box::new(|| {}),
    );
    run_writer(&mut writer);
    drop((wal, writer));
    let segment = segments(folder.path()).pop().unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[1_024..].fill(0);
    std::fs::write(&segment, &bytes).unwrap();
    let (wal, contents, mut writer) = open(folder.path()).unwrap();
    assert_eq!(indexes(&contents), [1, 2]);
    assert!(
        contents.torn.is_some_and(|torn| torn < 1_024),
        "{:?}",
        contents.torn
    );
    append(&wal, &mut writer, [3]);
    drop((wal, writer));
    let contents = read_log(folder.path()).unwrap();
    assert_eq!(indexes(&contents), [1, 2, 3]);
    assert_eq!(contents.torn, None);
}

#[test]
fn reads_stop_at_the_limit_and_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    append(&wal, &mut writer, 1..=9);
    wal.purge(3, Bytes::new(), Box::new(|| {}));
    run_writer(&mut writer);
    for (range, limit, expect) in [
        (4..7, usize::MAX, vec![4, 5, 6]),
        (8..20, usize::MAX, vec![8, 9]),
        (4..7, 0, vec![4]),
        (4..9, 2 * value(4).len(), vec![4, 5]),
        (1..5, usize::MAX, vec![]),
        (10..12, usize::MAX, vec![]),
    ] {
        let shown = format!("{range:?} up to {limit} bytes");
        let found = wal.read_entries(range, limit).unwrap();
        let found: Vec<_> = found.into_iter().map(|(index, _)| index).collect();
        assert_eq!(found, expect, "{shown}");
    }
}

#[test]
fn entries_are_readable_before_they_are_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (wal, _, mut writer) = open(folder.path()).unwrap();
    wal.append(vec![(1, value(1))], WrittenBy::Thread, Box::new(|| {}));
    assert_eq!(wal.read_entries(1..2, usize::MAX).unwrap(), [(1, value(1))]);
    assert_eq!(indexes(&read_log(folder.path()).unwrap()), [] as [u64; 0]);
    run_writer(&mut writer);
    assert_eq!(indexes(&read_log(folder.path()).unwrap()), [1]);
}
