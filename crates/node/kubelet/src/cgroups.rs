//! Pod cgroups: `ROOT/kubepods/[burstable|besteffort/]podUID`, version 1 and 2, by plain file
//! operations.
//!
//! The names are those of upstream's cgroupfs driver, so that pods started by a stock kubelet keep
//! their cgroups.

mod settings;

use crate::cri_config::resources::{self, PodResources, PodSetting};
use crate::pod::spec;
use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The mounted cgroup version with its mount points.
#[derive(Clone, Debug)]
enum Version {
    /// Version 1: one hierarchy per controller (several controllers may share one).
    One(Vec<(String, PathBuf)>),
    /// Version 2: one hierarchy for all controllers.
    Two(PathBuf),
}

/// The node's cgroups. Without a root no cgroups are created and the runtime chooses the
/// containers' place.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups {
    root: Option<String>,
    version: Version,
    /// Limit of processes and threads of each pod.
    pids: Option<u64>,
}

impl Cgroups {
    /// Detects the hierarchies and creates the three parent cgroups. `pids` limits the processes of
    /// each pod.
    pub(crate) fn new(root: Option<&str>, pids: Option<u64>) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let root = root.map(|r| r.trim_matches('/').to_owned());
        let cgroups = Cgroups {
            root,
            version: detect_version(&mounts),
            pids,
        };
        if cgroups.root.is_some() {
            for class in ["", "burstable", "besteffort"] {
                let path = cgroups.parent_path(class);
                cgroups.create(&path)?;
                // All pods of this class together get the least share of the processors, so that
                // their number does not matter.
                if class == "besteffort" {
                    cgroups.set_cpu(&path, resources::compute_cpu_shares(0), 0);
                }
            }
        }
        Ok(cgroups)
    }

    fn parent_path(&self, class: &str) -> String {
        let root = self.root.as_deref().unwrap_or_default();
        let parts = [root, "kubepods", class];
        parts
            .iter()
            .filter(|p| !p.is_empty())
            .fold(String::new(), |path, part| format!("{path}/{part}"))
    }

    /// Returns the pod's cgroup for the CRI config; empty if the kubelet manages no cgroups.
    pub(crate) fn pod_path(&self, pod: &Pod) -> String {
        if self.root.is_none() {
            return String::new();
        }
        let class = match spec::compute_pod_qos(pod) {
            "Burstable" => "burstable",
            "BestEffort" => "besteffort",
            _ => "",
        };
        format!(
            "{}/pod{}",
            self.parent_path(class),
            pod.metadata.uid.as_deref().unwrap_or_default()
        )
    }

    /// Creates the pod's cgroup with its limits.
    pub(crate) fn ensure_pod_cgroup(&self, pod: &Pod) -> io::Result<()> {
        let path = self.pod_path(pod);
        if path.is_empty() {
            return Ok(());
        }
        self.create(&path)?;
        self.apply_limits(&path, resources::compute_pod_resources(pod));
        self.limit_pids(&path)
    }

    /// Sets the process limit. Unlike CPU shares it protects the node, so a failure must be an
    /// error.
    fn limit_pids(&self, path: &str) -> io::Result<()> {
        let Some(pids) = self.pids else { return Ok(()) };
        // A limit that is configured and not enforced would leave the node open to a fork bomb.
        let missing = || io::Error::other("podPidsLimit is set, but there is no pids controller");
        let place = self.controller_path("pids", path).ok_or_else(missing)?;
        fs::write(place.join("pids.max"), pids.to_string())
    }

    /// Removes the pod's cgroup, whatever its QoS class was.
    pub(crate) fn remove_pod_cgroup(&self, uid: &str) {
        // With an empty uid the path would be that of no pod but a prefix of all.
        if self.root.is_none() || uid.is_empty() {
            return;
        }
        for class in ["", "burstable", "besteffort"] {
            let path = format!("{}/pod{uid}", self.parent_path(class));
            self.hierarchy_paths(&path)
                .into_iter()
                .for_each(|place| remove_tree(&place));
        }
    }

    /// Returns the path in every hierarchy.
    fn hierarchy_paths(&self, path: &str) -> Vec<PathBuf> {
        let path = path.trim_start_matches('/');
        match &self.version {
            Version::One(hierarchies) => hierarchies
                .iter()
                .map(|(_, root)| root.join(path))
                .collect(),
            Version::Two(root) => vec![root.join(path)],
        }
    }

    fn controller_path(&self, controller: &str, path: &str) -> Option<PathBuf> {
        let path = path.trim_start_matches('/');
        match &self.version {
            Version::One(all) => all
                .iter()
                .find(|(names, _)| names.split(',').any(|n| n == controller))
                .map(|(_, r)| r.join(path)),
            Version::Two(root) => Some(root.join(path)),
        }
    }

    fn create(&self, path: &str) -> io::Result<()> {
        for place in self.hierarchy_paths(path) {
            // The usual case: the cgroups of a recovered pod.
            if place.is_dir() {
                continue;
            }
            fs::create_dir_all(&place)?;
        }
        match &self.version {
            Version::One(_) => self.inherit_cpuset(path),
            Version::Two(root) => enable_controllers(root, path),
        }
        Ok(())
    }

    /// Copies cpus and memory nodes from the parent: a new cpuset of version 1 is empty, and no
    /// process can run in it.
    fn inherit_cpuset(&self, path: &str) {
        let Some(leaf) = self.controller_path("cpuset", path) else {
            return;
        };
        let Some(root) = self.controller_path("cpuset", "") else {
            return;
        };
        let Ok(relative) = leaf.strip_prefix(&root) else {
            return;
        };
        let mut at = root.clone();
        for part in relative.components() {
            let parent = at.clone();
            at.push(part);
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let empty = fs::read_to_string(at.join(file)).is_ok_and(|t| t.trim().is_empty());
                if let (true, Ok(value)) = (empty, fs::read_to_string(parent.join(file))) {
                    let _ = fs::write(at.join(file), value);
                }
            }
        }
    }

    fn apply_limits(&self, path: &str, limits: PodResources) {
        self.set_cpu(path, limits.shares, limits.quota);
        if limits.memory > 0 {
            self.try_setting(path, PodSetting::Memory(limits.memory));
        }
    }

    fn set_cpu(&self, path: &str, shares: i64, quota: i64) {
        self.try_setting(path, PodSetting::Shares(shares));
        if quota > 0 {
            self.try_setting(path, PodSetting::Quota(quota));
        }
    }

    /// Writes a setting; a kernel without the controller is not an error.
    fn try_setting(&self, path: &str, setting: PodSetting) {
        if let Some((file, value)) = self.locate_setting(path, setting)
            && let Err(e) = fs::write(&file, &value)
        {
            tracing::debug!(path = %file.display(), value, error = %e, "cgroup setting refused");
        }
    }

    /// Returns nanoseconds of cpu and bytes of memory (without inactive file cache) used at `path`
    /// ("" for the node).
    pub(crate) fn read_usage(&self, path: &str) -> Option<(u64, u64)> {
        let read = |controller: &str, file: &str| {
            self.controller_path(controller, path)
                .and_then(|p| fs::read_to_string(p.join(file)).ok())
        };
        let field = |text: &str, name: &str| {
            text.lines()
                .find_map(|l| l.strip_prefix(name)?.trim().parse::<u64>().ok())
        };
        match &self.version {
            Version::One(_) => {
                let cpu = read("cpuacct", "cpuacct.usage")?.trim().parse().ok()?;
                let memory: u64 = read("memory", "memory.usage_in_bytes")?
                    .trim()
                    .parse()
                    .ok()?;
                let idle =
                    field(&read("memory", "memory.stat")?, "total_inactive_file ").unwrap_or(0);
                Some((cpu, memory.saturating_sub(idle)))
            }
            Version::Two(_) => {
                let cpu = field(&read("cpu", "cpu.stat")?, "usage_usec ")? * 1000;
                let memory: u64 =
                    read("memory", "memory.current").and_then(|t| t.trim().parse().ok())?;
                let idle = field(&read("memory", "memory.stat")?, "inactive_file ").unwrap_or(0);
                Some((cpu, memory.saturating_sub(idle)))
            }
        }
    }
}

fn detect_version(mountinfo: &str) -> Version {
    let mut hierarchies = Vec::new();
    let mut unified = None;
    for line in mountinfo.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let point = PathBuf::from(before.split(' ').nth(4).unwrap_or_default());
        let mut words = after.split(' ');
        match words.next() {
            Some("cgroup") => {
                let options = words.nth(1).unwrap_or_default();
                hierarchies.push((options.trim_start_matches("rw,").to_owned(), point));
            }
            Some("cgroup2") => unified = Some(point),
            _ => {}
        }
    }
    match unified {
        // With both mounted, version 2 has no controllers: each controller belongs to one version.
        Some(root) if hierarchies.is_empty() => Version::Two(root),
        _ => Version::One(hierarchies),
    }
}

fn enable_controllers(root: &Path, path: &str) {
    let mut at = root.to_owned();
    for part in Path::new(path.trim_start_matches('/')).components() {
        // One write for each: a single write fails as a whole if the kernel lacks one of them.
        for controller in ["cpu", "memory", "pids", "cpuset", "io"] {
            let _ = fs::write(at.join("cgroup.subtree_control"), format!("+{controller}"));
        }
        at.push(part);
    }
}

/// Removes a cgroup and its children, leaves first. Only directories are removed: the kernel owns
/// the files.
fn remove_tree(path: &Path) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// Returns the lowest OOM score adjustment that the kernel lets the kubelet set: without
/// CAP_SYS_RESOURCE its own.
pub(crate) fn least_oom_score() -> i64 {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let caps = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|t| u64::from_str_radix(t.trim(), 16).ok());
    if caps.is_some_and(|c| c & CAP_SYS_RESOURCE != 0) {
        return -1000;
    }
    fs::read_to_string("/proc/self/oom_score_adj")
        .ok()
        .and_then(|t| t.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn limit_of_processes_is_set_or_the_pod_fails() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pod")).unwrap();
        let version = Version::Two(dir.path().to_owned());
        let cgroups = Cgroups {
            root: Some(String::new()),
            version,
            pids: Some(100),
        };
        cgroups.limit_pids("/pod").unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join("pod/pids.max")).unwrap(),
            "100"
        );
        assert!(cgroups.limit_pids("/missing").is_err());
        let none = Cgroups {
            version: Version::One(Vec::new()),
            ..cgroups
        };
        assert!(none.limit_pids("/pod").is_err());
    }

    const V1: &str = "30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n\
                      31 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const V2: &str = "30 25 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    fn cgroups(version: Version) -> Cgroups {
        Cgroups {
            root: Some("system/ic".into()),
            version,
            pids: None,
        }
    }

    /// A host may mount version 2 beside the controllers of version 1; those have precedence.
    #[test]
    fn cgroup_version_is_detected_from_the_mounts() {
        let version_two = |table: &str| matches!(detect_version(table), Version::Two(_));
        assert!(version_two(V2));
        assert!(!version_two(V1));
        assert!(!version_two(&format!("{V1}{V2}")));
        let first = cgroups(detect_version(V1));
        let path = |controller: &str| first.controller_path(controller, "/pod");
        assert_eq!(
            path("cpuacct"),
            Some("/sys/fs/cgroup/cpu,cpuacct/pod".into())
        );
        assert_eq!(path("memory"), Some("/sys/fs/cgroup/memory/pod".into()));
        assert_eq!(path("pids"), None);
    }

    /// Names of the stock kubelet's cgroupfs driver.
    #[test]
    fn cgroup_of_a_pod_is_beneath_its_qos_class() {
        let groups = cgroups(Version::Two("/sys/fs/cgroup".into()));
        for (resources, path) in [
            (serde_json::json!({}), "/system/ic/kubepods/besteffort/podu"),
            (
                serde_json::json!({"requests": {"cpu": "1"}}),
                "/system/ic/kubepods/burstable/podu",
            ),
            (
                serde_json::json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
                "/system/ic/kubepods/podu",
            ),
        ] {
            let mut spec =
                serde_json::json!({"containers": [{"name": "c", "resources": resources}]});
            spec["containers"][0]["resources"]["requests"] = resources
                .get("requests")
                .or(resources.get("limits"))
                .cloned()
                .unwrap_or_default();
            assert_eq!(
                groups.pod_path(&crate::testing::pod(spec)),
                path,
                "{resources}"
            );
        }
        let unmanaged = Cgroups {
            root: None,
            ..groups
        };
        let pod = crate::testing::pod(serde_json::json!({"containers": []}));
        assert_eq!(unmanaged.pod_path(&pod), "");
    }

    fn limits() -> PodResources {
        PodResources {
            shares: 512,
            quota: 50_000,
            memory: 1 << 20,
        }
    }

    #[test]
    fn limits_are_written_to_the_files_of_version_two() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pod")).unwrap();
        cgroups(Version::Two(dir.path().into())).apply_limits("/pod", limits());
        let read = |file: &str| fs::read_to_string(dir.path().join("pod").join(file)).unwrap();
        // 512 shares in upstream's conversion to a weight of 1 to 10,000.
        assert_eq!(read("cpu.weight"), "20");
        assert_eq!(read("cpu.max"), "50000 100000");
        assert_eq!(read("memory.max"), "1048576");
    }

    #[test]
    fn limits_are_written_to_the_files_of_version_one() {
        let dir = tempfile::tempdir().unwrap();
        let hierarchy = |name: &str| {
            let root = dir.path().join(name);
            fs::create_dir_all(root.join("pod")).unwrap();
            (name.to_owned(), root)
        };
        let all = vec![hierarchy("cpu,cpuacct"), hierarchy("memory")];
        cgroups(Version::One(all)).apply_limits("/pod", limits());
        let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
        assert_eq!(read("cpu,cpuacct/pod/cpu.shares"), "512");
        assert_eq!(read("cpu,cpuacct/pod/cpu.cfs_quota_us"), "50000");
        assert_eq!(read("memory/pod/memory.limit_in_bytes"), "1048576");
    }

    /// No process can run in a cpuset without cpus, and a new one of version 1 has none.
    #[test]
    fn cpuset_of_version_one_is_inherited_by_every_level() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for (level, text) in [("", "0-3"), ("a", ""), ("a/b", "")] {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                fs::write(dir.path().join(level).join(file), text).unwrap();
            }
        }
        let all = vec![("cpuset".to_owned(), dir.path().to_owned())];
        cgroups(Version::One(all)).inherit_cpuset("/a/b");
        let cpus = fs::read_to_string(dir.path().join("a/b/cpuset.cpus")).unwrap();
        assert_eq!(cpus, "0-3");
    }

    #[test]
    fn usage_of_memory_excludes_the_inactive_file_cache() {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("cpu.stat", "usage_usec 5\nuser_usec 3\n"),
            ("memory.current", "1000\n"),
            ("memory.stat", "anon 100\ninactive_file 300\n"),
        ] {
            fs::write(dir.path().join(file), text).unwrap();
        }
        let groups = cgroups(Version::Two(dir.path().into()));
        assert_eq!(groups.read_usage(""), Some((5_000, 700)));
        assert_eq!(groups.read_usage("/missing"), None);
    }

    #[test]
    fn cgroup_of_a_pod_is_removed_from_every_class() {
        let dir = tempfile::tempdir().unwrap();
        let groups = cgroups(Version::Two(dir.path().into()));
        let kubepods = dir.path().join("system/ic/kubepods");
        for class in ["", "burstable", "besteffort"] {
            fs::create_dir_all(kubepods.join(class).join("podu/container")).unwrap();
        }
        fs::create_dir_all(kubepods.join("podother")).unwrap();
        groups.remove_pod_cgroup("u");
        for class in ["", "burstable", "besteffort"] {
            assert!(!kubepods.join(class).join("podu").exists(), "{class}");
        }
        assert!(kubepods.join("podother").exists());
        groups.remove_pod_cgroup("");
        assert!(kubepods.exists(), "no pod has an empty uid");
    }
}
