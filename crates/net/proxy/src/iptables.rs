//! Services by iptables, for kernels and tools that need it: upstream's chains in the tables nat
//! and filter.

mod base;
mod jumps;
mod names;
mod options;
mod program;
mod render;
mod saved;
mod write;

use std::collections::BTreeSet;

use net_nft::Family;

pub use base::{write_iptables_installation, write_iptables_removal};
pub use options::IptablesOptions;
pub use program::{Error, find_program, restore, save};
pub use render::render_iptables;
pub use write::{divide_changes, write_iptables_changes};

use base::TABLES;
use jumps::JUMPS;
use program::list_chain;

/// Returns the families that iptables can translate on this machine. A family whose tables can't be
/// listed for another reason, such as a lock that another program holds, counts: its installation
/// is repeated until it succeeds.
///
/// # Errors
/// No family can be used: the reason of the first one.
pub async fn usable_families(families: &[Family]) -> Result<Vec<Family>, Error> {
    let (mut usable, mut answers) = (Vec::new(), false);
    let mut first = None;
    for family in families {
        let listed = list_chain(*family, "nat", "POSTROUTING").await;
        answers |= listed.is_ok();
        match listed {
            Ok(_) => usable.push(*family),
            Err(error) if error.is_unsupported() => {
                tracing::warn!(%error, family = family.api_name(), "iptables can't be used for this family; its Services are not served");
                first = first.or(Some(error));
            }
            Err(error) => {
                tracing::warn!(%error, family = family.api_name(), "rules can't be listed; the installation is tried nevertheless");
                usable.push(*family);
                first = first.or(Some(error));
            }
        }
    }
    match first {
        Some(error) if !answers => Err(error),
        _ => Ok(usable),
    }
}

/// Returns whether the canaries and the jumps exist: without them, another program flushed a table
/// or a chain. If iptables can't be run, they count as installed.
pub async fn are_installed(families: &[Family]) -> bool {
    for family in families {
        for table in TABLES {
            if lacks_canary(*family, table).await {
                return false;
            }
        }
        let chains: BTreeSet<_> = JUMPS.iter().map(|jump| (jump.table, jump.from)).collect();
        for (table, chain) in chains {
            let listing = list_chain(*family, table, chain).await;
            if listing.is_ok_and(|listing| !base::has_jumps(&listing, *family, table, chain)) {
                return false;
            }
        }
    }
    true
}

async fn lacks_canary(family: Family, table: &str) -> bool {
    match list_chain(family, table, names::CANARY).await {
        Ok(_) => false,
        Err(error) => error.is_missing_chain(),
    }
}

/// Removes all rules of kube-proxy in a family; those of other programs stay. Without the programs
/// of iptables, the absence of rules is read from the kernel.
///
/// # Errors
/// iptables failed, or is not installed and there may be rules. If a chain can't be deleted because
/// a rule of another program refers to it, it is empty nevertheless.
pub async fn remove_rules(family: Family) -> Result<(), Error> {
    let listing = match save(family).await {
        Err(error) if error.is_absent() && !may_have_rules(family) => return Ok(()),
        saved => saved?,
    };
    let commands = write_iptables_removal(&listing);
    restore(family, &commands.change).await?;
    restore(family, &commands.removal).await
}

/// Returns whether the kernel may have rules of kube-proxy: tables of the legacy variant, whose
/// content only its own programs can list, or chains with such a name.
fn may_have_rules(family: Family) -> bool {
    // Of the thread, as network namespaces are.
    let file = match family {
        Family::V4 => "/proc/thread-self/net/ip_tables_names",
        Family::V6 => "/proc/thread-self/net/ip6_tables_names",
    };
    // The file is absent if the kernel has loaded no such tables.
    let legacy = std::fs::read_to_string(file).unwrap_or_default();
    let chains = net_nft::list_chains();
    !legacy.trim().is_empty()
        || chains.is_err()
        || chains.is_ok_and(|chains| {
            let own = |chain: &net_nft::ListedChain| {
                chain.family == family
                    && TABLES.contains(&chain.table.as_str())
                    && chain.chain.starts_with("KUBE-")
                    && chain.chain != names::LOOPBACK_GUARD
            };
            chains.iter().any(own)
        })
}

#[cfg(test)]
mod tests;
