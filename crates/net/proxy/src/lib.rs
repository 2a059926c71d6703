//! Services in the kernel: rules that send connections to a Service to one of its endpoints.
//!
//! A pure function ([`build_service_rules`]) describes the desired rules of each Service. A back
//! end puts them into its words ([`render_nftables`], [`render_iptables`]), and the difference to
//! the installed rules becomes one transaction of that size. With nftables, a packet costs a
//! constant number of map look-ups, whatever the number of Services; with iptables, a rule for
//! each. Rules outlive the process, so Services work while it is restarted.

mod affinity;
mod args;
mod backend;
mod base_chains;
mod config;
mod conntrack;
mod conntrack_settings;
mod desired;
mod detect_local;
mod difference;
mod dirty_services;
mod endpoints;
mod health;
mod health_checks;
mod iptables;
mod local;
mod metrics;
mod model;
mod nft;
mod nftables;
mod part;
mod picks;
mod retry;
mod run;
mod service_rules;
mod settings;
mod sync;
mod upstream;

pub use args::Args;
pub use backend::{Error as RulesError, check_programs, remove_rules};
pub use base_chains::{BaseChainOptions, build_base_chains};
pub use config::{Configuration, Error as ConfigError};
pub use conntrack_settings::{ConntrackConfiguration, ConntrackSettings};
pub use desired::{DesiredRules, Render};
pub use detect_local::DetectLocal;
pub use difference::{Difference, Element, FamilyDifference};
pub use endpoints::{Endpoint, choose_endpoints};
pub use iptables::{
    Error as IptablesError, IptablesOptions, render_iptables, write_iptables_changes,
    write_iptables_installation, write_iptables_removal,
};
pub use local::{LocalNode, Masquerade, NodePortAddresses, PodMatch};
pub use model::{ServicePort, service_ports};
pub use net_nft::{Commands, Family, Protocol};
pub use nftables::{render_nftables, write_difference, write_installation};
pub use part::{ElementId, ElementValue, Part};
pub use run::run;
pub use service_rules::{
    External, Front, FrontAddress, HealthCheck, PortRules, Refusal, ServiceRules, Target,
    build_service_rules,
};
pub use settings::{Mode, Settings, apply_conntrack_settings, apply_oom_score};
pub use upstream::{UPSTREAM_FIELDS, UPSTREAM_FLAGS, honoured_fields};
