//! Services in the kernel: nftables rules that send connections to a Service to one of its
//! endpoints.
//!
//! A pure function ([`build_service_rules`]) computes the desired rules of each Service; the
//! difference to the installed rules becomes one `nft` transaction of that size. A packet costs a
//! constant number of map look-ups, whatever the number of Services. Rules outlive the process, so
//! Services work while it is restarted.

mod affinity;
mod args;
mod base_chains;
mod config;
mod conntrack;
mod conntrack_settings;
mod desired;
mod detect_local;
mod dirty_services;
mod endpoints;
mod health;
mod health_checks;
mod local;
mod metrics;
mod model;
mod nft;
mod run;
mod service_rules;
mod settings;
mod sync;
mod upstream;

pub use args::Args;
pub use base_chains::{BaseChainOptions, build_base_chains};
pub use config::{Configuration, Error as ConfigError};
pub use conntrack_settings::{ConntrackConfiguration, ConntrackSettings};
pub use desired::DesiredRules;
pub use detect_local::DetectLocal;
pub use endpoints::{Endpoint, choose_endpoints};
pub use local::{LocalNode, NodePortAddresses};
pub use model::{ServicePort, service_ports};
pub use net_nft::{Commands, Family, Protocol, check_nft};
pub use nft::delete_tables;
pub use run::run;
pub use service_rules::{HealthCheck, Part, ServiceRules, build_service_rules};
pub use settings::{Settings, apply_conntrack_settings, apply_oom_score};
pub use upstream::{UPSTREAM_FIELDS, UPSTREAM_FLAGS, honoured_fields};
