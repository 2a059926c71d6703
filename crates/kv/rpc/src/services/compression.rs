//! The error for compressed requests.

/// Reason why a compressed request is rejected.
pub(crate) const COMPRESSED: &str = "compressed messages are not taken";
