//! Node health: marks nodes without heartbeats as unknown, and sets the taints that follow from
//! conditions.
//!
//! A heartbeat is a change of the node's Lease or status, timed by this process, so that machines'
//! clocks need not agree. If no node at all sends heartbeats, the fault is more likely on this
//! side: nodes are marked unknown, but no pod is evicted.

mod conditions;
mod taints;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Event, ListParams};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use serde_json::json;

use controllers_runtime::{
    Action, Cache, Decide, Meta, Queue, Setup, Target, object_reference, pods, time, wake,
};

pub use conditions::find_condition;

/// Timeouts of heartbeats.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatTimeouts {
    /// Time without a heartbeat after which a node is unknown (`--node-monitor-grace-period`).
    pub grace: Duration,
    /// The same for a node without a first heartbeat (`--node-startup-grace-period`).
    pub startup: Duration,
}

/// Inputs of one reconcile.
pub struct View<'a> {
    /// The node.
    pub node: &'a Node,
    /// Time of the last heartbeat.
    pub last_heartbeat: Timestamp,
    /// Timeout of this node.
    pub grace: Duration,
    /// At least one node sends heartbeats.
    pub any_heartbeat: bool,
    /// The pods on the node.
    pub pods: &'a [Arc<Pod>],
    /// Current time.
    pub now: Timestamp,
}

/// Returns the actions for one node.
pub fn reconcile_node(view: &View<'_>) -> Vec<Action> {
    // The time of the last change as observed here: the clock of the node is not trusted.
    let silent = time::duration_until(view.last_heartbeat + view.grace, view.now).is_zero();
    let mut node = view.node.clone();
    let mut actions = Vec::new();
    let marked = silent && conditions::mark_unknown(&mut node, view.now);
    if marked {
        actions.push(Action::update_status(&node));
    }
    let was_ready = find_condition(view.node, "Ready").is_none_or(|c| c.status == "True");
    let ready = find_condition(&node, "Ready").is_some_and(|c| c.status == "True");
    if !ready {
        if was_ready && find_condition(view.node, "Ready").is_some() {
            let text = format!("Node {} status is now: NodeNotReady", node.name());
            actions.push(Action::event(
                &object_reference(view.node),
                "NodeNotReady",
                text,
            ));
        }
        actions.extend(
            view.pods
                .iter()
                .filter_map(|p| mark_pod_unready(p, view.now)),
        );
    }
    // The patch replaces the whole list of taints, so it names the version that it was computed
    // from; otherwise it would drop taints that other clients added meanwhile. A status write
    // changes the version, so the taints follow in the reconcile that its event causes.
    let wanted = taints::desired_taints(&node, view.any_heartbeat, view.now).filter(|_| !marked);
    if let Some(wanted) = wanted {
        let patch = json!({ "metadata": { "resourceVersion": node.meta().resource_version }, "spec": { "taints": wanted } });
        actions.push(Action::merge(Target::of(&node), patch).ignore_absent());
    }
    if !silent {
        actions.push(Action::Requeue(
            time::duration_until(view.last_heartbeat + view.grace, view.now)
                + Duration::from_millis(100),
        ));
    }
    actions
}

/// Sets a pod's condition Ready to false: its node is not ready.
fn mark_pod_unready(pod: &Arc<Pod>, now: Timestamp) -> Option<Action> {
    let ready = pods::condition(pod, "Ready").filter(|c| c.status == "True")?;
    // The status of a terminated pod is final.
    if pods::is_terminal(pod) {
        return None;
    }
    let mut changed = ready.clone();
    changed.status = "False".to_owned();
    changed.last_transition_time = Some(time::api_time(now));
    let patch = json!({ "metadata": { "uid": pod.uid() }, "status": { "conditions": [changed] } });
    Some(Action::strategic_status(Target::of(pod.as_ref()), patch).ignore_absent())
}

/// Time of each node's last heartbeat, by this process's clock.
type Heartbeats = Arc<Mutex<HashMap<String, Timestamp>>>;

struct Lifecycle {
    nodes: Cache<Node>,
    pods: Cache<Pod>,
    heartbeats: Heartbeats,
    timeouts: HeartbeatTimeouts,
}

/// Sets up the node lifecycle controller.
pub fn add_node_lifecycle(setup: &mut Setup, timeouts: HeartbeatTimeouts) {
    let queue = Queue::new();
    let heartbeats = Heartbeats::default();
    let (times, waiting) = (heartbeats.clone(), queue.clone());
    let nodes = setup
        .informers
        .for_kind::<Node>()
        .on_event(move |event| on_node(event, &times, &waiting))
        .cache();
    let (times, waiting, known) = (heartbeats.clone(), queue.clone(), nodes.clone());
    // Leases of leader elections change every few seconds and say nothing about nodes.
    let leases = ListParams::default().with_fields("metadata.namespace=kube-node-lease");
    let _ = setup
        .informers
        .for_selected::<Lease>(leases)
        .on_event(move |event| on_lease(event, &times, &waiting, &known));
    let pods = setup
        .informers
        .for_kind::<Pod>()
        .index(pods::BY_NODE, pods::by_node)
        .cache();
    setup.add_reconciler(
        "node-controller",
        1,
        queue,
        Lifecycle {
            nodes,
            pods,
            heartbeats,
            timeouts,
        },
    );
}

fn on_node(event: &Event<Node>, heartbeats: &Heartbeats, queue: &Queue) {
    let node = event.object();
    match event {
        Event::Deleted(_) => {
            heartbeats.lock().remove(node.name());
        }
        Event::Applied { old, new } => {
            let beat =
                |n: &Node| find_condition(n, "Ready").and_then(|c| c.last_heartbeat_time.clone());
            // Only a new heartbeat counts: this controller's own writes of the status must not make
            // a silent node look alive.
            if old.as_ref().is_none_or(|o| beat(o) != beat(new)) {
                heartbeats
                    .lock()
                    .insert(node.name().to_owned(), Timestamp::now());
            }
            wake::enqueue_object::<Node>(queue)(event);
        }
    }
}

fn on_lease(event: &Event<Lease>, heartbeats: &Heartbeats, queue: &Queue, nodes: &Cache<Node>) {
    let Event::Applied { old, new } = event else {
        return;
    };
    let renewed = |l: &Lease| l.spec.as_ref().and_then(|s| s.renew_time.clone());
    if new.namespace() != "kube-node-lease"
        || old.as_ref().is_some_and(|o| renewed(o) == renewed(new))
    {
        return;
    }
    heartbeats
        .lock()
        .insert(new.name().to_owned(), Timestamp::now());
    // Reconcile a node at once if its heartbeats resume.
    let lost = |n: &Arc<Node>| find_condition(n, "Ready").is_some_and(|c| c.status == "Unknown");
    if nodes.get(new.name()).as_ref().is_some_and(lost) {
        queue.add(new.name().to_owned());
    }
}

impl Lifecycle {
    fn grace_period(&self, node: &Node) -> Duration {
        let reported =
            find_condition(node, "Ready").is_some_and(|c| c.last_heartbeat_time.is_some());
        // A new node gets more time: its kubelet registers first and posts its status only later.
        if reported {
            self.timeouts.grace
        } else {
            self.timeouts.startup
        }
    }

    fn has_heartbeats(&self, now: Timestamp) -> bool {
        let heartbeats = self.heartbeats.lock();
        self.nodes.list().iter().any(|node| {
            let last = heartbeats.get(node.name()).copied().unwrap_or(now);
            !time::duration_until(last + self.grace_period(node), now).is_zero()
        })
    }
}

impl Decide for Lifecycle {
    fn reconcile(&self, key: &str, now: Timestamp) -> Vec<Action> {
        let Some(node) = self.nodes.get(key) else {
            return Vec::new();
        };
        // A leader that has just started has seen no heartbeat, so every node has its full grace
        // period first.
        let last_heartbeat = self.heartbeats.lock().get(key).copied().unwrap_or(now);
        let pods = self.pods.by_index(pods::BY_NODE, key);
        reconcile_node(&View {
            node: &node,
            last_heartbeat,
            grace: self.grace_period(&node),
            any_heartbeat: self.has_heartbeats(now),
            pods: &pods,
            now,
        })
    }
}

#[cfg(test)]
mod tests;
