//! The version that clients see.

/// Version in `/version` and in the build metric.
pub const GIT_VERSION: &str = concat!("v1.36.2+ironclad.", env!("CARGO_PKG_VERSION"));
