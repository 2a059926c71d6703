//! A control plane that several machines share, as this machine knows it.

use serde::{Deserialize, Serialize};

use crate::ranges::Ranges;

/// The label of nodes with a control plane: that of kubeadm.
pub(crate) const CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// The annotation of a Node with the ID of the join that created it.
pub(crate) const JOIN_ANNOTATION: &str = "ironclad.local/join-id";

/// Options of `ironclad init`.
#[derive(Debug, Clone, Default)]
pub struct SharedOptions {
    /// Address of a load balancer before the API servers, `HOST:PORT`.
    pub endpoint: Option<String>,
    /// Additional names and addresses in the API server's certificate.
    pub extra_sans: Vec<String>,
}

/// A shared control plane: what `ironclad init` and `join --control-plane` chose.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlane {
    /// Address of a load balancer or virtual IP before the API servers, `HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Additional names and addresses in the API server's certificate.
    #[serde(default)]
    pub extra_sans: Vec<String>,
    /// Addresses of this node's pods, which the cluster has allocated; None for the first range,
    /// and before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods: Option<Ranges>,
    /// True if the cluster's nodes enforce NetworkPolicies: those of the first machine did at
    /// `ironclad init`.
    pub enforces_policies: bool,
    /// The member of the store on this machine.
    #[serde(default)]
    pub member: StoreMember,
    /// The membership of a machine that joined the control plane; None for the machine of `ironclad
    /// init`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined: Option<JoinedControlPlane>,
}

impl ControlPlane {
    /// Returns the IDs of the member on this machine; None before its first start, and after its
    /// removal.
    #[must_use]
    pub fn identity(&self) -> Option<MemberIdentity> {
        match self.member {
            StoreMember::Listed(identity) => Some(identity),
            StoreMember::Unknown | StoreMember::Removed { .. } => None,
        }
    }
}

/// The member of the store on this machine, as its settings know it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StoreMember {
    /// The store has not listed it yet.
    #[default]
    Unknown,
    /// The store lists it, or did.
    Listed(MemberIdentity),
    /// `ironclad reset` has removed it. The objects of this machine are deleted through these API
    /// servers of other machines.
    Removed {
        /// Their URLs; none if this machine has no objects.
        servers: Vec<String>,
    },
}

/// The IDs of a member of the store. They stay the same while its name and address change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MemberIdentity {
    /// ID of the store's cluster: a restored store has another one.
    pub cluster: u64,
    /// ID of the member.
    pub member: u64,
}

/// A machine that joined the control plane of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JoinedControlPlane {
    /// URL of the API server through which it joined.
    pub server: String,
    /// The last step of the join that is complete.
    pub progress: JoinProgress,
    /// A random ID of this join. The Node that this machine creates has it in an annotation; one
    /// without it is that of another machine.
    pub id: String,
    /// Labels with which the node is created: `key=value`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Taints with which the node is created: `key=value:effect`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<String>,
}

/// The progress of a machine that joins a control plane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum JoinProgress {
    /// The cluster was verified, and its keys are here or about to be written.
    #[default]
    Verified,
    /// The member of this machine was added to the store as a learner.
    Added(StartMembers),
    /// The member votes.
    Voting(StartMembers),
}

/// The members of the store with which that of this machine starts for the first time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StartMembers {
    /// Names and URLs for peers: `NAME=URL`, comma-separated.
    pub initial_cluster: String,
    /// URLs for clients.
    pub client_urls: Vec<String>,
}

impl JoinedControlPlane {
    /// Returns the members with which the store starts; None until that of this machine was added.
    #[must_use]
    pub fn start_members(&self) -> Option<&StartMembers> {
        match &self.progress {
            JoinProgress::Verified => None,
            JoinProgress::Added(members) | JoinProgress::Voting(members) => Some(members),
        }
    }

    /// Returns whether the member of this machine votes.
    #[must_use]
    pub fn is_voter(&self) -> bool {
        matches!(self.progress, JoinProgress::Voting(_))
    }
}
