//! Applies rules to the kernel, by nftables or iptables.

use std::time::Duration;

use net_nft::{Family, TableWatch, TableWork};
use tokio::time::Instant;

use crate::base_chains::{BaseChainOptions, TABLE, build_base_chains};
use crate::desired::DesiredRules;
use crate::difference::Difference;
use crate::iptables::{
    self, IptablesOptions, render_iptables, write_iptables_changes, write_iptables_installation,
};
use crate::nft;
use crate::nftables::{encode_changes, render_nftables, write_difference, write_installation};
use crate::picks::write_probe;
use crate::settings::{Mode, Settings};

/// Name of the table by which nft and the kernel are checked. Not that of the rules: the table of
/// an earlier process may have other maps with these names.
const PROBE: &str = "kube-proxy-probe";

/// The reason why rules were not applied.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of nftables.
    #[error(transparent)]
    Nftables(#[from] net_nft::Error),
    /// nft or the kernel lacks what the rules need.
    #[error(
        "nftables can't pick endpoints from a map: {0}; kube-proxy needs nftables 1.0.1 or later and Linux 5.13 or later in the mode nftables"
    )]
    TooOld(#[source] net_nft::Error),
    /// Of iptables.
    #[error(transparent)]
    Iptables(#[from] iptables::Error),
}

/// Applies rules to the kernel.
pub(crate) struct Backend {
    kind: Kind,
    /// Input that removes unused chains, for each family; for nftables that of both is under the
    /// first one.
    removals: Vec<(Family, String)>,
}

enum Kind {
    Nftables(TableWatch),
    Iptables {
        /// None until the programs were asked for their options.
        options: Option<IptablesOptions>,
        localhost_node_ports: bool,
        /// Families whose last installation failed.
        failed: Vec<Family>,
        /// Time of the next check of the rules.
        check: Instant,
        period: Duration,
    },
}

/// Result of a change.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Bytes of the transactions.
    pub(crate) bytes: usize,
    /// Families that were not installed; not all of them.
    pub(crate) failures: Vec<(Family, Error)>,
}

impl Backend {
    pub(crate) fn open(settings: &Settings) -> Self {
        let period = settings.sync_period;
        let kind = match &settings.mode {
            Mode::Nftables => Kind::Nftables(TableWatch::open(TABLE, period)),
            Mode::Iptables {
                localhost_node_ports,
            } => Kind::Iptables {
                options: None,
                localhost_node_ports: *localhost_node_ports,
                failed: Vec::new(),
                check: Instant::now() + period,
                period,
            },
        };
        Self {
            kind,
            removals: Vec::new(),
        }
    }

    /// Returns an empty set of rules for this back end.
    pub(crate) fn desired_rules(&self) -> DesiredRules {
        match self.kind {
            Kind::Nftables(_) => DesiredRules::new(render_nftables),
            Kind::Iptables { .. } => DesiredRules::new(render_iptables),
        }
    }

    /// Returns the families whose last installation failed while that of the other one succeeded.
    pub(crate) fn failed_families(&self) -> &[Family] {
        match &self.kind {
            // One transaction for both.
            Kind::Nftables(_) => &[],
            Kind::Iptables { failed, .. } => failed,
        }
    }

    /// Installs all rules: packets see the old rules or the new ones. Session affinity is kept.
    ///
    /// # Errors
    /// No family was installed: the reason of one of them.
    pub(crate) async fn install(
        &mut self,
        desired: &DesiredRules,
        families: &[Family],
        options: &BaseChainOptions,
    ) -> Result<Applied, Error> {
        self.removals.clear();
        match &mut self.kind {
            Kind::Nftables(watch) => install_nftables(watch, desired, families, options).await,
            Kind::Iptables {
                options: known,
                localhost_node_ports,
                failed,
                ..
            } => {
                let more = match *known {
                    Some(more) => more,
                    None => *known.insert(find_options(*localhost_node_ports).await?),
                };
                let mut applied = Applied::default();
                for family in families {
                    failed.retain(|other| other != family);
                    match install_iptables(desired, *family, options, more).await {
                        Ok(bytes) => applied.bytes += bytes,
                        Err(error) => {
                            failed.push(*family);
                            applied.failures.push((*family, error.into()));
                        }
                    }
                }
                if applied.failures.len() == families.len()
                    && let Some((_, error)) = applied.failures.pop()
                {
                    return Err(error);
                }
                let opens_loopback = options.node_port_families.contains(&Family::V4);
                if *localhost_node_ports && opens_loopback && !failed.contains(&Family::V4) {
                    // Not before the rules, which guard the loopback addresses.
                    open_loopback();
                }
                Ok(applied)
            }
        }
    }

    /// Applies the differences of several Services, in their order. The removal of unused chains
    /// is kept for [`Backend::remove_unused`].
    pub(crate) async fn change(&mut self, changes: &[Difference]) -> Result<Applied, Error> {
        let mut bytes = 0;
        match &mut self.kind {
            Kind::Nftables(watch) => {
                bytes += change_nftables(watch, changes).await?;
                let removal = changes
                    .iter()
                    .map(|d| write_difference(d).removal)
                    .collect();
                self.removals.push((Family::V4, removal));
            }
            Kind::Iptables {
                failed, options, ..
            } => {
                let more = options.unwrap_or_default();
                // A family whose installation failed is installed again, with this change.
                let works = |family: &Family| !failed.contains(family);
                for family in [Family::V4, Family::V6].into_iter().filter(works) {
                    let own = changes.iter().filter_map(|changed| changed.get(&family));
                    for group in iptables::divide_changes(own, more) {
                        let commands = write_iptables_changes(group);
                        iptables::restore(family, &commands.change).await?;
                        self.removals.push((family, commands.removal));
                        bytes += commands.change.len();
                    }
                }
            }
        }
        self.removals.retain(|(_, removal)| !removal.is_empty());
        Ok(Applied {
            bytes,
            failures: Vec::new(),
        })
    }

    /// Removes chains that changes left unused.
    pub(crate) async fn remove_unused(&mut self) -> Result<(), Error> {
        for (family, removal) in std::mem::take(&mut self.removals) {
            match &mut self.kind {
                Kind::Nftables(watch) => watch.apply(&removal).await?,
                Kind::Iptables { .. } => iptables::restore(family, &removal).await?,
            }
        }
        Ok(())
    }

    /// Records the start of an installation of all rules for another reason than a change by
    /// another program.
    pub(crate) fn begin_repair(&mut self) {
        if let Kind::Nftables(watch) = &mut self.kind {
            watch.begin_repair();
        }
    }

    /// Waits until the rules must be checked, or another program changed them.
    pub(crate) async fn wait_for_work(&mut self) -> TableWork {
        match &mut self.kind {
            Kind::Nftables(watch) => watch.wait_for_work().await,
            Kind::Iptables { check, .. } => {
                tokio::time::sleep_until(*check).await;
                TableWork::Check
            }
        }
    }

    /// Returns whether all rules must be installed again. Not to be interrupted: a check starts a
    /// program several times, and on a cluster with constant changes none would end.
    pub(crate) async fn needs_repair(&mut self, work: TableWork, families: &[Family]) -> bool {
        match &mut self.kind {
            Kind::Nftables(watch) => {
                if work == TableWork::Repair {
                    return true;
                }
                let lost = !nft::are_installed(families).await;
                if lost {
                    watch.begin_repair();
                }
                lost
            }
            Kind::Iptables {
                failed,
                check,
                period,
                ..
            } => {
                let works = |family: &&Family| !failed.contains(family);
                let families: Vec<Family> = families.iter().filter(works).copied().collect();
                let lost = !iptables::are_installed(&families).await;
                *check = Instant::now() + *period;
                lost
            }
        }
    }
}

async fn install_nftables(
    watch: &mut TableWatch,
    desired: &DesiredRules,
    families: &[Family],
    options: &BaseChainOptions,
) -> Result<Applied, Error> {
    let mut commands = String::new();
    for family in families {
        commands += &build_base_chains(*family, options);
        commands += &write_installation(desired, *family);
    }
    // Listing all sets takes long on a node with many clients, and most clusters have no affinity.
    if desired.has_affinity() {
        commands += &desired.keep_affinity(&nft::list_sets().await);
    }
    watch.discard_changes();
    watch.apply(&commands).await?;
    Ok(Applied {
        bytes: commands.len(),
        failures: Vec::new(),
    })
}

/// Applies differences; returns the bytes of the transaction.
async fn change_nftables(
    watch: &mut TableWatch,
    changes: &[Difference],
) -> Result<usize, net_nft::Error> {
    if let Some(elements) = encode_changes(changes) {
        let bytes = elements.iter().map(|change| change.key.len()).sum();
        // The kernel applies one transaction at a time, and that of another program may be large.
        base_task::blocking(|| watch.apply_elements(&elements))?;
        return Ok(bytes);
    }
    let change: String = changes.iter().map(|d| write_difference(d).change).collect();
    watch.apply(&change).await?;
    Ok(change.len())
}

/// Installs all rules of a family; returns the bytes of the input.
async fn install_iptables(
    desired: &DesiredRules,
    family: Family,
    options: &BaseChainOptions,
    more: IptablesOptions,
) -> Result<usize, iptables::Error> {
    let saved = iptables::save(family).await?;
    let inputs = write_iptables_installation(desired, family, options, more, &saved);
    drop(saved);
    for input in &inputs {
        iptables::restore(family, input).await?;
    }
    Ok(inputs.iter().map(String::len).sum())
}

async fn find_options(localhost_node_ports: bool) -> Result<IptablesOptions, iptables::Error> {
    let program = iptables::find_program().await?;
    Ok(IptablesOptions {
        localhost_node_ports,
        random_fully: program.has_random_fully,
        tcp_be_liberal: crate::conntrack_settings::is_tcp_liberal(),
        is_nft_variant: program.is_nft_variant,
    })
}

/// Lets the kernel route packets for 127.0.0.0/8 to pods.
fn open_loopback() {
    const FILE: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";
    let open = || match std::fs::read_to_string(FILE) {
        Ok(value) if value.trim() == "1" => Ok(()),
        _ => std::fs::write(FILE, "1"),
    };
    if let Err(error) = base_task::blocking(open) {
        tracing::warn!(
            %error,
            file = FILE,
            "node ports can't be opened at the loopback address; set iptables.localhostNodePorts to false"
        );
    }
}

/// Checks that the programs of the mode are installed and this process may use them; returns the
/// families that can be served.
///
/// # Errors
/// A program can't be started, or fails.
pub async fn check_programs(mode: &Mode) -> Result<Vec<Family>, Error> {
    let families = net_nft::supported_families();
    match mode {
        Mode::Nftables => {
            net_nft::check_nft().await?;
            let probe: String = families
                .iter()
                .map(|family| write_probe(*family, PROBE))
                .collect();
            let probed = net_nft::check_commands(&probe).await;
            probed.map_err(|error| match error {
                net_nft::Error::Rejected(_) => Error::TooOld(error),
                other => Error::Nftables(other),
            })?;
            Ok(families)
        }
        Mode::Iptables { .. } => Ok(iptables::usable_families(&families).await?),
    }
}

/// Removes the rules of the other mode in some families, after those of this one are installed.
///
/// # Errors
/// A program failed, or is not installed and there are or may be rules.
pub(crate) async fn remove_other_mode(mode: &Mode, families: &[Family]) -> Result<(), Error> {
    match mode {
        Mode::Nftables => remove_iptables(families).await,
        Mode::Iptables { .. } => remove_tables(families).await,
    }
}

/// Removes all rules that the proxy installed in any mode, those of NetworkPolicies included.
///
/// # Errors
/// A program failed, or is not installed and there are or may be rules. Those of the other mode and
/// family are removed nevertheless.
pub async fn remove_rules() -> Result<(), Error> {
    let tables = remove_tables(&[Family::V4, Family::V6]).await;
    let policies = net_policy::delete_tables().await;
    let chains = remove_iptables(&net_nft::supported_families()).await;
    tables.and(policies.map_err(Error::from)).and(chains)
}

async fn remove_tables(families: &[Family]) -> Result<(), Error> {
    for family in families {
        net_nft::delete_table(*family, TABLE).await?;
    }
    Ok(())
}

async fn remove_iptables(families: &[Family]) -> Result<(), Error> {
    let mut result = Ok(());
    for family in families {
        let removed = iptables::remove_rules(*family).await;
        result = result.and(removed.map_err(Error::from));
    }
    result
}

impl Error {
    /// Returns whether the program of a back end is not installed.
    pub(crate) fn is_absent(&self) -> bool {
        match self {
            Self::Nftables(error) | Self::TooOld(error) => error.is_absent(),
            Self::Iptables(error) => error.is_absent(),
        }
    }
}
