//! The last frame of a log: removed if torn by a crash, rejected if damaged later.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use kv_wal::{Contents, FileSystem, Wal, WalError, Writer, WrittenBy, read_log};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEGMENT_BYTES: u64 = 8 << 10;
const SECTOR: usize = 512;

fn open(folder: &Path) -> Result<(Wal, Contents, Writer), WalError> {
    Wal::open_on(
        Arc::new(FileSystem),
        folder,
        SEGMENT_BYTES,
        Arc::new(|_| {}),
    )
}

fn carry_out(writer: &mut Writer) {
    while let Some(mut frame) = writer.next_frame() {
        writer.write_frame(&mut frame).unwrap();
        writer.sync_frame(&frame).unwrap();
        frame.acknowledge();
        if let Some(upkeep) = writer.take_maintenance() {
            upkeep.run().unwrap();
        }
    }
}

/// Returns a value with zero sectors in the middle and at the end.
fn value(index: u64) -> Bytes {
    let mut value = vec![index as u8 | 6; 2_100];
    value[300..1_500].fill(0);
    value[2_000..].fill(0);
    value.into()
}

fn append(wal: &Wal, writer: &mut Writer, index: u64) {
    wal.append(
        vec![(index, value(index))],
        WrittenBy::Thread,
        Box::new(|| {}),
    );
    carry_out(writer);
}

fn newest(folder: &Path) -> PathBuf {
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "wal"))
        .max()
        .unwrap()
}

/// Returns the offsets of a segment's frames, and the end of the last one.
fn frames(bytes: &[u8]) -> Vec<usize> {
    let mut found = vec![0];
    let mut at = 0;
    while bytes.get(at).is_some_and(|byte| *byte != 0) {
        let length = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().unwrap()) as usize;
        at += (24 + length).next_multiple_of(8);
        found.push(at);
    }
    found
}

/// A closed log, its newest segment, and the range of the last frame.
struct Closed {
    _folder: tempfile::TempDir,
    log: PathBuf,
    segment: PathBuf,
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    last: u64,
}

fn closed(recycled: bool) -> Closed {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let (wal, _, mut writer) = open(&log).unwrap();
    let mut used = Vec::new();
    let mut last = 0;
    let mut next = || {
        last += 1;
        last
    };
    append(&wal, &mut writer, next());
    if recycled {
        // The log recycles purged segments in the background.
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let before = std::fs::metadata(newest(&log)).unwrap().ino();
            used.push(before);
            let index = next();
            append(&wal, &mut writer, index);
            wal.purge(index - 1, Bytes::from_static(b"purged"), Box::new(|| {}));
            carry_out(&mut writer);
            let now = std::fs::metadata(newest(&log)).unwrap().ino();
            if now != before && used.contains(&now) {
                break;
            }
            assert!(
                Instant::now() < deadline,
                "the newest segment was not in use before"
            );
        }
    }
    append(&wal, &mut writer, next());
    drop((wal, writer));
    let segment = newest(&log);
    let bytes = std::fs::read(&segment).unwrap();
    let found = frames(&bytes);
    let [.., begin, end] = found[..] else {
        panic!("{found:?}")
    };
    Closed {
        _folder: folder,
        log,
        segment,
        bytes,
        begin,
        end,
        last,
    }
}

#[test]
fn changed_bit_in_the_last_frame_is_rejected_with_its_segment() {
    for recycled in [false, true] {
        let Closed {
            _folder,
            log,
            segment,
            mut bytes,
            begin,
            end,
            last,
        } = closed(recycled);
        assert_eq!(
            read_log(&log)
                .unwrap()
                .entries
                .back()
                .map(|(index, _)| *index),
            Some(last)
        );
        // All bits of the headers and of the end, one bit of each byte in between.
        let between = begin + 48..end - 16;
        let bits = (begin * 8..end * 8)
            .filter(|bit| !between.contains(&(bit / 8)) || bit % 8 == bit / 8 % 8);
        for bit in bits {
            bytes[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&segment, &bytes).unwrap();
            let error = read_log(&log)
                .err()
                .unwrap_or_else(|| panic!("bit {bit} was not noticed, recycled {recycled}"));
            let said = error.to_string();
            assert!(
                said.contains(&format!(
                    "checksum mismatch in {} at byte {begin}",
                    segment.display()
                )),
                "{said}"
            );
            assert!(said.contains("kvstore snapshot restore"), "{said}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // Opening must fail too, not only reading.
        bytes[begin] ^= 1;
        std::fs::write(&segment, &bytes).unwrap();
        assert!(open(&log).is_err());
    }
}

#[test]
fn frame_torn_at_any_sector_is_removed_and_overwritten() {
    for recycled in [false, true] {
        let Closed {
            _folder,
            log,
            segment,
            bytes,
            begin,
            end,
            last,
        } = closed(recycled);
        let sectors: Vec<_> = (begin / SECTOR..=(end - 1) / SECTOR)
            .map(|n| begin.max(n * SECTOR)..end.min((n + 1) * SECTOR))
            .collect();
        // All combinations of written sectors.
        for written in 0..(1 << sectors.len()) - 1 {
            let mut torn = bytes.clone();
            for (number, sector) in sectors.iter().enumerate() {
                if written & (1 << number) == 0 {
                    torn[sector.clone()].fill(0);
                }
            }
            if torn == bytes {
                continue;
            }
            std::fs::write(&segment, &torn).unwrap();
            let (wal, contents, mut writer) = open(&log).unwrap();
            assert_eq!(
                contents
                    .entries
                    .back()
                    .map_or(last - 1, |(index, _)| *index),
                last - 1,
                "{written:b}"
            );
            let remains = torn[begin..].iter().any(|byte| *byte != 0);
            assert_eq!(contents.torn.is_some(), remains, "{written:b}");
            // Shorter than the removed write: nothing of that may remain.
            wal.append(
                vec![(last, Bytes::from_static(b"short"))],
                WrittenBy::Thread,
                Box::new(|| {}),
            );
            carry_out(&mut writer);
            drop((wal, writer));
            assert!(
                std::fs::read(&segment).unwrap()[begin + 64..]
                    .iter()
                    .all(|byte| *byte == 0),
                "{written:b}"
            );
            assert_eq!(read_log(&log).unwrap().entries.back().unwrap().1, "short");
        }
    }
}

/// Frames without a seal, in a reused segment that was not zeroed.
#[test]
fn log_without_seals_opens() {
    let Closed {
        _folder,
        log,
        segment,
        mut bytes,
        begin,
        end,
        last,
    } = closed(false);
    for at in frames(&bytes) {
        bytes[at + 12..at + 16].fill(0);
    }
    for (at, byte) in bytes[end..].iter_mut().enumerate() {
        *byte = (at % 251) as u8;
    }
    bytes[begin + 30] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    let (wal, contents, mut writer) = open(&log).unwrap();
    assert!(contents.torn.is_some());
    assert_eq!(contents.entries.len() as u64, last - 1);
    append(&wal, &mut writer, last);
    drop((wal, writer));
    assert_eq!(read_log(&log).unwrap().entries.len() as u64, last);
    let mut bytes = std::fs::read(&segment).unwrap();
    assert!(bytes[end..].iter().all(|byte| *byte == 0));
    bytes[begin + 30] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    assert!(read_log(&log).is_err());
}

#[test]
fn segment_without_its_head_is_rejected() {
    let Closed {
        _folder,
        log,
        segment,
        mut bytes,
        ..
    } = closed(true);
    bytes.fill(0);
    std::fs::write(&segment, &bytes).unwrap();
    let said = read_log(&log).unwrap_err().to_string();
    assert!(said.contains("at byte 0"), "{said}");
}
