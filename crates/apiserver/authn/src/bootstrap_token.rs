//! Bootstrap tokens: `ID.SECRET`, checked against the Secret `bootstrap-token-ID` in kube-system.

use crate::secret;
use api_bootstrap::{BootstrapToken, SECRET_NAMESPACE, TokenSecret, secret_name};
use apiserver_request::{Authenticator, AuthnError, Credentials, GroupResource, Objects, User};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::serde::Deserialize as _;
use serde_json::Value;
use std::sync::Arc;

/// Authenticates by bootstrap token.
pub struct BootstrapTokens {
    objects: Arc<dyn Objects>,
}

impl BootstrapTokens {
    /// Creates the authenticator; `objects` holds the Secrets.
    pub fn new(objects: Arc<dyn Objects>) -> Self {
        BootstrapTokens { objects }
    }
}

fn user_of_secret(stored: &Value, token: &BootstrapToken, now: jiff::Timestamp) -> Option<User> {
    let stored = TokenSecret::read(&Secret::deserialize(stored).ok()?)?;
    let (expected, given) = (stored.token.secret(), token.secret());
    if stored.token.id() != token.id()
        || !secret::is_same_digest(expected.as_bytes(), given.as_bytes())
    {
        return None;
    }
    Some(User {
        name: format!("system:bootstrap:{}", token.id()),
        groups: stored.client_groups(now)?,
        ..User::default()
    })
}

#[async_trait::async_trait]
impl Authenticator for BootstrapTokens {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        // Other tokens cause no lookup, and the ID cannot lead to a Secret of another name.
        let token = credentials
            .bearer
            .as_deref()
            .map(str::parse::<BootstrapToken>);
        let Some(Ok(token)) = token else {
            return Ok(None);
        };
        let secrets = GroupResource::new("", "secrets");
        let name = secret_name(token.id());
        let stored = self
            .objects
            .cached_object(&secrets, SECRET_NAMESPACE, &name);
        Ok(stored.and_then(|stored| user_of_secret(&stored, &token, jiff::Timestamp::now())))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde_json::json;

    #[test]
    fn bootstrap_token_must_match_its_secret_and_not_be_expired() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let groups = |expiration: &[u8], extra: &str, token: &str| {
            let b = |bytes: &[u8]| STANDARD.encode(bytes);
            let stored = json!({"metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
                "type": "bootstrap.kubernetes.io/token", "data": {"token-id": b(b"abcdef"),
                "token-secret": b(b"0123456789abcdef"), "usage-bootstrap-authentication": b(b"true"),
                "expiration": b(expiration), "auth-extra-groups": b(extra.as_bytes())}});
            user_of_secret(&stored, &token.parse().unwrap(), now).map(|user| user.groups.join(","))
        };
        let (own, extra) = ("abcdef.0123456789abcdef", "system:bootstrappers:x");
        let both = Some("system:bootstrappers,system:bootstrappers:x");
        for (expiration, extra, token, expected) in [
            (&b"2999-01-01T00:00:00Z"[..], extra, own, both),
            (b"", extra, own, both),
            (b"", "", own, Some("system:bootstrappers")),
            (b"", "system:bootstrappers:x,system:masters", own, None),
            (b"2026-01-01T00:00:00Z", extra, own, None),
            (b"tomorrow", extra, own, None),
            (b"\xff", extra, own, None),
            (b"", extra, "abcdef.0123456789abcdee", None),
            (b"", extra, "abcdee.0123456789abcdef", None),
        ] {
            let found = groups(expiration, extra, token);
            assert_eq!(found.as_deref(), expected, "{expiration:?} {extra} {token}");
        }
    }

    #[test]
    fn secret_that_can_not_be_read_authenticates_no_client() {
        let token = "abcdef.0123456789abcdef".parse().unwrap();
        for stored in [json!({}), json!({"data": {"expiration": "%"}}), json!([])] {
            assert_eq!(
                user_of_secret(&stored, &token, jiff::Timestamp::now()),
                None,
                "{stored}"
            );
        }
    }
}
