//! Controllers of what a namespace holds: its deletion, and the usage of its quotas.

pub mod namespace;
pub mod quota;

pub use namespace::add_namespace_controller;
pub use quota::add_quota_controller;
