//! Pod lifecycle events: the runtime's event stream where it exists, periodic relists where it does not, and a slow
//! relist for missed events.

use crate::context::Node;
use crate::worker::Message;
use futures::StreamExt;
use node_runtime::{Change, EventSource, labels};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay between two tries to open the event stream: a stream may end right after it was opened.
const REOPEN: Duration = Duration::from_secs(1);
/// Relist interval without events: an exit is detected within this time.
const BLIND: Duration = Duration::from_secs(1);
/// Relist interval without events and without active pods.
const IDLE: Duration = Duration::from_secs(10);
/// Relist interval with events.
const SAFETY: Duration = Duration::from_secs(60);

/// Follows the runtime until shutdown.
pub(crate) async fn follow(node: Arc<Node>) {
    let mut lister = Lister { node: node.clone(), seen: BTreeMap::new() };
    let mut source: Option<EventSource> = None;
    let mut offered = true;
    let mut listed = Instant::now();
    let mut reopen = Instant::now();
    loop {
        if source.is_none() && offered && reopen <= Instant::now() {
            match node.runtime.events().await {
                Ok(Some(found)) => {
                    tracing::info!(source = found.name, "following the runtime");
                    source = Some(found);
                }
                Ok(None) => {
                    tracing::info!("the runtime has no event stream; relisting periodically");
                    offered = false;
                }
                Err(e) => tracing::debug!(error = %e, "the runtime's event stream can't be opened"),
            }
            reopen = Instant::now() + REOPEN;
            lister.list().await;
            listed = Instant::now();
        }
        // Counted from the last relist, so that a busy event stream does not postpone the next one.
        let due = listed + wait(source.is_some(), || node.workers.all().iter().any(|s| s.active));
        tokio::select! {
            () = node.tasks.shutdown().cancelled() => return,
            change = next(&mut source) => match change {
                Some(change) => tell(&node, change),
                None => source = None,
            },
            () = tokio::time::sleep_until(due) => {
                lister.list().await;
                listed = Instant::now();
            }
        }
    }
}

/// Returns the interval to the next relist.
fn wait(events: bool, active: impl FnOnce() -> bool) -> Duration {
    match events {
        true => SAFETY,
        false if active() => BLIND,
        false => IDLE,
    }
}

async fn next(source: &mut Option<EventSource>) -> Option<Change> {
    match source {
        Some(source) => source.changes.next().await,
        None => std::future::pending().await,
    }
}

fn tell(node: &Node, change: Change) {
    match change.pod_uid {
        None if change.out_of_memory => node.workers.out_of_memory(&change.id),
        Some(uid) => drop(node.workers.send(&uid, Message::Changed(Some(change.id)))),
        None => node.workers.changed(&change.id),
    }
}

struct Lister {
    node: Arc<Node>,
    /// State and pod by container id.
    seen: BTreeMap<String, (i32, String)>,
}

impl Lister {
    async fn list(&mut self) {
        let both = tokio::try_join!(self.node.runtime.sandboxes(None), self.node.runtime.containers(None));
        let (sandboxes, containers) = match both {
            Ok(both) => both,
            Err(e) => return tracing::warn!(error = %e, "the runtime can't be listed"),
        };
        let uid = |all: &std::collections::HashMap<String, String>| labels::get(all, labels::POD_UID).to_owned();
        let mut now = BTreeMap::new();
        now.extend(sandboxes.into_iter().map(|s| (s.id, (s.state, uid(&s.labels)))));
        now.extend(containers.into_iter().map(|c| (c.id, (c.state, uid(&c.labels)))));
        let changed = now.iter().filter(|(id, state)| self.seen.get(*id) != Some(state));
        let lost = self.seen.iter().filter(|(id, _)| !now.contains_key(*id));
        let pods: BTreeSet<&String> = changed.chain(lost).map(|(_, (_, uid))| uid).collect();
        for uid in pods {
            self.node.workers.send(uid, Message::Changed(None));
        }
        self.seen = now;
    }
}
