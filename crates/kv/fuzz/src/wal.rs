//! Target: a segment of the log with arbitrary damage.

use crate::memory_disk::{MemoryDisk, MemoryFile};
use bytes::Bytes;
use kv_wal::{Wal, Writer, WrittenBy};
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;

const FOLDER: &str = "/log";
const FIRST: &str = "/log/0000000000000001.wal";
const SEGMENT_BYTES: u64 = 4_096;

fn disk(segment: &[u8]) -> Arc<MemoryDisk> {
    let disk = MemoryDisk::default();
    disk.0.lock().insert(
        FIRST.into(),
        MemoryFile(Arc::new(Mutex::new(segment.to_vec()))),
    );
    Arc::new(disk)
}

fn carry_out(writer: &mut Writer) {
    while let Some(mut frame) = writer.next_frame() {
        if writer
            .write_frame(&mut frame)
            .and_then(|()| writer.sync_frame(&frame))
            .is_err()
        {
            return;
        }
        frame.acknowledge();
    }
}

/// Opens a log with this segment. An accepted log must be readable, writable, and have the same
/// content when it is opened again.
pub fn wal(data: &[u8]) {
    let disk = disk(data);
    let Ok((log, contents, mut writer)) = Wal::open_on(
        disk.clone(),
        Path::new(FOLDER),
        SEGMENT_BYTES,
        Arc::new(|_| {}),
    ) else {
        return;
    };
    if let Some((first, last)) = log.index_bounds() {
        let _ = log.read_entries(first..last.saturating_add(1), usize::MAX);
    }
    let mut entries = contents.entries;
    let next = entries.back().map_or_else(
        || {
            contents
                .purged
                .as_ref()
                .map_or(1, |(upto, _)| upto.saturating_add(1))
        },
        |(i, _)| i.saturating_add(1),
    );
    let added = (next, Bytes::from_static(b"added"));
    log.append(vec![added.clone()], WrittenBy::Thread, Box::new(|| {}));
    carry_out(&mut writer);
    drop((log, writer));
    entries.push_back(added);
    let again = Wal::open_on(disk, Path::new(FOLDER), SEGMENT_BYTES, Arc::new(|_| {}));
    let Ok((_, again, _)) = again else {
        panic!("a log that was served is refused")
    };
    assert_eq!(again.entries, entries, "a log that was served has changed");
}

/// Returns valid segments.
pub fn wal_corpus() -> Vec<Vec<u8>> {
    let disk = Arc::new(MemoryDisk::default());
    let opened = Wal::open_on(
        disk.clone(),
        Path::new(FOLDER),
        SEGMENT_BYTES,
        Arc::new(|_| {}),
    );
    let Ok((log, _, mut writer)) = opened else {
        return Vec::new();
    };
    log.save_vote(Bytes::from_static(b"a vote of seventeen"), Box::new(|| {}));
    for index in 1..12 {
        log.append(
            vec![(index, Bytes::from(vec![b'e'; 20 * index as usize]))],
            WrittenBy::Thread,
            Box::new(|| {}),
        );
        carry_out(&mut writer);
    }
    log.truncate(10, Box::new(|| {}));
    log.append(
        vec![(10, Bytes::from_static(b"ten"))],
        WrittenBy::Thread,
        Box::new(|| {}),
    );
    carry_out(&mut writer);
    log.purge(4, Bytes::from_static(b"four"), Box::new(|| {}));
    carry_out(&mut writer);
    let files = disk.0.lock();
    files.values().map(|file| file.0.lock().clone()).collect()
}
