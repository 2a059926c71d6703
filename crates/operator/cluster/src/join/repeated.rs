//! The options of a repeated `join`: they must be those of the first one, or absent.

use std::fmt::Display;
use std::net::IpAddr;

use operator_discovery::{Cluster, Endpoint};

use super::options::{DiscoverySource, JoinOptions};
use crate::error::{Error, Result};
use crate::membership::Membership;
use crate::settings::{Runtime, Settings};

/// Rejects options that differ from those with which the machine joined: nothing would apply them.
///
/// # Errors
/// The first difference, or a discovery file that can't be read.
pub(super) async fn check_options(
    options: &JoinOptions,
    settings: &Settings,
    membership: &Membership,
) -> Result<()> {
    check_node_options(options, settings, membership)?;
    let source = options
        .discovery
        .as_ref()
        .map(|discovery| &discovery.source);
    let given = match source {
        None => return Ok(()),
        Some(DiscoverySource::Token { endpoint, .. }) => endpoint.clone(),
        Some(DiscoverySource::File { path, pins }) => Cluster::from_file(path, pins).await?.server,
    };
    check_server(&given, membership)
}

fn check_node_options(
    options: &JoinOptions,
    settings: &Settings,
    membership: &Membership,
) -> Result<()> {
    let name = &settings.node_name;
    check_value("--node-name", options.node_name.as_ref(), name)?;
    check_addresses(&options.node_addresses, settings)?;
    let given = options.runtime_endpoint.as_deref();
    let (endpoint, is_simulated) = match &settings.runtime {
        Runtime::Endpoint(endpoint) => (endpoint.as_str(), false),
        Runtime::Own => ("", false),
        Runtime::Simulated => ("", true),
    };
    check_value("--runtime-endpoint", given, endpoint)?;
    let simulated = options.simulated.then_some(&true);
    check_value("--simulated", simulated, &is_simulated)?;
    check_value("--cni", options.cni.as_ref(), &settings.cni)?;
    let backend = options.cni_backend.as_ref();
    check_value("--cni-backend", backend, &settings.cni_backend)?;
    check_list("--node-labels", &options.labels, &membership.labels)?;
    check_list(
        "--register-with-taints",
        &options.taints,
        &membership.taints,
    )?;
    // 0 stands for any port.
    let port = options.kubelet_port.filter(|port| *port != 0);
    check_value("--kubelet-port", port.as_ref(), &settings.ports.kubelet)
}

/// Checks the addresses of the node: the second one may be omitted.
pub(super) fn check_addresses(given: &[IpAddr], settings: &Settings) -> Result<()> {
    let join = |addresses: &[IpAddr]| {
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        texts.join(",")
    };
    let stored: Vec<_> = settings.node_addresses().collect();
    let stored = match given {
        [_] => &stored[..1],
        _ => &stored,
    };
    let given = (!given.is_empty()).then(|| join(given));
    check_value("--node-ip", given.as_ref(), &join(stored))
}

/// Checks the server: the address may be the typed one, or that in cluster-info.
fn check_server(given: &Endpoint, membership: &Membership) -> Result<()> {
    let published = Endpoint::from_url(&membership.server).ok();
    let typed = membership.endpoint.as_ref();
    if published.as_ref() == Some(given) || typed.is_some_and(|typed| *typed == given.to_string()) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "this machine joined the cluster at {}; run `ironclad reset` first to join the one at {given}",
        membership.server
    )))
}

fn check_list(flag: &str, given: &[String], stored: &[String]) -> Result<()> {
    // The order of labels and taints has no meaning.
    let sort = |values: &[String]| {
        let mut sorted = values.to_vec();
        sorted.sort();
        sorted.join(",")
    };
    let joined = (!given.is_empty()).then(|| sort(given));
    check_value(flag, joined.as_ref(), &sort(stored))
}

pub(super) fn check_value<T: PartialEq + Display + ?Sized>(
    flag: &str,
    given: Option<&T>,
    stored: &T,
) -> Result<()> {
    match given.filter(|given| *given != stored) {
        None => Ok(()),
        Some(given) => Err(Error::Refused(format!(
            "this machine joined with {flag} {:?}, which can't change; leave the option out, or run `ironclad reset` first \
             to join with {:?}",
            stored.to_string(),
            given.to_string()
        ))),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::join::options::DiscoveryOptions;
    use operator_discovery::Trust;

    fn contact(address: &str) -> Option<DiscoveryOptions> {
        Some(DiscoveryOptions {
            source: DiscoverySource::Token {
                endpoint: address.parse().unwrap(),
                trust: Trust::TokenOnly,
            },
            token: "abcdef.0123456789abcdef".parse().unwrap(),
        })
    }

    #[tokio::test]
    async fn options_of_a_repeated_join_are_those_of_the_first_one() {
        let mut settings = Settings::example_joined();
        let membership = settings.membership.as_mut().unwrap();
        membership.endpoint = Some("api.example.com:6443".into());
        membership.labels = vec!["a=b".into(), "disk=ssd".into()];
        let base = JoinOptions::default;
        for (options, rejected) in [
            (base(), ""),
            (
                JoinOptions {
                    node_name: Some("w1".into()),
                    node_addresses: vec!["192.0.2.3".parse().unwrap()],
                    // In another order.
                    labels: vec!["disk=ssd".into(), "a=b".into()],
                    taints: vec!["dedicated=db:NoSchedule".into()],
                    pick_ports: true,
                    kubelet_port: Some(0),
                    discovery: contact("api.example.com:6443"),
                    ..base()
                },
                "",
            ),
            (
                JoinOptions {
                    discovery: contact("192.0.2.2:6443"),
                    ..base()
                },
                "",
            ),
            (
                JoinOptions {
                    discovery: contact("192.0.2.99:6443"),
                    ..base()
                },
                "join the one at 192.0.2.99:6443",
            ),
            (
                JoinOptions {
                    node_name: Some("w2".into()),
                    ..base()
                },
                "--node-name \"w1\"",
            ),
            (
                JoinOptions {
                    node_addresses: vec!["192.0.2.4".parse().unwrap()],
                    ..base()
                },
                "--node-ip",
            ),
            (
                JoinOptions {
                    runtime_endpoint: Some("unix:///x".into()),
                    ..base()
                },
                "--runtime-endpoint",
            ),
            (
                JoinOptions {
                    simulated: true,
                    ..base()
                },
                "--simulated",
            ),
            (
                JoinOptions {
                    labels: vec!["disk=ssd".into()],
                    ..base()
                },
                "--node-labels",
            ),
            (
                JoinOptions {
                    taints: vec!["x:NoExecute".into()],
                    ..base()
                },
                "--register-with-taints",
            ),
            (
                JoinOptions {
                    kubelet_port: Some(1),
                    ..base()
                },
                "--kubelet-port",
            ),
        ] {
            let membership = settings.membership.as_ref().unwrap();
            match check_options(&options, &settings, membership).await {
                Ok(()) => assert_eq!(rejected, "", "{options:?}"),
                Err(error) => {
                    let error = error.to_string();
                    assert!(!rejected.is_empty() && error.contains(rejected), "{error}");
                }
            }
        }
    }
}
