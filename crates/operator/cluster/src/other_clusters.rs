//! Other clusters in this network namespace.

use std::fmt;

use crate::command::run_command;
use crate::error::Result;
use crate::settings::Settings;

/// A sign of another cluster in the kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// The bridge of its pods. One whose network the user installs has none.
    Bridge(String),
    /// Its table of nftables: family and name.
    Table(String),
}

impl Trace {
    /// Returns the command that removes it.
    pub(crate) fn removal(&self) -> String {
        match self {
            Self::Bridge(name) => format!("ip link delete {name}"),
            Self::Table(table) => format!("nft delete table {table}"),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bridge(name) => write!(f, "bridge {name}"),
            Self::Table(table) => write!(f, "nftables table {table}"),
        }
    }
}

/// Returns a trace of another cluster in this network namespace.
pub(crate) fn find_other_cluster(own: &Settings) -> Result<Option<Trace>> {
    let bridges = run_command("ip", &["-brief", "link", "show", "type", "bridge"])?;
    if let Some(bridge) = find_bridge(&bridges, &own.bridge()) {
        return Ok(Some(Trace::Bridge(bridge.to_owned())));
    }
    let tables = run_command("nft", &["list", "tables"])?;
    Ok(find_table(&tables, &own.table()).map(|table| Trace::Table(table.to_owned())))
}

/// Returns the bridge of another cluster from a listing of `ip -brief link`.
fn find_bridge<'a>(listing: &'a str, own: &str) -> Option<&'a str> {
    let mut names = listing
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names.find(|name| *name != own && Settings::is_bridge(name))
}

/// Returns the table of another cluster, with its family, from a listing of `nft list tables`.
fn find_table<'a>(listing: &'a str, own: &str) -> Option<&'a str> {
    let tables = listing
        .lines()
        .filter_map(|line| line.trim().strip_prefix("table "));
    let is_other = |table: &&str| {
        let name = table.split_whitespace().nth(1);
        name.is_some_and(|name| name != own && Settings::is_table(name))
    };
    tables.into_iter().find(is_other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_cluster_is_known_by_its_bridge() {
        let listing =
            "docker0 DOWN 02:42:8a:5d:1c:0e <NO-CARRIER>\nironclad0 UP 5e:00:00:00:00:01 <UP>\n";
        assert_eq!(find_bridge(listing, "ironclad0"), None);
        assert_eq!(find_bridge(listing, "ic-c7eb7fcd"), Some("ironclad0"));
        assert_eq!(
            find_bridge("ic-c7eb7fcd UP\nicicle UP\n", "ic-00000000"),
            Some("ic-c7eb7fcd")
        );
        assert_eq!(find_bridge("", "ironclad0"), None);
    }

    /// With `--cni none` it has no bridge.
    #[test]
    fn another_cluster_is_known_by_its_table() {
        let listing =
            "table ip kube-proxy\ntable ip nat\ntable ip ironclad\ntable ip6 ironclad-x\n";
        assert_eq!(find_table(listing, "ironclad"), None);
        assert_eq!(
            find_table(listing, "ironclad-c7eb7fcd"),
            Some("ip ironclad")
        );
        assert_eq!(
            find_table("table ip6 ironclad-c7eb7fcd\n", "ironclad"),
            Some("ip6 ironclad-c7eb7fcd")
        );
        assert_eq!(find_table("", "ironclad"), None);
    }
}
