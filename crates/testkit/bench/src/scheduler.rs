//! Cost of the scheduler's hot paths as the cluster grows.

mod objects;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use scheduler_core::cache::Cache;
use scheduler_core::nominated::Nominator;
use scheduler_core::queue::{Failure, Queue, QueueDelays, QueuePlugins};
use scheduler_framework::cycle::{NoNominatedPods, PodNominator, schedule_pod};
use scheduler_framework::{
    Cluster, ClusterEvent, ExtensionPoints, NodeInfo, PodInfo, Profile, Rank, Snapshot,
};
use serde_json::{Value, json};

use crate::rows::Rows;
use objects::{Objects, cluster, images, local_volume, node, pod};

/// Sizes to measure.
#[derive(clap::Args)]
pub struct Options {
    /// Sizes to measure at, in nodes
    #[arg(long, value_delimiter = ',', default_value = "1000,5000")]
    nodes: Vec<usize>,
    /// Sizes to measure at, in pods
    #[arg(long, value_delimiter = ',', default_value = "1000,10000,150000")]
    pods: Vec<usize>,
}

/// Runs all measurements.
pub fn measure(options: &Options) -> anyhow::Result<Value> {
    let mut rows = Rows::default();
    for &nodes in &options.nodes {
        images_of_nodes(nodes, &mut rows)?;
        nominations(nodes, &mut rows)?;
        volumes(nodes, 1_000, &mut rows)?;
        preemption_with_spreading(nodes, &mut rows)?;
        // More do not fit.
        for &pods in options.pods.iter().filter(|pods| **pods <= 100 * nodes) {
            default_spreading(nodes, pods, &mut rows)?;
        }
    }
    for &pods in &options.pods {
        events_for_waiting_pods(pods, &mut rows)?;
    }
    Ok(rows.into_json())
}

/// Returns the mean time of `rounds` calls.
fn time<T>(rounds: u32, mut call: impl FnMut() -> T) -> Duration {
    let begun = Instant::now();
    (0..rounds).for_each(|_| drop(black_box(call())));
    begun.elapsed() / rounds
}

/// Returns a profile of the plugins of these names, or of all if none is named.
fn profile(objects: Objects, only: &[&str]) -> anyhow::Result<Profile> {
    let cluster: Arc<dyn Cluster> = Arc::new(objects);
    let mut points = ExtensionPoints::default();
    for entry in scheduler_plugins::plugin_registry()
        .iter()
        .filter(|e| only.is_empty() || only.contains(&e.name))
    {
        (entry.make)(&Value::Null, &cluster, &mut points).map_err(anyhow::Error::msg)?;
    }
    Ok(Profile {
        name: "default-scheduler".into(),
        points,
        percentage_of_nodes_to_score: 0,
    })
}

struct OneProfile(Profile);

impl QueuePlugins for OneProfile {
    fn rank(&self, _: &PodInfo, since: i128) -> Rank {
        Rank(0, since)
    }

    fn is_gated(&self, _: &PodInfo) -> bool {
        false
    }

    fn listens_for(&self, plugin: &str, event: &ClusterEvent) -> bool {
        self.0.points.listens_for(plugin, event)
    }

    fn queueing_hint(&self, plugin: &str, pod: &PodInfo, event: &ClusterEvent) -> bool {
        self.0.points.queueing_hint(plugin, pod, event)
    }
}

fn images_of_nodes(nodes: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let cache = Cache::default();
    let objects = (0..nodes)
        .map(|at| node(at, &images(0)))
        .collect::<Result<Vec<_>, _>>()?;
    let added = time(1, || objects.iter().for_each(|node| cache.set_node(node)));
    rows.add_time("all nodes added to the cache, 50 images each", nodes, added);
    let changed = (1..=10)
        .map(|extra| node(7, &images(extra)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut next = changed.iter();
    let pulled = time(10, || next.next().map(|node| cache.set_node(node)));
    rows.add_time("a node pulls an image, in the cache", nodes, pulled);
    Ok(())
}

fn nominations(nodes: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let index = Nominator::default();
    for at in 0..1_000 {
        index.nominate_pod(
            &pod(&format!("p{at}"), "100m", json!({}))?,
            &format!("n{at}"),
        );
    }
    let names: Vec<String> = (0..nodes).map(|at| format!("n{at}")).collect();
    let took = time(3, || {
        names
            .iter()
            .map(|name| index.pods_on(name).len())
            .sum::<usize>()
    });
    rows.add_time(
        "nominations looked up for every node, 1,000 nominations",
        nodes,
        took,
    );
    Ok(())
}

fn events_for_waiting_pods(pods: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let queue = Queue::new(
        Arc::new(OneProfile(profile(Objects::default(), &[])?)),
        QueueDelays::default(),
    );
    for at in 0..pods {
        let name = format!("p{at}");
        queue.set_pod(pod(&name, "100m", json!({}))?, None, 0);
        queue.requeue_failed(
            &name,
            Failure {
                plugins: ["NodeResourcesFit"].into(),
                ..Failure::default()
            },
            1,
        );
    }
    let bound = pod("other", "100m", json!({"nodeName": "n1"}))?;
    let added = time(3, || {
        queue.move_pods(ClusterEvent::AssignedPodAdded(bound.clone()))
    });
    rows.add_time(
        "a pod was bound: event for pods that wait for resources",
        pods,
        added,
    );
    let (old, new) = (
        Arc::new(NodeInfo::without_pods(node(1, &images(0))?)),
        Arc::new(NodeInfo::without_pods(node(1, &images(1))?)),
    );
    let pulled = || {
        queue.move_pods(ClusterEvent::NodeUpdated {
            old: old.clone(),
            new: new.clone(),
        })
    };
    rows.add_time(
        "a node pulled an image: event for pods that wait for resources",
        pods,
        time(1, pulled),
    );
    ensure!(
        queue.count_pending().unschedulable == pods,
        "the events woke pods that they can't help"
    );
    Ok(())
}

/// Times attempts to schedule a pod, each of which must find a node.
fn attempts(
    rounds: u32,
    profile: &Profile,
    snapshot: &Snapshot,
    pod: &Arc<PodInfo>,
) -> anyhow::Result<Duration> {
    let mut found = true;
    let took = time(rounds, || {
        found &= schedule_pod(profile, snapshot, &NoNominatedPods, pod, &mut 0).is_ok()
    });
    ensure!(found, "no node was found for the pod");
    Ok(took)
}

/// Only the last node has volumes.
fn volumes(nodes: usize, volumes: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let snapshot = cluster(nodes, 0, "100m")?;
    let volumes = (0..volumes)
        .map(|at| local_volume(at, nodes - 1))
        .collect::<Result<Vec<_>, _>>()?;
    let profile = profile(Objects { volumes }, &["VolumeBinding"])?;
    let claims =
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]});
    let took = attempts(1, &profile, &snapshot, &pod("p", "100m", claims)?)?;
    rows.add_time(
        "attempt of a pod with an unbound claim, 1,000 local volumes",
        nodes,
        took,
    );
    Ok(())
}

/// The first attempt counts all pods; those that follow are measured.
fn default_spreading(nodes: usize, pods: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let snapshot = cluster(nodes, pods, "100m")?;
    let profile = profile(
        Objects::default(),
        &["PodTopologySpread", "NodeResourcesFit"],
    )?;
    let pod = pod("p", "100m", json!({}))?;
    attempts(1, &profile, &snapshot, &pod)?;
    let took = attempts(10, &profile, &snapshot, &pod)?;
    rows.add_time(
        "attempt of a replica, default spread constraints",
        format!("{nodes} nodes, {pods} pods"),
        took,
    );
    Ok(())
}

fn preemption_with_spreading(nodes: usize, rows: &mut Rows) -> anyhow::Result<()> {
    let snapshot = cluster(nodes, 3 * nodes, "10")?;
    let constraint = json!({"maxSkew": 5, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}});
    let preemptor = pod(
        "p",
        "20",
        json!({"priority": 1000, "topologySpreadConstraints": [constraint]}),
    )?;
    let profile = profile(
        Objects::default(),
        &["NodeResourcesFit", "PodTopologySpread", "DefaultPreemption"],
    )?;
    let begun = Instant::now();
    let fit_error = schedule_pod(&profile, &snapshot, &NoNominatedPods, &preemptor, &mut 0).err();
    let took = begun.elapsed();
    let fit_error = fit_error.context("the pod fits without a preemption")?;
    ensure!(
        !fit_error.post_filter_result.evict.is_empty(),
        "no victim was found: {}",
        fit_error.diagnosis.message()
    );
    rows.add_time("preemption under a spread constraint by host", nodes, took);
    Ok(())
}
