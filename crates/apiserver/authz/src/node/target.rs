//! Kinds of objects that kubelets may access.

/// The kinds of objects that are reachable through pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// Secrets.
    Secret,
    /// Config maps.
    ConfigMap,
    /// Persistent volume claims.
    Claim,
    /// Persistent volumes.
    Volume,
    /// Service accounts.
    Account,
    /// Pods themselves.
    Pod,
    /// Resource claims.
    ResourceClaim,
    /// Volume attachments.
    Attachment,
    /// Resource slices.
    Slice,
    /// Requests for pod certificates.
    CertificateRequest,
}
