//! Bootstrap tokens: `ID.SECRET`, checked against the Secret `bootstrap-token-ID` in kube-system.

use crate::secret;
use apiserver_request::{Authenticator, AuthnError, Credentials, GroupResource, Objects, User};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::sync::Arc;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";

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

fn split_token(token: &str) -> Option<(&str, &str)> {
    let (id, rest) = token.split_once('.')?;
    let plain = |s: &str| {
        s.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    // Other tokens cause no lookup, and the ID cannot lead to a Secret of another name.
    (id.len() == 6 && rest.len() == 16 && plain(id) && plain(rest)).then_some((id, rest))
}

fn user_of_secret(
    stored: &Value,
    id: &str,
    token_secret: &str,
    now: jiff::Timestamp,
) -> Option<User> {
    let data = |key: &str| {
        let text = stored["data"][key].as_str()?;
        String::from_utf8(STANDARD.decode(text).ok()?).ok()
    };
    let good = stored["type"] == TYPE
        // A finalizer may keep a deleted Secret for long, and deleting it is the way to revoke the
        // token.
        && stored["metadata"].get("deletionTimestamp").is_none()
        && data("token-id")? == id
        && secret::is_same_digest(data("token-secret")?.as_bytes(), token_secret.as_bytes())
        // The same Secrets also sign the public cluster-info, which alone must not authenticate.
        && data("usage-bootstrap-authentication")? == "true";
    // An expiration that can not be parsed counts as passed.
    let expired =
        data("expiration").is_some_and(|e| api_meta::time::parse(&e).is_none_or(|at| at < now));
    if !good || expired {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    let extra = data("auth-extra-groups").unwrap_or_default();
    groups.extend(
        extra
            .split(',')
            // A Secret in kube-system must not grant membership in arbitrary groups.
            .filter(|g| g.starts_with("system:bootstrappers:"))
            .map(str::to_owned),
    );
    Some(User {
        name: format!("system:bootstrap:{id}"),
        groups,
        ..User::default()
    })
}

#[async_trait::async_trait]
impl Authenticator for BootstrapTokens {
    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<User>, AuthnError> {
        let Some((id, token_secret)) = credentials.bearer.as_deref().and_then(split_token) else {
            return Ok(None);
        };
        let secrets = GroupResource::new("", "secrets");
        let stored =
            self.objects
                .cached_object(&secrets, "kube-system", &format!("bootstrap-token-{id}"));
        Ok(stored.and_then(|s| user_of_secret(&s, id, token_secret, jiff::Timestamp::now())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn bootstrap_token_must_match_its_secret_and_not_be_expired() {
        let b = |s: &str| STANDARD.encode(s);
        let stored = |expiration: &str| {
            json!({"metadata": {}, "type": TYPE, "data": {"token-id": b("abcdef"), "token-secret": b("0123456789abcdef"),
                "usage-bootstrap-authentication": b("true"), "expiration": b(expiration),
                "auth-extra-groups": b("system:bootstrappers:x,system:masters")}})
        };
        let now = jiff::Timestamp::now();
        let ask = |stored: &Value, secret: &str| user_of_secret(stored, "abcdef", secret, now);
        let found = ask(&stored("2999-01-01T00:00:00Z"), "0123456789abcdef");
        assert_eq!(
            found.map(|u| u.groups),
            Some(vec![GROUP.to_owned(), "system:bootstrappers:x".to_owned()])
        );
        assert_eq!(
            ask(&stored("2999-01-01T00:00:00Z"), "0123456789abcdeX"),
            None
        );
        assert_eq!(
            ask(&stored("2001-01-01T00:00:00Z"), "0123456789abcdef"),
            None
        );
        assert_eq!(
            split_token("abcdef.0123456789abcdef"),
            Some(("abcdef", "0123456789abcdef"))
        );
        assert_eq!(split_token("ABCDEF.0123456789abcdef"), None);
    }
}
