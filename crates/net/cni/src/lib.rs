//! The plugin of the pod network, which the container runtime runs for each pod (CNI 1.1): a pair
//! of devices on the node's bridge, addresses of the node's ranges, and host ports.
//!
//! Each attachment has a record on disk, which is written before anything else is made and removed
//! after everything else is. So whatever a killed process leaves can be found and removed.

mod allocation;
mod bandwidth;
mod bridge;
mod check;
mod collect;
mod config;
mod environment;
mod error;
mod host_port_rules;
mod host_ports;
mod loopback;
mod plugin;
mod pod_device;
mod port_mapping;
mod records;
mod removal;
mod response;
mod version;

pub use bridge::{Bridge, OUTSIDE, gateway_mac};
pub use config::{AddressRange, DEFAULT_BRIDGE, DEFAULT_DATA_DIR};
pub use environment::{COMMAND_VARIABLE, Environment};
pub use error::PluginError;
pub use host_ports::{LockedHostPorts, remove_host_ports};
pub use plugin::{Output, read_boot_id, run_plugin};
