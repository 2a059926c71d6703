//! Errors of this crate.

use std::path::PathBuf;

/// A failed preparation or release of devices.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The claim is not in the state that the pod needs.
    #[error("{claim}: {why}")]
    Claim {
        /// Namespace and name.
        claim: String,
        /// The reason.
        why: String,
    },
    /// The driver has no plugin here.
    #[error("DRA driver {0} is not registered: start its plugin on this node")]
    NotRegistered(String),
    /// The plugin did not do what it was called for.
    #[error("DRA driver {driver}: {why}")]
    Plugin {
        /// Name of the driver.
        driver: String,
        /// The reason.
        why: String,
    },
    /// The file of prepared claims can't be read or written.
    #[error("{action} {path}: {why}")]
    Checkpoint {
        /// The failed action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason and, if there is one, the remedy.
        why: String,
    },
}
