//! Addresses to which requests may be forwarded. Names are resolved first, and the connection uses
//! exactly the address that was checked.
//!
//! Nodes, pods and endpoints set their own addresses. Each could direct the server, with its
//! certificate or its place in the network, to itself, to the store or to a cloud's metadata
//! service (CVE-2022-3294, CVE-2020-8562).

use api_meta::tree::{get, int, list, text, texts};
use api_semantics::addresses::is_special_address;
use apiserver_request::{GroupResource, Objects};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Ports of the control plane on this machine, and its addresses elsewhere.
#[derive(Clone, Debug, Default)]
pub struct ReachPolicy {
    own_ports: Vec<u16>,
    barred: Vec<SocketAddr>,
}

/// Permission for a backend to listen on this machine's loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loopback {
    /// Allowed for kubelets: logs and streams whose paths the server builds.
    Allowed,
    /// Not allowed for paths that clients choose.
    Refused,
}

impl ReachPolicy {
    /// Rejects this server's port and the stores at these URLs.
    pub fn new(own_port: u16, stores: &[String]) -> Self {
        let stores: Vec<(Option<IpAddr>, u16)> =
            stores.iter().filter_map(|url| store_address(url)).collect();
        // A store given by name has no address to bar, so that its port counts on this machine.
        let own_ports = std::iter::once(own_port)
            .chain(stores.iter().map(|(_, port)| *port))
            .collect();
        let barred = stores
            .iter()
            .filter_map(|(ip, port)| Some(SocketAddr::new((*ip)?, *port)))
            .collect();
        ReachPolicy { own_ports, barred }
    }

    /// Adds the other API servers, which are the endpoints of the Service `kubernetes`, to the
    /// rejected addresses.
    #[must_use]
    pub fn with_servers(&self, objects: &dyn Objects) -> Self {
        let endpoints = objects.cached_object(
            &GroupResource::new("", "endpoints"),
            "default",
            "kubernetes",
        );
        // The address of the Service leads to the same servers, where kube-proxy runs. A server
        // that forwards requests to itself does so without an end.
        let services = GroupResource::new("", "services");
        let service = objects.cached_object(&services, "default", "kubernetes");
        // At each request, because servers join and leave while this one runs.
        let mut all = self.clone();
        all.barred.extend(
            service
                .iter()
                .flat_map(|service| service_addresses(service)),
        );
        all.barred.extend(
            endpoints
                .iter()
                .flat_map(|endpoints| endpoint_addresses(endpoints)),
        );
        all
    }

    /// Returns whether an address is allowed.
    pub fn allows_address(&self, address: SocketAddr, loopback: Loopback) -> bool {
        // An IPv4 address in IPv6 form must not pass as another one.
        let ip = address.ip().to_canonical();
        let local = ip.is_loopback() || ip.is_unspecified() || is_own(ip);
        // Own ports are compared on every local address: the server may listen on all of them.
        let control_plane = local && self.own_ports.contains(&address.port())
            || self.barred.contains(&SocketAddr::new(ip, address.port()));
        !control_plane
            && (!is_special_address(ip) || loopback == Loopback::Allowed && ip.is_loopback())
    }
}

/// Returns host (if it is an address) and port of a store's URL.
fn store_address(url: &str) -> Option<(Option<IpAddr>, u16)> {
    let url: http::Uri = url.parse().ok()?;
    let host = url.host()?.trim_matches(['[', ']']);
    Some((
        host.parse().ok().map(|ip: IpAddr| ip.to_canonical()),
        url.port_u16().unwrap_or(2379),
    ))
}

fn endpoint_addresses(endpoints: &Value) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for subset in list(endpoints, "subsets") {
        let ports = list(subset, "ports");
        let ports = ports
            .iter()
            .filter_map(|p| u16::try_from(p.get("port")?.as_u64()?).ok());
        let ips: Vec<IpAddr> = list(subset, "addresses")
            .iter()
            .filter_map(|a| a.get("ip")?.as_str()?.parse().ok())
            .collect();
        all.extend(ports.flat_map(|port| {
            ips.iter()
                .map(move |ip| SocketAddr::new(ip.to_canonical(), port))
        }));
    }
    all
}

fn service_addresses(service: &Value) -> Vec<SocketAddr> {
    let spec = get(service, "spec");
    let port = |port: &Value| u16::try_from(int(port, "port")?).ok();
    let ports: Vec<u16> = list(spec, "ports").iter().filter_map(port).collect();
    let ips = texts(spec, "clusterIPs")
        .into_iter()
        .chain([text(spec, "clusterIP")]);
    let ips = ips.filter_map(|ip| ip.parse::<IpAddr>().ok());
    ips.flat_map(|ip| {
        ports
            .iter()
            .map(move |port| SocketAddr::new(ip.to_canonical(), *port))
    })
    .collect()
}

/// Returns whether the address is this machine's: the kernel then selects it as the source of a
/// route to itself. No packet is sent.
fn is_own(ip: IpAddr) -> bool {
    let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let source = || {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect((ip, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip().to_canonical())
    };
    source() == Some(ip)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn allows(address: &str, loopback: Loopback) -> bool {
        let stores = [
            "https://127.0.0.1:2379".to_owned(),
            "https://198.51.100.7:2379".to_owned(),
        ];
        ReachPolicy::new(6443, &stores).allows_address(address.parse().unwrap(), loopback)
    }

    #[test]
    fn path_of_a_client_stays_out_of_loopback_and_link_local() {
        for (address, expect) in [
            ("192.0.2.1:10250", true),
            ("10.0.0.1:2379", true),
            ("[2001:db8::1]:80", true),
            ("127.0.0.1:80", false),
            ("127.9.9.9:10250", false),
            ("[::1]:80", false),
            ("[::ffff:127.0.0.1]:80", false),
            ("[::ffff:169.254.169.254]:80", false),
            ("169.254.169.254:80", false),
            ("[fe80::1]:80", false),
            ("0.0.0.0:80", false),
            ("[::]:80", false),
            ("[::ffff:0.0.0.0]:80", false),
            ("224.0.0.1:80", false),
            ("255.255.255.255:80", false),
            ("198.51.100.7:2379", false),
            ("[::ffff:198.51.100.7]:2379", false),
        ] {
            assert_eq!(allows(address, Loopback::Refused), expect, "{address}");
        }
    }

    #[test]
    fn kubelet_on_loopback_is_not_the_control_plane() {
        for (address, expect) in [
            ("127.0.0.1:10250", true),
            ("[::ffff:127.0.0.1]:10250", true),
            ("127.0.0.1:6443", false),
            ("[::1]:6443", false),
            ("[::ffff:127.0.0.1]:2379", false),
            ("169.254.169.254:10250", false),
        ] {
            assert_eq!(allows(address, Loopback::Allowed), expect, "{address}");
        }
    }

    #[test]
    fn endpoints_of_the_api_service_are_read() {
        let endpoints = json!({"subsets": [{"addresses": [{"ip": "192.0.2.9"}, {"ip": "x"}], "ports": [{"port": 6443}]}]});
        assert_eq!(
            endpoint_addresses(&endpoints),
            ["192.0.2.9:6443".parse().unwrap()]
        );
        assert!(endpoint_addresses(&json!({"subsets": [{}, {"addresses": []}]})).is_empty());
    }

    #[test]
    fn address_of_the_api_service_leads_to_api_servers() {
        let service = json!({"spec": {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::1"],
            "ports": [{"port": 443}]}});
        let found = service_addresses(&service);
        for address in ["10.96.0.1:443", "[fd00::1]:443"] {
            assert!(found.contains(&address.parse().unwrap()), "{address}");
        }
        assert!(service_addresses(&json!({"spec": {"clusterIP": "None"}})).is_empty());
    }

    #[test]
    fn own_addresses_are_recognised() {
        assert!(is_own("127.0.0.1".parse().unwrap()));
        assert!(!is_own("192.0.2.1".parse().unwrap()));
    }
}
