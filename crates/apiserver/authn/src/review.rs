//! TokenReview: authenticates a token that a client presented to another server.

use crate::authn::{Authn, with_authenticated_group};
use apiserver_request::{Credentials, User};
use serde_json::{Value, json};

impl Authn {
    /// Returns the `status` of a TokenReview. Without audiences, this server's are used.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Value {
        match self.authenticate_token(token, audiences).await {
            Some((user, audiences)) => {
                let user = user_info(&with_authenticated_group(user));
                json!({"authenticated": true, "user": user, "audiences": audiences})
            }
            None => {
                // One text for all reasons: the caller of a review must not learn why a foreign
                // token failed.
                json!({"user": {}, "error": "[invalid bearer token, the token is not valid for the audiences]"})
            }
        }
    }

    async fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
    ) -> Option<(User, Vec<String>)> {
        // Only ServiceAccount tokens carry audiences, so they are tried first. One that is refused
        // must not pass below for an audience that it does not have.
        if let Some(accounts) = self.accounts()
            && let Some(found) = accounts.verify(token, audiences).await.ok()?
        {
            return Some(found);
        }
        // Other tokens are for this server, whichever of its audiences the review names.
        let own = self.audiences().iter();
        let held: Vec<String> = match audiences {
            [] => own.cloned().collect(),
            wanted => own.filter(|own| wanted.contains(own)).cloned().collect(),
        };
        if held.is_empty() && !audiences.is_empty() {
            return None;
        }
        let credentials = Credentials {
            bearer: Some(token.to_owned()),
            ..Credentials::default()
        };
        for authenticator in self.token_authenticators() {
            if let Ok(Some(user)) = authenticator.authenticate(&credentials).await {
                return Some((user, held));
            }
        }
        None
    }
}

/// Converts a user to `authentication.k8s.io/v1 UserInfo`.
pub fn user_info(user: &User) -> Value {
    let mut out = json!({"username": user.name});
    if !user.uid.is_empty() {
        out["uid"] = user.uid.clone().into();
    }
    if !user.groups.is_empty() {
        out["groups"] = json!(user.groups);
    }
    if !user.extra.is_empty() {
        out["extra"] = json!(user.extra);
    }
    out
}
