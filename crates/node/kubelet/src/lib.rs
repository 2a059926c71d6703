//! The kubelet: runs the pods that are bound to its node.
//!
//! - [`Flags`] and [`Settings`] configure it; [`run`] runs it until cancelled. Containers keep
//!   running after a shutdown; the next kubelet recovers them.
//! - `pod` holds the decisions as pure functions; `worker` executes them, one task per pod;
//!   `cri_config` builds CRI configs.
//! - `certificates` requests and renews the node's certificates; `sources` reads pods, `node`
//!   writes the Node object, `pleg` follows the runtime's events, `serving` implements the HTTPS
//!   server's endpoints.

mod certificates;
mod cgroups;
mod config;
mod context;
mod cri_config;
mod devices;
mod housekeeping;
mod images;
mod metrics;
mod node;
mod pleg;
mod pod;
mod pod_source;
mod run;
mod serving;
mod sources;
#[cfg(test)]
mod testing;
mod volumes;
mod worker;

pub use config::{
    CredentialSettings, Flags, ReportingSettings, ServingSettings, Settings, UPSTREAM_FIELDS,
    UPSTREAM_FLAGS, honoured_fields, read_settings,
};
pub use run::run;
