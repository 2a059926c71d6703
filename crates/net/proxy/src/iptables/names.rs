//! Names of chains: upstream's, so that other tools recognise them.

use std::net::SocketAddr;

use sha2::{Digest, Sha256};

use crate::service_rules::{PortRules, Target};

pub(super) const SERVICES: &str = "KUBE-SERVICES";
pub(super) const EXTERNAL_SERVICES: &str = "KUBE-EXTERNAL-SERVICES";
pub(super) const NODE_PORTS: &str = "KUBE-NODEPORTS";
pub(super) const POSTROUTING: &str = "KUBE-POSTROUTING";
pub(super) const MARK: &str = "KUBE-MARK-MASQ";
pub(super) const FORWARD: &str = "KUBE-FORWARD";
pub(super) const PROXY_FIREWALL: &str = "KUBE-PROXY-FIREWALL";
/// Chain of the kubelet, which upstream's kube-proxy fills with the same rule.
pub(super) const LOOPBACK_GUARD: &str = "KUBE-FIREWALL";
/// Chain that drops packets with a loopback address as source from other machines and pods. Not of
/// upstream.
pub(super) const SOURCE_GUARD: &str = "KUBE-PROXY-SOURCES";
/// Empty chain in each table: if it is absent, another program flushed the table.
pub(super) const CANARY: &str = "KUBE-PROXY-CANARY";

/// Prefixes of the chains of one Service.
const SERVICE_PREFIXES: [&str; 5] = [
    "KUBE-SVC-",
    "KUBE-SVL-",
    "KUBE-EXT-",
    "KUBE-FW-",
    "KUBE-SEP-",
];
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Returns whether a chain is one of a Service.
pub(super) fn is_service_chain(name: &str) -> bool {
    SERVICE_PREFIXES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Names of the chains of one port.
pub(super) struct ChainNames {
    /// `namespace/name:port`.
    pub(super) readable: String,
    protocol: &'static str,
    digest: String,
}

impl ChainNames {
    pub(super) fn new(port: &PortRules) -> Self {
        let mut readable = port.service.clone();
        if !port.port_name.is_empty() {
            readable = format!("{readable}:{}", port.port_name);
        }
        let protocol = port.protocol.nft_name();
        Self {
            digest: digest_text(&format!("{readable}{protocol}")),
            protocol,
            readable,
        }
    }

    pub(super) fn chain(&self, target: Target) -> String {
        let prefix = match target {
            Target::Cluster => "KUBE-SVC-",
            Target::Local => "KUBE-SVL-",
            Target::External => "KUBE-EXT-",
        };
        format!("{prefix}{}", self.digest)
    }

    pub(super) fn firewall(&self) -> String {
        format!("KUBE-FW-{}", self.digest)
    }

    pub(super) fn endpoint(&self, endpoint: SocketAddr) -> String {
        let text = format!("{}{}{endpoint}", self.readable, self.protocol);
        format!("KUBE-SEP-{}", digest_text(&text))
    }
}

/// Returns the first 16 characters of a SHA-256 digest in base 32: iptables allows 28 characters
/// for a name.
fn digest_text(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let bits = digest
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| (byte >> bit) & 1));
    let bits: Vec<u8> = bits.take(16 * 5).collect();
    let number = |five: &[u8]| five.iter().fold(0, |number, bit| number << 1 | bit);
    bits.chunks(5)
        .map(|five| char::from(ALPHABET[usize::from(number(five)) & 31]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that upstream's tests expect.
    #[test]
    fn names_are_upstreams() {
        for (text, expect) in [
            ("ns1/svc1:p80tcp", "XPGD46QRK7WJZT7O"),
            ("ns4/svc4:p80tcp", "4SW47YFZTEDKD3PK"),
            ("ns1/svc1:p80tcp10.180.0.1:80", "SXIVWICOYRO3J4NJ"),
        ] {
            assert_eq!(digest_text(text), expect, "{text}");
        }
    }
}
