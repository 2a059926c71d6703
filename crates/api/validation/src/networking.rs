//! The group `networking.k8s.io`.

mod addresses;
mod ingress;
mod policy;

pub use addresses::{IP_ADDRESS, SERVICE_CIDR};
pub use ingress::{INGRESS, INGRESS_CLASS};
pub use policy::NETWORK_POLICY;
