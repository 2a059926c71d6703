//! Resource usage of node and pods: `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor`.

use crate::context::KubeletContext;
use crate::worker::PodSnapshot;
use base_telemetry::{MetricsPage, format_labels};
use jiff::Timestamp;
use node_runtime::v1::ContainerStats;
use serde_json::{Value, json};
use std::collections::HashMap;

/// Usage of one running container.
struct ContainerUsage {
    namespace: String,
    pod: String,
    uid: String,
    container: String,
    /// CPU time in nanoseconds.
    cpu: u64,
    memory: u64,
    started: f64,
    time: String,
}

async fn measure_usage(kubelet: &KubeletContext) -> Vec<ContainerUsage> {
    let all = kubelet.runtime.container_stats().await.unwrap_or_default();
    let id = |s: &ContainerStats| {
        s.attributes
            .as_ref()
            .map(|a| a.id.clone())
            .unwrap_or_default()
    };
    // One list for all containers: a call for each would take seconds on a full node.
    let by_id: HashMap<String, ContainerStats> = all.into_iter().map(|s| (id(&s), s)).collect();
    let pods = kubelet.workers.all();
    pods.iter()
        .flat_map(|snapshot| pod_usage(snapshot, &by_id))
        .collect()
}

fn pod_usage(
    snapshot: &PodSnapshot,
    by_id: &HashMap<String, ContainerStats>,
) -> Vec<ContainerUsage> {
    let text = |s: &Option<String>| s.clone().unwrap_or_default();
    let meta = &snapshot.pod.metadata;
    let running = snapshot
        .observed
        .iter_containers()
        .filter(|i| i.is_running());
    running
        .filter_map(|i| {
            let stats = by_id.get(&i.id)?;
            let cpu = stats.cpu.as_ref();
            // The time of the measurement: clients compute a rate from two of them.
            let nanos = cpu.map_or(0, |c| c.timestamp);
            Some(ContainerUsage {
                namespace: text(&meta.namespace),
                pod: text(&meta.name),
                uid: text(&meta.uid),
                container: i.name.clone(),
                cpu: cpu
                    .and_then(|c| c.usage_core_nano_seconds.as_ref())
                    .map_or(0, |v| v.value),
                memory: stats
                    .memory
                    .as_ref()
                    .and_then(|m| m.working_set_bytes.as_ref())
                    .map_or(0, |v| v.value),
                started: i.started_at as f64 / 1e9,
                time: Timestamp::from_nanosecond(i128::from(nanos))
                    .unwrap_or_default()
                    .to_string(),
            })
        })
        .collect()
}

/// Returns the usage of the machine: nanoseconds of cpu, bytes of memory.
fn read_machine(kubelet: &KubeletContext) -> (u64, u64) {
    // In a container the cgroup of the kubelet is not the node; /proc is.
    let from_kernel = || {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let first: Vec<u64> = stat
            .lines()
            .next()?
            .split_whitespace()
            .skip(1)
            .filter_map(|n| n.parse().ok())
            .collect();
        // user, nice, system, irq, softirq, steal (without idle and iowait), in hundredths of a
        // second.
        let busy: u64 = [0, 1, 2, 5, 6, 7]
            .iter()
            .filter_map(|i| first.get(*i))
            .sum();
        let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let field = |name: &str| {
            memory.lines().find_map(|l| {
                l.strip_prefix(name)?
                    .trim()
                    .strip_suffix(" kB")?
                    .parse::<u64>()
                    .ok()
            })
        };
        let used = field("MemTotal:")?.saturating_sub(field("MemAvailable:")?) * 1024;
        Some((busy * 10_000_000, used))
    };
    let by_cgroup = || {
        kubelet
            .cgroups
            .read_usage("")
            .filter(|(cpu, memory)| *cpu > 0 && *memory > 0)
    };
    from_kernel().or_else(by_cgroup).unwrap_or_default()
}

pub(crate) async fn build_summary(kubelet: &KubeletContext) -> Value {
    let all = measure_usage(kubelet).await;
    let (cpu, memory) = read_machine(kubelet);
    let now = Timestamp::now().to_string();
    let mut pods: Vec<Value> = Vec::new();
    for snapshot in kubelet.workers.all().into_iter().filter(|s| s.active) {
        let uid = snapshot.pod.metadata.uid.clone().unwrap_or_default();
        let own: Vec<&ContainerUsage> = all.iter().filter(|u| u.uid == uid).collect();
        let containers: Vec<Value> = own
            .iter()
            .map(|u| {
                json!({"name": u.container, "startTime": to_timestamp(u.started),
                    "cpu": {"time": u.time, "usageCoreNanoSeconds": u.cpu},
                    "memory": {"time": u.time, "workingSetBytes": u.memory, "usageBytes": u.memory}})
            })
            .collect();
        let sum = |of: fn(&ContainerUsage) -> u64| own.iter().map(|u| of(u)).sum::<u64>();
        pods.push(json!({
            "podRef": {"name": snapshot.pod.metadata.name, "namespace": snapshot.pod.metadata.namespace, "uid": uid},
            "startTime": snapshot.status.start_time,
            "containers": containers,
            "cpu": {"time": now, "usageCoreNanoSeconds": sum(|u| u.cpu)},
            "memory": {"time": now, "workingSetBytes": sum(|u| u.memory), "usageBytes": sum(|u| u.memory)},
        }));
    }
    let total = kubelet.memory_capacity();
    json!({
        "node": {
            "nodeName": kubelet.settings.node_name,
            "startTime": now,
            "cpu": {"time": now, "usageCoreNanoSeconds": cpu},
            "memory": {"time": now, "workingSetBytes": memory, "usageBytes": memory,
                "availableBytes": u64::try_from(total).unwrap_or_default().saturating_sub(memory)},
            "fs": measure_filesystem(kubelet),
        },
        "pods": pods,
    })
}

fn to_timestamp(time: f64) -> Value {
    Timestamp::from_second(time as i64)
        .map(|t| json!(t.to_string()))
        .unwrap_or(Value::Null)
}

fn measure_filesystem(kubelet: &KubeletContext) -> Value {
    match rustix::fs::statvfs(&kubelet.settings.root_dir) {
        Ok(s) => json!({
            "time": Timestamp::now().to_string(),
            "capacityBytes": s.f_blocks * s.f_frsize,
            "availableBytes": s.f_bavail * s.f_frsize,
            "usedBytes": s.f_blocks.saturating_sub(s.f_bfree) * s.f_frsize,
            "inodes": s.f_files, "inodesFree": s.f_ffree,
        }),
        Err(_) => Value::Null,
    }
}

/// Renders the metrics.
pub(crate) async fn format_metrics(kubelet: &KubeletContext, cadvisor: bool) -> String {
    let all = measure_usage(kubelet).await;
    let (cpu, memory) = read_machine(kubelet);
    let mut page = MetricsPage::default();
    let mut family = |metric: &str, kind: &str, value: &dyn Fn(&ContainerUsage) -> f64| {
        page.kind(metric, kind);
        for u in &all {
            let mut labels = vec![
                ("container", &u.container),
                ("namespace", &u.namespace),
                ("pod", &u.pod),
            ];
            if cadvisor {
                labels.push(("name", &u.container));
            }
            page.sample(metric, &format_labels(&labels), value(u));
        }
    };
    family("container_cpu_usage_seconds_total", "counter", &|u| {
        u.cpu as f64 / 1e9
    });
    family("container_memory_working_set_bytes", "gauge", &|u| {
        u.memory as f64
    });
    family("container_start_time_seconds", "gauge", &|u| u.started);
    if !cadvisor {
        for (metric, kind, value) in [
            ("node_cpu_usage_seconds_total", "counter", cpu as f64 / 1e9),
            ("node_memory_working_set_bytes", "gauge", memory as f64),
            ("resource_scrape_error", "gauge", 0.0),
        ] {
            page.kind(metric, kind);
            page.sample(metric, "", value);
        }
    }
    page.finish()
}
