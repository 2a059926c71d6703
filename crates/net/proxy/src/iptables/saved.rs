//! Reads a listing of `iptables-save`.

use std::collections::BTreeMap;

use super::jumps::{GUARD_COMMENT, JUMPS};
use super::names::LOOPBACK_GUARD;

/// Own chains, and the jumps to them.
#[derive(Debug, Default)]
pub(super) struct SavedTables<'a>(BTreeMap<&'a str, Table<'a>>);

#[derive(Debug, Default)]
struct Table<'a> {
    chains: Vec<&'a str>,
    /// Chain of the kernel, and the rest of the rule.
    jumps: Vec<(&'a str, &'a str)>,
    /// Own rules in the chain that is shared with the kubelet.
    guard_rules: Vec<&'a str>,
}

impl<'a> SavedTables<'a> {
    pub(super) fn parse(listing: &'a str) -> Self {
        let mut tables: BTreeMap<&str, Table<'_>> = BTreeMap::new();
        let mut name = "";
        for line in listing.lines() {
            if let Some(table) = line.strip_prefix('*') {
                name = table.trim();
            } else if let Some(chain) = line.strip_prefix(':') {
                let chain = chain.split(' ').next().filter(|c| c.starts_with("KUBE-"));
                tables.entry(name).or_default().chains.extend(chain);
            } else if let Some(jump) = parse_jump(name, line) {
                tables.entry(name).or_default().jumps.push(jump);
            } else if let Some((LOOPBACK_GUARD, rule)) = split_rule(line)
                && rule.contains(GUARD_COMMENT)
            {
                tables.entry(name).or_default().guard_rules.push(rule);
            }
        }
        Self(tables)
    }

    /// Yields the chains of Kubernetes in a table.
    pub(super) fn chains(&self, table: &str) -> impl Iterator<Item = &'a str> {
        let table = self.0.get(table);
        table
            .into_iter()
            .flat_map(|table| table.chains.iter().copied())
    }

    /// Yields the jumps to own chains: the chain that has the jump, and the rest of the rule.
    pub(super) fn jumps(&self, table: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let table = self.0.get(table);
        table
            .into_iter()
            .flat_map(|table| table.jumps.iter().copied())
    }

    /// Yields the rules, without the chain, of kube-proxy in the chain that is shared with the
    /// kubelet.
    pub(super) fn guard_rules(&self) -> impl Iterator<Item = &'a str> {
        let table = self.0.get("filter");
        table
            .into_iter()
            .flat_map(|table| table.guard_rules.iter().copied())
    }
}

/// Splits a rule into its chain and the rest.
fn split_rule(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("-A ")?.split_once(' ')
}

fn parse_jump<'a>(table: &str, line: &'a str) -> Option<(&'a str, &'a str)> {
    let (chain, rule) = split_rule(line)?;
    let mut jumps = JUMPS.iter().filter(|jump| jump.table == table);
    jumps
        .any(|jump| jump.from == chain && jump.is_rule(rule))
        .then_some((chain, rule))
}
