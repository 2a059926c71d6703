//! Ports of the listeners of a Gateway.
//!
//! The shared addresses have one port for each protocol. So has each address of a Gateway's own,
//! because the process has two ports for it; which ones clients use is the Gateway's choice.

use std::str::FromStr;

use crate::table::Scheme;

/// Ports at which clients reach the gateway's Service, or that of a Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Port without TLS.
    pub http: u16,
    /// Port with TLS.
    pub https: u16,
}

impl Ports {
    /// Returns the port of a protocol.
    pub fn port_of(self, scheme: Scheme) -> u16 {
        match scheme {
            Scheme::Http => self.http,
            Scheme::Https => self.https,
        }
    }
}

/// Ports that listeners may have besides those of the gateway's Service. Nodes or load balancers
/// may have other uses for a port, so that an operator names these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerPortRange {
    first: u16,
    last: u16,
}

/// Error of ports that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("expected PORT or FIRST-LAST, from 1 to 65535")]
pub struct ListenerPortError;

impl FromStr for ListenerPortRange {
    type Err = ListenerPortError;

    fn from_str(text: &str) -> Result<Self, ListenerPortError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let parse = |port: &str| port.parse::<u16>().map_err(|_| ListenerPortError);
        let (first, last) = (parse(first)?, parse(last)?);
        match first >= 1 && first <= last {
            true => Ok(Self { first, last }),
            false => Err(ListenerPortError),
        }
    }
}

impl ListenerPortRange {
    /// Returns whether a port is one of them.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }
}

/// The ports that a Gateway may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// Those of the gateway's Service only: no Gateway can have an address of its own.
    Shared,
    /// Any that the operator allows, at an address of its own.
    Any,
}

/// The ports of a Gateway.
#[derive(Clone, Copy, Debug)]
pub struct ChosenPorts {
    /// One for each protocol.
    pub ports: Ports,
    choice: PortChoice,
    /// The port of HTTP if HTTPS has the same one.
    contested: Option<u16>,
}

impl ChosenPorts {
    /// Chooses the ports for listeners of these protocols and ports. A listener with the port of
    /// the gateway's Service decides the port of its protocol, otherwise the first one.
    pub fn choose(listeners: &[(Scheme, u16)], shared: Ports, choice: PortChoice) -> Self {
        let listeners = list_candidates(listeners, shared);
        let http = choose_port(&listeners, Scheme::Http, shared.http, choice);
        let https = choose_port(&listeners, Scheme::Https, shared.https, choice);
        let contested = http.filter(|_| http == https);
        let https = https.filter(|_| contested.is_none());
        Self {
            ports: Ports {
                http: http.unwrap_or(shared.http),
                https: https.unwrap_or(shared.https),
            },
            choice,
            contested,
        }
    }

    /// Returns the reason for which a listener is refused.
    pub fn refuse(&self, scheme: Scheme, port: u16) -> Option<String> {
        let (protocol, own) = (scheme.protocol(), self.ports.port_of(scheme));
        if scheme == Scheme::Https && self.contested == Some(port) {
            return Some("the port has a listener of protocol HTTP".to_owned());
        }
        (port != own).then(|| match self.choice {
            PortChoice::Shared => format!("the port of protocol {protocol} is {own}"),
            PortChoice::Any => format!("a Gateway has one port of protocol {protocol}, here {own}"),
        })
    }
}

/// Returns the listeners that may decide about ports: not those with the port that another protocol
/// has at the gateway's Service and in a listener, which may be served there.
fn list_candidates(listeners: &[(Scheme, u16)], shared: Ports) -> Vec<(Scheme, u16)> {
    let is_of_other = |(scheme, port): &(Scheme, u16)| {
        let other = match scheme {
            Scheme::Http => Scheme::Https,
            Scheme::Https => Scheme::Http,
        };
        *port != shared.port_of(*scheme)
            && *port == shared.port_of(other)
            && listeners.contains(&(other, *port))
    };
    let candidates = listeners.iter().filter(|listener| !is_of_other(listener));
    candidates.copied().collect()
}

/// Returns the port of a protocol; `None` without a listener.
fn choose_port(
    listeners: &[(Scheme, u16)],
    scheme: Scheme,
    shared: u16,
    choice: PortChoice,
) -> Option<u16> {
    let mut ports = listeners.iter().filter(|(found, _)| *found == scheme);
    let (_, first) = ports.next()?;
    let is_shared = choice == PortChoice::Shared || ports.any(|(_, port)| *port == shared);
    Some(if is_shared { shared } else { *first })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn range_of_listener_ports_is_one_port_or_two_ends() {
        for (text, contained) in [
            ("8080", Some([false, true, false])),
            ("8080-8081", Some([false, true, true])),
            ("1-65535", Some([true; 3])),
            ("0", None),
            ("0-80", None),
            ("8081-8080", None),
            ("65536", None),
            ("", None),
            ("80-", None),
        ] {
            let range = text.parse::<ListenerPortRange>().ok();
            let found = range.map(|range| [8079, 8080, 8081].map(|port| range.contains(port)));
            assert_eq!(found, contained, "{text}");
        }
    }
}
