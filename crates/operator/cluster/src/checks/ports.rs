//! Ports that must be free before components start.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::node_dns::{DNS_PORT, NODE_DNS};
use crate::plan::{API_PROXY, Plan};
use crate::process::Record;
use crate::settings::Settings;
use crate::supervisor_record::running_supervisor;

/// A port that must be free, and the flag that chooses another one.
struct NeededPort {
    component: &'static str,
    port: u16,
    flag: Option<&'static str>,
}

/// Checks that the ports are free, unless this cluster is already running: a repeated `up` must not
/// complain about its own components. The proxy to the API servers is one that a running cluster
/// may not have yet.
pub(super) fn check_ports(settings: &Settings, layout: &Layout) -> Result<()> {
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
    check_dns_port(settings, layout)?;
    match needed
        .iter()
        .find(|needed| !wait_until_port_free(needed.port))
    {
        Some(used) => Err(Error::Refused(describe_used_port(used))),
        None => Ok(()),
    }
}

/// Checks that no program listens at the address of the node's DNS server, such as a pod in the
/// machine's network that listens on all addresses: it would receive the lookups of the node's
/// pods.
fn check_dns_port(settings: &Settings, layout: &Layout) -> Result<()> {
    let Some(address) = settings.node_dns.filter(|_| !is_running(layout, NODE_DNS)) else {
        return Ok(());
    };
    let address = SocketAddr::new(address, DNS_PORT);
    match wait_until_true(|| can_be_bound(address)) {
        true => Ok(()),
        false => Err(Error::Refused(format!(
            "{address} for the node's DNS server is in use by another program or a pod, perhaps with all addresses; stop it \
             (`ss -lntup 'sport = :{DNS_PORT}'` names it), or have it listen at one address"
        ))),
    }
}

/// Returns whether an address that the machine may not have yet is free for UDP and TCP. Other
/// errors show when the server starts.
fn can_be_bound(address: SocketAddr) -> bool {
    use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
    let attempt = |kind: SocketType| {
        let socket = match address {
            SocketAddr::V4(_) => {
                let socket = socket(AddressFamily::INET, kind, None)?;
                sockopt::set_ip_freebind(&socket, true)?;
                socket
            }
            SocketAddr::V6(_) => {
                let socket = socket(AddressFamily::INET6, kind, None)?;
                sockopt::set_ipv6_freebind(&socket, true)?;
                socket
            }
        };
        // With this option, closed connections do not block the port. It is not set for UDP, where
        // the port would be shared.
        sockopt::set_socket_reuseaddr(&socket, kind == SocketType::STREAM)?;
        bind(&socket, &address)
    };
    [SocketType::DGRAM, SocketType::STREAM]
        .into_iter()
        .all(|kind| attempt(kind) != Err(rustix::io::Errno::ADDRINUSE))
}

fn list_component_ports(settings: &Settings) -> Vec<NeededPort> {
    let ports = match settings.membership {
        Some(_) => settings.ports.of_node().to_vec(),
        None => settings.ports.all().to_vec(),
    };
    let node_dns = settings.node_dns.map(|_| {
        let name = "the health of the node's DNS server";
        (name, settings.ports.node_dns_health, "--pick-ports")
    });
    // Machines reach each other's control plane at the default ports.
    let is_fixed = settings.control_plane.is_some();
    let ports = ports.into_iter().chain(node_dns);
    let ports = ports.map(|(component, port, flag)| NeededPort {
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
pub(crate) fn wait_until_port_free(port: u16) -> bool {
    wait_until_true(|| is_port_free(port))
}

#[expect(
    clippy::disallowed_methods,
    reason = "before the start of the cluster, nothing else runs"
)]
fn wait_until_true(is_free: impl Fn() -> bool) -> bool {
    const PORT_TIMEOUT: Duration = Duration::from_millis(1500);
    const PAUSE: Duration = Duration::from_millis(20);
    let began = Instant::now();
    while !is_free() {
        if began.elapsed() > PORT_TIMEOUT {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
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
    use std::net::UdpSocket;

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

    /// The machine does not have the address of TEST-NET-1 (RFC 5737).
    #[test]
    fn address_to_come_is_not_free_while_a_program_has_its_port_on_all_addresses() {
        let port = |address: SocketAddr| SocketAddr::from(([192, 0, 2, 77], address.port()));
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let address = port(listener.local_addr().unwrap());
        assert!(!can_be_bound(address), "TCP");
        drop(listener);
        assert!(can_be_bound(address));
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let address = port(socket.local_addr().unwrap());
        assert!(!can_be_bound(address), "UDP");
        drop(socket);
        assert!(can_be_bound(address));
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
