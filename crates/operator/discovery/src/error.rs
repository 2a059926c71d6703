//! Errors: each one sentence with the cause and, if there is one, the remedy.

/// The reason why a cluster could not be discovered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server can't be reached, or rejects the request.
    #[error(
        "reading cluster-info from {endpoint} failed; check the address and the firewall: {reason}"
    )]
    Request {
        /// Address of the API server.
        endpoint: String,
        /// The reason, without any text of the server, which is not verified yet.
        reason: String,
    },
    /// The API server's certificate is not signed by the pinned CA.
    #[error(
        "the server at {endpoint} can't be verified with the pinned CA; it is not the server of this cluster, or another \
         machine intercepts the connection: {source}"
    )]
    Untrusted {
        /// Address of the API server.
        endpoint: String,
        /// The reason.
        #[source]
        source: client::Error,
    },
    /// The token has not signed cluster-info.
    #[error(
        "the cluster has no signature of token {id}: the token has expired, was deleted, or belongs to another cluster; \
         create one with `ironclad token create`"
    )]
    Unsigned {
        /// The public part of the token.
        id: String,
    },
    /// The signature does not match the content.
    #[error(
        "the signature of cluster-info does not match token {id}: the token is mistyped, or the server is not the cluster's"
    )]
    Signature {
        /// The public part of the token.
        id: String,
    },
    /// No certificate of the CA has a pinned key.
    #[error(
        "the CA of the cluster has the public key {found}, which is none of the expected ones; check \
         --discovery-token-ca-cert-hash, and that the server is the cluster's"
    )]
    NotPinned {
        /// Pins of the CA's certificates.
        found: String,
    },
    /// Two readings of cluster-info differ.
    #[error(
        "cluster-info differs between the first and the verified reading; another machine intercepts the connection, or it \
         was changed just now: run the command again"
    )]
    Changed,
    /// A kubeconfig lacks what a joining machine needs.
    #[error("{what} {defect}")]
    Kubeconfig {
        /// The document.
        what: String,
        /// The defect, as a predicate.
        defect: String,
    },
    /// A file can't be read.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
}
