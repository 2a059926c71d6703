//! Chooses the ports of the components.

use std::net::{Ipv4Addr, TcpListener};

use crate::error::{Error, Result};
use crate::settings::Ports;
use crate::up::options::UpOptions;

pub(super) fn choose_ports(options: &UpOptions, before: Option<Ports>) -> Result<Ports> {
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

/// Returns a port that is free at the moment.
pub(crate) fn pick_port() -> Result<u16> {
    bind_free_port().map(|(_, port)| port)
}

/// Picks free ports; all are held until the last is found, so that they differ.
pub(crate) fn pick_ports() -> Result<Ports> {
    let held = std::iter::repeat_with(bind_free_port)
        // One for each field of `Ports`.
        .take(13)
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
        node_dns_health: take(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

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
}
