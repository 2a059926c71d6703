//! Checks before anything is started. Each failed check is one sentence with its remedy.

mod ports;

use std::net::UdpSocket;
use std::path::Path;

use ipnet::IpNet;

use crate::addresses::node_prefix_length;
use crate::cni_plugin::{CniBackend, CniPlugin};
use crate::command::find_program;
use crate::configs::cni_plugins;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::other_clusters::find_other_cluster;
use crate::restore_state::reject_unfinished_restore;
use crate::settings::{Runtime, Settings};
use ports::check_ports;
#[cfg(test)]
pub(crate) use ports::wait_until_port_free;

/// Programs that a real node needs, with their Debian packages.
const PROGRAMS: [(&str, &str); 5] = [
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("ip", "iproute2"),
    ("ctr", "containerd"),
    ("busybox", "busybox-static"),
];
/// The programs of a cluster, first the two that a joined machine needs.
const BINARIES: [&str; 7] = [
    "kubelet",
    "kube-proxy",
    "kvstore",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cluster-dns",
];
/// The programs of a machine without a control plane.
const NODE_BINARIES: &[&str] = BINARIES.split_at(2).0;

/// Returns why containers can't run here: not root, or the kernel rejects a needed call. None if
/// they can.
#[must_use]
pub fn why_simulated() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root".to_owned());
    }
    // Root in a container often lacks CAP_SYS_ADMIN, which new namespaces require.
    crate::command::run_command("unshare", &["--mount", "--net", "--uts", "true"])
        .err()
        .map(|error| format!("the kernel refuses namespaces ({error})"))
}

/// Checks everything that the start depends on.
pub fn check_host(settings: &Settings, layout: &Layout) -> Result<()> {
    reject_unfinished_restore(layout)?;
    check_folder(&settings.data_dir)?;
    let needed = match settings.membership {
        Some(_) => NODE_BINARIES,
        None => &BINARIES,
    };
    check_binaries(&settings.bin_dir, needed)?;
    if settings.node_dns.is_some() {
        check_binaries(&settings.bin_dir, &["cluster-dns"])?;
    }
    if settings.has_api_proxy() {
        check_binaries(&settings.bin_dir, &["ironclad"])?;
    }
    if settings.has_network_agent() {
        check_binaries(&settings.bin_dir, &["ironclad-cni"])?;
    }
    if settings.runs_pods() {
        check_programs(settings)?;
        check_kernel()?;
        if settings.has_network_agent() && settings.cni_backend == CniBackend::Wireguard {
            check_wireguard()?;
        }
        check_only_cluster(settings)?;
    }
    check_ranges(settings)?;
    check_nodes(settings)?;
    check_ports(settings, layout)
}

fn reject<T>(text: impl Into<String>) -> Result<T> {
    Err(Error::Refused(text.into()))
}

/// Rejects a directory with foreign files: `down --purge` would remove them all.
fn check_folder(path: &Path) -> Result<()> {
    match find_foreign_file(path)? {
        Some(name) => reject(format!(
            "{} is no cluster's folder: {name:?} is in it; give an empty or a new one with --data-dir",
            path.display()
        )),
        None => Ok(()),
    }
}

/// Returns a foreign file in a directory that is neither a cluster's nor prepared for one, if any.
pub(crate) fn find_foreign_file(path: &Path) -> Result<Option<String>> {
    // Directories that may be filled before the first start, or that a file system has in its root.
    const PREPARED: [&str; 10] = [
        "restore-in-progress",
        "command.lock",
        "lost+found",
        "pki",
        "config",
        "manifests",
        "images",
        "logs",
        "cni",
        "run",
    ];
    let entries = match std::fs::read_dir(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(Error::io(path))?,
    };
    let names: Vec<String> = entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    // A data directory: whatever else is in it was put there by the cluster or on purpose.
    if names.iter().any(|name| name == "settings.json") {
        return Ok(None);
    }
    Ok(names
        .into_iter()
        .find(|name| !PREPARED.contains(&name.as_str())))
}

fn check_binaries(folder: &Path, needed: &[&str]) -> Result<()> {
    for name in needed {
        if !folder.join(name).is_file() {
            let folder = folder.display();
            return reject(format!(
                "{name} is not in {folder}; build it with `cargo build --release`, or name the folder with --bin-dir"
            ));
        }
    }
    Ok(())
}

fn check_programs(settings: &Settings) -> Result<()> {
    let mut missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| find_program(program).is_none())
        .map(|(_, package)| *package)
        .collect();
    if settings.runtime == Runtime::Own {
        missing.extend(
            ["containerd", "runc"]
                .into_iter()
                .filter(|program| find_program(program).is_none()),
        );
        if settings.cni == CniPlugin::Bridge && cni_plugins().is_none() {
            missing.push("containernetworking-plugins");
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    missing.sort_unstable();
    missing.dedup();
    reject(format!(
        "needed and not installed: {0}; install with `apt-get install {0}`",
        missing.join(" ")
    ))
}

fn check_kernel() -> Result<()> {
    let file_systems = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    // The module may be loadable and not loaded yet.
    if !file_systems.contains("overlay")
        && crate::command::run_command("modprobe", &["overlay"]).is_err()
    {
        return reject(
            "the kernel has no overlay file system; load the module `overlay`, or use --simulated",
        );
    }
    // The first path exists with cgroup v2, the second one with v1.
    if !Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
        && !Path::new("/sys/fs/cgroup/memory").exists()
    {
        return reject(
            "no cgroups are mounted under /sys/fs/cgroup; mount them, or use --simulated",
        );
    }
    crate::command::run_command("nft", &["list", "tables"]).map(drop).or_else(|error| {
        reject(format!("nftables does not work here ({error}); load the module `nf_tables`, or use --simulated"))
    })
}

/// Rejects a kernel that can't encrypt packets between nodes. A device in a namespace of its own
/// loads the module, too, and disappears with the command.
fn check_wireguard() -> Result<()> {
    let probe = ["--net", "ip", "link", "add", "probe", "type", "wireguard"];
    let probed = crate::command::run_command("unshare", &probe);
    probed
        .map(drop)
        .or_else(|error| reject(describe_no_wireguard(&error.to_string())))
}

/// Returns the message for a failed check of WireGuard.
fn describe_no_wireguard(error: &str) -> String {
    // EOPNOTSUPP, as iproute2 shows it without and with the kernel's own text.
    let is_unsupported = ["Operation not supported", "Unknown device type"]
        .iter()
        .any(|text| error.contains(text));
    match is_unsupported {
        true => format!(
            "--cni-backend wireguard needs WireGuard in the kernel ({error}); load it with `modprobe wireguard`, install \
             a kernel that has it (Linux 5.6 or later with CONFIG_WIREGUARD), or choose another backend on all machines"
        ),
        false => format!(
            "--cni-backend wireguard: the check that the kernel has WireGuard failed ({error}); it adds a device in a network \
             namespace of its own, which needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN)"
        ),
    }
}

/// Rejects a second real cluster in this network namespace: both would share the addresses of pods
/// and kube-proxy's tables.
fn check_only_cluster(own: &Settings) -> Result<()> {
    match find_other_cluster(own)? {
        None => Ok(()),
        Some(trace) => reject(format!(
            "another cluster's pod network ({trace}) is on this machine, and the two would get in each other's way; remove that \
             cluster with `ironclad down --purge --data-dir DIR` (if it is gone already: `{}`), use \
             --simulated, or start this one in a network namespace of its own",
            trace.removal()
        )),
    }
}

fn check_ranges(settings: &Settings) -> Result<()> {
    let (pods, services) = (settings.pod_cidr, settings.service_cidr);
    if pods.iter().any(|range| services.overlap(range)) {
        return reject(format!(
            "the ranges of pods ({pods}) and Services ({services}) overlap; choose others"
        ));
    }
    if pods.families() != services.families() {
        return reject(format!(
            "the ranges of pods ({pods}) and Services ({services}) have other families, or another order; the first one is \
             that of the primary family in both"
        ));
    }
    for range in services.iter() {
        let host_bits = range.max_prefix_len() - range.prefix_len();
        // The tenth address is that of the DNS Service.
        if host_bits < 4 {
            return reject(format!(
                "the range of Services {range} is too small; give one of /28 or larger, of IPv6 /124"
            ));
        }
        // The API server refuses more, as upstream's.
        if range.addr().is_ipv6() && host_bits > 20 {
            return reject(format!(
                "the range of Services {range} is too large; give one of /108 or smaller"
            ));
        }
    }
    for range in pods.iter() {
        check_pod_range(range)?;
    }
    check_node_addresses(settings)
}

fn check_pod_range(range: IpNet) -> Result<()> {
    // The addresses of the network, the bridge, one pod, and the broadcast: host-local refuses
    // less.
    if range.max_prefix_len() - range.prefix_len() < 2 {
        return reject(format!(
            "the range of pods {range} has no room for a pod; give a larger one with --pod-cidr, such as a /24"
        ));
    }
    // The controller manager keeps one bit for each node.
    if node_prefix_length(range) - range.prefix_len() > 16 {
        return reject(format!(
            "the range of pods {range} is too large: nodes have a /{}, and more than 2^16 would fit; give a smaller one",
            node_prefix_length(range)
        ));
    }
    Ok(())
}

fn check_node_addresses(settings: &Settings) -> Result<()> {
    let (pods, services) = (settings.pod_cidr, settings.service_cidr);
    let families = pods.families();
    let addresses = settings
        .node_addresses()
        .zip(families.iter().map(Some).chain([None]));
    for (address, is_v4) in addresses {
        if pods.contains(address) || services.contains(address) {
            return reject(format!(
                "the node's address {address} lies in {pods} or {services}; choose other ranges"
            ));
        }
        if settings.runs_pods() && is_v4 != Some(&address.is_ipv4()) {
            return reject(format!(
                "the node's address {address} is of another family than the ranges of pods ({pods}) in this place; \
                 --node-ip has one address of each family, in their order"
            ));
        }
    }
    Ok(())
}

/// Checks what several nodes need.
fn check_nodes(settings: &Settings) -> Result<()> {
    let count = u32::from(settings.node_count);
    if count == 1 {
        return Ok(());
    }
    if matches!(settings.runtime, Runtime::Endpoint(_)) {
        return reject(
            "--runtime-endpoint names the runtime of one node; leave it out, or leave out --nodes",
        );
    }
    if settings.has_foreign_network() {
        // The nodes would share the directories of the network's plugins and configurations.
        return reject(
            "with --cni none each node is a machine; leave out --nodes, and add machines with `ironclad join`",
        );
    }
    let is_small = |range: &IpNet| {
        let bits = node_prefix_length(*range) - range.prefix_len();
        1u32.checked_shl(u32::from(bits))
            .is_some_and(|ranges| ranges < count)
    };
    if let Some(range) = settings.pod_cidr.iter().find(is_small) {
        return reject(format!(
            "{range} is too small for {count} nodes with a /{} each; give a larger range with --pod-cidr",
            node_prefix_length(range)
        ));
    }
    let overlaps = settings.link_ranges().into_iter().any(|nodes| {
        [settings.pod_cidr, settings.service_cidr]
            .iter()
            .any(|ranges| ranges.overlap(nodes))
    });
    if overlaps {
        return reject(
            "the ranges of pods or Services overlap 198.18.0.0/15 or fdc6:1200::/31, which the link between the nodes uses; choose others",
        );
    }
    Ok(())
}

/// Returns a remark if this machine does not have the node's address. It may be that of the machine
/// of a backup, or that of a router which translates it.
pub fn remark_on_address(settings: &Settings) -> Option<String> {
    let address = settings.node_address;
    // Binding needs no permission, and no peer.
    let error = UdpSocket::bind((address, 0)).err()?;
    (error.kind() == std::io::ErrorKind::AddrNotAvailable).then(|| {
        format!(
            "{address}, the node's address, is none of this machine; --node-ip gives another one"
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn failed_check_of_wireguard_blames_the_kernel_only_if_it_has_none() {
        for (error, expected) in [
            (
                "`unshare --net ip` failed: Error: Unknown device type.",
                "needs WireGuard in the kernel",
            ),
            (
                "RTNETLINK answers: Operation not supported",
                "needs WireGuard in the kernel",
            ),
            (
                "unshare: unshare failed: Operation not permitted",
                "needs root",
            ),
            ("No such file or directory", "the check"),
        ] {
            let message = describe_no_wireguard(error);
            assert!(
                message.contains(expected) && message.contains(error),
                "{message}"
            );
        }
    }

    /// `down --purge` removes the whole directory.
    #[test]
    fn directory_with_foreign_files_is_no_data_directory() {
        for (files, foreign) in [
            (&[][..], None),
            (&["pki", "manifests", "lost+found"][..], None),
            (&["photos"][..], Some("photos")),
            (&["settings.json", "photos"][..], None),
        ] {
            let dir = tempfile::tempdir().unwrap();
            for name in files {
                std::fs::write(dir.path().join(name), "").unwrap();
            }
            let found = find_foreign_file(dir.path()).unwrap();
            assert_eq!(found.as_deref(), foreign, "{files:?}");
            assert_eq!(
                check_folder(dir.path()).is_err(),
                foreign.is_some(),
                "{files:?}"
            );
        }
        assert_eq!(
            find_foreign_file(Path::new("/no/such/folder")).unwrap(),
            None
        );
    }

    #[test]
    fn ranges_of_pods_services_and_node_must_be_apart() {
        for (pods, services, node, fits) in [
            ("10.244.0.0/16", "10.96.0.0/16", "192.0.2.2", true),
            ("10.0.0.0/8", "10.96.0.0/16", "192.0.2.2", false),
            ("10.96.0.0/24", "10.96.0.0/16", "192.0.2.2", false),
            ("10.244.0.0/16", "10.96.0.0/28", "192.0.2.2", true),
            ("10.244.0.0/16", "10.96.0.0/29", "192.0.2.2", false),
            ("10.244.0.0/30", "10.96.0.0/16", "192.0.2.2", true),
            ("10.244.0.0/31", "10.96.0.0/16", "192.0.2.2", false),
            ("10.244.0.0/32", "10.96.0.0/16", "192.0.2.2", false),
            ("10.244.0.0/16", "10.96.0.0/16", "10.244.1.1", false),
            ("10.244.0.0/16", "10.96.0.0/16", "10.96.1.1", false),
            ("10.244.0.0/16", "10.0.0.0/8", "192.0.2.2", false),
            ("10.244.0.0/16", "10.96.0.0/16", "2001:db8::2", false),
            ("fd00::/48", "fd01::/112", "2001:db8::2", true),
            ("fd00::/48", "fd01::/112", "192.0.2.2", false),
            ("fd00::/48", "10.96.0.0/16", "2001:db8::2", false),
            ("fd00::/40", "fd01::/112", "2001:db8::2", false),
            ("fd00::/48", "fd01::/64", "2001:db8::2", false),
            (
                "fd00::/48,10.244.0.0/16",
                "fd01::/112,10.96.0.0/16",
                "2001:db8::2",
                true,
            ),
            (
                "fd00::/48,10.244.0.0/16",
                "10.96.0.0/16,fd01::/112",
                "2001:db8::2",
                false,
            ),
            (
                "10.244.0.0/16,fd00::/48",
                "10.96.0.0/16,fd00::/112",
                "192.0.2.2",
                false,
            ),
        ] {
            let settings = Settings {
                pod_cidr: pods.parse().unwrap(),
                service_cidr: services.parse().unwrap(),
                node_address: node.parse().unwrap(),
                ..Settings::example()
            };
            assert_eq!(
                check_ranges(&settings).is_ok(),
                fits,
                "{pods} {services} {node}"
            );
        }
    }

    #[test]
    fn nodes_need_ranges_and_runtimes_of_their_own() {
        let small = |count| Settings {
            pod_cidr: "10.1.2.0/23".parse().unwrap(),
            ..Settings::with_nodes(count)
        };
        let endpoint = Settings {
            runtime: Runtime::Endpoint("unix:///c.sock".into()),
            ..Settings::with_nodes(2)
        };
        let overlap = Settings {
            service_cidr: "198.18.0.0/16".parse().unwrap(),
            ..Settings::with_nodes(2)
        };
        for (settings, fits) in [
            (Settings::example(), true),
            (Settings::with_nodes(32), true),
            (small(2), true),
            (small(3), false),
            (endpoint, false),
            (overlap, false),
        ] {
            assert_eq!(check_nodes(&settings).is_ok(), fits, "{settings:?}");
        }
    }

    #[test]
    fn missing_binary_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for name in BINARIES {
            let error = check_binaries(dir.path(), &BINARIES)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(&format!("{name} is not in ")), "{error}");
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        check_binaries(dir.path(), &BINARIES).unwrap();
    }

    #[test]
    fn machine_without_a_control_plane_needs_the_programs_of_a_node_only() {
        assert_eq!(NODE_BINARIES, ["kubelet", "kube-proxy"]);
        let dir = tempfile::tempdir().unwrap();
        for name in NODE_BINARIES {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        check_binaries(dir.path(), NODE_BINARIES).unwrap();
        assert!(check_binaries(dir.path(), &BINARIES).is_err());
    }
}
