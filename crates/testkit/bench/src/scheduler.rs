//! Measures how the cost of hot paths grows with the cluster. Prints tables; run with `cargo test --release -p
//! scheduler-core --test growth -- --ignored --nocapture --test-threads=1`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, missing_docs)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use scheduler_core::cache::Cache;
use scheduler_core::nominated::NominationIndex;
use scheduler_core::queue::{Failure, Judge, Queue, Waits};
use scheduler_framework::cycle::{NoNominations, Nominations, schedule};
use scheduler_framework::selector::Labels;
use scheduler_framework::{ClaimView, Cluster, ClusterEvent, NodeInfo, PodInfo, Points, Profile, Rank, Snapshot};
use serde_json::{Value, json};

const NODES: [usize; 2] = [1_000, 5_000];
const PODS: [usize; 3] = [1_000, 10_000, 150_000];

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn node(at: usize, images: &[Value]) -> Arc<Node> {
    let labels =
        json!({"kubernetes.io/hostname": format!("n{at}"), "topology.kubernetes.io/zone": format!("z{}", at % 3)});
    from(json!({"metadata": {"name": format!("n{at}"), "labels": labels},
        "status": {"images": images, "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"}}}))
}

fn images(extra: usize) -> Vec<Value> {
    let image = |at: usize| json!({"names": [format!("registry.example/team/image-{at}:v1")], "sizeBytes": 1 << 20});
    (0..50).map(image).chain((0..extra).map(|at| image(1000 + at))).collect()
}

fn pod(name: &str, spec: Value) -> Pod {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]);
    from(json!({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "web"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": true}]},
        "spec": spec}))
}

fn info(pod: Pod) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(Arc::new(pod)))
}

/// Volumes of one class, and a claim `data` that waits for its first consumer.
#[derive(Default)]
struct Objects {
    volumes: Vec<Arc<PersistentVolume>>,
}

impl ClaimView for Objects {
    fn claim(&self, _: &str, name: &str) -> Option<Arc<PersistentVolumeClaim>> {
        Some(from(json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"storageClassName": "c",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})))
    }

    fn volume(&self, _: &str) -> Option<Arc<PersistentVolume>> {
        None
    }

    fn volumes_of_class(&self, _: &str) -> Vec<Arc<PersistentVolume>> {
        self.volumes.clone()
    }

    fn class(&self, name: &str) -> Option<Arc<StorageClass>> {
        Some(from(json!({"metadata": {"name": name}, "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer"})))
    }
}

impl Cluster for Objects {
    fn budgets(&self, _: &str) -> Vec<Arc<PodDisruptionBudget>> {
        Vec::new()
    }

    fn claims(&self) -> &dyn ClaimView {
        self
    }

    fn service_selectors(&self, _: &str, _: &Labels) -> Vec<Labels> {
        Vec::new()
    }
}

fn profile(objects: Objects, only: &[&str]) -> Profile {
    let cluster: Arc<dyn Cluster> = Arc::new(objects);
    let mut points = Points::default();
    for entry in scheduler_plugins::registry() {
        if only.is_empty() || only.contains(&entry.name) {
            (entry.make)(&Value::Null, &cluster, &mut points).unwrap();
        }
    }
    Profile { name: "default-scheduler".into(), points, percentage_of_nodes_to_score: 0 }
}

struct OneProfile(Profile);

impl Judge for OneProfile {
    fn rank(&self, _: &PodInfo, since: i128) -> Rank {
        Rank(0, since)
    }

    fn is_gated(&self, _: &PodInfo) -> bool {
        false
    }

    fn listens(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.0.points.listens(plugin, event)
    }

    fn hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool {
        self.0.points.hint(plugin, pod, event)
    }
}

/// Returns the mean time of `rounds` calls.
fn time(rounds: u32, mut call: impl FnMut()) -> Duration {
    let began = Instant::now();
    (0..rounds).for_each(|_| call());
    began.elapsed() / rounds
}

fn print(what: &str, size: impl std::fmt::Display, took: Duration) {
    println!("| {what} | {size} | {:.3} ms |", took.as_secs_f64() * 1e3);
}

/// Builds a cluster of `nodes` with `pods` pods spread over it.
fn cluster(nodes: usize, pods: usize) -> Arc<Snapshot> {
    let cache = Cache::default();
    (0..nodes).for_each(|at| cache.set_node(&node(at, &[])));
    for at in 0..pods {
        cache.set_pod(&info(pod(&format!("p{at}"), json!({"nodeName": format!("n{}", at % nodes)}))));
    }
    cache.snapshot()
}

#[test]
#[ignore = "measures"]
fn nodes_with_images() {
    for nodes in NODES {
        let cache = Cache::default();
        let objects: Vec<_> = (0..nodes).map(|at| node(at, &images(0))).collect();
        print(
            "all nodes added, 50 images each",
            nodes,
            time(1, || objects.iter().for_each(|node| cache.set_node(node))),
        );
        let mut extra = 0;
        let change = || {
            extra += 1;
            cache.set_node(&node(7, &images(extra)));
        };
        print("one node pulls an image", nodes, time(10, change));
    }
}

#[test]
#[ignore = "measures"]
fn nominations() {
    for nodes in NODES {
        let index = NominationIndex::default();
        for at in 0..1_000 {
            index.set(&info(pod(&format!("p{at}"), json!({}))), &format!("n{at}"));
        }
        let names: Vec<String> = (0..nodes).map(|at| format!("n{at}")).collect();
        let took = time(3, || assert!(names.iter().map(|name| index.on(name).len()).sum::<usize>() <= 1_000));
        print("nominations of every node looked up, 1,000 nominations", nodes, took);
    }
}

#[test]
#[ignore = "measures"]
fn events_for_waiting_pods() {
    for pods in PODS {
        let queue = Queue::new(Arc::new(OneProfile(profile(Objects::default(), &[]))), Waits::default());
        for at in 0..pods {
            let name = format!("p{at}");
            queue.set(info(pod(&name, json!({}))), None, 0);
            queue.reject(&name, Failure { plugins: ["NodeResourcesFit"].into(), ..Failure::default() }, 1);
        }
        let bound = info(pod("other", json!({"nodeName": "n1"})));
        let added = || queue.event(ClusterEvent::AssignedPodAdded(Arc::clone(&bound)));
        print("a pod was bound, pods that wait for resources", pods, time(3, added));
        let bare = |extra| Arc::new(NodeInfo::bare(node(1, &images(extra))));
        let (old, new) = (bare(0), bare(1));
        let pulled = || queue.event(ClusterEvent::NodeUpdated { old: Arc::clone(&old), new: Arc::clone(&new) });
        print("a node pulled an image, pods that wait for resources", pods, time(1, pulled));
        assert_eq!(queue.counts().unschedulable, pods);
    }
}

#[test]
#[ignore = "measures"]
fn volumes() {
    for (nodes, volumes) in [(1_000, 1_000), (5_000, 1_000)] {
        let snapshot = cluster(nodes, 0);
        // Only the last node has a volume.
        let volume = |at: usize| {
            let name = format!("n{}", nodes - 1);
            from(json!({"metadata": {"name": format!("v{at}")}, "status": {"phase": "Available"}, "spec": {
                "storageClassName": "c", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}]}]}}}}))
        };
        let objects = Objects { volumes: (0..volumes).map(volume).collect() };
        let profile = profile(objects, &["VolumeBinding"]);
        let claims = json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
        let pod = info(pod("p", claims));
        let took = time(1, || assert!(schedule(&profile, &snapshot, &NoNominations, &pod, &mut 0).is_ok()));
        print(&format!("attempt with a waiting claim, {volumes} volumes"), nodes, took);
    }
}

#[test]
#[ignore = "measures"]
fn default_spreading() {
    for (nodes, pods) in [(1_000, 1_000), (1_000, 10_000), (5_000, 10_000), (5_000, 150_000)] {
        let snapshot = cluster(nodes, pods);
        let profile = profile(Objects::default(), &["PodTopologySpread", "NodeResourcesFit"]);
        let pod = info(pod("p", json!({})));
        let attempt = || assert!(schedule(&profile, &snapshot, &NoNominations, &pod, &mut 0).is_ok());
        attempt();
        print("attempt of a replica, default constraints", format!("{nodes} nodes, {pods} pods"), time(10, attempt));
    }
}

#[test]
#[ignore = "measures"]
fn preemption_with_spreading() {
    for nodes in NODES {
        let cache = Cache::default();
        (0..nodes).for_each(|at| cache.set_node(&node(at, &[])));
        for at in 0..nodes * 3 {
            let mut filler = pod(&format!("p{at}"), json!({"nodeName": format!("n{}", at % nodes)}));
            let requests: HashMap<&str, &str> = [("cpu", "10")].into();
            let containers = json!([{"name": "c", "resources": {"requests": requests}}]);
            filler.spec.as_mut().unwrap().containers = from(containers);
            cache.set_pod(&info(filler));
        }
        let snapshot = cache.snapshot();
        let constraint = json!({"maxSkew": 5, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
        let mut preemptor = pod("p", json!({"priority": 1000, "topologySpreadConstraints": [constraint]}));
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": "20"}}}]);
        preemptor.spec.as_mut().unwrap().containers = from(containers);
        let preemptor = info(preemptor);
        let plugins = ["NodeResourcesFit", "PodTopologySpread", "DefaultPreemption"];
        let profile = profile(Objects::default(), &plugins);
        let attempt = || {
            let unfit = schedule(&profile, &snapshot, &NoNominations, &preemptor, &mut 0).err().unwrap();
            assert!(!unfit.remedy.evict.is_empty(), "{}", unfit.diagnosis.message());
        };
        print("preemption under a spread constraint by host", nodes, time(1, attempt));
    }
}
