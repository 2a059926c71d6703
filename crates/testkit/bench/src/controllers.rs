//! Cost of controllers' decisions as the cluster grows. If a scan was replaced, the scan is
//! measured for comparison.

use std::collections::{HashMap, HashSet};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use controllers_garbage::RecentlyAbsent;
use controllers_node::ipam::{Pool, Range};
use controllers_runtime::Decide;
use controllers_volumes::Binder;
use ipnet::IpNet;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::rows::Rows;

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
    let mut row = |what: &str, size: usize, took: Duration| rows.add_time(what, size, took);
    for &n in &options.nodes {
        row("subnets for all nodes", n, subnets(n)?);
        row(
            "subnet for the last node, by scan",
            n,
            last_subnet_by_scan(n)?,
        );
        row("one DaemonSet pass", n, daemon_pass(n)?);
        row("one Service pass, slices unchanged", n, service_pass(n)?);
    }
    for &n in &options.pods {
        row("owner checks after deletions", n, owner_checks(n));
        if n <= 10_000 {
            row(
                "owner checks after deletions, by scan",
                n,
                owner_checks_by_scan(n),
            );
        }
        row("one indexed Job pass, 500 pods to make", n, job_pass(n)?);
        row(
            "a new PersistentVolume, with the passes that it causes",
            n,
            new_volume(n)?,
        );
    }
    Ok(rows.into_json())
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed()
}

fn range() -> anyhow::Result<Range> {
    Ok(Range {
        cluster: "10.0.0.0/8".parse()?,
        mask: 24,
    })
}

fn subnets(count: usize) -> anyhow::Result<Duration> {
    let mut pool = Pool::new(range()?);
    Ok(time(|| {
        for _ in 0..count {
            if let Some(net) = pool.free() {
                pool.occupy(net);
            }
        }
    }))
}

/// Finds the first subnet that overlaps no allocated one by pairwise comparison, for the last node.
fn last_subnet_by_scan(count: usize) -> anyhow::Result<Duration> {
    let Range { cluster, mask } = range()?;
    let taken: HashSet<IpNet> = cluster.subnets(mask)?.take(count - 1).collect();
    Ok(time(|| {
        let free = |net: &IpNet| !taken.iter().any(|t| t.contains(net) || net.contains(t));
        cluster
            .subnets(mask)
            .ok()
            .and_then(|mut all| all.find(free))
    }))
}

fn objects<K: serde::de::DeserializeOwned>(
    count: usize,
    tree: impl Fn(usize) -> Value,
) -> Result<Vec<Arc<K>>, serde_json::Error> {
    (0..count)
        .map(|i| serde_json::from_value(tree(i)).map(Arc::new))
        .collect()
}

fn daemon_pass(count: usize) -> anyhow::Result<Duration> {
    let set: DaemonSet = serde_json::from_value(
        json!({"metadata": {"name": "d", "namespace": "n", "uid": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": {"metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}),
    )?;
    let nodes = objects::<Node>(
        count,
        |i| json!({"metadata": {"name": format!("node-{i}"), "uid": i.to_string()}}),
    )?;
    let pods = objects::<Pod>(count, |i| {
        json!({"metadata": {"name": format!("d-{i}"), "namespace": "n", "uid": format!("p{i}"), "labels": {"app": "d"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "d", "controller": true}]},
            "spec": {"nodeName": format!("node-{i}"), "containers": []}, "status": {"phase": "Running"}})
    })?;
    let now = "2026-01-01T00:00:00Z".parse()?;
    Ok(time(|| {
        controllers_workloads::daemonset::reconcile_daemon_set(&set, &pods, &nodes, &[], now)
    }))
}

fn service_pass(count: usize) -> anyhow::Result<Duration> {
    let service: Service = serde_json::from_value(
        json!({"metadata": {"name": "s", "namespace": "n", "uid": "s"},
        "spec": {"selector": {"app": "s"}, "ipFamilies": ["IPv4"], "ports": [{"port": 80}]}}),
    )?;
    let pods = objects::<Pod>(count, |i| {
        json!({"metadata": {"name": format!("s-{i}"), "namespace": "n", "uid": format!("p{i}"), "labels": {"app": "s"}},
            "spec": {"nodeName": format!("node-{i}"), "containers": []}, "status": {"phase": "Running",
            "podIPs": [{"ip": format!("10.{}.{}.{}", i / 65536, i / 256 % 256, i % 256)}]}})
    })?;
    let node: Arc<Node> = Arc::new(serde_json::from_value(
        json!({"metadata": {"name": "node", "labels": {"topology.kubernetes.io/zone": "z"}}}),
    )?);
    let find_node = |_: &str| Some(node.clone());
    let reconcile = |old: &[Arc<EndpointSlice>]| {
        controllers_network::slicing::reconcile_service(&service, &pods, &find_node, old, None)
    };
    let made = reconcile(&[]);
    let slices = made
        .iter()
        .filter_map(controllers_runtime::Action::as_write)
        .enumerate()
        .map(|(i, write)| {
            let mut slice: EndpointSlice = serde_json::from_value(write.body.clone())?;
            slice.metadata.name = Some(format!("s-{i}"));
            Ok(Arc::new(slice))
        });
    let slices = slices.collect::<Result<Vec<_>, serde_json::Error>>()?;
    Ok(time(|| reconcile(&slices)))
}

fn owner_checks(count: usize) -> Duration {
    let uids: Vec<_> = (0..count).map(|i| i.to_string()).collect();
    let now = Instant::now();
    let mut absent = RecentlyAbsent::new(now);
    uids.iter().for_each(|uid| absent.insert(uid, now));
    time(|| uids.iter().filter(|uid| absent.contains(uid)).count())
}

/// Checks owners with a scan that first drops old entries.
fn owner_checks_by_scan(count: usize) -> Duration {
    let now = Instant::now();
    let mut absent: HashMap<String, Instant> = (0..count).map(|i| (i.to_string(), now)).collect();
    let uids: Vec<_> = absent.keys().cloned().collect();
    time(|| {
        let found = uids.iter().filter(|uid| {
            absent.retain(|_, at| at.elapsed() < Duration::from_secs(60));
            absent.contains_key(*uid)
        });
        found.count()
    })
}

fn job_pass(completions: usize) -> anyhow::Result<Duration> {
    let done = completions / 2;
    let job: Job = serde_json::from_value(
        json!({"metadata": {"name": "j", "namespace": "n", "uid": "j"},
        "spec": {"completionMode": "Indexed", "completions": completions, "parallelism": 500, "backoffLimitPerIndex": 1,
            "selector": {"matchLabels": {"job": "j"}}, "template": {"metadata": {"labels": {"job": "j"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
        "status": {"startTime": "2026-01-01T00:00:00Z", "succeeded": done, "completedIndexes": format!("0-{}", done - 1)}}),
    )?;
    let now = "2026-01-01T00:00:00Z".parse()?;
    Ok(time(|| {
        controllers_workloads::job::reconcile_job(&job, &[], now)
    }))
}

/// A volume that fits 10 of 20 open claims, beside `count` claims that are bound.
fn new_volume(count: usize) -> anyhow::Result<Duration> {
    let volume = |name: &str, claim: Value| {
        json!({"metadata": {"name": name, "uid": name}, "status": {"phase": "Bound"}, "spec": {"storageClassName": "c",
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "claimRef": claim}})
    };
    let claim = |name: &str, class: &str, volume: Value, phase: &str| {
        json!({"metadata": {"name": name, "namespace": "n", "uid": name}, "status": {"phase": phase},
            "spec": {"storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let bound = |i: usize| claim(&format!("c{i}"), "c", json!(format!("v{i}")), "Bound");
    let open = |i: usize| {
        claim(
            &format!("open-{i}"),
            if i.is_multiple_of(2) { "c" } else { "d" },
            Value::Null,
            "Pending",
        )
    };
    let claims = (0..count)
        .map(bound)
        .chain((0..20).map(open))
        .map(serde_json::from_value);
    let owner =
        |i: usize| json!({"namespace": "n", "name": format!("c{i}"), "uid": format!("c{i}")});
    let volumes = (0..count)
        .map(|i| volume(&format!("v{i}"), owner(i)))
        .chain([volume("new", Value::Null)]);
    let volumes = volumes
        .map(serde_json::from_value)
        .collect::<Result<Vec<PersistentVolume>, _>>()?;
    let new: PersistentVolume = serde_json::from_value(volume("new", Value::Null))?;
    let binder = Binder::fixed(claims.collect::<Result<_, _>>()?, volumes, Vec::new());
    let now = "2026-01-01T00:00:00Z".parse()?;
    Ok(time(|| {
        binder
            .keys_enqueued_by(&new)
            .iter()
            .map(|key| binder.reconcile(key, now).len())
            .sum::<usize>()
    }))
}
