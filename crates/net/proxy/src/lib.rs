//! Services in the kernel: nftables rules that send connections to a Service to one of its
//! endpoints.
//!
//! A pure function ([`fragment`]) computes the desired rules of each Service; the difference to the
//! installed rules becomes one `nft` transaction of that size. A packet costs a constant number of
//! map look-ups, whatever the number of Services. Rules outlive the process, so Services work while
//! it is restarted.

mod affinity;
mod args;
mod config;
mod conntrack;
mod desired;
mod endpoints;
mod fragment;
mod health;
mod health_checks;
mod local;
mod model;
mod names;
mod nft;
mod run;
mod skeleton;
mod sync;
mod upstream;

pub use args::Args;
pub use config::{Configuration, Error as ConfigError};
pub use desired::{Commands, Desired};
pub use endpoints::{Endpoint, choose};
pub use fragment::{Fragment, Part, fragment};
pub use local::Node;
pub use model::{Family, Protocol, ServicePort, service_ports};
pub use nft::{check, cleanup};
pub use run::{Settings, run};
pub use skeleton::{Skeleton, skeleton};
pub use upstream::{UPSTREAM_FIELDS, UPSTREAM_FLAGS, honoured_fields};
