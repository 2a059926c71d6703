//! A violation of the standards.

/// A violation: what is wrong, and where.
pub struct Finding {
    /// `privileged`
    pub reason: String,
    /// `container "c" must not set securityContext.privileged=true`
    pub detail: String,
}
