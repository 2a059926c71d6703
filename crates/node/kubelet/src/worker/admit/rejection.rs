//! The rejection of a pod at admission.

/// A rejection: reason and message of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: String,
    pub(crate) message: String,
}
