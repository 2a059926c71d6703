//! kube-controller-manager as a library: flags, the table of controllers, leader election, health.

mod options;
mod run;
mod table;

pub use options::{Options, UPSTREAM_FLAGS};
pub use run::run;
