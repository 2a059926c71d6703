//! The jumps from the chains of the kernel to the shared ones.

use super::names::{
    EXTERNAL_SERVICES, FORWARD, LOOPBACK_GUARD, NODE_PORTS, POSTROUTING, PROXY_FIREWALL, SERVICES,
    SOURCE_GUARD,
};

/// Comment of the own rule in the chain that is shared with the kubelet.
pub(super) const GUARD_COMMENT: &str = "block incoming localnet connections";

/// A jump from a chain of the kernel.
pub(super) struct Jump {
    pub(super) table: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    /// New connections only.
    new: bool,
    comment: &'static str,
}

impl Jump {
    const fn new(
        table: &'static str,
        from: &'static str,
        to: &'static str,
        new: bool,
        comment: &'static str,
    ) -> Self {
        Self {
            table,
            from,
            to,
            new,
            comment,
        }
    }

    pub(super) fn rule(&self) -> String {
        let new = match self.new {
            true => "-m conntrack --ctstate NEW ",
            false => "",
        };
        let comment = match self.comment {
            "" => String::new(),
            text => format!("-m comment --comment \"{text}\" "),
        };
        format!("{new}{comment}-j {}", self.to)
    }

    /// Returns whether a rule of a listing is this jump, of this or another version.
    pub(super) fn is_rule(&self, rule: &str) -> bool {
        let target = format!("-j {}", self.to);
        rule == target
            || (!self.comment.is_empty()
                && rule.ends_with(&target)
                && rule.contains(&format!("\"{}\"", self.comment)))
    }
}

const PORTALS: &str = "kubernetes service portals";
const EXTERNAL: &str = "kubernetes externally-visible service portals";
const SOURCES: &str = "loopback sources of other machines";
const FIREWALL: &str = "kubernetes load balancer firewall";

/// The jumps, with upstream's comments. Each is inserted on top of its chain, so the last of a
/// chain comes first.
pub(super) static JUMPS: [Jump; 15] = [
    Jump::new("filter", "INPUT", EXTERNAL_SERVICES, true, EXTERNAL),
    Jump::new("filter", "FORWARD", EXTERNAL_SERVICES, true, EXTERNAL),
    Jump::new(
        "filter",
        "INPUT",
        NODE_PORTS,
        false,
        "kubernetes health check service ports",
    ),
    Jump::new("filter", "FORWARD", SERVICES, true, PORTALS),
    Jump::new("filter", "OUTPUT", SERVICES, true, PORTALS),
    Jump::new(
        "filter",
        "FORWARD",
        FORWARD,
        false,
        "kubernetes forwarding rules",
    ),
    Jump::new("filter", "INPUT", PROXY_FIREWALL, true, FIREWALL),
    Jump::new("filter", "OUTPUT", PROXY_FIREWALL, true, FIREWALL),
    Jump::new("filter", "FORWARD", PROXY_FIREWALL, true, FIREWALL),
    Jump::new("filter", "INPUT", LOOPBACK_GUARD, false, ""),
    Jump::new("filter", "OUTPUT", LOOPBACK_GUARD, false, ""),
    Jump::new("filter", "INPUT", SOURCE_GUARD, false, SOURCES),
    Jump::new("nat", "OUTPUT", SERVICES, false, PORTALS),
    Jump::new("nat", "PREROUTING", SERVICES, false, PORTALS),
    Jump::new(
        "nat",
        "POSTROUTING",
        POSTROUTING,
        false,
        "kubernetes postrouting rules",
    ),
];
