//! `--endpoint-reconciler-type`.

use std::str::FromStr;
use thiserror::Error;

/// The writer of the endpoints of the Service `kubernetes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointReconciler {
    /// Each server keeps a lease in the store, and the endpoints are the servers with a lease.
    Lease,
    /// Upstream's older kind, which counts the servers of `--apiserver-count`. The endpoints are
    /// kept by leases here, too.
    MasterCount,
    /// The servers write no endpoints: another program, or none, does.
    None,
}

/// A kind that neither upstream nor this server has.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("no such type of reconciler; give lease, master-count or none")]
pub struct UnknownReconciler;

impl FromStr for EndpointReconciler {
    type Err = UnknownReconciler;

    fn from_str(text: &str) -> Result<Self, UnknownReconciler> {
        match text {
            // Upstream's default, for an empty value, too.
            "" | "lease" => Ok(Self::Lease),
            "master-count" => Ok(Self::MasterCount),
            "none" => Ok(Self::None),
            _ => Err(UnknownReconciler),
        }
    }
}

impl EndpointReconciler {
    /// Returns whether this server writes its address.
    pub fn writes_endpoints(self) -> bool {
        self != Self::None
    }
}
