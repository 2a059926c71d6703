//! The decision about a kubelet's serving certificate: a function of the caches.
//!
//! A node writes its own status, so the addresses there alone prove nothing: a compromised node
//! could name the address of the API server, and pose as it with a certificate of the cluster's CA.
//! So an address or name of anything else in the cluster is never approved.

use api_meta::certificate_request::CertificateRequest;
use api_semantics::addresses::is_special_address;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest as Csr;
use k8s_openapi::api::core::v1::Node;

use super::addresses::{is_like_address, list_node_addresses};
use super::reserved::ReservedNames;
use crate::csr::list_usages;

const NODES_GROUP: &str = "system:nodes";
/// The prefix of the user of a node.
pub const USER_PREFIX: &str = "system:node:";

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The request is approved.
    Approve,
    /// The node does not have the addresses yet.
    Wait,
    /// An administrator decides, or the reason ends; the text is the reason.
    Undecided(String),
}

/// Returns the name of the node that requests a serving certificate for itself.
///
/// # Errors
/// The request is not that of a kubelet: the verdict has the reason.
pub fn find_requesting_node<'a>(
    csr: &'a Csr,
    request: &CertificateRequest,
) -> Result<&'a str, Verdict> {
    request
        .check_kubelet_serving(&list_usages(csr))
        .map_err(|error| Verdict::Undecided(error.to_string()))?;
    let user = csr.spec.username.as_deref().unwrap_or_default();
    let is_node = csr
        .spec
        .groups
        .iter()
        .flatten()
        .any(|group| group == NODES_GROUP);
    match user.strip_prefix(USER_PREFIX) {
        Some(name) if is_node && user == request.common_name => Ok(name),
        _ => Err(Verdict::Undecided(
            "the subject is not the requester".to_owned(),
        )),
    }
}

/// Decides about a request of `node_name`; `node` is its object.
pub fn decide_request(
    request: &CertificateRequest,
    node_name: &str,
    node: Option<&Node>,
    reserved: &ReservedNames,
) -> Verdict {
    if !request.dns_names.is_empty() && !reserved.knows_hosts() {
        let reason = "the DNS names of the API server are not known: the ConfigMap kubeadm-config in kube-system is missing or \
            can't be read; `ironclad up` writes it, or `ironclad init` for a control plane of several machines";
        return Verdict::Undecided(reason.to_owned());
    }
    let may_have = |name: &&String| may_have_name(name, node_name, reserved);
    if let Some(name) = request.dns_names.iter().find(|name| !may_have(name)) {
        return Verdict::Undecided(format!(
            "{name:?} is not the node's name, or is reserved for the API server"
        ));
    }
    // A name alone is no evidence: no other part of the cluster knows which names lead to a node.
    if request.ip_addresses.is_empty() {
        return Verdict::Undecided("the request has DNS names and no address".to_owned());
    }
    for address in &request.ip_addresses {
        if is_special_address(*address) {
            return Verdict::Undecided(format!("{address} is not an address of one machine"));
        }
        if let Some(owner) = reserved.find_owner(node_name, *address) {
            return Verdict::Undecided(format!("{address} belongs to {owner}"));
        }
    }
    let own = node.map(list_node_addresses).unwrap_or_default();
    // On the machine of an API server, a certificate for the node's name could be one for the
    // server.
    if let Some(address) = own.iter().find(|address| reserved.is_api_server(**address)) {
        return Verdict::Undecided(format!(
            "the node has the address {address} of an API server"
        ));
    }
    let mut addresses = request.ip_addresses.iter();
    match addresses.all(|address| own.contains(address)) {
        true => Verdict::Approve,
        false => Verdict::Wait,
    }
}

/// Returns whether a node may have this DNS name: its own, unless it is one of the API server.
fn may_have_name(name: &str, node_name: &str, reserved: &ReservedNames) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_reserved = lower == "localhost"
        || lower == "kubernetes"
        || lower.starts_with("kubernetes.")
        || lower.split('.').any(|label| label == "svc")
        || is_like_address(&lower)
        || reserved.has_host(&lower);
    name == node_name && !is_reserved
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::reserved::tests::cluster_names;
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
    use serde_json::json;

    /// Returns a request in PEM.
    pub fn request(user: &str, organization: &str, names: &[&str], addresses: &[&str]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::OrganizationName, organization);
        params.distinguished_name.push(DnType::CommonName, user);
        let names = names
            .iter()
            .map(|name| SanType::DnsName((*name).try_into().unwrap()));
        let addresses = addresses
            .iter()
            .map(|address| SanType::IpAddress(address.parse().unwrap()));
        params.subject_alt_names = names.chain(addresses).collect();
        let key = KeyPair::generate().unwrap();
        params
            .serialize_request(&key)
            .unwrap()
            .pem()
            .unwrap()
            .into_bytes()
    }

    fn node(addresses: &[(&str, &str)]) -> Node {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|(kind, address)| json!({ "type": kind, "address": address }))
            .collect();
        serde_json::from_value(
            json!({"metadata": {"name": "w1"}, "status": {"addresses": addresses}}),
        )
        .unwrap()
    }

    #[test]
    fn names_wait_until_those_of_the_api_server_are_known() {
        let node = node(&[("InternalIP", "192.0.2.7")]);
        let unknown = ReservedNames {
            maps: Vec::new(),
            ..cluster_names()
        };
        for (names, approved) in [(&["w1"][..], false), (&[], true)] {
            let pem = request("system:node:w1", "system:nodes", names, &["192.0.2.7"]);
            let request = CertificateRequest::from_pem(&pem).unwrap();
            let verdict = decide_request(&request, "w1", Some(&node), &unknown);
            assert_eq!(verdict == Verdict::Approve, approved, "{names:?}");
        }
    }

    #[test]
    fn only_addresses_and_the_name_of_the_node_are_approved() {
        let usual = [
            ("InternalIP", "192.0.2.7"),
            ("ExternalIP", "203.0.113.7"),
            ("InternalIP", "127.0.0.1"),
            ("Hostname", "w1"),
            ("Hostname", "api.example.com"),
            ("InternalDNS", "192.0.2.99"),
        ];
        let own = node(&usual);
        let reserved = cluster_names();
        for (name, names, addresses, expected) in [
            ("w1", &["w1"][..], &["192.0.2.7"][..], "approve"),
            ("w1", &["w1"], &["192.0.2.7", "203.0.113.7"], "approve"),
            ("w1", &[], &["192.0.2.7"], "approve"),
            // A name alone.
            ("w1", &["w1"], &[], "undecided"),
            // The name of the API server's machine, which `up` puts into the server's certificate,
            // with an address that no other node has, so that the name decides.
            ("n1", &["n1"], &["203.0.113.7"], "undecided"),
            ("N1", &["N1"], &["203.0.113.7"], "undecided"),
            ("192.0.2.7", &["192.0.2.7"], &["203.0.113.7"], "undecided"),
            ("127.1", &["127.1"], &["203.0.113.7"], "undecided"),
            // Of pods, Services and another node.
            ("w1", &["w1"], &["192.0.2.7", "10.244.0.9"], "undecided"),
            ("w1", &["w1"], &["192.0.2.7", "10.97.0.9"], "undecided"),
            ("w1", &["w1"], &["192.0.2.8"], "undecided"),
            // Not in the status, or not as an address.
            ("w1", &["w1"], &["192.0.2.9"], "wait"),
            ("w1", &["w1"], &["192.0.2.99"], "wait"),
            // Those of the API server, which the compromised node claims.
            ("w1", &["w1"], &["192.0.2.7", "192.0.2.1"], "undecided"),
            ("w1", &["w1"], &["127.0.0.1"], "undecided"),
            (
                "w1",
                &["w1", "api.example.com"],
                &["192.0.2.7"],
                "undecided",
            ),
            ("w1", &["w2"], &["192.0.2.7"], "undecided"),
            ("w1", &["*.example.com"], &["192.0.2.7"], "undecided"),
            (
                "api.example.com",
                &["api.example.com"],
                &["203.0.113.7"],
                "undecided",
            ),
            ("kubernetes", &["kubernetes"], &["203.0.113.7"], "undecided"),
            (
                "kubernetes.default",
                &["kubernetes.default"],
                &["203.0.113.7"],
                "undecided",
            ),
            ("a.b.svc", &["a.b.svc"], &["203.0.113.7"], "undecided"),
            (
                "a.b.svc.cluster.local",
                &["a.b.svc.cluster.local"],
                &["203.0.113.7"],
                "undecided",
            ),
            ("localhost", &["localhost"], &["203.0.113.7"], "undecided"),
        ] {
            let pem = request(
                &format!("system:node:{name}"),
                "system:nodes",
                names,
                addresses,
            );
            let request = CertificateRequest::from_pem(&pem).unwrap();
            let verdict = decide_request(&request, name, Some(&own), &reserved);
            let found = match verdict {
                Verdict::Approve => "approve",
                Verdict::Wait => "wait",
                Verdict::Undecided(_) => "undecided",
            };
            assert_eq!(found, expected, "{name} {names:?} {addresses:?}");
            if expected == "approve" {
                let absent = decide_request(&request, name, None, &reserved);
                assert_eq!(absent, Verdict::Wait, "without a node");
                // Also if the requested addresses are other ones.
                let mut with_server = usual.to_vec();
                with_server.push(("InternalIP", "192.0.2.1"));
                let server = decide_request(&request, name, Some(&node(&with_server)), &reserved);
                assert!(matches!(server, Verdict::Undecided(_)), "{server:?}");
            }
        }
    }

    #[test]
    fn requester_is_the_node_of_the_subject() {
        let check =
            |user: &str, groups: &[&str], subject: &str, organization: &str, usages: &[&str]| {
                let pem = request(subject, organization, &["w1"], &[]);
                let csr: Csr =
                    serde_json::from_value(json!({"spec": {"request": "", "signerName": "x",
                "username": user, "groups": groups, "usages": usages}}))
                    .unwrap();
                let request = CertificateRequest::from_pem(&pem).unwrap();
                find_requesting_node(&csr, &request).map(str::to_owned)
            };
        let (nodes, usages) = (
            &["system:nodes"][..],
            &["digital signature", "server auth"][..],
        );
        let w1 = "system:node:w1";
        assert_eq!(
            check(w1, nodes, w1, "system:nodes", usages).as_deref(),
            Ok("w1")
        );
        for (user, groups, subject, organization, usages) in [
            // Another node's certificate.
            ("system:node:w2", nodes, w1, "system:nodes", usages),
            ("system:bootstrap:abcdef", nodes, w1, "system:nodes", usages),
            // A user who is named like a node, but is none.
            (w1, &["system:authenticated"], w1, "system:nodes", usages),
            (w1, &[], w1, "system:nodes", usages),
            (w1, nodes, w1, "system:masters", usages),
            (w1, nodes, "kube-apiserver", "system:nodes", usages),
            (
                w1,
                nodes,
                w1,
                "system:nodes",
                &["digital signature", "client auth"],
            ),
        ] {
            let found = check(user, groups, subject, organization, usages);
            assert!(
                found.is_err(),
                "{user} {groups:?} {subject} {organization} {usages:?}"
            );
        }
    }
}
