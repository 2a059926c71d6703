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

use crate::events::record::EventRecord;

const CAPACITY: usize = 1024;
const BURST: f64 = 25.0;
const PER_SECOND: f64 = 1.0 / 300.0;
const SIMILAR: usize = 10;
const WINDOW: Duration = Duration::from_secs(600);
const FOLDED: &str = "(combined from similar events): ";

/// Action for an event.
#[derive(Debug, PartialEq)]
pub(crate) enum CorrelationResult {
    /// Drop it: the rate limit is exceeded.
    Drop,
    /// Create it, then call [`Correlator::record_written`] with the key.
    Create { key: u64, record: EventRecord },
    /// Increment the count of the event that was created as `name`.
    Repeat {
        key: u64,
        record: EventRecord,
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

struct WrittenEvent {
    name: String,
    count: u32,
    at: Instant,
}

#[derive(Default)]
pub(crate) struct Correlator {
    buckets: HashMap<u64, Bucket>,
    groups: HashMap<u64, Group>,
    written: HashMap<u64, WrittenEvent>,
}

fn hash_parts(parts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// Removes the oldest half of the entries of a full map.
fn evict_oldest<V>(map: &mut HashMap<u64, V>, at: impl Fn(&V) -> Instant) {
    if map.len() < CAPACITY {
        return;
    }
    let mut times: Vec<Instant> = map.values().map(&at).collect();
    times.sort_unstable();
    if let Some(middle) = times.get(times.len() / 2).copied() {
        // Half at once: the cost of sorting is spread over the next 512 entries.
        map.retain(|_, value| at(value) > middle);
    }
}

impl Correlator {
    pub(crate) fn correlate_event(
        &mut self,
        mut record: EventRecord,
        now: Instant,
    ) -> CorrelationResult {
        let object = object_key(&record);
        let similar = hash_parts(&[&object, record.event_type.as_str(), &record.reason]);
        // Aggregation comes before the rate limit, as in client-go: an aggregated event uses a
        // token, too.
        if self.is_flood(similar, &record.message, now) {
            record.message.insert_str(0, FOLDED);
        }
        // Aggregated events have one key whatever their text is, so that they count up in one
        // object.
        let text = if record.message.starts_with(FOLDED) {
            FOLDED
        } else {
            &record.message
        };
        let key = hash_parts(&[&object, record.event_type.as_str(), &record.reason, text]);
        if !self.spend_token(hash_parts(&[&object]), now) {
            return CorrelationResult::Drop;
        }
        match self.written.get_mut(&key) {
            // Without a name the creation failed, or is about to be retried.
            Some(known) if !known.name.is_empty() => {
                known.count = known.count.saturating_add(1);
                known.at = now;
                CorrelationResult::Repeat {
                    key,
                    record,
                    name: known.name.clone(),
                    count: known.count,
                }
            }
            _ => {
                evict_oldest(&mut self.written, |entry| entry.at);
                self.written.insert(
                    key,
                    WrittenEvent {
                        name: String::new(),
                        count: 1,
                        at: now,
                    },
                );
                CorrelationResult::Create { key, record }
            }
        }
    }

    /// Records that the event of `key` exists as `name`.
    pub(crate) fn record_written(&mut self, key: u64, name: String) {
        if let Some(entry) = self.written.get_mut(&key) {
            entry.name = name;
            entry.count = 1;
        }
    }

    fn is_flood(&mut self, similar: u64, message: &str, now: Instant) -> bool {
        evict_oldest(&mut self.groups, |group| group.at);
        let group = self.groups.entry(similar).or_insert_with(|| Group {
            messages: HashSet::new(),
            at: now,
        });
        // client-go starts a new interval after ten minutes without a similar event.
        if now.duration_since(group.at) > WINDOW {
            group.messages.clear();
        }
        group.at = now;
        let message = hash_parts(&[message]);
        if group.messages.len() >= SIMILAR {
            // Messages from before the flood keep their own events.
            return !group.messages.contains(&message);
        }
        group.messages.insert(message);
        group.messages.len() >= SIMILAR
    }

    fn spend_token(&mut self, object: u64, now: Instant) -> bool {
        evict_oldest(&mut self.buckets, |bucket| bucket.at);
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
pub(crate) fn shard_for(record: &EventRecord, count: usize) -> Option<usize> {
    let hash = hash_parts(&[&object_key(record)]);
    let shard = hash.checked_rem(u64::try_from(count).ok()?)?;
    usize::try_from(shard).ok()
}

fn object_key(record: &EventRecord) -> String {
    let object = &record.regarding;
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
    use super::*;
    use crate::events::record::EventType;
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ObjectReference;

    fn record(message: &str) -> EventRecord {
        EventRecord {
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
    fn repeated_event_counts_up_until_the_rate_limit_drops_it() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        let CorrelationResult::Create { key, .. } = correlator.correlate_event(record("m"), now)
        else {
            panic!()
        };
        correlator.record_written(key, "p.1".into());
        for want in 2..=25 {
            let CorrelationResult::Repeat { count, .. } =
                correlator.correlate_event(record("m"), now)
            else {
                panic!()
            };
            assert_eq!(count, want);
        }
        assert_eq!(
            correlator.correlate_event(record("m"), now),
            CorrelationResult::Drop
        );
        let later = now + Duration::from_secs(301);
        assert!(matches!(
            correlator.correlate_event(record("m"), later),
            CorrelationResult::Repeat { count: 26, .. }
        ));
    }

    #[test]
    fn similar_events_are_aggregated_from_the_tenth_on() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        for i in 0..9 {
            let verdict = correlator.correlate_event(record(&format!("m{i}")), now);
            assert!(
                matches!(verdict, CorrelationResult::Create { record, .. } if !record.message.starts_with('('))
            );
        }
        let CorrelationResult::Create {
            key,
            record: folded,
        } = correlator.correlate_event(record("m9"), now)
        else {
            panic!()
        };
        assert!(folded.message.starts_with(FOLDED));
        correlator.record_written(key, "p.2".into());
        assert!(matches!(
            correlator.correlate_event(record("m10"), now),
            CorrelationResult::Repeat { count: 2, .. }
        ));
        assert!(matches!(
            correlator.correlate_event(record("m0"), now),
            CorrelationResult::Create { record, .. } if !record.message.starts_with('(')
        ));
    }

    #[test]
    fn rate_limit_is_per_object() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        for _ in 0..26 {
            correlator.correlate_event(record("m"), now);
        }
        assert_eq!(
            correlator.correlate_event(record("m"), now),
            CorrelationResult::Drop
        );
        let mut other = record("m");
        other.regarding.name = Some("q".into());
        let result = correlator.correlate_event(other, now);
        assert!(
            matches!(result, CorrelationResult::Create { .. }),
            "{result:?}"
        );
    }

    #[test]
    fn similar_events_are_separate_again_after_ten_quiet_minutes() {
        let mut correlator = Correlator::default();
        let now = Instant::now();
        for i in 0..12 {
            correlator.correlate_event(record(&format!("m{i}")), now);
        }
        let later = now + WINDOW + Duration::from_secs(1);
        let result = correlator.correlate_event(record("new"), later);
        let CorrelationResult::Create { record, .. } = result else {
            panic!("{result:?}")
        };
        assert_eq!(record.message, "new");
    }

    #[test]
    fn all_events_of_an_object_have_one_writer() {
        let shards: HashSet<_> = (0..20)
            .map(|i| shard_for(&record(&format!("m{i}")), 8))
            .collect();
        assert_eq!(shards.len(), 1);
        assert_eq!(shard_for(&record("m"), 0), None);
    }
}
