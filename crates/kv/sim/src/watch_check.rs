//! The guarantees of watches: ordered, unique, reliable, atomic, resumable.

use crate::history::Seen;
use crate::ledger::{Change, Ledger, Rows};
use proto_etcd::mvccpb::Event;
use proto_etcd::mvccpb::event::EventType;

fn is_watched(change: &Change) -> bool {
    change.key.starts_with(b"k")
}

/// Compares a watcher's messages with the history up to `last`, all of which the watcher must have
/// received.
pub(crate) fn check_watches(
    seen: &[Seen],
    ledger: &Ledger,
    states: &[Rows],
    last: i64,
) -> Result<(), String> {
    let mut next = None;
    for (number, message) in seen.iter().enumerate() {
        let told = |e: String| format!("message {number} of a watcher: {e}\n  {message:?}");
        match message {
            Seen::From(from) => match next {
                None => next = Some(*from),
                Some(next) if next != *from => {
                    return Err(told(format!("it goes on at {from} instead of {next}")));
                }
                Some(_) => {}
            },
            Seen::Compacted(revision) => {
                let at = next.unwrap_or(*revision);
                if *revision <= at {
                    return Err(told(format!("{revision} is no reason to leave out {at}")));
                }
                next = Some(*revision);
            }
            Seen::Progress(revision) => {
                let from = next.unwrap_or(revision + 1);
                nothing_between(ledger, from, *revision).map_err(told)?;
                next = Some(from.max(revision + 1));
            }
            Seen::Events { revision, events } => {
                let from = next.ok_or_else(|| told("events of no watch".to_owned()))?;
                next = Some(told_events(ledger, states, from, events).map_err(told)?);
                if next.is_some_and(|next| *revision + 1 < next) {
                    return Err(told("its header is older than its events".to_owned()));
                }
            }
        }
    }
    // A watcher that never connected has no revision from which events could be missing.
    let Some(next) = next else { return Ok(()) };
    nothing_between(ledger, next, last).map_err(|e| format!("at the end of a watcher: {e}"))
}

fn nothing_between(ledger: &Ledger, from: i64, to: i64) -> Result<(), String> {
    match (from..=to).find(|at| {
        ledger
            .get(*at)
            .is_some_and(|entry| entry.changes.iter().any(is_watched))
    }) {
        Some(revision) => Err(format!("revision {revision} was left out")),
        None => Ok(()),
    }
}

/// Checks that the events form whole revisions with their exact changes. Returns the revision at
/// which the next message continues.
fn told_events(
    ledger: &Ledger,
    states: &[Rows],
    from: i64,
    events: &[Event],
) -> Result<i64, String> {
    let revision = |event: &Event| event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
    let mut next = from;
    for events in events.chunk_by(|a, b| revision(a) == revision(b)) {
        let at = events.first().map_or(0, revision);
        if at < next {
            return Err(format!(
                "revision {at} again, or out of order: {next} is next"
            ));
        }
        nothing_between(ledger, next, at - 1)?;
        let entry = ledger
            .get(at)
            .ok_or_else(|| format!("no member ever had revision {at}"))?;
        let wanted: Vec<&Change> = entry
            .changes
            .iter()
            .filter(|change| is_watched(change))
            .collect();
        if wanted.len() != events.len() {
            return Err(format!(
                "{} of {} events of revision {at}",
                events.len(),
                wanted.len()
            ));
        }
        let before = usize::try_from(at - 2).ok().and_then(|at| states.get(at));
        for (event, change) in events.iter().zip(wanted) {
            compare_event(event, change, before)
                .map_err(|e| format!("{e} at revision {at}: {event:?} for {change:?}"))?;
        }
        next = at + 1;
    }
    Ok(next)
}

fn compare_event(
    event: &Event,
    change: &Change,
    before: Option<&Rows>,
) -> Result<(), &'static str> {
    let Some(kv) = &event.kv else {
        return Err("no pair");
    };
    if kv.key != change.key {
        return Err("another key");
    }
    let put = event.r#type() == EventType::Put;
    if put != change.value.is_some() || put && change.value.as_ref() != Some(&kv.value) {
        return Err("another change");
    }
    if put
        && (kv.create_revision, kv.version, kv.lease)
            != (change.create, change.version, change.lease)
    {
        return Err("another pair");
    }
    // The previous value may be compacted when the event is sent.
    if let Some(previous) = &event.prev_kv
        && let Some(before) = before
    {
        let row = before
            .get(&change.key)
            .ok_or("something before that was not there")?;
        if (row.modified, &row.value, row.version)
            != (previous.mod_revision, &previous.value, previous.version)
        {
            return Err("another pair before");
        }
    }
    Ok(())
}
