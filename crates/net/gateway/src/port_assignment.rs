//! Assigns ports to Gateways, and refuses listeners with others.

use std::collections::HashSet;

use crate::condition::Verdict;
use crate::gateways::{GatewayState, ListenerState, mark_conflict};
use crate::listener_ports::{ChosenPorts, PortChoice};
use crate::table::Scheme;

/// Chooses the ports of Gateways, and refuses their listeners with others. `is_allowed` returns
/// whether listeners may have a port that is not one of the gateway's Service.
pub fn assign_ports(
    gateways: &mut [GatewayState],
    choose: impl Fn(&GatewayState) -> PortChoice,
    is_allowed: impl Fn(u16) -> bool,
) {
    for gateway in gateways {
        let choice = choose(gateway);
        if choice == PortChoice::Any {
            refuse_forbidden_ports(gateway, &is_allowed);
        }
        let accepted = gateway.listeners.iter();
        let accepted = accepted.filter(|listener| listener.accepted.holds);
        let accepted: Vec<(Scheme, u16)> = accepted
            .map(|listener| (listener.scheme, listener.spec.port))
            .collect();
        let chosen = ChosenPorts::choose(&accepted, gateway.shared_ports, choice);
        gateway.ports = chosen.ports;
        refuse_ports(gateway, |listener| {
            chosen.refuse(listener.scheme, listener.spec.port)
        });
        refuse_repeated_listeners(&mut gateway.listeners);
    }
}

fn refuse_forbidden_ports(gateway: &mut GatewayState, is_allowed: impl Fn(u16) -> bool) {
    let shared = gateway.shared_ports;
    refuse_ports(gateway, |listener| {
        let (protocol, port) = (listener.scheme.protocol(), shared.port_of(listener.scheme));
        let is_forbidden = listener.spec.port != port && !is_allowed(listener.spec.port);
        is_forbidden.then(|| {
            format!(
                "the port of protocol {protocol} is {port}, and the gateway's \
                 --gateway-listener-port does not name this one"
            )
        })
    });
}

/// Refuses the listeners of a Gateway whose ports the shared addresses lack. `why` is the reason
/// for which it has no address of its own.
pub fn refuse_other_ports(gateway: &mut GatewayState, why: &str) {
    let shared = gateway.shared_ports;
    gateway.ports = shared;
    refuse_ports(gateway, |listener| {
        let (protocol, port) = (listener.scheme.protocol(), shared.port_of(listener.scheme));
        (listener.spec.port != port).then(|| {
            format!("the port of protocol {protocol} is {port} at the shared addresses, and {why}")
        })
    });
}

fn refuse_ports(gateway: &mut GatewayState, refuse: impl Fn(&ListenerState) -> Option<String>) {
    let listeners = gateway.listeners.iter_mut();
    for listener in listeners.filter(|listener| listener.accepted.holds) {
        if let Some(message) = refuse(listener) {
            listener.accepted = Verdict::fails("Accepted", "PortUnavailable", message);
        }
    }
}

fn refuse_repeated_listeners(listeners: &mut [ListenerState]) {
    let mut seen = HashSet::new();
    for listener in listeners {
        if !listener.accepted.holds {
            continue;
        }
        if !seen.insert((listener.spec.port, listener.host.clone())) {
            let message = "another listener of this Gateway has the same port and hostname";
            mark_conflict(listener, message.to_owned());
        }
    }
}
