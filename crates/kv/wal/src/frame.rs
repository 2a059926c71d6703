//! Format of frames and their records.
//!
//! A frame is one write: `magic length checksum seal sequence records`, padded to 8 bytes with
//! zeros. A record is `kind index length checksum data`. The sequence number grows by one per
//! frame, across segments.
//!
//! A frame is written over zeros, and the disk writes each of its sectors completely or not at all.
//! A sector that was not written is therefore zero. The seal is a checksum of the header's other
//! fields and of the number of the frame's sectors that are legitimately zero. So it distinguishes
//! a frame that was never complete from a damaged one. Frames of earlier versions have no seal (0)
//! and may have been written over other data.

use bytes::{BufMut, Bytes, BytesMut};
use std::ops::Range;

/// Size in bytes of a frame's header.
pub(crate) const FRAME_HEADER: usize = 24;
/// Size in bytes of a record's header.
pub(crate) const RECORD_HEADER: usize = 17;
/// Offset of the seal in the header.
const SEAL: usize = 12;
const MAGIC: u32 = 0x6b76_7731;
/// Size in bytes that a disk writes atomically; multiples (pages) too.
const SECTOR: usize = 512;

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An entry.
    Entry(u64, Bytes),
    /// A vote, valid from here on.
    Vote(Bytes),
    /// Removes the entries from this index on.
    Truncate(u64),
    /// Removes the entries up to this index; the data identify the last of them.
    Purge(u64, Bytes),
}

impl Record {
    fn to_parts(&self) -> (u8, u64, &[u8]) {
        match self {
            Record::Entry(index, data) => (1, *index, data),
            Record::Vote(data) => (2, 0, data),
            Record::Truncate(index) => (3, *index, &[]),
            Record::Purge(index, data) => (4, *index, data),
        }
    }

    fn from_parts(kind: u8, index: u64, data: Bytes) -> Option<Record> {
        Some(match kind {
            1 => Record::Entry(index, data),
            2 => Record::Vote(data),
            3 => Record::Truncate(index),
            4 => Record::Purge(index, data),
            _ => return None,
        })
    }
}

/// Appends a frame to `out`, which must be empty. `at` is its offset in the segment. Returns the
/// offset of each record in the frame.
pub(crate) fn encode_frame(
    out: &mut BytesMut,
    at: usize,
    sequence: u64,
    records: &[Record],
) -> Vec<usize> {
    out.put_bytes(0, FRAME_HEADER);
    let mut places = Vec::with_capacity(records.len());
    for record in records {
        places.push(out.len());
        let (kind, index, data) = record.to_parts();
        out.put_u8(kind);
        out.put_u64_le(index);
        out.put_u32_le(u32::try_from(data.len()).unwrap_or(u32::MAX));
        out.put_u32_le(record_checksum(kind, index, data));
        out.put_slice(data);
    }
    let length = out.len() - FRAME_HEADER;
    out.put_bytes(0, padding_length(length));
    // The sequence is part of the checksum, so a frame from an earlier use of the segment never
    // fits.
    let checksum = frame_checksum(sequence, &out[FRAME_HEADER..FRAME_HEADER + length]);
    out[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    out[4..8].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    out[8..12].copy_from_slice(&checksum.to_le_bytes());
    out[16..24].copy_from_slice(&sequence.to_le_bytes());
    // The seal covers no data: it must be verifiable while sectors with data are missing.
    let seal = seal_of(header_checksum(out), bare_sectors(out, at, out.len()));
    out[SEAL..SEAL + 4].copy_from_slice(&seal.to_le_bytes());
    places
}

/// A decoded frame.
pub(crate) struct Found {
    pub sequence: u64,
    /// Records with their offsets in the frame.
    pub records: Vec<(usize, Record)>,
    /// Number of bytes to the next frame.
    pub size: usize,
    /// True if the frame has a seal.
    pub sealed: bool,
}

/// Decodes the frame at offset `at` of a segment. Returns `None` if it is incomplete or damaged.
pub(crate) fn decode_frame(segment: &Bytes, at: usize) -> Option<Found> {
    let (sequence, length) = check_frame(segment.get(at..)?, at)?;
    let body = segment.slice(at + FRAME_HEADER..at + FRAME_HEADER + length);
    let mut records = Vec::new();
    let mut start = 0;
    while start < length {
        let (record, size) = decode_record(&body.slice(start..))?;
        records.push((FRAME_HEADER + start, record));
        start += size;
    }
    let sealed = read_word(segment, at + SEAL)? != 0;
    Some(Found {
        sequence,
        records,
        size: frame_size(length),
        sealed,
    })
}

/// Returns sequence number and length of the undamaged frame at the start of `bytes`, which is at
/// offset `at` of a segment.
pub(crate) fn check_frame(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    if read_word(bytes, 0)? != MAGIC {
        return None;
    }
    let (length, sequence) = (read_word(bytes, 4)? as usize, read_sequence(bytes)?);
    let body = bytes.get(FRAME_HEADER..FRAME_HEADER.checked_add(length)?)?;
    let size = frame_size(length);
    let padded = is_bare(bytes.get(FRAME_HEADER + length..size)?);
    let seal = read_word(bytes, SEAL)?;
    let sealed =
        || seal == 0 || seal == seal_of(header_checksum(bytes), bare_sectors(bytes, at, size));
    (padded && frame_checksum(sequence, body) == read_word(bytes, 8)? && sealed())
        .then_some((sequence, length))
}

/// Diagnosis of an unreadable frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameDiagnosis {
    /// Not written.
    Absent,
    /// Written partially.
    Torn,
    /// Written completely and damaged later.
    Damaged,
}

/// Diagnoses frame `expected`, which can't be decoded at the start of `bytes`. These start at
/// offset `at` of a segment and extend to its end. `after_seal` tells whether the frame before it
/// has a seal.
pub(crate) fn diagnose_frame(
    bytes: &[u8],
    at: usize,
    expected: u64,
    after_seal: bool,
) -> FrameDiagnosis {
    if is_bare(bytes) {
        return FrameDiagnosis::Absent;
    }
    let begins = read_word(bytes, 0) == Some(MAGIC) && read_sequence(bytes) == Some(expected);
    let seal = read_word(bytes, SEAL).unwrap_or(0);
    let sealed = begins && seal != 0;
    if !(after_seal || sealed) {
        // The segment was not zeroed, so the written part can't be determined.
        return if begins {
            FrameDiagnosis::Torn
        } else {
            FrameDiagnosis::Absent
        };
    }
    // A sector with a part of the header is never zero.
    let begun = frame_sectors(at, FRAME_HEADER)
        .map(|part| part.start..sector_end(at, part.start).min(bytes.len()));
    if begun
        .into_iter()
        .any(|part| bytes.get(part).is_none_or(is_bare))
    {
        return FrameDiagnosis::Torn;
    }
    let Some(length) = read_word(bytes, 4).filter(|_| begins) else {
        return FrameDiagnosis::Damaged;
    };
    // Sectors that are zero now: those that are legitimately zero, and those that were not written.
    // A seal with a smaller number proves that some were not written.
    let unwritten = bare_sectors(bytes, at, frame_size(length as usize));
    let head = header_checksum(bytes);
    if (0..unwritten).any(|bare| seal_of(head, bare) == seal) {
        FrameDiagnosis::Torn
    } else {
        FrameDiagnosis::Damaged
    }
}

/// Splits `size` bytes at offset `at` of a segment at sector boundaries. Returns ranges relative to
/// `at`.
fn frame_sectors(at: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let part = move |start: usize| (start < size).then(|| start..sector_end(at, start).min(size));
    std::iter::successors(part(0), move |before| part(before.end))
}

fn sector_end(at: usize, start: usize) -> usize {
    start + SECTOR - (at + start) % SECTOR
}

/// Returns the number of sectors of a frame that are zero or missing.
fn bare_sectors(bytes: &[u8], at: usize, size: usize) -> u32 {
    frame_sectors(at, size)
        .map(|part| u32::from(bytes.get(part).is_none_or(is_bare)))
        .sum()
}

fn is_bare(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Decodes the record at the start of `bytes`. Returns it with its size, or `None` if its checksum
/// does not match.
pub(crate) fn decode_record(bytes: &Bytes) -> Option<(Record, usize)> {
    let kind = *bytes.first()?;
    let index = u64::from_le_bytes(bytes.get(1..9)?.try_into().ok()?);
    let end = RECORD_HEADER.checked_add(read_word(bytes, 9)? as usize)?;
    if end > bytes.len() {
        return None;
    }
    let data = bytes.slice(RECORD_HEADER..end);
    if record_checksum(kind, index, &data) != read_word(bytes, 13)? {
        return None;
    }
    Some((Record::from_parts(kind, index, data)?, end))
}

fn read_word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_sequence(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(
        bytes.get(16..FRAME_HEADER)?.try_into().ok()?,
    ))
}

fn padding_length(length: usize) -> usize {
    length.wrapping_neg() % 8
}

/// Returns the size of a frame whose records have this many bytes.
fn frame_size(length: usize) -> usize {
    FRAME_HEADER + length + padding_length(length)
}

/// Returns the checksum of all header fields except the seal.
fn header_checksum(bytes: &[u8]) -> u32 {
    let (before, after) = (bytes.get(..SEAL), bytes.get(SEAL + 4..FRAME_HEADER));
    crc32c::crc32c_append(
        crc32c::crc32c(before.unwrap_or_default()),
        after.unwrap_or_default(),
    )
}

fn seal_of(header: u32, bare: u32) -> u32 {
    // 0 means that there is no seal.
    crc32c::crc32c_append(header, &bare.to_le_bytes()).max(1)
}

fn frame_checksum(sequence: u64, body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&sequence.to_le_bytes()), body)
}

fn record_checksum(kind: u8, index: u64, data: &[u8]) -> u32 {
    let mut head = [0; 9];
    head[0] = kind;
    head[1..].copy_from_slice(&index.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&head), data)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn records() -> Vec<Record> {
        vec![
            Record::Vote(Bytes::from_static(b"v")),
            Record::Entry(7, Bytes::from_static(b"seven")),
            Record::Truncate(8),
            Record::Purge(3, Bytes::new()),
        ]
    }

    #[test]
    fn frame_is_decoded_as_encoded() {
        let mut out = BytesMut::new();
        let places = encode_frame(&mut out, 488, 5, &records());
        let size = out.len();
        assert_eq!(size % 8, 0);
        let found = decode_frame(&placed(488, &out), 488).unwrap();
        assert_eq!((found.sequence, found.size, found.sealed), (5, size, true));
        assert_eq!(
            found.records.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
            places
        );
        assert_eq!(
            found
                .records
                .into_iter()
                .map(|(_, r)| r)
                .collect::<Vec<_>>(),
            records()
        );
    }

    #[test]
    fn changed_bit_or_cut_makes_a_frame_unreadable() {
        let mut out = BytesMut::new();
        encode_frame(&mut out, 0, 5, &records());
        for bit in 0..out.len() * 8 {
            let mut damaged = out.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(
                decode_frame(&damaged.clone().freeze(), 0).is_none(),
                "bit {bit}"
            );
            assert_eq!(
                diagnose_frame(&damaged, 0, 5, true),
                FrameDiagnosis::Damaged,
                "bit {bit}"
            );
        }
        for end in 0..out.len() {
            assert!(
                decode_frame(&Bytes::copy_from_slice(&out[..end]), 0).is_none(),
                "cut at {end}"
            );
        }
    }

    fn placed(at: usize, frame: &[u8]) -> Bytes {
        let mut segment = vec![0; at];
        segment.extend_from_slice(frame);
        segment.into()
    }

    /// Frames at any offset in a sector, with legitimately zero sectors in the middle and at the
    /// end.
    #[test]
    fn missing_sector_is_torn_and_changed_sector_is_damaged() {
        let mut data = vec![7; 3_000];
        data[600..1_700].fill(0);
        data[2_500..].fill(0);
        let records = [Record::Entry(9, data.into())];
        for at in (4_096..4_096 + SECTOR).step_by(8) {
            let mut out = BytesMut::new();
            encode_frame(&mut out, at, 5, &records);
            assert_eq!(
                diagnose_frame(&BytesMut::zeroed(9_000), at, 5, true),
                FrameDiagnosis::Absent
            );
            for part in frame_sectors(at, out.len()).filter(|part| !is_bare(&out[part.clone()])) {
                let mut torn = out.clone();
                torn[part.clone()].fill(0);
                torn.resize(9_000, 0);
                assert_eq!(
                    diagnose_frame(&torn, at, 5, true),
                    FrameDiagnosis::Torn,
                    "at {at}: {part:?}"
                );
                let mut changed = out.clone();
                changed[part.start + (part.len() / 2)] ^= 4;
                changed.resize(9_000, 0);
                assert_eq!(
                    diagnose_frame(&changed, at, 5, true),
                    FrameDiagnosis::Damaged,
                    "at {at}: {part:?}"
                );
            }
        }
    }

    #[test]
    fn frame_without_seal_counts_as_torn() {
        let mut out = BytesMut::new();
        encode_frame(&mut out, 0, 5, &records());
        out[SEAL..SEAL + 4].fill(0);
        assert!(!decode_frame(&out.clone().freeze(), 0).unwrap().sealed);
        out[40] ^= 1;
        assert_eq!(diagnose_frame(&out, 0, 5, false), FrameDiagnosis::Torn);
        assert_eq!(diagnose_frame(&out, 0, 6, false), FrameDiagnosis::Absent);
    }
}
