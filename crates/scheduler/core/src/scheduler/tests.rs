//! Attempts against a cache and a queue, with plugins that never call the API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use client::events::Recorder;
use client::{Client, Config, Event};
use scheduler_framework::cycle::PodNominator;
use scheduler_framework::{
    Bind, BindError, Cluster, CycleState, ExtensionPoints, Permit, PermitOutcome, Plugin,
};
use serde_json::{Value, json};

use super::*;
use crate::cluster::ClusterView;
use crate::handlers;
use crate::queue::QueueDelays;

/// The outcome of a test binding.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Binds,
    Hangs,
    Panics,
}

struct TestBinder {
    fate: Fate,
    bound: Arc<AtomicBool>,
}

impl Plugin for TestBinder {
    const NAME: &'static str = "TestBinder";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Err("made by hand".to_owned())
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.bind(&self);
    }
}

#[async_trait]
impl Bind for TestBinder {
    async fn bind(&self, _: &PodInfo, _: &str) -> Result<bool, BindError> {
        match self.fate {
            Fate::Binds => {}
            Fate::Hangs => std::future::pending::<()>().await,
            Fate::Panics => panic!("planted"),
        }
        self.bound.store(true, Ordering::SeqCst);
        Ok(true)
    }
}

/// A Permit plugin that makes every pod wait.
struct Gate;

impl Plugin for Gate {
    const NAME: &'static str = "Gate";

    fn new(_: &Value, _: &Arc<dyn Cluster>) -> Result<Self, String> {
        Ok(Self)
    }

    fn register_extension_points(self: Arc<Self>, points: &mut ExtensionPoints) {
        points.permit(&self);
    }
}

impl Permit for Gate {
    fn permit(&self, _: &CycleState, _: &PodInfo, _: &str) -> PermitOutcome {
        PermitOutcome::Wait(Duration::from_millis(100))
    }
}

struct Harness {
    scheduler: Arc<Scheduler>,
    bound: Arc<AtomicBool>,
}

/// Returns a scheduler with resource fitting, and one node `n` with 2 CPUs.
fn harness(fate: Fate, more: impl FnOnce(&mut ExtensionPoints)) -> Harness {
    let view = ClusterView::default();
    let waiting = view.waiting_pods();
    let cluster: Arc<dyn Cluster> = Arc::new(view);
    let mut points = ExtensionPoints::default();
    for entry in scheduler_plugins::plugin_registry() {
        if ["PrioritySort", "NodeResourcesFit"].contains(&entry.name) {
            (entry.make)(&Value::Null, &cluster, &mut points).unwrap();
        }
    }
    let bound = Arc::new(AtomicBool::new(false));
    points.add_plugin(TestBinder {
        fate,
        bound: bound.clone(),
    });
    more(&mut points);
    let name = crate::profiles::DEFAULT_NAME.to_owned();
    let profile = Profile {
        name: name.clone(),
        points,
        percentage_of_nodes_to_score: 0,
    };
    let profiles = Arc::new(Profiles(vec![profile]));
    let client = Client::new(Config::builder("http://127.0.0.1:1"));
    let scheduler = Arc::new(Scheduler {
        cache: Cache::default(),
        queue: Queue::new(
            profiles.clone() as Arc<dyn QueuePlugins>,
            QueueDelays::default(),
        ),
        nominations: Nominator::default(),
        profiles,
        waiting,
        writer: OutcomeWriter {
            client,
            events: Recorder::disconnected(),
            name,
        },
        metrics: SchedulerMetrics::new(),
        tasks: Tasks::new(CancellationToken::new()),
    });
    let node = json!({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "9"}}});
    let new = Arc::new(serde_json::from_value(node).unwrap());
    handlers::handle_node(&scheduler, Event::Applied { old: None, new });
    Harness { scheduler, bound }
}

/// Returns a pod that requests one CPU.
fn pod(name: &str, nominated: Option<&str>) -> Arc<Pod> {
    let requests = json!({"cpu": "1"});
    let object = json!({"metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
        "status": {"nominatedNodeName": nominated}});
    Arc::new(serde_json::from_value(object).unwrap())
}

/// Waits for a condition, for at most 60 s.
async fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let held = tokio::time::timeout(Duration::from_secs(60), holds).await;
    assert!(held.is_ok(), "{what}");
}

impl Harness {
    /// Adds a pod and schedules the first pod of the queue.
    async fn try_pod(&self, pod: &Arc<Pod>) {
        handlers::handle_pod(
            &self.scheduler,
            Event::Applied {
                old: None,
                new: pod.clone(),
            },
        );
        let attempt =
            tokio::time::timeout(Duration::from_secs(60), self.scheduler.queue.next()).await;
        self.scheduler
            .schedule_one(attempt.unwrap().unwrap(), &mut 0);
    }
}

#[tokio::test]
async fn nominated_pod_counts_once_while_it_is_bound() {
    let test = harness(Fate::Hangs, |_| {});
    test.try_pod(&pod("preemptor", Some("n"))).await;
    assert!(test.scheduler.cache.has_pod("preemptor"));
    // The node has room for one more pod, however long the binding takes.
    test.try_pod(&pod("other", None)).await;
    assert!(test.scheduler.cache.has_pod("other"));
}

#[tokio::test]
async fn late_status_does_not_nominate_a_pod_that_counts_on_its_node() {
    let test = harness(Fate::Hangs, |_| {});
    test.try_pod(&pod("preemptor", Some("n"))).await;
    let (old, new) = (Some(pod("preemptor", None)), pod("preemptor", Some("n")));
    handlers::handle_pod(&test.scheduler, Event::Applied { old, new });
    assert!(test.scheduler.nominations.is_empty());
}

#[tokio::test]
async fn pod_that_no_plugin_permits_in_time_is_rejected_and_releases_its_node() {
    let test = harness(Fate::Binds, |points| points.add_plugin(Gate));
    test.try_pod(&pod("p", None)).await;
    assert!(test.scheduler.cache.has_pod("p"));
    assert_eq!(test.scheduler.waiting.list_pods().len(), 1);
    wait_for("the rejection", || unschedulable(&test) == 1).await;
    assert!(!test.bound.load(Ordering::SeqCst) && !test.scheduler.cache.has_pod("p"));
}

#[tokio::test]
async fn pod_is_bound_once_its_plugin_allows_it() {
    let test = harness(Fate::Binds, |points| points.add_plugin(Gate));
    test.try_pod(&pod("p", None)).await;
    assert!(test.scheduler.waiting.allow_pod("p", "Gate"));
    wait_for("the binding", || test.bound.load(Ordering::SeqCst)).await;
    assert!(test.scheduler.cache.has_pod("p"));
}

#[tokio::test]
async fn deleted_pod_does_not_wait_for_permission_any_longer() {
    let test = harness(Fate::Binds, |points| points.add_plugin(Gate));
    test.try_pod(&pod("p", None)).await;
    handlers::handle_pod(&test.scheduler, Event::Deleted(pod("p", None)));
    wait_for("the end of the attempt", || {
        test.scheduler.waiting.list_pods().is_empty() && !test.scheduler.cache.has_pod("p")
    })
    .await;
    assert!(!test.bound.load(Ordering::SeqCst));
}

#[tokio::test]
async fn panic_of_a_binding_stops_the_component() {
    let test = harness(Fate::Panics, |_| {});
    test.try_pod(&pod("p", None)).await;
    test.scheduler.tasks.shutdown().cancelled().await;
    assert_eq!(
        test.scheduler.tasks.failure().map(|failure| failure.name),
        Some("binding")
    );
}

fn unschedulable(test: &Harness) -> usize {
    test.scheduler.queue.count_pending().unschedulable
}

fn node_object(cpu: &str, heartbeat: &str) -> Arc<k8s_openapi::api::core::v1::Node> {
    let node = json!({"metadata": {"name": "n"}, "status": {
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": heartbeat}],
        "allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "9"}}});
    Arc::new(serde_json::from_value(node).unwrap())
}

/// Returns the pod `p`, which requests more than the node has.
fn large_pod() -> Arc<Pod> {
    let mut object = serde_json::to_value(&*pod("p", None)).unwrap();
    object["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("3");
    Arc::new(serde_json::from_value(object).unwrap())
}

#[tokio::test]
async fn heartbeat_of_a_node_is_no_event_but_more_allocatable_is() {
    let test = harness(Fate::Hangs, |_| {});
    let (first, second) = ("2024-01-01T00:00:00Z", "2024-01-01T00:00:10Z");
    let update = |old, new| {
        handlers::handle_node(
            &test.scheduler,
            Event::Applied {
                old: Some(old),
                new,
            },
        );
    };
    test.try_pod(&large_pod()).await;
    assert_eq!(unschedulable(&test), 1);
    update(node_object("2", first), node_object("2", second));
    assert_eq!(unschedulable(&test), 1);
    update(node_object("2", second), node_object("4", second));
    assert_eq!(unschedulable(&test), 0);
}

#[tokio::test]
async fn pod_that_another_scheduler_bound_counts_on_its_node() {
    let test = harness(Fate::Hangs, |_| {});
    let mut bound = (*pod("other", None)).clone();
    bound.spec.as_mut().unwrap().node_name = Some("n".into());
    bound.spec.as_mut().unwrap().scheduler_name = Some("another".into());
    let bound = Arc::new(bound);
    let applied = Event::Applied {
        old: None,
        new: bound.clone(),
    };
    handlers::handle_pod(&test.scheduler, applied);
    assert!(test.scheduler.cache.has_pod("other"));
    handlers::handle_pod(&test.scheduler, Event::Deleted(bound));
    assert!(!test.scheduler.cache.has_pod("other"));
}

#[tokio::test]
async fn pending_pod_of_another_scheduler_does_not_enter_the_queue() {
    let test = harness(Fate::Hangs, |_| {});
    let mut other = (*pod("other", None)).clone();
    other.spec.as_mut().unwrap().scheduler_name = Some("another".into());
    let applied = Event::Applied {
        old: None,
        new: Arc::new(other),
    };
    handlers::handle_pod(&test.scheduler, applied);
    assert_eq!(
        test.scheduler.queue.count_pending(),
        crate::queue::Counts::default()
    );
}

#[tokio::test]
async fn pod_created_again_under_its_name_replaces_the_former_one() {
    let test = harness(Fate::Hangs, |_| {});
    let old = pod("p", None);
    test.try_pod(&old).await;
    assert!(test.scheduler.cache.has_pod("p"));
    let mut new = (*pod("p", None)).clone();
    new.metadata.uid = Some("p-2".into());
    let applied = Event::Applied {
        old: Some(old),
        new: Arc::new(new),
    };
    handlers::handle_pod(&test.scheduler, applied);
    assert!(!test.scheduler.cache.has_pod("p"));
    assert_eq!(test.scheduler.queue.count_pending().active, 1);
}

#[tokio::test]
async fn status_of_a_bound_pod_is_no_event() {
    let test = harness(Fate::Hangs, |_| {});
    test.try_pod(&large_pod()).await;
    let bound = |phase: &str| {
        let mut object = serde_json::to_value(&*pod("other", None)).unwrap();
        object["spec"]["nodeName"] = json!("n");
        object["status"] = json!({"phase": phase});
        let bound: Pod = serde_json::from_value(object).unwrap();
        Arc::new(bound)
    };
    let apply = |old, new| handlers::handle_pod(&test.scheduler, Event::Applied { old, new });
    apply(None, bound("Pending"));
    apply(Some(bound("Pending")), bound("Running"));
    assert_eq!(unschedulable(&test), 1);
}
