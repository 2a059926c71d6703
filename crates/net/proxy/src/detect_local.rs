//! Detection of connections from pods of this node (`detectLocalMode`). Their sources are kept at
//! cluster IPs, and they reach all endpoints of a Service with the policy Local.

use anyhow::{Context, bail, ensure};
use ipnet::IpNet;
use net_nft::Family;

use crate::local::PodMatch;

/// A way to detect connections from pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DetectLocal {
    /// By ranges of all pods, one for each family at most.
    ClusterCidr(Vec<IpNet>),
    /// By the ranges of the node's own pods, `spec.podCIDRs` of its Node.
    NodeCidr,
    /// By the interface.
    Interface(PodMatch),
}

/// The settings of the detection, as they are written.
#[derive(Debug, Default)]
pub(crate) struct DetectLocalOptions {
    pub(crate) mode: String,
    pub(crate) cluster_cidr: String,
    pub(crate) bridge: String,
    pub(crate) prefix: String,
}

impl DetectLocalOptions {
    /// Checks the settings of the mode; those of other modes have no effect, as in upstream.
    ///
    /// # Errors
    /// The mode is unknown, or its setting is absent or not valid.
    pub(crate) fn parse(self) -> anyhow::Result<DetectLocal> {
        match self.mode.as_str() {
            "" | "ClusterCIDR" => parse_cluster_cidr(&self.cluster_cidr),
            "NodeCIDR" => Ok(DetectLocal::NodeCidr),
            "BridgeInterface" => check_device(&self.bridge)
                .map(|()| DetectLocal::Interface(PodMatch::Interface(self.bridge.clone())))
                .context("detectLocalMode BridgeInterface needs detectLocal.bridgeInterface (--pod-bridge-interface)"),
            "InterfaceNamePrefix" => check_device(&self.prefix)
                .map(|()| DetectLocal::Interface(PodMatch::Prefix(self.prefix.clone())))
                .context("detectLocalMode InterfaceNamePrefix needs detectLocal.interfaceNamePrefix (--pod-interface-name-prefix)"),
            other => bail!(
                "detectLocalMode {other:?} is unknown; use ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix"
            ),
        }
    }
}

fn parse_cluster_cidr(text: &str) -> anyhow::Result<DetectLocal> {
    let ranges: Vec<IpNet> = parse_ranges(text)?;
    for family in [Family::V4, Family::V6] {
        let count = ranges
            .iter()
            .filter(|range| Family::of(range.addr()) == family)
            .count();
        // Rules match one range; a second one would be ignored, and its pods masqueraded.
        ensure!(
            count < 2,
            "clusterCIDR {text:?} has several ranges of a family; one is possible"
        );
    }
    Ok(DetectLocal::ClusterCidr(ranges))
}

/// Parses values that are separated by commas.
pub(crate) fn parse_ranges<T: std::str::FromStr>(text: &str) -> anyhow::Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.split(',')
        .map(str::trim)
        .filter(|range| !range.is_empty())
        .map(|range| {
            range.parse().with_context(|| {
                format!("{range:?} is not a range of addresses such as 10.244.0.0/16")
            })
        })
        .collect()
}

/// Checks the name of a network device, or a prefix of one, which becomes part of rules.
pub(crate) fn check_device(text: &str) -> anyhow::Result<()> {
    // IFNAMSIZ is 16 with the terminating zero.
    let is_name = (1..16).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    ensure!(is_name, "{text:?} is not a name of a network device");
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[track_caller]
    fn check(words: [&str; 4], expect: Option<DetectLocal>) {
        let [mode, cluster_cidr, bridge, prefix] = words.map(str::to_owned);
        let options = DetectLocalOptions {
            mode,
            cluster_cidr,
            bridge,
            prefix,
        };
        assert_eq!(options.parse().ok(), expect, "{words:?}");
    }

    #[test]
    fn mode_reads_its_own_setting_and_refuses_a_wrong_one() {
        let cidr = |text: &str| Some(DetectLocal::ClusterCidr(parse_ranges(text).unwrap()));
        let bridge = PodMatch::Interface("cni0".into());
        let prefix = PodMatch::Prefix("veth".into());
        let interface = |pods: PodMatch| Some(DetectLocal::Interface(pods));
        check(["", "", "", ""], cidr(""));
        check(
            ["", "10.0.0.0/8,fd00::/8", "", ""],
            cidr("10.0.0.0/8,fd00::/8"),
        );
        check(["ClusterCIDR", "10.0.0.0/8, 11.0.0.0/8", "", ""], None);
        check(["ClusterCIDR", "10.0.0.0", "", ""], None);
        check(
            ["NodeCIDR", "10.0.0.0", "", ""],
            Some(DetectLocal::NodeCidr),
        );
        check(["BridgeInterface", "", "cni0", "veth"], interface(bridge));
        check(["BridgeInterface", "", "", "veth"], None);
        check(["BridgeInterface", "", "cni0\" drop", ""], None);
        check(
            ["InterfaceNamePrefix", "", "cni0", "veth"],
            interface(prefix),
        );
        check(["InterfaceNamePrefix", "", "cni0", ""], None);
        check(["InterfaceNamePrefix", "", "", "veth*"], None);
        check(["clustercidr", "", "", ""], None);
    }
}
