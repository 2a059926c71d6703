//! Bytes of a frame and of the records in it.
//!
//! A frame is one write: `magic length checksum sequence records`, padded to 8 bytes. A record is
//! `kind index length checksum data`. The sequence number grows by one a frame, across segments.

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes before a frame's records.
pub(crate) const FRAME_HEADER: usize = 24;
/// Bytes before a record's data.
pub(crate) const RECORD_HEADER: usize = 17;
const MAGIC: u32 = 0x6b76_7731;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// An entry of the log.
    Entry(u64, Bytes),
    /// The vote from here on.
    Vote(Bytes),
    /// Entries from this index on are no more.
    Truncate(u64),
    /// Entries up to this index are no more; the data identify the last of them.
    Purge(u64, Bytes),
}

impl Record {
    fn parts(&self) -> (u8, u64, &[u8]) {
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

/// Appends one frame to `out` and says where in it each record begins.
pub(crate) fn encode(out: &mut BytesMut, sequence: u64, records: &[Record]) -> Vec<usize> {
    let start = out.len();
    out.put_bytes(0, FRAME_HEADER);
    let mut places = Vec::with_capacity(records.len());
    for record in records {
        places.push(out.len() - start);
        let (kind, index, data) = record.parts();
        out.put_u8(kind);
        out.put_u64_le(index);
        out.put_u32_le(u32::try_from(data.len()).unwrap_or(u32::MAX));
        out.put_u32_le(record_checksum(kind, index, data));
        out.put_slice(data);
    }
    let length = out.len() - start - FRAME_HEADER;
    out.put_bytes(0, padding(length));
    let frame = &mut out[start..];
    let checksum = frame_checksum(sequence, &frame[FRAME_HEADER..FRAME_HEADER + length]);
    frame[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    frame[4..8].copy_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    frame[8..12].copy_from_slice(&checksum.to_le_bytes());
    frame[16..24].copy_from_slice(&sequence.to_le_bytes());
    places
}

/// A frame found in a segment.
pub(crate) struct Found {
    pub sequence: u64,
    /// Records, and where in the frame each begins.
    pub records: Vec<(usize, Record)>,
    /// Bytes to the next frame.
    pub size: usize,
}

/// The frame at the start of `bytes`, if it is whole and undamaged.
pub(crate) fn decode(bytes: &Bytes) -> Option<Found> {
    let (sequence, length) = check(bytes)?;
    let body = bytes.slice(FRAME_HEADER..FRAME_HEADER + length);
    let mut records = Vec::new();
    let mut at = 0;
    while at < length {
        let (record, size) = decode_record(&body.slice(at..))?;
        records.push((FRAME_HEADER + at, record));
        at += size;
    }
    Some(Found { sequence, records, size: FRAME_HEADER + length + padding(length) })
}

/// Sequence and length of the frame at the start of `bytes`, if its checksum holds.
pub(crate) fn check(bytes: &[u8]) -> Option<(u64, usize)> {
    if word(bytes, 0)? != MAGIC {
        return None;
    }
    let length = word(bytes, 4)? as usize;
    let sequence = u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
    let body = bytes.get(FRAME_HEADER..FRAME_HEADER.checked_add(length)?)?;
    (frame_checksum(sequence, body) == word(bytes, 8)?).then_some((sequence, length))
}

/// Whether `bytes` are meant to be frame `sequence`, whole or not.
pub(crate) fn begins(bytes: &[u8], sequence: u64) -> bool {
    word(bytes, 0) == Some(MAGIC) && bytes.get(16..24).is_some_and(|found| found == sequence.to_le_bytes())
}

/// The record at the start of `bytes` and its size, if its checksum holds.
pub(crate) fn decode_record(bytes: &Bytes) -> Option<(Record, usize)> {
    let kind = *bytes.first()?;
    let index = u64::from_le_bytes(bytes.get(1..9)?.try_into().ok()?);
    let end = RECORD_HEADER.checked_add(word(bytes, 9)? as usize)?;
    if end > bytes.len() {
        return None;
    }
    let data = bytes.slice(RECORD_HEADER..end);
    if record_checksum(kind, index, &data) != word(bytes, 13)? {
        return None;
    }
    Some((Record::from_parts(kind, index, data)?, end))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn padding(length: usize) -> usize {
    length.wrapping_neg() % 8
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
    fn a_frame_comes_back_as_it_was() {
        let mut out = BytesMut::new();
        let places = encode(&mut out, 5, &records());
        let size = out.len();
        assert_eq!(size % 8, 0);
        let found = decode(&out.freeze()).unwrap();
        assert_eq!((found.sequence, found.size), (5, size));
        assert_eq!(found.records.iter().map(|(at, _)| *at).collect::<Vec<_>>(), places);
        assert_eq!(found.records.into_iter().map(|(_, r)| r).collect::<Vec<_>>(), records());
    }

    #[test]
    fn any_changed_byte_and_any_cut_is_noticed() {
        let mut out = BytesMut::new();
        encode(&mut out, 5, &records());
        let length = word(&out, 4).unwrap() as usize + FRAME_HEADER;
        for at in (0..length).filter(|at| !(12..16).contains(at)) {
            let mut damaged = out.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged.freeze()).is_none(), "byte {at}");
        }
        for end in 0..length {
            assert!(decode(&Bytes::copy_from_slice(&out[..end])).is_none(), "cut at {end}");
        }
    }
}
