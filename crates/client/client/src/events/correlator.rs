//! Decides which events are created, counted or dropped.
//!
//! The rules are those of client-go's correlator. A source may write a burst of 25 events about an
//! object and then one every five minutes. Ten similar events within ten minutes are aggregated
//! into one. An event with the same content as an earlier one increments its count. Memory is
//! bounded by [`CAPACITY`]; the oldest entries are removed.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio::time::Instant;

use super::Note;

const CAPACITY: usize = 1024;
const BURST: f64 = 25.0;
const PER_SECOND: f64 = 1.0 / 300.0;
const SIMILAR: usize = 10;
const WINDOW: Duration = Duration::from_secs(600);
const FOLDED: &str = "(combined from similar events): ";

/// Action for an event.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Drop it: the rate limit is exceeded.
    Drop,
    /// Create it, then call [`Correlator::written`] with the key.
    Create { key: u64, note: Note },
    /// Increment the count of the event that was created as `name`.
    Repeat {
        key: u64,
        note: Note,
        name: String,
        count: u32,
    },
}

struct Bucket {
    tokens: f64,
    at: Instant,
}

struct Group {
    messages: HashSet<u64>,
    at: Instant,
}

struct Written {
    name: String,
    count: u32,
    at: Instant,
}

#[derive(Default)]
pub(crate) struct Correlator {
    buckets: HashMap<u64, Bucket>,
    groups: HashMap<u64, Group>,
    written: HashMap<u64, Written>,
}

fn hash(parts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Removes the oldest half of the entries of a full map.
fn bound<V>(map: &mut HashMap<u64, V>, at: impl Fn(&V) -> Instant) {
    if map.len() < CAPACITY {
        return;
    }
    let mut times: Vec<Instant> = map.values().map(&at).collect();
    times.sort_unstable();
    if let Some(middle) = times.get(times.len() / 2).copied() {
        map.retain(|_, value| at(value) > middle);
    }
}

impl Correlator {
    pub(crate) fn judge(&mut self, mut note: Note, now: Instant) -> Verdict {
        let object = object_key(&note);
        let similar = hash(&[&object, note.event_type.as_str(), &note.reason]);
        if self.is_flood(similar, &note.message, now) {
            note.message.insert_str(0, FOLDED);
        }
        let text = if note.message.starts_with(FOLDED) {
            FOLDED
        } else {
            &note.message
        };
        let key = hash(&[&object, note.event_type.as_str(), &note.reason, text]);
        if !self.spend(hash(&[&object]), now) {
            return Verdict::Drop;
        }
        match self.written.get_mut(&key) {
            Some(known) if !known.name.is_empty() => {
                known.count = known.count.saturating_add(1);
                known.at = now;
                Verdict::Repeat {
                    key,
                    note,
                    name: known.name.clone(),
                    count: known.count,
                }
            }
            _ => {
                bound(&mut self.written, |entry| entry.at);
                self.written.insert(
                    key,
                    Written {
                        name: String::new(),
                        count: 1,
                        at: now,
                    },
                );
                Verdict::Create { key, note }
            }
        }
    }

    /// Records that the event of `key` exists as `name`.
    pub(crate) fn written(&mut self, key: u64, name: String) {
        if let Some(entry) = self.written.get_mut(&key) {
            entry.name = name;
            entry.count = 1;
        }
    }

    fn is_flood(&mut self, similar: u64, message: &str, now: Instant) -> bool {
        bound(&mut self.groups, |group| group.at);
        let group = self.groups.entry(similar).or_insert_with(|| Group {
            messages: HashSet::new(),
            at: now,
        });
        if now.duration_since(group.at) > WINDOW {
            group.messages.clear();
        }
        group.at = now;
        let message = hash(&[message]);
        if group.messages.len() >= SIMILAR {
            return !group.messages.contains(&message);
        }
        group.messages.insert(message);
        group.messages.len() >= SIMILAR
    }

    fn spend(&mut self, object: u64, now: Instant) -> bool {
        bound(&mut self.buckets, |bucket| bucket.at);
        let bucket = self.buckets.entry(object).or_insert(Bucket {
            tokens: BURST,
            at: now,
        });
        let earned = now.duration_since(bucket.at).as_secs_f64() * PER_SECOND;
        bucket.tokens = (bucket.tokens + earned).min(BURST);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return false;
        }
        bucket.tokens -= 1.0;
        true
    }
}

/// Returns the index of the writer for all events about the note's object, or `None` if there is no
/// writer.
pub(crate) fn shard(note: &Note, count: usize) -> Option<usize> {
    let hash = hash(&[&object_key(note)]);
    let shard = hash.checked_rem(u64::try_from(count).ok()?)?;
    usize::try_from(shard).ok()
}

fn object_key(note: &Note) -> String {
    let object = &note.regarding;
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        &object.kind,
        &object.namespace,
        &object.name,
        &object.uid,
        &object.field_path,
    ]
    .map(part)
    .join("\u{0}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::super::EventType;
    use super::*;
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn note(message: &str) -> Note {
        Note {
            regarding: ObjectReference {
                name: Some("p".into()),
                ..ObjectReference::default()
            },
            event_type: EventType::Normal,
            reason: "R".into(),
            message: message.into(),
            at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn repeats_count_up_then_are_dropped() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let Verdict::Create { key, .. } = correlator.judge(note("m"), now) else {
            panic!()
        };
        correlator.written(key, "p.1".into());
        for want in 2..=25 {
            let Verdict::Repeat { count, .. } = correlator.judge(note("m"), now) else {
                panic!()
            };
            assert_eq!(count, want);
        }
        assert_eq!(correlator.judge(note("m"), now), Verdict::Drop);
        let later = now + Duration::from_secs(301);
        assert!(matches!(
            correlator.judge(note("m"), later),
            Verdict::Repeat { count: 26, .. }
        ));
    }

    #[test]
    fn similar_ones_are_folded() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        for i in 0..9 {
            let verdict = correlator.judge(note(&format!("m{i}")), now);
            assert!(
                matches!(verdict, Verdict::Create { note, .. } if !note.message.starts_with('('))
            );
        }
        let Verdict::Create { key, note: folded } = correlator.judge(note("m9"), now) else {
            panic!()
        };
        assert!(folded.message.starts_with(FOLDED));
        correlator.written(key, "p.2".into());
        assert!(matches!(
            correlator.judge(note("m10"), now),
            Verdict::Repeat { count: 2, .. }
        ));
        assert!(matches!(
            correlator.judge(note("m0"), now),
            Verdict::Create { note, .. } if !note.message.starts_with('(')
        ));
    }
}
