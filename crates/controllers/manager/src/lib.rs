//! kube-controller-manager as a library: flags, the table of controllers, leadership, health.

mod auth;
mod health;
mod options;
mod run;
mod table;

pub use options::{IGNORED_FLAGS, Options};
pub use run::run;
