//! Network devices, addresses, routes and neighbours of the kernel, through netlink.
//!
//! Each request waits for the kernel's answer, which takes microseconds: callers in a runtime use
//! `base_task::blocking`. It decides nothing and knows no object of the API.

mod address;
mod changes;
mod connection;
mod device;
mod error;
mod generic;
mod namespace;
mod neighbour;
mod request;
mod route;
mod shaping;
mod wireguard;
mod wireguard_key;

pub use address::DeviceAddress;
pub use changes::ChangeMonitor;
pub use device::{Device, DeviceName, MacAddress, NewVeth, NewVxlan, VxlanInfo};
pub use error::Error;
pub use namespace::{is_own_namespace, open_in, run_in};
pub use neighbour::{ForwardingEntry, NeighbourEntry};
pub use request::Netlink;
pub use route::{Route, RouteSource};
pub use shaping::TokenBucket;
pub use wireguard::{WireguardDevice, WireguardNetlink, WireguardPeer};
pub use wireguard_key::{InvalidKey, PrivateKey, PublicKey};
