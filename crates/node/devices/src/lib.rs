//! Devices of ResourceClaims on a node: plugins of drivers, preparation and release.
//!
//! A plugin registers with a socket in the kubelet's registration folder. [`Devices`] calls it
//! before the first pod of a claim starts and after the last one has ended, and keeps what it did
//! in a file, so that a restarted kubelet releases what its predecessor prepared.

mod checkpoint;
mod devices;
mod error;
mod plugin;
mod plugins;

pub use checkpoint::replace_file;
pub use devices::Devices;
pub use error::DeviceError;
pub use plugins::Plugins;
