//! Every revision that any member applied: the single history on which all members must agree.

use bytes::Bytes;
use kv_machine::Machine;
use std::collections::BTreeMap;

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub key: Bytes,
    /// `None`: the key was deleted.
    pub value: Option<Bytes>,
    pub create: i64,
    pub version: i64,
    pub lease: i64,
}

/// A revision.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub changes: Vec<Change>,
    /// Time at which a member was first seen to have it.
    pub seen_ms: u64,
}

/// Current value and metadata of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub value: Bytes,
    pub create: i64,
    pub modified: i64,
    pub version: i64,
    pub lease: i64,
}

/// Keys at a revision.
pub(crate) type Rows = BTreeMap<Bytes, Row>;

/// All revisions.
#[derive(Default)]
pub(crate) struct Ledger {
    /// From revision 2 on; revision 1 is empty.
    pub entries: Vec<Entry>,
}

/// Revision of the first entry.
pub(crate) const FIRST: i64 = 2;

impl Ledger {
    pub fn last_revision(&self) -> i64 {
        self.entries.len() as i64 + FIRST - 1
    }

    pub fn get(&self, revision: i64) -> Option<&Entry> {
        self.entries.get(usize::try_from(revision - FIRST).ok()?)
    }

    /// Records a member's revisions from `from` on. Returns the revision at which to continue.
    pub fn record_revisions(
        &mut self,
        machine: &Machine,
        from: i64,
        now: u64,
    ) -> Result<i64, String> {
        let store = machine.store();
        let mut next = from.max(store.compacted_revision() + 1).max(FIRST);
        while next <= store.current_revision() {
            let Ok((revisions, after)) = store.read_history(next, 1_000) else {
                break;
            };
            for events in &revisions {
                let Some(first) = events.first() else {
                    continue;
                };
                let changes = events.iter().map(|event| Change {
                    key: event.kv.key.clone(),
                    value: (!event.mark.is_tombstone()).then(|| event.kv.value.clone()),
                    create: event.kv.create_revision,
                    version: event.kv.version,
                    lease: event.kv.lease,
                });
                self.add_revision(first.mark.main(), changes.collect(), now)?;
            }
            if after == next {
                break;
            }
            next = after;
        }
        Ok(next)
    }

    fn add_revision(
        &mut self,
        revision: i64,
        changes: Vec<Change>,
        seen_ms: u64,
    ) -> Result<(), String> {
        if let Some(known) = self.get(revision) {
            if known.changes != changes {
                return Err(format!(
                    "two histories at revision {revision}: {:?} and {changes:?}",
                    known.changes
                ));
            }
            return Ok(());
        }
        if revision != self.last_revision() + 1 {
            return Err(format!(
                "revision {revision} follows {}",
                self.last_revision()
            ));
        }
        self.entries.push(Entry { changes, seen_ms });
        Ok(())
    }

    /// Returns the keys at every revision from 1 on, or an error if the history contradicts itself.
    pub fn replay(&self) -> Result<Vec<Rows>, String> {
        let mut states = vec![Rows::new()];
        for (at, entry) in self.entries.iter().enumerate() {
            let revision = at as i64 + FIRST;
            let mut rows = states.last().cloned().unwrap_or_default();
            for change in &entry.changes {
                let before = rows.get(&change.key);
                let Some(value) = &change.value else {
                    if rows.remove(&change.key).is_none() {
                        return Err(format!(
                            "revision {revision} deletes {:?}, which is not there",
                            change.key
                        ));
                    }
                    continue;
                };
                let (create, version) =
                    before.map_or((revision, 1), |row| (row.create, row.version + 1));
                if (create, version) != (change.create, change.version) {
                    return Err(format!(
                        "revision {revision}: {change:?} should be version {version} of {create}"
                    ));
                }
                let row = Row {
                    value: value.clone(),
                    create,
                    modified: revision,
                    version,
                    lease: change.lease,
                };
                rows.insert(change.key.clone(), row);
            }
            states.push(rows);
        }
        Ok(states)
    }
}
