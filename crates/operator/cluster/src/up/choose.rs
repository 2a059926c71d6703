//! Chooses the settings from options, stored settings and the machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

use api_meta::names;
use ipnet::Ipv4Net;

use crate::checks::why_simulated;
use crate::cni_plugin::CniPlugin;
use crate::control_plane::{ControlPlane, StoreMember};
use crate::error::{Error, Result};
use crate::network::choose_node_network;
use crate::settings::{LAYOUT, Ports, Runtime, SHARED_LAYOUT, Settings};
use crate::up::options::UpOptions;
use crate::up::pool::{check_pool, choose_pool};

/// Returns the settings, and a remark for the user if something may be unexpected.
pub fn choose_settings(options: &UpOptions) -> Result<(Settings, Option<String>)> {
    let data_dir = absolute_path(&options.data_dir)?;
    // Stored values win over defaults, because objects in the store depend on them.
    let before = Settings::load(&data_dir)?;
    let before = before.as_ref();
    refuse_joined(before, &data_dir)?;
    let (runtime, remark) = choose_runtime(options, before);
    let control_plane = choose_control_plane(options, before, &runtime)?;
    let settings = Settings {
        layout: match control_plane {
            Some(_) => SHARED_LAYOUT,
            None => LAYOUT,
        },
        control_plane,
        bin_dir: choose_bin_dir(options.bin_dir.as_deref(), before, "kube-apiserver")?,
        node_name: keep_or_choose(
            options.node_name.clone(),
            before.map(|b| &b.node_name),
            host_name,
        ),
        node_address: keep_or_choose(
            options.node_address,
            before.map(|b| &b.node_address),
            choose_address,
        ),
        runtime,
        cni: CniPlugin::choose(options.cni, before.as_ref().map(|b| b.cni))?,
        pod_cidr: check_fixed(
            "--pod-cidr",
            options.pod_cidr,
            before.map(|b| b.pod_cidr),
            [10, 244, 0, 0],
            16,
        )?,
        service_cidr: check_fixed(
            "--service-cidr",
            options.service_cidr,
            before.map(|b| b.service_cidr),
            [10, 96, 0, 0],
            16,
        )?,
        load_balancer_pool: choose_pool(options, before),
        // Not an option: certificates, DNS and the issuer of tokens would have to change together.
        domain: "cluster.local".to_owned(),
        ports: choose_ports(options, before.map(|b| b.ports))?,
        verbosity: keep_or_choose(options.verbosity, before.map(|b| &b.verbosity), || 0),
        node_count: choose_node_count(options.nodes, before.map(|b| b.node_count))?,
        node_network: before.and_then(|b| b.node_network),
        membership: None,
        data_dir,
    };
    let settings = add_node_network(settings)?;
    check_name(&settings.node_name)?;
    check_pool(&settings)?;
    check_shared(&settings, before)?;
    Ok((settings, remark))
}

/// Rejects a machine that joined another cluster.
fn refuse_joined(before: Option<&Settings>, data_dir: &Path) -> Result<()> {
    let Some(membership) = before.and_then(|before| before.membership.as_ref()) else {
        return Ok(());
    };
    Err(Error::Refused(format!(
        "this machine joined the cluster at {}; `ironclad join` repairs its components, and `ironclad reset` removes \
         them before `ironclad up` starts another cluster in {}",
        membership.server,
        data_dir.display()
    )))
}

/// Rejects a machine that its cluster does not list any more.
pub(crate) fn reject_removed(settings: &Settings) -> Result<()> {
    let member = settings.control_plane.as_ref().map(|shared| &shared.member);
    match member {
        Some(StoreMember::Removed { .. }) => Err(Error::Refused(
            "`ironclad reset` was interrupted here after it had removed this machine from the control plane; run it again"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}

/// Returns the shared control plane: that of the options, and what is stored for those that are
/// absent.
fn choose_control_plane(
    options: &UpOptions,
    before: Option<&Settings>,
    runtime: &Runtime,
) -> Result<Option<ControlPlane>> {
    before.map_or(Ok(()), reject_removed)?;
    let known = before.and_then(|before| before.control_plane.clone());
    if before.is_some_and(Settings::awaits_promotion) {
        return Err(Error::Refused(
            "this machine has not joined the control plane yet; run `ironclad join` again, or `ironclad reset`".to_owned(),
        ));
    }
    let Some(shared) = &options.shared else {
        return Ok(known);
    };
    let mut all = known.unwrap_or_else(|| ControlPlane {
        // A runtime of another owner has a network plugin of its own.
        enforces_policies: *runtime == Runtime::Own,
        ..ControlPlane::default()
    });
    if shared.endpoint.is_some() {
        all.endpoint.clone_from(&shared.endpoint);
    }
    if !shared.extra_sans.is_empty() {
        all.extra_sans.clone_from(&shared.extra_sans);
    }
    Ok(Some(all))
}

/// Rejects a shared control plane that other machines can't reach.
fn check_shared(settings: &Settings, before: Option<&Settings>) -> Result<()> {
    if settings.control_plane.is_none() {
        return Ok(());
    }
    let fixed = Ports {
        // These two may differ: the status of the Node and the EndpointSlice publish them.
        kubelet: settings.ports.kubelet,
        dns: settings.ports.dns,
        ..Ports::default()
    };
    if settings.ports != fixed {
        return Err(Error::Refused(
            "the machines of a shared control plane have the default ports, and this cluster has others; \
             start a cluster without --pick-ports, and move the objects with `ironclad backup` and `restore`"
                .to_owned(),
        ));
    }
    if settings.node_count > 1 {
        return Err(Error::Refused(
            "a cluster with --nodes has its nodes on one machine, and can't share its control plane".to_owned(),
        ));
    }
    if settings.node_address.is_loopback() || settings.node_address.is_unspecified() {
        return Err(Error::Refused(format!(
            "other machines do not reach {}; give this machine's address with --node-ip",
            settings.node_address
        )));
    }
    let renamed = before.is_some_and(|before| before.node_name != settings.node_name);
    if renamed {
        return Err(Error::Refused(
            "the store knows this machine by its name, which can't change; leave --node-name out"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Rejects a name that can't be that of a Node object.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if valid_name(name) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{name:?} can't be a node's name (lower-case letters, digits, - and .); give one with --node-name"
    )))
}

pub(crate) fn absolute_path(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(Error::io(path))
}

fn keep_or_choose<T: Clone>(
    given: Option<T>,
    before: Option<&T>,
    otherwise: impl FnOnce() -> T,
) -> T {
    given.or_else(|| before.cloned()).unwrap_or_else(otherwise)
}

/// Chooses a range that objects in the store depend on: it can't change once they exist.
fn check_fixed(
    flag: &str,
    given: Option<Ipv4Net>,
    before: Option<Ipv4Net>,
    usual: [u8; 4],
    length: u8,
) -> Result<Ipv4Net> {
    match (given, before) {
        (Some(given), Some(before)) if given.trunc() != before => Err(Error::Refused(format!(
            "{flag} is {before} in this cluster and can't change; leave the flag out, or start over with `down --purge`"
        ))),
        // 10.244.3.0/16 is the same range as 10.244.0.0/16.
        (Some(given), _) => Ok(given.trunc()),
        (None, Some(before)) => Ok(before),
        (None, None) => Ipv4Net::new(Ipv4Addr::from(usual), length)
            .map_err(|error| Error::Refused(error.to_string())),
    }
}

fn choose_node_count(given: Option<u8>, before: Option<u8>) -> Result<u8> {
    match (given, before) {
        // The pods, volumes and containers of a removed node would stay behind.
        (Some(given), Some(before)) if given < before => Err(Error::Refused(format!(
            "this cluster has {before} nodes, and nodes can't be removed yet; leave --nodes out, or start over with `down --purge`"
        ))),
        (given, before) => Ok(given.or(before).unwrap_or(1)),
    }
}

/// Adds the range of the link between the nodes. It stays: certificates and objects name addresses
/// of it.
fn add_node_network(mut settings: Settings) -> Result<Settings> {
    if settings.node_count > 1 && settings.node_network.is_none() {
        let others = [settings.pod_cidr, settings.service_cidr];
        settings.node_network = Some(choose_node_network(&settings.data_dir, &others)?);
    }
    Ok(settings)
}

fn choose_runtime(options: &UpOptions, before: Option<&Settings>) -> (Runtime, Option<String>) {
    let why = why_simulated();
    // A simulated cluster does not become a real one by a later `up` without options: its objects
    // would start to run.
    if options.simulated
        || (before.is_some_and(|b| !b.runs_pods()) && options.runtime_endpoint.is_none())
    {
        return (Runtime::Simulated, Some(simulated_reason(None)));
    }
    if let Some(why) = why {
        return (Runtime::Simulated, Some(simulated_reason(Some(&why))));
    }
    let kept = before.map(|b| b.runtime.clone());
    let runtime = options
        .runtime_endpoint
        .clone()
        .map(Runtime::Endpoint)
        .or(kept)
        .unwrap_or(Runtime::Own);
    (runtime, None)
}

fn simulated_reason(why: Option<&str>) -> String {
    let reason = why
        .map(|why| format!(" because of this: {why}"))
        .unwrap_or_default();
    format!(
        "simulated{reason}. The control plane is real; the kubelet pretends to run containers: pods become Running and \
         Ready, but there are no processes, addresses, logs, exec or Services to connect to."
    )
}

/// Chooses the directory of the components: that of this program if `component` is there.
pub(crate) fn choose_bin_dir(
    given: Option<&Path>,
    before: Option<&Settings>,
    component: &str,
) -> Result<PathBuf> {
    if let Some(given) = given {
        return absolute_path(given);
    }
    // The components of the same build are beside this program; those of the stored directory may
    // be of an older one.
    let own = std::env::current_exe().map_err(Error::io("/proc/self/exe"))?;
    let beside = own.parent().map(Path::to_owned).unwrap_or_default();
    if beside.join(component).is_file() {
        return Ok(beside);
    }
    Ok(before.map_or(beside, |before| before.bin_dir.clone()))
}

/// Returns the name of this machine, or `node` if that can't be a node's name.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        // Upstream's kubelet converts the name of its host, too: names of Nodes have no capitals.
        .to_lowercase();
    if valid_name(&name) {
        name
    } else {
        "node".to_owned()
    }
}

fn valid_name(name: &str) -> bool {
    // The API server requires it of the name of a Node.
    names::dns1123_subdomain(name).is_empty()
}

/// Returns the address from which this machine sends packets to `target`, without sending one.
pub(crate) fn local_address_for(target: SocketAddr) -> Option<IpAddr> {
    // Connecting a UDP socket only looks up the route.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(target).ok()?;
    let local = socket.local_addr().ok()?.ip();
    (!local.is_unspecified()).then_some(local)
}

/// Returns the address of the default route, or of any interface, or loopback.
pub(crate) fn choose_address() -> IpAddr {
    // An address for documentation (RFC 5737).
    let routed = local_address_for(SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9)));
    routed
        .filter(|ip| !ip.is_loopback())
        // A machine without a way to the Internet may have no default route.
        .or_else(any_address)
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

fn any_address() -> Option<IpAddr> {
    let addresses = nix::ifaddrs::getifaddrs().ok()?;
    addresses
        // The bridges of an earlier cluster may still be there.
        .filter(|entry| !is_own_device(&entry.interface_name))
        .filter_map(|entry| entry.address?.as_sockaddr_in().map(|socket| socket.ip()))
        .find(|ip| !ip.is_loopback() && !ip.is_link_local())
        .map(IpAddr::V4)
}

/// Returns whether a device belongs to a cluster, this one or another.
fn is_own_device(name: &str) -> bool {
    Settings::is_bridge(name) || name.starts_with("ironclad-n") || name.starts_with("icn")
}

fn choose_ports(options: &UpOptions, before: Option<Ports>) -> Result<Ports> {
    let mut ports = match before {
        Some(before) => before,
        // Only for a new cluster: kubeconfigs that users copied name the port.
        None if options.pick_ports => pick_ports()?,
        None => Ports::default(),
    };
    for (port, given) in [
        (&mut ports.api, options.api_port),
        (&mut ports.store, options.store_port),
        (&mut ports.store_peer, options.store_peer_port),
        (&mut ports.kubelet, options.kubelet_port),
        (&mut ports.dns, options.dns_port),
    ] {
        match given {
            // 0 asks the kernel, as with every listener.
            Some(0) => *port = pick_port()?,
            Some(given) => *port = given,
            None => {}
        }
    }
    Ok(ports)
}

fn bind_free_port() -> Result<(TcpListener, u16)> {
    let failed = || Error::Refused("no free port can be found".to_owned());
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(|_| failed())?;
    let port = listener.local_addr().map_err(|_| failed())?.port();
    Ok((listener, port))
}

pub(crate) fn pick_port() -> Result<u16> {
    bind_free_port().map(|(_, port)| port)
}

/// Picks free ports; all are held until the last is found, so that they differ.
pub(crate) fn pick_ports() -> Result<Ports> {
    let held = std::iter::repeat_with(bind_free_port)
        // One for each field of `Ports`.
        .take(12)
        .collect::<Result<Vec<_>>>()?;
    let mut next = held.iter().map(|(_, port)| *port);
    let mut take = || next.next().unwrap_or_default();
    Ok(Ports {
        api: take(),
        store: take(),
        store_peer: take(),
        kubelet: take(),
        kubelet_health: take(),
        controller_manager: take(),
        scheduler: take(),
        proxy_metrics: take(),
        proxy_health: take(),
        dns: take(),
        dns_health: take(),
        api_proxy: take(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::control_plane::SharedOptions;

    #[test]
    fn node_names_are_dns_subdomains() {
        for (name, good) in [
            ("vm", true),
            ("a.b-1", true),
            ("-a", false),
            ("A", false),
            ("a_b", false),
            ("a..b", false),
            ("a.-b", false),
            ("a-.b", false),
            (".a", false),
            ("", false),
        ] {
            assert_eq!(valid_name(name), good, "{name}");
        }
    }

    #[test]
    fn address_range_cannot_change() {
        let (one, other): (Ipv4Net, Ipv4Net) = (
            "10.1.0.0/16".parse().unwrap(),
            "10.2.0.0/16".parse().unwrap(),
        );
        assert_eq!(
            check_fixed("--x", None, Some(one), [10, 0, 0, 0], 8).unwrap(),
            one
        );
        assert_eq!(
            check_fixed("--x", Some(one), Some(one), [10, 0, 0, 0], 8).unwrap(),
            one
        );
        assert!(check_fixed("--x", Some(other), Some(one), [10, 0, 0, 0], 8).is_err());
    }

    #[test]
    fn picked_ports_are_distinct() {
        let mut all: Vec<u16> = pick_ports()
            .unwrap()
            .all()
            .iter()
            .map(|(_, port, _)| *port)
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 11);
    }

    #[test]
    fn ports_are_those_given_then_the_stored_then_the_default_ones() {
        let stored = Ports {
            api: 7000,
            store: 7001,
            ..Ports::default()
        };
        let options = UpOptions {
            api_port: Some(8000),
            ..UpOptions::default()
        };
        let ports = choose_ports(&options, Some(stored)).unwrap();
        assert_eq!((ports.api, ports.store, ports.dns), (8000, 7001, 10053));
        let picked = UpOptions {
            api_port: Some(0),
            ..UpOptions::default()
        };
        let ports = choose_ports(&picked, Some(stored)).unwrap();
        assert!(ports.api != 0 && ports.api != 7000);
    }

    #[test]
    fn number_of_nodes_may_grow_only() {
        for (given, before, chosen) in [
            (None, None, Some(1)),
            (Some(2), None, Some(2)),
            (None, Some(3), Some(3)),
            (Some(3), Some(2), Some(3)),
            (Some(1), Some(2), None),
        ] {
            let found = choose_node_count(given, before).ok();
            assert_eq!(found, chosen, "{given:?} {before:?}");
        }
    }

    #[test]
    fn control_plane_is_shared_from_init_on() {
        let choose = |shared, before: Option<&Settings>| {
            let options = UpOptions {
                shared,
                ..UpOptions::default()
            };
            choose_control_plane(&options, before, &Runtime::Own)
        };
        let plain = Settings::example();
        assert_eq!(choose(None, None).unwrap(), None);
        assert_eq!(choose(None, Some(&plain)).unwrap(), None);
        let new = choose(Some(SharedOptions::default()), Some(&plain));
        assert!(new.unwrap().unwrap().enforces_policies);
        let given = SharedOptions {
            endpoint: Some("api.example.com:6443".into()),
            extra_sans: vec!["192.0.2.77".into()],
        };
        let chosen = choose(Some(given), Some(&plain)).unwrap();
        let shared = Settings {
            control_plane: chosen.clone(),
            ..plain
        };
        // A later `up`, and a later `init` without options.
        for options in [None, Some(SharedOptions::default())] {
            assert_eq!(choose(options, Some(&shared)).unwrap(), chosen);
        }
        let mut removed = Settings::example_shared();
        let shared = removed.control_plane.as_mut().unwrap();
        shared.member = StoreMember::Removed {
            servers: Vec::new(),
        };
        let error = choose(None, Some(&removed)).unwrap_err().to_string();
        assert!(
            error.contains("`ironclad reset` was interrupted"),
            "{error}"
        );
        let joining = Settings::example_shared();
        let error = choose(None, Some(&joining)).unwrap_err().to_string();
        assert!(error.contains("ironclad join"), "{error}");
    }

    #[test]
    fn shared_control_plane_is_one_that_other_machines_reach() {
        let base = Settings::example_shared();
        let with_nodes = Settings::with_nodes(2);
        for (settings, expected) in [
            (base.clone(), ""),
            (Settings::with_nodes(2), ""),
            (
                Settings {
                    node_count: 2,
                    node_network: with_nodes.node_network,
                    ..base.clone()
                },
                "--nodes",
            ),
            (
                Settings {
                    ports: Ports {
                        store_peer: 7000,
                        ..Ports::default()
                    },
                    ..base.clone()
                },
                "--pick-ports",
            ),
            (
                Settings {
                    node_address: Ipv4Addr::LOCALHOST.into(),
                    ..base.clone()
                },
                "--node-ip",
            ),
            (
                Settings {
                    node_name: "other".into(),
                    ..base.clone()
                },
                "--node-name",
            ),
        ] {
            match check_shared(&settings, Some(&base)) {
                Ok(()) => assert_eq!(expected, "", "{settings:?}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!expected.is_empty() && error.contains(expected), "{error}");
                }
            }
        }
    }

    /// Objects of the simulated node would be wrong for real pods, and the reverse.
    #[test]
    fn simulated_cluster_stays_simulated() {
        let stored = Settings {
            runtime: Runtime::Simulated,
            ..Settings::example()
        };
        let (runtime, remark) = choose_runtime(&UpOptions::default(), Some(&stored));
        assert_eq!(runtime, Runtime::Simulated);
        assert!(remark.unwrap().starts_with("simulated. "));
    }
}
