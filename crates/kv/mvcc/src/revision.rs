//! Revisions and their keys in the engine.

use bytes::Bytes;
use proto_etcd::mvccpb::KeyValue;
use std::cmp::Ordering;

// In `sub`, so that a revision fits in 16 bytes: the index has one for every key and every old
// version.
const DEAD: u32 = 1 << 31;

/// Overhead in bytes of a record: its key, and what an engine adds.
const OVERHEAD: u64 = 48;

/// A revision: main, sub, and whether it is a tombstone. The size of its record is stored with it
/// and ignored in comparisons.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    main: i64,
    sub: u32,
    size: u32,
}

impl PartialEq for Mark {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Mark {}

impl PartialOrd for Mark {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Mark {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.main, self.sub).cmp(&(other.main, other.sub))
    }
}

impl Mark {
    /// Creates the revision of the `sub`th change of a transaction.
    pub fn new(main: i64, sub: u32, dead: bool) -> Mark {
        Mark {
            main,
            sub: sub | if dead { DEAD } else { 0 },
            size: 0,
        }
    }

    /// Sets the size of the record in bytes.
    pub fn with_size(self, bytes: usize) -> Mark {
        Mark {
            size: u32::try_from(bytes).unwrap_or(u32::MAX),
            ..self
        }
    }

    /// Returns the size of the record in the engine, in bytes.
    pub fn stored_size(self) -> u64 {
        u64::from(self.size) + OVERHEAD
    }

    /// Returns the main revision.
    pub fn main(self) -> i64 {
        self.main
    }

    /// Returns the position in the transaction.
    pub fn sub(self) -> u32 {
        self.sub & !DEAD
    }

    /// Returns whether this is a tombstone.
    pub fn is_tombstone(self) -> bool {
        self.sub & DEAD != 0
    }

    /// Encodes the revision as a key of the engine. Keys sort like revisions.
    pub fn engine_key(self) -> Vec<u8> {
        let mut key = Vec::with_capacity(18);
        key.extend_from_slice(&self.main.to_be_bytes());
        // etcd's format, so that snapshot files contain the records byte for byte.
        key.push(b'_');
        key.extend_from_slice(&i64::from(self.sub()).to_be_bytes());
        if self.is_tombstone() {
            key.push(b't');
        }
        key
    }

    /// Decodes a key of the engine.
    pub fn from_key(key: &[u8]) -> Option<Mark> {
        let main = i64::from_be_bytes(key.get(..8)?.try_into().ok()?);
        let sub = i64::from_be_bytes(key.get(9..17)?.try_into().ok()?);
        let dead = match key.get(17..)? {
            [] => false,
            b"t" => true,
            _ => return None,
        };
        (key.get(8) == Some(&b'_')).then_some(())?;
        Some(Mark::new(
            main,
            u32::try_from(sub).ok().filter(|sub| sub & DEAD == 0)?,
            dead,
        ))
    }

    /// Returns the key before all records of a main revision.
    pub fn first_key(main: i64) -> [u8; 8] {
        main.to_be_bytes()
    }
}

/// Decodes the key-value pair of a record, without copying its bytes.
pub(crate) fn decode_record(record: &Bytes) -> Option<KeyValue> {
    prost::Message::decode(record.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_keys_sort_like_revisions() {
        let marks = [
            Mark::new(1, 0, false),
            Mark::new(1, 1, true),
            Mark::new(2, 0, true),
            Mark::new(300, 7, false),
        ];
        for pair in marks.windows(2) {
            assert!(pair[0].engine_key() < pair[1].engine_key());
        }
        for mark in marks {
            assert_eq!(Mark::from_key(&mark.engine_key()), Some(mark));
        }
        assert_eq!(Mark::from_key(b"short"), None);
    }
}
