//! Builds the CRI config of a pod: sandbox and container configurations, environment, names,
//! resources.

pub(crate) mod apparmor;
pub(crate) mod container;
pub(crate) mod dns;
pub(crate) mod env;
pub(crate) mod expand;
pub(crate) mod fields;
pub(crate) mod hosts;
pub(crate) mod resources;
pub(crate) mod sandbox;
pub(crate) mod security;
pub(crate) mod service_env;
