//! TokenReview: authenticates a token that a client presented to another server.

use crate::authn::{Authn, with_authenticated_group};
use apiserver_request::{Credentials, User, Warnings};
use serde_json::{Value, json};
use std::sync::Arc;

impl Authn {
    /// Returns the `status` of a TokenReview. Without audiences, this server's are used. Warnings
    /// are for the reviewer.
    pub async fn review(
        &self,
        token: &str,
        audiences: &[String],
        warnings: &Arc<Warnings>,
    ) -> Value {
        match self.authenticate_token(token, audiences, warnings).await {
            Some((user, audiences)) => {
                let user = with_authenticated_group(user).to_user_info();
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
        warnings: &Arc<Warnings>,
    ) -> Option<(User, Vec<String>)> {
        // Only ServiceAccount tokens carry audiences, so they are tried first. One that is refused
        // must not pass below for an audience that it does not have.
        if let Some(accounts) = self.accounts()
            && let Some(found) = accounts.verify(token, audiences, warnings).await.ok()?
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
            warnings: warnings.clone(),
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
