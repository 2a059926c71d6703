//! Settings of a pod's cgroup during a resize.

use super::{Cgroups, Version};
use crate::cri_config::resources::{PERIOD, PodResources, PodSetting};
use k8s_openapi::api::core::v1::Pod;
use std::fs;
use std::io;
use std::path::PathBuf;

impl Cgroups {
    /// Changes a setting of a pod's cgroup. Does nothing if the kubelet manages no cgroups.
    ///
    /// # Errors
    /// The kernel has no such controller, or it refuses the value.
    pub(crate) fn change_pod(&self, pod: &Pod, setting: PodSetting) -> io::Result<()> {
        let path = self.pod_path(pod);
        if path.is_empty() {
            return Ok(());
        }
        let missing = || io::Error::other("the kernel has no controller for it");
        let (file, value) = self.locate_setting(&path, setting).ok_or_else(missing)?;
        fs::write(file, value)
    }

    /// Returns the file of a setting, and its content.
    pub(super) fn locate_setting(
        &self,
        path: &str,
        setting: PodSetting,
    ) -> Option<(PathBuf, String)> {
        let one = matches!(self.version, Version::One(_));
        let (controller, file, value) = match setting {
            PodSetting::Memory(limit) if one => {
                ("memory", "memory.limit_in_bytes", limit.to_string())
            }
            PodSetting::Memory(limit) => ("memory", "memory.max", limit.to_string()),
            PodSetting::Quota(quota) if one => ("cpu", "cpu.cfs_quota_us", quota.to_string()),
            PodSetting::Quota(quota) => ("cpu", "cpu.max", format!("{quota} {PERIOD}")),
            PodSetting::Shares(shares) if one => ("cpu", "cpu.shares", shares.to_string()),
            // Upstream's conversion of 2 to 262,144 shares to the weights 1 to 10,000 of version 2.
            PodSetting::Shares(shares) => {
                let weight = 1 + (shares - 2) * 9999 / 262_142;
                ("cpu", "cpu.weight", weight.to_string())
            }
        };
        Some((self.controller_path(controller, path)?.join(file), value))
    }

    /// Returns the limits of a pod's cgroup, without its shares, which version 2 does not keep
    /// exactly. None if there is no such cgroup.
    pub(crate) fn read_pod_limits(&self, pod: &Pod) -> Option<PodResources> {
        let path = self.pod_path(pod);
        if path.is_empty() {
            return None;
        }
        let one = matches!(self.version, Version::One(_));
        let (memory, quota) = if one {
            ("memory.limit_in_bytes", "cpu.cfs_quota_us")
        } else {
            ("memory.max", "cpu.max")
        };
        let read = |controller: &str, file: &str| {
            let text = fs::read_to_string(self.controller_path(controller, &path)?.join(file));
            Some(parse_limit(&text.ok()?))
        };
        Some(PodResources {
            shares: 0,
            quota: read("cpu", quota)?,
            memory: read("memory", memory)?,
        })
    }

    /// Returns the bytes of memory that the kernel counts for a pod, caches included.
    pub(crate) fn read_pod_memory(&self, pod: &Pod) -> Option<i64> {
        let path = self.pod_path(pod);
        let file = match &self.version {
            _ if path.is_empty() => return None,
            Version::One(_) => "memory.usage_in_bytes",
            Version::Two(_) => "memory.current",
        };
        let place = self.controller_path("memory", &path)?;
        let text = fs::read_to_string(place.join(file)).ok()?;
        text.trim().parse().ok()
    }
}

/// Returns the limit in a file, 0 for none: `max` in version 2, a negative number or one that no
/// machine has in version 1.
fn parse_limit(text: &str) -> i64 {
    const NO_LIMIT: i64 = 1 << 60;
    let first = text.split_whitespace().next().unwrap_or_default();
    let limit = first.parse().unwrap_or(0);
    if (0..NO_LIMIT).contains(&limit) {
        limit
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cgroups(version: Version) -> Cgroups {
        Cgroups {
            root: Some("system/ic".into()),
            version,
            pids: None,
        }
    }

    fn burstable() -> std::sync::Arc<Pod> {
        let resources = serde_json::json!({"requests": {"cpu": "1"}});
        let containers = serde_json::json!([{"name": "c", "resources": resources}]);
        crate::testing::pod(serde_json::json!({"containers": containers}))
    }

    #[test]
    fn changed_settings_are_written_and_read_in_both_versions() {
        let pod = burstable();
        let path = "system/ic/kubepods/burstable/podu";
        for one in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let place = dir.path().join(path);
            let version = if one {
                Version::One(vec![("cpu,memory".to_owned(), dir.path().into())])
            } else {
                Version::Two(dir.path().into())
            };
            let groups = cgroups(version);
            let change = |setting| groups.change_pod(&pod, setting);
            assert!(change(PodSetting::Memory(7)).is_err(), "no cgroup, {one}");
            fs::create_dir_all(&place).unwrap();
            let unlimited = [
                ("memory.max", "max\n"),
                ("cpu.max", "max 100000\n"),
                ("memory.current", "5\n"),
                ("memory.limit_in_bytes", "9223372036854771712\n"),
                ("cpu.cfs_quota_us", "-1\n"),
                ("memory.usage_in_bytes", "5\n"),
            ];
            for (file, text) in unlimited {
                fs::write(place.join(file), text).unwrap();
            }
            let none = PodResources::default();
            assert_eq!(groups.read_pod_limits(&pod), Some(none), "{one}");
            assert_eq!(groups.read_pod_memory(&pod), Some(5), "{one}");
            change(PodSetting::Memory(1 << 20)).unwrap();
            change(PodSetting::Quota(50_000)).unwrap();
            change(PodSetting::Shares(512)).unwrap();
            let read = PodResources {
                shares: 0,
                quota: 50_000,
                memory: 1 << 20,
            };
            assert_eq!(groups.read_pod_limits(&pod), Some(read), "{one}");
            let shares = if one { "cpu.shares" } else { "cpu.weight" };
            let shares = fs::read_to_string(place.join(shares)).unwrap();
            assert_eq!(shares, if one { "512" } else { "20" });
        }
        let without = cgroups(Version::One(Vec::new()));
        assert!(without.change_pod(&pod, PodSetting::Memory(7)).is_err());
        let unmanaged = Cgroups {
            root: None,
            ..without
        };
        assert!(unmanaged.change_pod(&pod, PodSetting::Memory(7)).is_ok());
        assert_eq!(unmanaged.read_pod_limits(&pod), None);
    }
}
