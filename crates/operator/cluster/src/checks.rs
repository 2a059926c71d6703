//! Checks before anything is started. Each failed check is one sentence with its remedy.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::bridges::find_other_cluster;
use crate::cni_plugin::CniPlugin;
use crate::command::find_program;
use crate::configs::cni_plugins;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::plan::{API_PROXY, Plan};
use crate::process::Record;
use crate::restore_state::reject_unfinished_restore;
use crate::settings::{Runtime, Settings};
use crate::supervisor_record::running_supervisor;

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
    if settings.has_api_proxy() {
        check_binaries(&settings.bin_dir, &["ironclad"])?;
    }
    if settings.runtime == Runtime::Own && settings.cni == CniPlugin::Ironclad {
        check_binaries(&settings.bin_dir, &["ironclad-cni"])?;
    }
    if settings.runs_pods() {
        check_programs(settings)?;
        check_kernel()?;
        check_only_cluster(&settings.bridge())?;
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

/// Rejects a second real cluster in this network namespace: both would share the addresses of pods
/// and kube-proxy's tables.
fn check_only_cluster(own: &str) -> Result<()> {
    match find_other_cluster(own)? {
        None => Ok(()),
        Some(bridge) => reject(format!(
            "another cluster's pod network ({bridge}) is on this machine, and the two would get in each other's way; remove that \
             cluster with `ironclad down --purge --data-dir DIR` (if it is gone already: `ip link delete {bridge}`), use \
             --simulated, or start this one in a network namespace of its own"
        )),
    }
}

fn check_ranges(settings: &Settings) -> Result<()> {
    let (pods, services) = (settings.pod_cidr, settings.service_cidr);
    if pods.contains(&services) || services.contains(&pods) {
        return reject(format!(
            "the ranges of pods ({pods}) and Services ({services}) overlap; choose others"
        ));
    }
    // The tenth address is that of the DNS Service.
    if services.prefix_len() > 28 {
        return reject(format!(
            "the range of Services {services} is too small; give one of /28 or larger"
        ));
    }
    // The addresses of the network, the bridge, one pod, and the broadcast: host-local refuses
    // less.
    if pods.prefix_len() > 30 {
        return reject(format!(
            "the range of pods {pods} has no room for a pod; give a larger one with --pod-cidr, such as a /24"
        ));
    }
    if let IpAddr::V4(address) = settings.node_address
        && (pods.contains(&address) || services.contains(&address))
    {
        return reject(format!(
            "the node's address {address} lies in {pods} or {services}; choose other ranges"
        ));
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
    let bits = settings.node_prefix_length() - settings.pod_cidr.prefix_len();
    if 1u32
        .checked_shl(u32::from(bits))
        .is_some_and(|ranges| ranges < count)
    {
        return reject(format!(
            "{} is too small for {count} nodes with a /{} each; give a larger range with --pod-cidr",
            settings.pod_cidr,
            settings.node_prefix_length()
        ));
    }
    let overlaps = settings.node_network.is_some_and(|nodes| {
        [settings.pod_cidr, settings.service_cidr]
            .iter()
            .any(|range| range.contains(&nodes) || nodes.contains(range))
    });
    if overlaps {
        return reject(
            "the ranges of pods or Services overlap 198.18.0.0/15, which the link between the nodes uses; choose others",
        );
    }
    Ok(())
}

/// A port that must be free, and the flag that chooses another one.
struct NeededPort {
    component: &'static str,
    port: u16,
    flag: Option<&'static str>,
}

/// Checks that the ports are free, unless this cluster is already running: a repeated `up` must not
/// complain about its own components. The proxy to the API servers is one that a running cluster
/// may not have yet.
fn check_ports(settings: &Settings, layout: &Layout) -> Result<()> {
    let mut needed = Vec::new();
    if !runs_components(layout) {
        needed.extend(list_component_ports(settings));
    }
    if settings.has_api_proxy() && !has_proxy_port(layout) {
        needed.push(NeededPort {
            component: "the proxy to the API servers",
            port: settings.ports.api_proxy,
            flag: None,
        });
    }
    match needed
        .iter()
        .find(|needed| !wait_until_port_free(needed.port))
    {
        Some(used) => reject(describe_used_port(used)),
        None => Ok(()),
    }
}

fn list_component_ports(settings: &Settings) -> Vec<NeededPort> {
    let ports = match settings.membership {
        Some(_) => settings.ports.of_node().to_vec(),
        None => settings.ports.all().to_vec(),
    };
    // Machines reach each other's control plane at the default ports.
    let is_fixed = settings.control_plane.is_some();
    let ports = ports.into_iter().map(|(component, port, flag)| NeededPort {
        component,
        port,
        flag: (!is_fixed).then_some(flag),
    });
    ports.collect()
}

fn describe_used_port(used: &NeededPort) -> String {
    let NeededPort {
        component, port, ..
    } = used;
    let other = match used.flag {
        Some(flag) => format!(", or choose other ports with {flag}"),
        None => String::new(),
    };
    format!(
        "port {port} for {component} is in use by another program; stop it (`ss -ltnp 'sport = :{port}'` names it){other}"
    )
}

/// Returns whether the cluster runs. A live supervisor counts, because it may be starting a
/// component whose record can't be read yet.
fn runs_components(layout: &Layout) -> bool {
    let components = [
        "kvstore",
        "kube-apiserver",
        "kubelet",
        "kube-proxy",
        "kube-scheduler",
        "kube-controller-manager",
        "cluster-dns",
        API_PROXY,
    ];
    components.iter().any(|name| is_running(layout, name)) || running_supervisor(layout).is_some()
}

fn is_running(layout: &Layout, name: &str) -> bool {
    Record::load(&layout.record(name)).is_some_and(|record| record.is_alive())
}

/// Returns whether this cluster has the port of the proxy: the proxy runs, or its supervisor keeps
/// the socket.
fn has_proxy_port(layout: &Layout) -> bool {
    let is_planned = || {
        let plan = Plan::load(layout).unwrap_or_default();
        plan.processes
            .iter()
            .any(|process| process.name == API_PROXY)
    };
    is_running(layout, API_PROXY) || (running_supervisor(layout).is_some() && is_planned())
}

/// Waits for a port to become free: a process that was just killed counts as dead, but its last
/// thread still has to close it.
#[expect(
    clippy::disallowed_methods,
    reason = "before the start of the cluster, nothing else runs"
)]
pub(crate) fn wait_until_port_free(port: u16) -> bool {
    const PORT_TIMEOUT: Duration = Duration::from_millis(1500);
    const PAUSE: Duration = Duration::from_millis(20);
    let began = Instant::now();
    while !is_port_free(port) {
        if began.elapsed() > PORT_TIMEOUT {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
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

/// Returns whether a port is free.
#[must_use]
pub fn is_port_free(port: u16) -> bool {
    // Components listen on loopback or on all addresses; the port must be free for both.
    [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED]
        .iter()
        .all(|address| TcpListener::bind(SocketAddr::from((*address, port))).is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::bridges::other_bridge;

    #[test]
    fn another_cluster_is_known_by_its_bridge() {
        let listing =
            "docker0 DOWN 02:42:8a:5d:1c:0e <NO-CARRIER>\nironclad0 UP 5e:00:00:00:00:01 <UP>\n";
        assert_eq!(other_bridge(listing, "ironclad0"), None);
        assert_eq!(other_bridge(listing, "ic-c7eb7fcd"), Some("ironclad0"));
        assert_eq!(
            other_bridge("ic-c7eb7fcd UP\nicicle UP\n", "ic-00000000"),
            Some("ic-c7eb7fcd")
        );
        assert_eq!(other_bridge("", "ironclad0"), None);
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

    fn write_own_record(layout: &Layout, name: &str) {
        use crate::process::{read_boot_id, read_start_time};
        let pid = i32::try_from(std::process::id()).unwrap();
        let record = Record {
            pid,
            start: read_start_time(pid).unwrap(),
            boot: read_boot_id(),
            stamp: String::new(),
            restarts: 0,
        };
        let text = serde_json::to_string(&record).unwrap();
        crate::files::write_file(&layout.record(name), text.as_bytes()).unwrap();
    }

    /// A pod in the network of the machine may have the port before `ironclad init` makes all
    /// components use it.
    #[test]
    fn port_of_the_proxy_is_checked_unless_it_is_that_of_the_running_proxy() {
        let thief = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut settings = Settings::example_shared();
        settings.ports.api_proxy = thief.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), false);
        write_own_record(&layout, "kubelet");
        write_own_record(&layout, crate::supervisor_record::NAME);
        let save_plan = |settings: &Settings| {
            let plan = crate::plan::make_plan(settings, &layout);
            let text = serde_json::to_string(&plan).unwrap();
            crate::files::write_file(&layout.plan(), text.as_bytes()).unwrap();
        };
        save_plan(&Settings::example());
        let error = check_ports(&settings, &layout).unwrap_err().to_string();
        assert!(error.contains("the proxy to the API servers"), "{error}");
        assert!(!error.contains("--pick-ports"), "{error}");
        check_ports(&Settings::example(), &layout).unwrap();
        settings.control_plane.as_mut().unwrap().joined = None;
        save_plan(&settings);
        check_ports(&settings, &layout).unwrap();
        save_plan(&Settings::example());
        write_own_record(&layout, API_PROXY);
        check_ports(&settings, &layout).unwrap();
    }

    #[test]
    fn port_that_is_listened_on_is_not_free() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(!is_port_free(port));
        drop(listener);
        assert!(wait_until_port_free(port));
    }
}
