//! One sync: makes the kernel and the runtime's configuration equal to the Node objects.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use net_link::{Netlink, PublicKey};

use crate::conflist::{NETWORK, build_conflist, has_conflist, remove_conflist, write_conflist};
use crate::encryption::make_encrypted_plan;
use crate::firewall::{build_drops, build_rules};
use crate::kernel::{
    KernelError, apply_plan, choose_mtu, ensure_bridge, ensure_tunnel, find_gateways, find_link,
    find_uplink, remove_wireguard,
};
use crate::peers::{NodeEntry, Peers};
use crate::plan::{LocalNetwork, Plan, make_plan};
use crate::settings::{Backend, NodeSettings};
use crate::wireguard::{apply_peers, ensure_wireguard};

/// The reason why a sync failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The kernel refuses something that all pods need.
    #[error("{0}")]
    Kernel(#[from] KernelError),
    /// `nft` failed; the rules are those of before.
    #[error("{0}")]
    Rules(#[from] net_nft::Error),
    /// The runtime's directory can't be written.
    #[error("the runtime's configuration can't be written: {0}")]
    Conflist(std::io::Error),
    /// The kernel does not tell its boot.
    #[error("/proc/sys/kernel/random/boot_id can't be read: {0}")]
    Boot(std::io::Error),
    /// The node is not registered.
    #[error("the Node {0} does not exist; start the kubelet, or set --hostname-override")]
    NoNode(String),
    /// The node has no ranges.
    #[error(
        "the Node {0} has no podCIDRs; start kube-controller-manager with --allocate-node-cidrs"
    )]
    NoRange(String),
    /// The node has no address.
    #[error("the Node {0} has no InternalIP yet; the kubelet reports it")]
    NoAddress(String),
    /// The range is not one of the cluster's.
    #[error("the range {0} of this node is not a part of --cluster-cidr; correct the flag")]
    ForeignRange(IpNet),
}

/// The network of a node, as it was made last.
#[derive(Debug)]
pub struct NodeNetwork {
    settings: NodeSettings,
    /// The rules that were applied last.
    rules: Option<String>,
    /// The rules that drop unencrypted packets are installed.
    has_drops: bool,
    /// The values of Node objects of the last sync that succeeded.
    inputs: Option<(NodeEntry, Peers)>,
    /// The node's ranges at the last sync.
    ranges: Vec<IpNet>,
    problems: BTreeSet<String>,
    /// The public key that the Node has.
    published_key: Option<PublicKey>,
    /// The public key of the WireGuard device.
    key: Option<PublicKey>,
}

impl NodeNetwork {
    /// Returns the network of a node before its first sync.
    #[must_use]
    pub fn new(settings: NodeSettings) -> Self {
        Self {
            settings,
            rules: None,
            has_drops: false,
            inputs: None,
            ranges: Vec::new(),
            problems: BTreeSet::new(),
            published_key: None,
            key: None,
        }
    }

    /// Returns whether packets to pods of other nodes are encrypted.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.settings.backend == Backend::Wireguard
    }

    /// Returns the public key of the node, if its Node does not have it.
    #[must_use]
    pub fn unpublished_key(&self) -> Option<PublicKey> {
        self.key.filter(|key| self.published_key != Some(*key))
    }

    /// Returns whether the last sync left no entry out that the kernel refused.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.inputs.is_some()
    }

    /// Installs the host ports of the node's pods again, which the plugin does on changes only.
    ///
    /// # Errors
    /// The records can't be read, or the kernel refuses the rules.
    pub async fn restore_host_ports(&self) -> Result<(), net_cni::PluginError> {
        let settings = &self.settings;
        let lock = || net_cni::LockedHostPorts::lock(&settings.data_dir, NETWORK);
        match base_task::blocking(lock)? {
            Some(locked) => locked.restore(&self.ranges, &settings.bridge).await,
            None => Ok(()),
        }
    }

    /// Makes the next sync compare everything in the kernel but the rules.
    pub fn mark_kernel(&mut self) {
        self.inputs = None;
    }

    /// Makes the next sync install the rules.
    pub fn mark_rules(&mut self) {
        self.rules = None;
        self.has_drops = false;
    }

    /// Removes the runtime's configuration of another backend or of an earlier boot, if packets
    /// have to be encrypted: pods would start without the encryption. One of this backend stays
    /// whatever fails later, as its rules and its tunnel stay, too.
    ///
    /// # Errors
    /// The directory can't be written.
    pub fn remove_foreign_conflist(&self) -> std::io::Result<()> {
        match self.is_encrypted() && !self.has_own_conflist() {
            true => base_task::blocking(|| remove_conflist(&self.settings.conf_dir)),
            false => Ok(()),
        }
    }

    /// Installs the rules that drop unencrypted packets, unless they are known to be there. They
    /// depend on no object, and are needed until the first sync succeeds.
    ///
    /// # Errors
    /// As of `apply_rules`.
    pub async fn ensure_drops<F: Future<Output = Result<(), net_nft::Error>>>(
        &mut self,
        apply_rules: impl FnOnce(String) -> F,
    ) -> Result<(), net_nft::Error> {
        if !self.is_encrypted() || self.has_drops {
            return Ok(());
        }
        let families = net_nft::supported_families();
        apply_rules(build_drops(&self.settings, &families)).await?;
        self.has_drops = true;
        Ok(())
    }

    fn has_own_conflist(&self) -> bool {
        let settings = &self.settings;
        let boot_id = base_task::blocking(net_cni::read_boot_id).ok();
        boot_id.is_some_and(|boot_id| {
            base_task::blocking(|| has_conflist(&settings.conf_dir, settings.backend, &boot_id))
        })
    }

    /// Makes everything equal to the Node objects. `apply_rules` applies a transaction of nft.
    /// Returns the problems with single nodes.
    ///
    /// # Errors
    /// A part that all pods need is missing. The parts before it are there. The runtime's
    /// configuration stays, except one that [`NodeNetwork::remove_foreign_conflist`] removes.
    pub async fn sync<F: Future<Output = Result<(), net_nft::Error>>>(
        &mut self,
        nodes: &[Arc<Node>],
        apply_rules: impl FnOnce(String) -> F,
    ) -> Result<BTreeSet<String>, SyncError> {
        let own = self.find_own(nodes)?;
        self.published_key = own.key;
        self.ranges.clone_from(&own.ranges);
        let peers = Peers::check(&own, &self.settings.cluster_ranges, nodes);
        let inputs = (own, peers);
        if self.inputs.as_ref() == Some(&inputs) && self.rules.is_some() {
            return Ok(self.problems.clone());
        }
        self.inputs = None;
        let (own, peers) = &inputs;
        let settings = &self.settings;
        let mut ways = base_task::blocking(|| find_ways(settings, own, peers))?;
        let families = net_nft::supported_families();
        let plan = ways.make_plan(peers);
        let rules = build_rules(settings, &families, &ways.local, &plan);
        // First: without them, the tunnel would be open to all.
        if self.rules.as_ref() != Some(&rules) {
            self.rules = None;
            apply_rules(rules.clone()).await?;
            self.rules = Some(rules);
            self.has_drops = true;
        }
        let applied = base_task::blocking(|| apply_to_kernel(settings, &mut ways, peers))?;
        self.key = applied.key;
        // Last: pods start once their network is complete.
        self.write_conflist(&own.ranges, ways.mtu)?;
        let mut problems: BTreeSet<String> = peers.rejected.iter().cloned().collect();
        problems.extend(applied.plan.unreachable.iter().cloned());
        problems.extend(applied.failures.iter().map(ToString::to_string));
        // A failure is tried again.
        self.inputs = applied.failures.is_empty().then_some(inputs);
        self.problems.clone_from(&problems);
        Ok(problems)
    }

    /// Writes the runtime's configuration; the first one only if the Node has the key: without it,
    /// no other node reaches the pods. The changed Node causes the next sync.
    fn write_conflist(&self, ranges: &[IpNet], mtu: u32) -> Result<(), SyncError> {
        if self.unpublished_key().is_some() && !self.has_own_conflist() {
            return Ok(());
        }
        let settings = &self.settings;
        let boot_id = base_task::blocking(net_cni::read_boot_id).map_err(SyncError::Boot)?;
        let tree = build_conflist(settings, ranges, mtu, &boot_id);
        let written = base_task::blocking(|| write_conflist(&settings.conf_dir, &tree));
        if written.map_err(SyncError::Conflist)? {
            tracing::info!(?ranges, mtu, "the plugin's configuration is written");
        }
        Ok(())
    }

    fn find_own(&self, nodes: &[Arc<Node>]) -> Result<NodeEntry, SyncError> {
        let name = &self.settings.node_name;
        let mut entries = nodes.iter();
        let node = entries.find(|node| node.metadata.name.as_ref() == Some(name));
        let entry = node.and_then(|node| NodeEntry::read(node));
        let own = entry.ok_or_else(|| SyncError::NoNode(name.clone()))?;
        if own.ranges.is_empty() {
            return Err(SyncError::NoRange(name.clone()));
        }
        if own.addresses.is_empty() {
            return Err(SyncError::NoAddress(name.clone()));
        }
        let cluster = &self.settings.cluster_ranges;
        let is_foreign = |range: &&IpNet| !cluster.iter().any(|outer| outer.contains(*range));
        match own.ranges.iter().find(is_foreign) {
            Some(range) => Err(SyncError::ForeignRange(*range)),
            None => Ok(own),
        }
    }
}

/// The ways to other nodes, as far as the kernel knows them.
struct Ways {
    local: LocalNetwork,
    /// Devices of the links with other nodes, by their addresses.
    links: BTreeMap<IpAddr, u32>,
    /// Addresses that a node may name although they are not its own: packets of pods to them are
    /// masqueraded, so that answers come back in any case.
    others: BTreeSet<IpAddr>,
    mtu: u32,
    tunnel_mtu: u32,
}

impl Ways {
    fn make_plan(&self, peers: &Peers) -> Plan {
        if self.local.backend == Backend::Wireguard {
            return make_encrypted_plan(&self.local, peers);
        }
        let mut plan = make_plan(&self.local, peers, |address| {
            self.links.get(&address).copied()
        });
        plan.linked.retain(|address| !self.others.contains(address));
        plan
    }
}

fn find_ways(settings: &NodeSettings, own: &NodeEntry, peers: &Peers) -> Result<Ways, SyncError> {
    let mut netlink = Netlink::open().map_err(KernelError::from)?;
    let address = own.addresses.first().copied();
    let address = address.ok_or_else(|| SyncError::NoAddress(own.name.clone()))?;
    let uplink = find_uplink(&mut netlink, address)?;
    let (links, others) = match settings.backend {
        // All packets take the tunnel.
        Backend::Wireguard => Default::default(),
        _ => find_links(&mut netlink, settings, peers),
    };
    Ok(Ways {
        local: LocalNetwork {
            ranges: own.ranges.clone(),
            address,
            backend: settings.backend,
            tunnel: None,
            cluster_ranges: settings.cluster_ranges.clone(),
            wireguard_port: settings.wireguard_port,
        },
        links,
        others,
        mtu: choose_mtu(settings, &uplink, address)?,
        tunnel_mtu: uplink.mtu.saturating_sub(settings.overhead(address)),
    })
}

/// Returns the devices of the links with other nodes, and the addresses that are not only theirs.
fn find_links(
    netlink: &mut Netlink,
    settings: &NodeSettings,
    peers: &Peers,
) -> (BTreeMap<IpAddr, u32>, BTreeSet<IpAddr>) {
    let addresses = peers.nodes.iter().flat_map(|node| &node.addresses);
    let links = addresses
        .filter_map(|address| Some((*address, find_link(netlink, settings, *address)?)))
        .collect();
    let mut others = find_gateways(netlink);
    others.extend(settings.api_server);
    (links, others)
}

/// The result of a sync with the kernel.
struct Applied {
    plan: Plan,
    failures: Vec<net_link::Error>,
    /// The public key of the WireGuard device.
    key: Option<PublicKey>,
}

fn apply_to_kernel(
    settings: &NodeSettings,
    ways: &mut Ways,
    peers: &Peers,
) -> Result<Applied, SyncError> {
    let mut netlink = Netlink::open().map_err(KernelError::from)?;
    ensure_bridge(&mut netlink, settings, &ways.local, ways.mtu)?;
    ways.local.tunnel = ensure_tunnel(&mut netlink, settings, &ways.local, ways.tunnel_mtu)?;
    if settings.backend == Backend::Wireguard {
        let mtu = ways.tunnel_mtu;
        let encryption = ensure_wireguard(&mut netlink, settings, &ways.local, mtu)?;
        ways.local.tunnel = Some(encryption.device);
        let plan = ways.make_plan(peers);
        let mut failures = apply_peers(encryption.device, &plan.encrypted)?;
        // WireGuard has no forwarding entries.
        failures.extend(apply_plan(&mut netlink, None, &plan)?);
        return Ok(Applied {
            plan,
            failures,
            key: Some(encryption.key),
        });
    }
    remove_wireguard(&mut netlink, settings)?;
    let plan = ways.make_plan(peers);
    let failures = apply_plan(&mut netlink, ways.local.tunnel, &plan)?;
    Ok(Applied {
        plan,
        failures,
        key: None,
    })
}
