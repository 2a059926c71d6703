//! Pod lifecycle events: the runtime's event stream where it exists, periodic relists where it does
//! not, and a slow relist for missed events.

use crate::context::KubeletContext;
use crate::worker::Message;
use futures::StreamExt;
use node_runtime::{Change, EventSource, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay between two tries to open the event stream: a stream may end right after it was opened.
const REOPEN_DELAY: Duration = Duration::from_secs(1);
/// Relist interval without events: an exit is detected within this time.
const WITHOUT_EVENTS: Duration = Duration::from_secs(1);
/// Relist interval without events and without active pods.
const WITHOUT_PODS: Duration = Duration::from_secs(10);
/// Relist interval with events.
const WITH_EVENTS: Duration = Duration::from_secs(60);

/// Follows the runtime until shutdown.
pub(crate) async fn follow_runtime(kubelet: Arc<KubeletContext>) {
    let mut lister = Lister {
        kubelet: kubelet.clone(),
        seen: BTreeMap::new(),
    };
    let mut feed = Feed::new(Instant::now());
    let mut listed = Instant::now();
    loop {
        // A list after each opening finds what happened while no stream was open.
        if feed
            .open(Instant::now(), || kubelet.runtime.open_events())
            .await
        {
            lister.relist().await;
            listed = Instant::now();
        }
        // Counted from the last list, so that a stream of events does not put the next one off.
        let due = listed
            + relist_interval(feed.source.is_some(), || {
                kubelet.workers.all().iter().any(|s| s.active)
            });
        tokio::select! {
            () = kubelet.tasks.shutdown().cancelled() => return,
            change = feed.next() => if let Some(change) = change {
                notify_worker(&kubelet, change);
            },
            () = tokio::time::sleep_until(due) => {
                lister.relist().await;
                listed = Instant::now();
            }
        }
    }
}

/// Returns the interval to the next relist.
fn relist_interval(events: bool, active: impl FnOnce() -> bool) -> Duration {
    match events {
        true => WITH_EVENTS,
        false if active() => WITHOUT_EVENTS,
        false => WITHOUT_PODS,
    }
}

/// The runtime's stream of events, opened again after its end.
struct Feed {
    source: Option<EventSource>,
    /// False: the runtime has no events.
    offered: bool,
    /// No try to open a stream before this time.
    not_before: Instant,
}

impl Feed {
    fn new(now: Instant) -> Self {
        Feed {
            source: None,
            offered: true,
            not_before: now,
        }
    }

    /// Opens a stream if there is none and the last try is long enough ago. True if it tried.
    async fn open<F>(&mut self, now: Instant, open: impl FnOnce() -> F) -> bool
    where
        F: Future<Output = node_runtime::Result<Option<EventSource>>>,
    {
        if self.source.is_some() || !self.offered || now < self.not_before {
            return false;
        }
        match open().await {
            Ok(Some(found)) => {
                tracing::info!(source = found.name, "following the runtime");
                self.source = Some(found);
            }
            Ok(None) => {
                tracing::info!("the runtime has no events: its containers are listed instead");
                self.offered = false;
            }
            Err(e) => tracing::debug!(error = %e, "the runtime's events can't be had"),
        }
        // Also after a success: a stream that ends at once would be opened without a pause.
        self.not_before = now + REOPEN_DELAY;
        true
    }

    /// Waits for a change; None at the end of the stream. Without a stream it waits without limit.
    async fn next(&mut self) -> Option<Change> {
        let Some(source) = &mut self.source else {
            return std::future::pending().await;
        };
        let change = source.changes.next().await;
        if change.is_none() {
            self.source = None;
        }
        change
    }
}

fn notify_worker(kubelet: &KubeletContext, change: Change) {
    match change.pod_uid {
        // containerd knows no pods; the registry finds the worker by the container's id.
        None if change.out_of_memory => kubelet.workers.notify_out_of_memory(&change.id),
        Some(uid) => drop(
            kubelet
                .workers
                .send(&uid, Message::Changed(Some(change.id))),
        ),
        None => kubelet.workers.notify_changed(&change.id),
    }
}

struct Lister {
    kubelet: Arc<KubeletContext>,
    /// State and pod by container id.
    seen: BTreeMap<String, (i32, String)>,
}

impl Lister {
    async fn relist(&mut self) {
        let both = tokio::try_join!(
            self.kubelet.runtime.list_sandboxes(None),
            self.kubelet.runtime.list_containers(None)
        );
        let (sandboxes, containers) = match both {
            Ok(both) => both,
            Err(e) => return tracing::warn!(error = %e, "the runtime can't be listed"),
        };
        let uid = |all: &std::collections::HashMap<String, String>| {
            labels::read_label(all, labels::POD_UID).to_owned()
        };
        let mut now = BTreeMap::new();
        now.extend(
            sandboxes
                .into_iter()
                .map(|s| (s.id, (s.state, uid(&s.labels)))),
        );
        now.extend(
            containers
                .into_iter()
                .map(|c| (c.id, (c.state, uid(&c.labels)))),
        );
        // Compared with the last list, so that a pod without a change costs its worker nothing.
        let changed = now
            .iter()
            .filter(|(id, state)| self.seen.get(*id) != Some(state));
        // A container that is no longer listed is a change: another client of the runtime removed
        // it.
        let lost = self.seen.iter().filter(|(id, _)| !now.contains_key(*id));
        let pods: BTreeSet<&String> = changed.chain(lost).map(|(_, (_, uid))| uid).collect();
        for uid in pods {
            self.kubelet.workers.send(uid, Message::Changed(None));
        }
        self.seen = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn stream_that_ends_at_once_is_opened_once_a_second() {
        let begun = Instant::now();
        let mut feed = Feed::new(begun);
        let mut tries = 0;
        // Ten seconds in steps of 100 ms.
        for step in 0..100 {
            let ended = || async {
                Ok(Some(EventSource {
                    name: "test",
                    changes: futures::stream::empty().boxed(),
                }))
            };
            if feed
                .open(begun + step * Duration::from_millis(100), ended)
                .await
            {
                tries += 1;
                assert_eq!(feed.next().await, None);
            }
        }
        assert_eq!(tries, 10);
    }

    #[test]
    fn relists_are_rare_with_events_and_frequent_without() {
        for (events, active, expected) in [
            (true, true, WITH_EVENTS),
            (true, false, WITH_EVENTS),
            (false, true, WITHOUT_EVENTS),
            (false, false, WITHOUT_PODS),
        ] {
            assert_eq!(
                relist_interval(events, || active),
                expected,
                "{events} {active}"
            );
        }
    }
}
