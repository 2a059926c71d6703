//! A checksum over the history, equal on all members that have applied the same.

use crate::error::MvccError;
use crate::revision::Mark;
use crate::store::Store;
use kv_engine::Table;

impl Store {
    /// Hash of everything up to a revision (0: the present), the revision, and the compacted revision.
    ///
    /// What compaction has made unreachable does not count, whether its space was given back already or not.
    pub fn hash(&self, revision: i64) -> Result<(u32, i64, i64), MvccError> {
        let (upto, compacted) = {
            let state = self.state.read();
            (crate::store::readable(&state, revision)?, state.compacted)
        };
        let mut hash = crc32c::crc32c(&compacted.to_be_bytes());
        let mut damaged = None;
        let mut add = |key: &[u8], record: &[u8]| {
            let Some(mark) = Mark::from_key(key) else {
                damaged = Some(upto);
                return false;
            };
            if mark.main() > upto {
                return false;
            }
            if mark.main() > compacted || self.reachable(mark, record, compacted) {
                hash = crc32c::crc32c_append(crc32c::crc32c_append(hash, key), record);
            }
            true
        };
        let first_in_memory = self.state.read().history.first();
        let end = Mark::first_key(first_in_memory);
        self.engine.scan(Table::Revisions, b"", Some(&end), &mut add)?;
        let recent = self.state.read().history.since(first_in_memory, usize::MAX);
        for event in recent.unwrap_or_default().iter().flat_map(|events| events.iter()) {
            if !add(&event.mark.key(), &event.record) {
                break;
            }
        }
        match damaged {
            Some(revision) => Err(MvccError::Damaged(revision)),
            None => Ok((hash, upto, compacted)),
        }
    }

    /// Whether a record of the compacted past is still the newest of its key at the compacted revision.
    fn reachable(&self, mark: Mark, record: &[u8], compacted: i64) -> bool {
        if mark.dead() {
            return false;
        }
        let Some(key) = crate::store::record_key(record) else { return true };
        let state = self.state.read();
        state.index.get(key).and_then(|item| item.at(compacted)) == Some(mark)
    }
}
