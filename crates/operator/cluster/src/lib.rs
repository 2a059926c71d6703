//! A cluster on this machine: the processes to run (a plan, pure data), their supervisor, and the
//! commands `up`, `join`, `down`, `reset`,
//! `backup`, `restore`, `certs`, `doctor`, `status`, `token` and `supervise` of the operator's tool.
//!
//! Rejected: one process with all components (a component could not be replaced by a stock one),
//! and components as static pods (none would run without a container runtime).

mod addons;
mod backup;
mod bridges;
mod certificates;
mod cgroups;
mod checks;
mod cluster_files;
mod command;
mod configs;
mod connect;
mod containers;
mod doctor;
mod down;
mod error;
mod files;
mod image;
mod join;
mod layout;
mod membership;
mod mounts;
mod namespaces;
mod network;
mod node;
mod plan;
mod process;
mod published;
mod restore_state;
mod routes;
mod settings;
mod shims;
mod status;
mod supervisor;
mod supervisor_record;
mod systemd;
mod token;
mod up;

pub use backup::{BackupOptions, RestoreOptions, restore_cluster, save_backup};
pub use certificates::{CertificateFile, Renewer, list_certificates, renew_certificates};
pub use doctor::{Diagnosis, Finding, Severity, diagnose};
pub use down::{DownOptions, stop_cluster};
pub use error::{Error, Result};
pub use image::{Archive, busybox_image, pause_image};
pub use join::{DiscoveryOptions, DiscoverySource, JoinOptions, join_cluster, reset_machine};
pub use layout::Layout;
pub use membership::Membership;
pub use node::{ClusterNode, MAX_NODES};
pub use plan::{Plan, Process, Ready, make_plan};
pub use settings::{Ports, Runtime, Settings, default_data_dir};
pub use status::{Component, Report, cluster_status};
pub use supervisor::run_supervisor;
pub use token::{
    TokenOptions, create_token, delete_token, format_join_command, generate_token, list_tokens,
};
pub use up::{UpOptions, start_cluster};
