//! Bridges of clusters in this network namespace.

use crate::error::Result;
use crate::settings::Settings;

/// Returns the bridge of another cluster in this network namespace.
pub(crate) fn find_other_cluster(own: &str) -> Result<Option<String>> {
    let listing = crate::command::run_command("ip", &["-brief", "link", "show", "type", "bridge"])?;
    Ok(other_bridge(&listing, own).map(str::to_owned))
}

/// Returns the bridge of another cluster from a listing of `ip -brief link`.
pub(crate) fn other_bridge<'a>(listing: &'a str, own: &str) -> Option<&'a str> {
    let names = listing
        .lines()
        .filter_map(|line| line.split_whitespace().next());
    names
        .into_iter()
        .find(|name| *name != own && Settings::is_bridge(name))
}
