//! Identity: the credentials of a request and the user they authenticate.

use crate::Warnings;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An authenticated identity, as `user.Info` in Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `system:serviceaccount:NS:NAME`, a certificate's CN, ...
    pub name: String,
    /// Empty if the authenticator knows none.
    pub uid: String,
    /// Groups, `system:authenticated` or `system:unauthenticated` included.
    pub groups: Vec<String>,
    /// `authentication.kubernetes.io/pod-name` and the like.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The name of requests that carry no credentials.
    pub const ANONYMOUS: &'static str = "system:anonymous";
    /// The group whose members are always authorized.
    pub const MASTERS: &'static str = "system:masters";

    /// Returns the user of a request without credentials.
    pub fn anonymous() -> Self {
        User {
            name: Self::ANONYMOUS.into(),
            groups: vec!["system:unauthenticated".into()],
            ..User::default()
        }
    }

    /// Converts the user to a `UserInfo` of `authentication.k8s.io`. Empty fields are left out, as
    /// Go encodes them.
    pub fn to_user_info(&self) -> Value {
        let mut info = Map::new();
        let texts = [("username", &self.name), ("uid", &self.uid)];
        for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
            info.insert(field.into(), text.as_str().into());
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), json!(self.extra));
        }
        info.into()
    }

    /// Returns whether the user is in `group`.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }
}

/// The credentials of a request.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    /// DER certificates of the TLS peer, leaf first. The chain was verified against the client CA
    /// by TLS.
    pub certificates: Arc<[Vec<u8>]>,
    /// The bearer token of the `Authorization` header (or of the WebSocket subprotocol), without
    /// its scheme.
    pub bearer: Option<String>,
    /// Names (in lower case) and values of the front-proxy headers.
    pub remote_headers: Vec<(String, String)>,
    /// Warnings for the client about its credentials.
    pub warnings: Arc<Warnings>,
}

/// The reason why credentials were rejected.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct AuthnError(pub String);

/// One authentication method. Authenticators are tried in order.
#[async_trait::async_trait]
pub trait Authenticator: Send + Sync {
    /// Authenticates the request. `Ok(None)` means that the credentials are not of this method; the
    /// next one is tried.
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError>;
}
