//! Rules for responses: bookkeeping of attempted and acknowledged writes.
//!
//! A key has one writer, which puts 1, 2, 3 and so on. A put with unknown outcome may still be
//! executed later, so it is the last one of its key; reads continue and must stay within the
//! bounds. Each number is put once, so the key's version must equal its value: a put that was
//! executed twice is detected too.

use std::fmt;

/// Index of a key in the ledger.
pub type Key = usize;

#[derive(Clone, Copy, Default)]
struct Record {
    /// The largest number that the store has confirmed, by acknowledging it or by returning it to a
    /// reader.
    known: u64,
    /// Revision of `known`.
    revision: i64,
    tried: u64,
}

/// State of a key and of the store when a call started.
#[derive(Clone, Copy, Debug)]
pub struct Before {
    known: u64,
    revision: i64,
}

/// Result of a read; zeros if the key is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The number in the key's value.
    pub value: u64,
    /// The version of the pair.
    pub version: i64,
    /// The mod revision of the pair.
    pub modified: i64,
    /// The revision in the response header.
    pub header: i64,
}

/// A response that violates the guarantees.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// A value older than the known one, or a lost put.
    Behind { value: u64, known: u64 },
    /// A value that no client has put.
    Invented { value: u64, tried: u64 },
    /// A number with an impossible version or revision.
    Another { found: Found, revision: i64 },
    /// A revision in the header from before the start of the call.
    Revision { header: i64, known: i64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Behind { value, known } => {
                write!(
                    f,
                    "the value is {value} although {known} was acknowledged or read before this began"
                )
            }
            Violation::Invented { value, tried } => {
                write!(
                    f,
                    "the value is {value} although {tried} was the last one tried"
                )
            }
            Violation::Another {
                found:
                    Found {
                        value,
                        version,
                        modified,
                        ..
                    },
                revision,
            } => write!(
                f,
                "{value} was put once, at revision {revision} (0: not known), and has version {version} and revision {modified}"
            ),
            Violation::Revision { header, known } => {
                write!(
                    f,
                    "the header's revision is {header} although {known} was seen before this began"
                )
            }
        }
    }
}

/// All keys, and the highest revision in any response.
#[derive(Default)]
pub struct Ledger {
    records: Vec<Record>,
    revision: i64,
}

impl Ledger {
    /// Adds an unwritten key.
    pub fn add_key(&mut self) -> Key {
        self.records.push(Record::default());
        self.records.len() - 1
    }

    /// Returns the number of keys.
    pub fn key_count(&self) -> usize {
        self.records.len()
    }

    fn key_record(&self, key: Key) -> Record {
        self.records.get(key).copied().unwrap_or_default()
    }

    /// Returns the state to record before a call.
    pub fn state_before(&self, key: Key) -> Before {
        Before {
            known: self.key_record(key).known,
            revision: self.revision,
        }
    }

    /// Returns the number that the key's writer puts next.
    pub fn next_value(&self, key: Key) -> u64 {
        self.key_record(key).tried + 1
    }

    /// Records that a put of the key's next number is about to be sent.
    pub fn record_attempt(&mut self, key: Key) {
        if let Some(record) = self.records.get_mut(key) {
            record.tried += 1;
        }
    }

    /// Records that the last put was not sent.
    pub fn withdraw_attempt(&mut self, key: Key) {
        if let Some(record) = self.records.get_mut(key) {
            // The number is used again: with a gap the versions would no longer equal the values.
            record.tried = record.tried.saturating_sub(1);
        }
    }

    /// Records that the last put was acknowledged at this revision, which must be newer than all
    /// before.
    pub fn record_acknowledged(
        &mut self,
        key: Key,
        before: Before,
        revision: i64,
    ) -> Result<(), Violation> {
        // Revisions are assigned in order, so a put that began after a response has a higher one.
        if revision <= before.revision {
            return Err(Violation::Revision {
                header: revision,
                known: before.revision,
            });
        }
        let Record {
            known,
            revision: shown,
            tried,
        } = self.key_record(key);
        // A reader has seen this put already. Its revision must be the one that is acknowledged
        // now.
        if known == tried && shown != revision {
            let found = Found {
                value: tried,
                version: 0,
                modified: shown,
                header: revision,
            };
            return Err(Violation::Another { found, revision });
        }
        self.update_known(
            key,
            Record {
                known: tried,
                revision,
                tried,
            },
            revision,
        );
        Ok(())
    }

    /// Verifies the result of a linearizable read that started with `before`.
    pub fn check_read(&mut self, key: Key, before: Before, found: Found) -> Result<(), Violation> {
        let record = self.key_record(key);
        let Found {
            value,
            version,
            modified,
            header,
        } = found;
        if value < before.known {
            return Err(Violation::Behind {
                value,
                known: before.known,
            });
        }
        // Compared with the present state: a put that began during the read may be seen by it.
        if value > record.tried {
            return Err(Violation::Invented {
                value,
                tried: record.tried,
            });
        }
        // Only the revision of the newest known number is kept. A newer number reveals its own with
        // this read.
        let revision = if value == record.known {
            record.revision
        } else {
            0
        };
        // Each number is put once and in order, so the version equals the number.
        if u64::try_from(version) != Ok(value) || (revision != 0 && modified != revision) {
            return Err(Violation::Another { found, revision });
        }
        if header < before.revision {
            return Err(Violation::Revision {
                header,
                known: before.revision,
            });
        }
        self.update_known(
            key,
            Record {
                known: value,
                revision: modified,
                ..record
            },
            header,
        );
        Ok(())
    }

    fn update_known(&mut self, key: Key, now: Record, header: i64) {
        self.revision = self.revision.max(header);
        if let Some(record) = self
            .records
            .get_mut(key)
            // A response that was overtaken by a newer one must not lower the bound.
            .filter(|record| record.known <= now.known)
        {
            *record = now;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns a ledger with a key whose puts were acknowledged at these revisions.
    fn written_ledger(revisions: &[i64]) -> (Ledger, Key) {
        let mut ledger = Ledger::default();
        let key = ledger.add_key();
        for revision in revisions {
            let before = ledger.state_before(key);
            ledger.record_attempt(key);
            ledger.record_acknowledged(key, before, *revision).unwrap();
        }
        (ledger, key)
    }

    fn found(value: u64, modified: i64, header: i64) -> Found {
        Found {
            value,
            version: value as i64,
            modified,
            header,
        }
    }

    #[test]
    fn acknowledged_value_is_accepted() {
        let (mut ledger, key) = written_ledger(&[2, 3]);
        let before = ledger.state_before(key);
        assert_eq!(ledger.check_read(key, before, found(2, 3, 3)), Ok(()));
        assert_eq!(ledger.check_read(key, before, found(2, 3, 9)), Ok(()));
    }

    #[test]
    fn stale_read_is_a_violation() {
        let (mut ledger, key) = written_ledger(&[2, 3]);
        let before = ledger.state_before(key);
        assert_eq!(
            ledger.check_read(key, before, found(1, 2, 3)),
            Err(Violation::Behind { value: 1, known: 2 })
        );
    }

    #[test]
    fn lost_write_is_a_violation() {
        let (mut ledger, key) = written_ledger(&[2]);
        let before = ledger.state_before(key);
        assert_eq!(
            ledger.check_read(key, before, found(0, 0, 2)),
            Err(Violation::Behind { value: 0, known: 1 })
        );
    }

    #[test]
    fn read_that_began_before_a_put_may_miss_it() {
        let (mut ledger, key) = written_ledger(&[2]);
        let before = ledger.state_before(key);
        ledger.record_attempt(key);
        ledger.record_acknowledged(key, before, 3).unwrap();
        assert_eq!(ledger.check_read(key, before, found(1, 2, 2)), Ok(()));
    }

    #[test]
    fn put_of_unknown_outcome_is_bound_once_it_was_read() {
        let (mut ledger, key) = written_ledger(&[2]);
        ledger.record_attempt(key);
        let before = ledger.state_before(key);
        assert_eq!(ledger.check_read(key, before, found(1, 2, 2)), Ok(()));
        assert_eq!(ledger.check_read(key, before, found(2, 3, 3)), Ok(()));
        let before = ledger.state_before(key);
        assert_eq!(
            ledger.check_read(key, before, found(1, 2, 3)),
            Err(Violation::Behind { value: 1, known: 2 })
        );
    }

    #[test]
    fn value_that_was_never_put_is_a_violation() {
        let (mut ledger, key) = written_ledger(&[2]);
        let before = ledger.state_before(key);
        assert_eq!(
            ledger.check_read(key, before, found(2, 3, 3)),
            Err(Violation::Invented { value: 2, tried: 1 })
        );
    }

    #[test]
    fn put_executed_twice_is_a_violation() {
        let (mut ledger, key) = written_ledger(&[2]);
        let before = ledger.state_before(key);
        let twice = Found {
            version: 2,
            ..found(1, 3, 3)
        };
        assert_eq!(
            ledger.check_read(key, before, twice),
            Err(Violation::Another {
                found: twice,
                revision: 2
            })
        );
        let elsewhere = found(1, 3, 3);
        assert_eq!(
            ledger.check_read(key, before, elsewhere),
            Err(Violation::Another {
                found: elsewhere,
                revision: 2
            })
        );
    }

    #[test]
    fn older_header_revision_is_a_violation() {
        let (mut ledger, key) = written_ledger(&[2]);
        let other = ledger.add_key();
        let before = ledger.state_before(other);
        ledger.record_attempt(other);
        assert_eq!(
            ledger.record_acknowledged(other, before, 2),
            Err(Violation::Revision {
                header: 2,
                known: 2
            })
        );
        let before = ledger.state_before(key);
        assert_eq!(
            ledger.check_read(key, before, found(1, 2, 1)),
            Err(Violation::Revision {
                header: 1,
                known: 2
            })
        );
    }
}
