//! What a store may answer: plain bookkeeping over what was tried and what was acknowledged.
//!
//! A key has one writer, which puts 1, 2, 3 and so on. A put whose outcome nobody knows may still be carried out later, so
//! it is its key's last; reads go on and stay within the bounds. As each number is put once, the key's version must be its
//! value: a put that was carried out twice shows, too.

use std::fmt;

/// A key's place in the ledger.
pub type Key = usize;

#[derive(Clone, Copy, Default)]
struct Record {
    /// The largest number that the store has vouched for: by acknowledging it, or by showing it to a reader.
    known: u64,
    /// The revision that the store gave to `known`.
    revision: i64,
    tried: u64,
}

/// What was known of a key and of the store when a call began.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    known: u64,
    revision: i64,
}

/// What a read found; zeros where the key is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number in the key's value.
    pub value: u64,
    /// The pair's version.
    pub version: i64,
    /// The pair's revision of modification.
    pub modified: i64,
    /// The revision in the answer's header.
    pub header: i64,
}

/// An answer that the store must not give.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// A value older than what was known before the read began, or a put that is gone.
    Behind { value: u64, known: u64 },
    /// A value that nobody has tried to put.
    Invented { value: u64, tried: u64 },
    /// A number that was put once has another version or revision than it can have.
    Another { found: Found, revision: i64 },
    /// A header's revision from before the call began.
    Revision { header: i64, known: i64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Behind { value, known } => {
                write!(f, "the value is {value} although {known} was acknowledged or read before this began")
            }
            Violation::Invented { value, tried } => {
                write!(f, "the value is {value} although {tried} was the last one tried")
            }
            Violation::Another { found: Found { value, version, modified, .. }, revision } => write!(
                f,
                "{value} was put once, at revision {revision} (0: not known), and has version {version} and revision {modified}"
            ),
            Violation::Revision { header, known } => {
                write!(f, "the header's revision is {header} although {known} was seen before this began")
            }
        }
    }
}

/// All keys, and the highest revision that any answer has told.
#[derive(Default)]
pub struct Ledger {
    records: Vec<Record>,
    revision: i64,
}

impl Ledger {
    /// A key that nobody has written.
    pub fn open(&mut self) -> Key {
        self.records.push(Record::default());
        self.records.len() - 1
    }

    /// How many keys there are.
    pub fn keys(&self) -> usize {
        self.records.len()
    }

    fn record(&self, key: Key) -> Record {
        self.records.get(key).copied().unwrap_or_default()
    }

    /// To be noted before a call is sent.
    pub fn before(&self, key: Key) -> Before {
        Before { known: self.record(key).known, revision: self.revision }
    }

    /// The number that the key's writer puts next.
    pub fn next(&self, key: Key) -> u64 {
        self.record(key).tried + 1
    }

    /// A put of the key's next number is about to be sent.
    pub fn tried(&mut self, key: Key) {
        if let Some(record) = self.records.get_mut(key) {
            record.tried += 1;
        }
    }

    /// The last put was not even sent.
    pub fn withdrawn(&mut self, key: Key) {
        if let Some(record) = self.records.get_mut(key) {
            record.tried = record.tried.saturating_sub(1);
        }
    }

    /// The last put was acknowledged at this revision, which must be one that nothing before it had.
    pub fn acknowledged(&mut self, key: Key, before: Before, revision: i64) -> Result<(), Violation> {
        if revision <= before.revision {
            return Err(Violation::Revision { header: revision, known: before.revision });
        }
        let Record { known, revision: shown, tried } = self.record(key);
        if known == tried && shown != revision {
            let found = Found { value: tried, version: 0, modified: shown, header: revision };
            return Err(Violation::Another { found, revision });
        }
        self.know(key, Record { known: tried, revision, tried }, revision);
        Ok(())
    }

    /// A linearizable read that began with `before` is over.
    pub fn read(&mut self, key: Key, before: Before, found: Found) -> Result<(), Violation> {
        let record = self.record(key);
        let Found { value, version, modified, header } = found;
        if value < before.known {
            return Err(Violation::Behind { value, known: before.known });
        }
        if value > record.tried {
            return Err(Violation::Invented { value, tried: record.tried });
        }
        let revision = if value == record.known { record.revision } else { 0 };
        if u64::try_from(version) != Ok(value) || (revision != 0 && modified != revision) {
            return Err(Violation::Another { found, revision });
        }
        if header < before.revision {
            return Err(Violation::Revision { header, known: before.revision });
        }
        self.know(key, Record { known: value, revision: modified, ..record }, header);
        Ok(())
    }

    fn know(&mut self, key: Key, now: Record, header: i64) {
        self.revision = self.revision.max(header);
        if let Some(record) = self.records.get_mut(key).filter(|record| record.known <= now.known) {
            *record = now;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// A key whose puts were acknowledged at these revisions.
    fn written(revisions: &[i64]) -> (Ledger, Key) {
        let mut ledger = Ledger::default();
        let key = ledger.open();
        for revision in revisions {
            let before = ledger.before(key);
            ledger.tried(key);
            ledger.acknowledged(key, before, *revision).unwrap();
        }
        (ledger, key)
    }

    fn found(value: u64, modified: i64, header: i64) -> Found {
        Found { value, version: value as i64, modified, header }
    }

    #[test]
    fn what_was_acknowledged_is_read() {
        let (mut ledger, key) = written(&[2, 3]);
        let before = ledger.before(key);
        assert_eq!(ledger.read(key, before, found(2, 3, 3)), Ok(()));
        assert_eq!(ledger.read(key, before, found(2, 3, 9)), Ok(()));
    }

    #[test]
    fn a_stale_read_is_told() {
        let (mut ledger, key) = written(&[2, 3]);
        let before = ledger.before(key);
        assert_eq!(ledger.read(key, before, found(1, 2, 3)), Err(Violation::Behind { value: 1, known: 2 }));
    }

    #[test]
    fn a_lost_write_is_told() {
        let (mut ledger, key) = written(&[2]);
        let before = ledger.before(key);
        assert_eq!(ledger.read(key, before, found(0, 0, 2)), Err(Violation::Behind { value: 0, known: 1 }));
    }

    #[test]
    fn a_read_that_began_before_a_put_may_miss_it() {
        let (mut ledger, key) = written(&[2]);
        let before = ledger.before(key);
        ledger.tried(key);
        ledger.acknowledged(key, before, 3).unwrap();
        assert_eq!(ledger.read(key, before, found(1, 2, 2)), Ok(()));
    }

    #[test]
    fn a_put_of_unknown_outcome_may_be_there_or_not_and_stays_once_it_was_seen() {
        let (mut ledger, key) = written(&[2]);
        ledger.tried(key);
        let before = ledger.before(key);
        assert_eq!(ledger.read(key, before, found(1, 2, 2)), Ok(()));
        assert_eq!(ledger.read(key, before, found(2, 3, 3)), Ok(()));
        let before = ledger.before(key);
        assert_eq!(ledger.read(key, before, found(1, 2, 3)), Err(Violation::Behind { value: 1, known: 2 }));
    }

    #[test]
    fn a_value_that_nobody_put_is_told() {
        let (mut ledger, key) = written(&[2]);
        let before = ledger.before(key);
        assert_eq!(ledger.read(key, before, found(2, 3, 3)), Err(Violation::Invented { value: 2, tried: 1 }));
    }

    #[test]
    fn a_put_that_was_carried_out_twice_is_told() {
        let (mut ledger, key) = written(&[2]);
        let before = ledger.before(key);
        let twice = Found { version: 2, ..found(1, 3, 3) };
        assert_eq!(ledger.read(key, before, twice), Err(Violation::Another { found: twice, revision: 2 }));
        let elsewhere = found(1, 3, 3);
        assert_eq!(ledger.read(key, before, elsewhere), Err(Violation::Another { found: elsewhere, revision: 2 }));
    }

    #[test]
    fn a_revision_from_before_the_call_is_told() {
        let (mut ledger, key) = written(&[2]);
        let other = ledger.open();
        let before = ledger.before(other);
        ledger.tried(other);
        assert_eq!(ledger.acknowledged(other, before, 2), Err(Violation::Revision { header: 2, known: 2 }));
        let before = ledger.before(key);
        assert_eq!(ledger.read(key, before, found(1, 2, 1)), Err(Violation::Revision { header: 1, known: 2 }));
    }
}
