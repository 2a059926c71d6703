//! Identity: the credentials of a request and the user that they stand for.

use std::collections::BTreeMap;
use std::sync::Arc;

/// An authenticated identity, as `user.Info` in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `system:serviceaccount:NS:NAME`, a certificate's CN, ...
    pub name: String,
    /// Empty when the authenticator knows none.
    pub uid: String,
    /// Groups, `system:authenticated` or `system:unauthenticated` included.
    pub groups: Vec<String>,
    /// `authentication.kubernetes.io/pod-name` and the like.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The name of requests that carry no credentials.
    pub const ANONYMOUS: &'static str = "system:anonymous";
    /// The group that no authoriser refuses.
    pub const MASTERS: &'static str = "system:masters";

    /// A user without credentials.
    pub fn anonymous() -> Self {
        User { name: Self::ANONYMOUS.into(), groups: vec!["system:unauthenticated".into()], ..User::default() }
    }

    /// Whether the user is in `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// What a request brings along to prove an identity.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// DER certificates of the TLS peer, leaf first. The chain was verified against the client CA by TLS.
    pub certificates: Arc<[Vec<u8>]>,
    /// The bearer token of the `Authorization` header (or of the WebSocket subprotocol), without its scheme.
    pub bearer: Option<String>,
    /// Names (in lower case) and values of the headers in which a front proxy names the user.
    pub remote_headers: Vec<(String, String)>,
}

/// Why credentials were refused.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AuthnError(pub String);

/// One way to prove an identity. Authenticators are asked in order.
#[async_trait::async_trait]
pub trait Authenticator: Send + Sync {
    /// `Ok(None)`: these credentials mean nothing to this authenticator, ask the next.
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError>;
}
