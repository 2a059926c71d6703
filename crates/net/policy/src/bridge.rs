//! Packets between pods of one bridge: the kernel shows them to nftables' `forward` hook only if
//! br_netfilter is loaded and enabled.
//!
//! Rejected: nftables' bridge family. It sees packets before kube-proxy translates Services, and
//! its connection tracking is a second one beside that of the node's network.

use std::fs;
use std::path::{Path, PathBuf};

/// Settings of br_netfilter: for each family, and for packets with a VLAN tag. Receivers accept a
/// packet whose tag has the VLAN identifier 0 (a priority tag of IEEE 802.1Q) like one without a
/// tag. The settings belong to the network namespace.
const SETTINGS: [&str; 3] = [
    "bridge-nf-call-iptables",
    "bridge-nf-call-ip6tables",
    "bridge-nf-filter-vlan-tagged",
];

/// The reason why packets between pods of one bridge bypass the rules.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// br_netfilter is not loaded.
    #[error(
        "packets between pods of the bridge {0} bypass NetworkPolicies; load the kernel module br_netfilter"
    )]
    NotLoaded(String),
    /// A setting is off and can't be written.
    #[error(
        "packets between pods of a bridge bypass NetworkPolicies; write 1 to {path}: {source}",
        path = path.display()
    )]
    Disabled {
        /// File of the setting.
        path: PathBuf,
        /// The error of the kernel.
        source: std::io::Error,
    },
}

/// Enables the filtering of packets between ports of bridges, where it is not.
pub(crate) fn enable_bridge_filtering() -> Result<(), BridgeError> {
    enable_settings(
        Path::new("/proc/sys/net/bridge"),
        Path::new("/sys/class/net"),
    )
}

fn enable_settings(settings: &Path, devices: &Path) -> Result<(), BridgeError> {
    if !settings.is_dir() {
        // Without a bridge, packets between pods are routed, and always pass the hook.
        return match find_bridge(devices) {
            Some(name) => Err(BridgeError::NotLoaded(name)),
            None => Ok(()),
        };
    }
    for name in SETTINGS {
        let path = settings.join(name);
        if fs::read_to_string(&path).is_ok_and(|present| present.trim() == "1") {
            continue;
        }
        fs::write(&path, "1").map_err(|source| BridgeError::Disabled { path, source })?;
    }
    Ok(())
}

fn find_bridge(devices: &Path) -> Option<String> {
    let entries = fs::read_dir(devices).ok()?;
    entries
        .filter_map(Result::ok)
        .find(|entry| entry.path().join("bridge").is_dir())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn settings_that_are_off_are_enabled() {
        let dir = tempfile::tempdir().unwrap();
        for (before, name) in ["0\n", "1\n", "0\n"].iter().zip(SETTINGS) {
            fs::write(dir.path().join(name), before).unwrap();
        }
        enable_settings(dir.path(), Path::new("/no/such/folder")).unwrap();
        for name in SETTINGS {
            let now = fs::read_to_string(dir.path().join(name)).unwrap();
            assert_eq!(now.trim(), "1", "{name}");
        }
    }

    #[test]
    fn bridge_without_the_module_is_an_error_and_no_bridge_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("settings");
        fs::create_dir_all(dir.path().join("eth0")).unwrap();
        enable_settings(&missing, dir.path()).unwrap();
        fs::create_dir_all(dir.path().join("cni0/bridge")).unwrap();
        let error = enable_settings(&missing, dir.path())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("cni0") && error.contains("br_netfilter"),
            "{error}"
        );
    }
}
