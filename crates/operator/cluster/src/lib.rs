//! A cluster on this machine: the processes to run (a plan, pure data), their supervisor, and the
//! commands `up`, `init`, `join`, `down`, `reset`, `backup`, `restore`, `certs`, `doctor`,
//! `status`, `token`, `upgrade` and `supervise` of the operator's tool.
//!
//! Rejected: one process with all components (a component could not be replaced by a stock one),
//! and components as static pods (none would run without a container runtime).

mod addons;
mod addresses;
mod admin_kubeconfig;
mod api_endpoints;
mod api_proxy;
mod backup;
mod certificates;
mod cgroups;
mod checks;
mod cluster_files;
mod cni_plugin;
mod command;
mod command_lock;
mod config_file;
mod configs;
mod connect;
mod containers;
mod control_plane;
mod doctor;
mod down;
mod error;
mod files;
mod image;
mod join;
mod kubelet_renewal;
mod layout;
mod membership;
mod mounts;
mod namespaces;
mod network;
mod node;
mod node_dns;
mod node_state;
mod operations;
mod other_clusters;
mod plan;
mod process;
mod published;
mod random_token;
mod ranges;
mod restore_state;
mod routes;
mod settings;
mod shared_keys;
mod shims;
mod status;
mod store_data;
mod store_members;
mod supervisor;
mod supervisor_record;
mod systemd;
mod token;
mod token_issuers;
mod up;
mod upgrade;
mod upgrade_state;

pub use backup::{BackupOptions, RestoreOptions};
pub use certificates::{CertificateFile, Renewer, list_certificates, renew_certificates};
pub use cni_plugin::{CniBackend, CniPlugin};
pub use control_plane::{
    ControlPlane, JoinProgress, JoinedControlPlane, MemberIdentity, SharedOptions, StartMembers,
    StoreMember,
};
pub use doctor::{Diagnosis, Finding, Severity};
pub use down::DownOptions;
pub use error::{Error, Result};
pub use image::{Archive, busybox_image, pause_image};
pub use join::{
    ControlPlaneKey, DiscoveryOptions, DiscoverySource, JoinOptions, NodeObject, RemovedMachine,
};
pub use layout::Layout;
pub use membership::Membership;
pub use node::{ClusterNode, MAX_NODES};
pub use node_dns::NodeDns;
pub use operations::{
    Operation, ReportProgress, cluster_status, create_control_plane_token, create_token,
    delete_token, diagnose, join_cluster, list_tokens, renew_kubelet_certificates, reset_machine,
    restore_cluster, run_api_proxy, run_supervisor, save_backup, start_cluster, stop_cluster,
    upgrade_cluster,
};
pub use plan::{Plan, Process, Ready, make_plan};
pub use random_token::generate_token;
pub use ranges::Ranges;
pub use settings::{Ports, Runtime, Settings, default_data_dir};
pub use status::{Component, Report};
pub use store_members::Warning;
pub use token::{TokenOptions, format_join_command};
pub use up::UpOptions;
pub use upgrade::{PlannedStep, UpgradeOptions, UpgradeOutcome, UpgradeTarget};
