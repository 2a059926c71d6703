//! The settings of a cluster on this machine: stored in `DIR/settings.json`, so that every later
//! command uses the same.

mod ports;

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::cni_plugin::{CniBackend, CniPlugin};
#[cfg(test)]
use crate::control_plane::JoinProgress;
use crate::control_plane::{ControlPlane, JoinedControlPlane, MemberIdentity};
use crate::error::{Error, Result};
use crate::membership::Membership;
use crate::ranges::Ranges;
pub use ports::Ports;

/// The name of the file in the data directory.
pub(crate) const FILE: &str = "settings.json";
/// The newest version of the data directory's layout that this release knows; a newer one is
/// rejected.
const NEWEST_LAYOUT: u32 = 3;
/// Layout of a cluster that `ironclad up` started.
pub const LAYOUT: u32 = 1;
/// Layout of a machine that joined a cluster. Releases that don't know memberships reject it: they
/// would start a control plane.
pub const JOINED_LAYOUT: u32 = 2;
/// Layout of a machine with a control plane that several machines share, and of a worker of such a
/// cluster. Releases that don't know it reject it: they would start the store as its only member.
pub const SHARED_LAYOUT: u32 = 3;

/// The container runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Runtime {
    /// The cluster's own containerd.
    Own,
    /// An existing runtime: `unix:///path`.
    Endpoint(String),
    /// No containers: the kubelet simulates them.
    Simulated,
}

/// Settings of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// Version of the data directory's layout.
    pub layout: u32,
    /// Data directory.
    pub data_dir: PathBuf,
    /// Directory of the binaries.
    pub bin_dir: PathBuf,
    /// Name of the node.
    pub node_name: String,
    /// Address of the node, of the primary family.
    pub node_address: IpAddr,
    /// Address of the node, of the other family of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_address: Option<IpAddr>,
    /// Container runtime.
    pub runtime: Runtime,
    /// Plugin of the pod network.
    #[serde(default)]
    pub cni: CniPlugin,
    /// Backend of `ironclad-cni`.
    #[serde(default)]
    pub cni_backend: CniBackend,
    /// A pod network that is not the cluster's own enforces NetworkPolicies, as its owner said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network_policies_enforced: bool,
    /// Addresses of pods.
    pub pod_cidr: Ranges,
    /// Addresses of Services, of the families of pods.
    pub service_cidr: Ranges,
    /// Address of the DNS server of each node; None if pods use that of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_dns: Option<IpAddr>,
    /// Addresses for Services of type LoadBalancer, as in `--load-balancer-pool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_pool: Option<String>,
    /// Issuers of tokens, as in the field `jwt` of `--authentication-config`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub token_issuers: Vec<serde_json::Value>,
    /// The published issuers that those of this machine replace, if a command has changed them and
    /// has not published them yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_issuers: Option<Vec<serde_json::Value>>,
    /// DNS domain.
    pub domain: String,
    /// Ports of the components.
    pub ports: Ports,
    /// Verbosity of the components' logs.
    #[serde(default)]
    pub verbosity: u8,
    /// Number of nodes.
    #[serde(default = "one_node")]
    pub node_count: u8,
    /// Addresses of the link between the nodes; None as long as there is one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_network: Option<Ipv4Net>,
    /// The cluster that this machine joined; None for a cluster that runs on this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub membership: Option<Membership>,
    /// The control plane that this machine shares with others; None for one of its own, and for
    /// workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<ControlPlane>,
}

/// Returns the number of nodes of a cluster whose settings have none.
fn one_node() -> u8 {
    1
}

impl Settings {
    /// Loads the settings of an earlier `up`; None if there are none.
    pub fn load(data_dir: &Path) -> Result<Option<Self>> {
        let path = data_dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(Error::Io { path, cause }),
        };
        // The version is read from the tree: settings of a newer release may not fit this type.
        let tree: serde_json::Value =
            serde_json::from_str(&text).map_err(|cause| Error::Settings {
                path: path.clone(),
                cause,
            })?;
        let found = tree
            .get("layout")
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0);
        if found > u64::from(NEWEST_LAYOUT) {
            return Err(Error::NewerLayout {
                path,
                found,
                known: NEWEST_LAYOUT,
            });
        }
        let settings =
            serde_json::from_value(tree).map_err(|cause| Error::Settings { path, cause })?;
        Ok(Some(settings))
    }

    /// Loads the settings; an error if there are none.
    pub fn load_existing(data_dir: &Path) -> Result<Self> {
        Self::load(data_dir)?.ok_or_else(|| {
            Error::Refused(format!(
                "{} holds no cluster; name its data directory with --data-dir",
                data_dir.display()
            ))
        })
    }

    /// Writes `DIR/settings.json`.
    pub fn save(&self) -> Result<()> {
        let text = serde_json::to_string_pretty(self).unwrap_or_default();
        crate::files::write_file(&self.data_dir.join(FILE), text.as_bytes())
    }

    /// Returns whether pods really run.
    #[must_use]
    pub fn runs_pods(&self) -> bool {
        self.runtime != Runtime::Simulated
    }

    /// Returns whether this machine's components connect to the API servers through a proxy of the
    /// machine.
    #[must_use]
    pub fn has_api_proxy(&self) -> bool {
        let membership = self.membership.as_ref();
        self.control_plane.is_some() || membership.is_some_and(|membership| membership.has_proxy)
    }

    /// Returns whether the member of the store on this machine was added and not promoted yet.
    /// Until then nothing but the store runs.
    #[must_use]
    pub fn awaits_promotion(&self) -> bool {
        self.joined_control_plane()
            .is_some_and(|joined| !joined.is_voter())
    }

    /// Returns the membership of a machine that joined the control plane of another one.
    #[must_use]
    pub fn joined_control_plane(&self) -> Option<&JoinedControlPlane> {
        self.control_plane.as_ref()?.joined.as_ref()
    }

    /// Returns the IDs of the store's member on this machine, as far as they are known.
    #[must_use]
    pub fn member_identity(&self) -> Option<MemberIdentity> {
        self.control_plane.as_ref()?.identity()
    }

    /// Returns whether NetworkPolicies have an effect in the cluster: its nodes enforce them, or
    /// the network of another owner does.
    #[must_use]
    pub fn has_enforced_policies(&self) -> bool {
        self.network_policies_enforced || self.cluster_enforces_policies()
    }

    /// Returns whether the nodes of the cluster enforce NetworkPolicies. A machine with another
    /// runtime does not change that for the others.
    #[must_use]
    pub fn cluster_enforces_policies(&self) -> bool {
        match (&self.membership, &self.control_plane) {
            (Some(membership), _) => membership.enforces_policies,
            (None, Some(shared)) => shared.enforces_policies,
            // This machine has the only control plane, so its own runtime decides for the cluster.
            (None, None) => self.enforces_own_policies(),
        }
    }

    /// Returns whether this machine's nodes enforce NetworkPolicies: if the cluster's do, and the
    /// pod network is the cluster's own. A runtime of another owner has a network plugin of its
    /// own.
    #[must_use]
    pub fn enforces_policies(&self) -> bool {
        self.enforces_own_policies() && self.cluster_enforces_policies()
    }

    /// Returns whether pods of this machine have a network that is not the cluster's own, which may
    /// enforce policies.
    pub(crate) fn has_network_of_others(&self) -> bool {
        self.runs_pods() && !self.enforces_own_policies()
    }

    /// Returns whether kube-proxy can enforce policies in the pod network of this machine.
    fn enforces_own_policies(&self) -> bool {
        self.runtime == Runtime::Own && !self.has_foreign_network()
    }

    /// Returns whether the pods of this machine are not isolated by NetworkPolicies, unlike those
    /// of other nodes.
    #[must_use]
    pub(crate) fn lacks_policies(&self) -> bool {
        if self.network_policies_enforced && self.has_network_of_others() {
            return false;
        }
        self.runs_pods() && self.has_enforced_policies() && !self.enforces_policies()
    }

    /// Returns whether pods really run, and the range of this machine's pods is known: that of a
    /// joined machine is allocated after its node has registered.
    #[must_use]
    pub fn has_pod_network(&self) -> bool {
        let membership = self.membership.as_ref();
        self.runs_pods() && membership.is_none_or(|membership| membership.pods.is_some())
    }

    /// Returns a word that distinguishes clusters on one machine; empty for the default directory.
    #[must_use]
    pub fn instance(&self) -> String {
        instance_name(&self.data_dir)
    }

    /// Returns the name of the pods' bridge.
    #[must_use]
    pub fn bridge(&self) -> String {
        match self.instance().as_str() {
            "" => "ironclad0".to_owned(),
            word => format!("ic-{word}"),
        }
    }

    /// Returns whether a device is the bridge of a cluster, this one or another.
    #[must_use]
    pub fn is_bridge(device: &str) -> bool {
        device == "ironclad0"
            || device
                .strip_prefix("ic-")
                // The length of `instance_name`.
                .is_some_and(|word| word.len() == 8)
    }

    /// Returns the name of the pod network's nftables table.
    #[must_use]
    pub fn table(&self) -> String {
        match self.instance().as_str() {
            "" => "ironclad".to_owned(),
            word => format!("ironclad-{word}"),
        }
    }

    /// Returns whether a table of nftables is that of a cluster, this one or another.
    #[must_use]
    pub(crate) fn is_table(name: &str) -> bool {
        let word = name.strip_prefix("ironclad-");
        // The length of `instance_name`.
        name == "ironclad" || word.is_some_and(|word| word.len() == 8)
    }

    /// Returns the name of the bridge between the nodes.
    #[must_use]
    pub fn link_bridge(&self) -> String {
        match self.instance().as_str() {
            "" => "ironclad-nodes".to_owned(),
            // The kernel limits names of devices to 15 characters (IFNAMSIZ).
            word => format!("icn-{word}"),
        }
    }

    /// Returns the issuer of the tokens of ServiceAccounts.
    #[must_use]
    pub fn service_account_issuer(&self) -> String {
        format!("https://kubernetes.default.svc.{}", self.domain)
    }

    /// Returns the URL of the API server for clients on this machine.
    #[must_use]
    pub fn server_url(&self) -> String {
        if self.has_api_proxy() {
            return format!("https://127.0.0.1:{}", self.ports.api_proxy);
        }
        match &self.membership {
            Some(membership) => membership.server.clone(),
            None => format!("https://127.0.0.1:{}", self.ports.api),
        }
    }

    /// Returns the URL of the API server for other machines; for a cluster without them, because
    /// its containers are simulated, that for this one.
    #[must_use]
    pub fn join_url(&self) -> String {
        if let Some(endpoint) = self
            .control_plane
            .as_ref()
            .and_then(|shared| shared.endpoint.as_ref())
        {
            return format!("https://{endpoint}");
        }
        if self.runs_pods() || self.control_plane.is_some() {
            let address = SocketAddr::new(self.node_address, self.ports.api);
            format!("https://{address}")
        } else {
            self.server_url()
        }
    }
}

#[cfg(test)]
impl Settings {
    /// Returns these settings with the progress of a join to the control plane.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn with_progress(mut self, progress: JoinProgress) -> Self {
        let shared = self.control_plane.as_mut().unwrap();
        shared.joined.as_mut().unwrap().progress = progress;
        self
    }

    /// Returns settings with all defaults.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn example() -> Self {
        Self {
            layout: LAYOUT,
            data_dir: "/data".into(),
            bin_dir: "/bin".into(),
            node_name: "n1".into(),
            node_address: "192.0.2.2".parse().unwrap(),
            runtime: Runtime::Own,
            second_address: None,
            cni: CniPlugin::Bridge,
            cni_backend: CniBackend::Auto,
            network_policies_enforced: false,
            node_dns: None,
            pod_cidr: "10.244.0.0/16".parse().unwrap(),
            service_cidr: "10.96.0.0/16".parse().unwrap(),
            load_balancer_pool: None,
            token_issuers: Vec::new(),
            replaced_issuers: None,
            domain: "cluster.local".into(),
            ports: Ports::default(),
            verbosity: 0,
            node_count: 1,
            node_network: None,
            membership: None,
            control_plane: None,
        }
    }

    /// Returns settings of a machine that joined a cluster.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn example_joined() -> Self {
        Self {
            layout: JOINED_LAYOUT,
            node_name: "w1".into(),
            node_address: "192.0.2.3".parse().unwrap(),
            membership: Some(Membership {
                server: "https://192.0.2.2:6443".into(),
                endpoint: None,
                pods: "10.244.7.0/24".parse().ok(),
                enforces_policies: true,
                has_proxy: false,
                labels: vec!["disk=ssd".into()],
                taints: vec!["dedicated=db:NoSchedule".into()],
            }),
            ..Self::example()
        }
    }

    /// Returns settings of a machine that joins the control plane of another one.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn example_shared() -> Self {
        Self {
            layout: SHARED_LAYOUT,
            node_name: "cp2".into(),
            node_address: "192.0.2.3".parse().unwrap(),
            control_plane: Some(ControlPlane {
                pods: "10.244.7.0/24".parse().ok(),
                enforces_policies: true,
                joined: Some(JoinedControlPlane {
                    server: "https://192.0.2.2:6443".into(),
                    progress: JoinProgress::Verified,
                    id: "j1".into(),
                    labels: Vec::new(),
                    taints: Vec::new(),
                }),
                ..ControlPlane::default()
            }),
            ..Self::example()
        }
    }

    /// Returns settings of a cluster with several nodes.
    #[allow(clippy::unwrap_used)]
    pub(crate) fn with_nodes(count: u8) -> Self {
        Self {
            node_count: count,
            node_network: Some("198.18.7.0/24".parse().unwrap()),
            ..Self::example()
        }
    }
}

/// Returns the default data directory.
#[must_use]
pub fn default_data_dir() -> PathBuf {
    PathBuf::from("/var/lib/ironclad")
}

/// Returns a word derived from the data directory; empty for the default one.
#[must_use]
pub fn instance_name(data_dir: &Path) -> String {
    if data_dir == default_data_dir() {
        return String::new();
    }
    crate::files::digest_hex(data_dir.as_os_str().as_encoded_bytes())
        .chars()
        .take(8)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn settings_in(dir: &Path) -> Settings {
        Settings {
            data_dir: dir.into(),
            ..Settings::example()
        }
    }

    #[test]
    fn saved_settings_are_loaded_again() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Settings::load(dir.path()).unwrap(), None);
        for runtime in [
            Runtime::Own,
            Runtime::Simulated,
            Runtime::Endpoint("unix:///c.sock".into()),
        ] {
            let settings = Settings {
                runtime,
                ..settings_in(dir.path())
            };
            settings.save().unwrap();
            assert_eq!(Settings::load(dir.path()).unwrap(), Some(settings));
        }
    }

    #[test]
    fn settings_of_a_newer_release_or_of_a_damaged_file_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        for (text, message) in [
            (
                r#"{"layout": 4}"#,
                "newer release (layout 4, this one knows 3)",
            ),
            (r#"{"layout": 1}"#, "is damaged"),
            ("{", "is damaged"),
        ] {
            fs::write(&path, text).unwrap();
            let error = Settings::load(dir.path()).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }

    /// The kernel allows 15 bytes for the name of a device.
    #[test]
    fn clusters_of_one_machine_have_names_of_their_own() {
        let default = settings_in(&default_data_dir());
        assert_eq!(
            (default.bridge().as_str(), default.table().as_str()),
            ("ironclad0", "ironclad")
        );
        let (a, b) = (settings_in(Path::new("/a")), settings_in(Path::new("/b")));
        assert_ne!(a.bridge(), b.bridge());
        assert_ne!(a.table(), b.table());
        for settings in [&default, &a, &b] {
            assert!(settings.bridge().len() <= 15 && Settings::is_bridge(&settings.bridge()));
            assert!(Settings::is_table(&settings.table()));
        }
        for other in ["docker0", "ic-", "ic-123456789", "ironclad"] {
            assert!(!Settings::is_bridge(other), "{other}");
        }
    }

    #[test]
    fn settings_of_a_cluster_before_several_nodes_have_one() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = serde_json::to_value(settings_in(dir.path())).unwrap();
        tree.as_object_mut().unwrap().remove("nodeCount");
        fs::write(dir.path().join("settings.json"), tree.to_string()).unwrap();
        let loaded = Settings::load(dir.path()).unwrap().unwrap();
        assert_eq!(loaded, settings_in(dir.path()));
    }

    /// The network of another owner enforces policies on machines that have it, and not on those
    /// with a network of this project.
    #[test]
    fn network_of_another_owner_enforces_policies_on_its_machines_only() {
        let own = Settings::example();
        let without = Settings {
            cni: CniPlugin::None,
            ..Settings::example()
        };
        let mut joined = Settings::example_joined();
        joined.membership.as_mut().unwrap().enforces_policies = false;
        let joined_without = Settings {
            cni: CniPlugin::None,
            ..joined.clone()
        };
        for (settings, claimed, enforced, lacks) in [
            (&own, false, true, false),
            (&without, false, false, false),
            (&without, true, true, false),
            (&joined, false, false, false),
            (&joined, true, true, true),
            (&joined_without, true, true, false),
        ] {
            let settings = Settings {
                network_policies_enforced: claimed,
                ..settings.clone()
            };
            let found = (settings.has_enforced_policies(), settings.lacks_policies());
            assert_eq!(found, (enforced, lacks), "{settings:?}");
            assert_eq!(settings.enforces_policies(), settings == own);
        }
    }

    #[test]
    fn policies_are_enforced_if_the_cluster_does_and_the_pod_network_is_its_own() {
        let foreign = Runtime::Endpoint("unix:///c.sock".into());
        let shared = |is_enforced: bool| {
            let mut settings = Settings::example_shared();
            settings.control_plane.as_mut().unwrap().enforces_policies = is_enforced;
            settings
        };
        for (settings, runtime, cluster, own) in [
            (Settings::example(), Runtime::Own, true, true),
            (Settings::example(), foreign.clone(), false, false),
            (Settings::example_joined(), Runtime::Own, true, true),
            (Settings::example_joined(), foreign.clone(), true, false),
            (shared(true), Runtime::Own, true, true),
            (shared(true), foreign.clone(), true, false),
            (shared(true), Runtime::Simulated, true, false),
            (shared(false), Runtime::Own, false, false),
            (shared(false), foreign.clone(), false, false),
        ] {
            let settings = Settings {
                runtime,
                ..settings
            };
            let found = (
                settings.cluster_enforces_policies(),
                settings.enforces_policies(),
            );
            assert_eq!(found, (cluster, own), "{settings:?}");
        }
    }
}
