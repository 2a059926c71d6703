//! TokenReview: what this server thinks of a token that somebody else was shown.

use crate::authn::{Authn, authenticated};
use apiserver_request::{Credentials, User};
use serde_json::{Value, json};

impl Authn {
    /// The `status` of a TokenReview. No audiences: this server's.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Value {
        match self.reviewed(token, audiences).await {
            Some((user, audiences)) => {
                let user = user_info(&authenticated(user));
                json!({"authenticated": true, "user": user, "audiences": audiences})
            }
            None => json!({"user": {}, "error": "[invalid bearer token, the token is not valid for the audiences]"}),
        }
    }

    async fn reviewed(&self, token: &str, audiences: &[String]) -> Option<(User, Vec<String>)> {
        if let Some(accounts) = self.accounts()
            && let Ok(Some(found)) = accounts.verify(token, audiences).await
        {
            return Some(found);
        }
        // Other tokens are for this server as such: they say nothing about audiences.
        if !audiences.is_empty() {
            return None;
        }
        let credentials = Credentials { bearer: Some(token.to_owned()), ..Credentials::default() };
        for authenticator in self.tokens() {
            if let Ok(Some(user)) = authenticator.authenticate(&credentials).await {
                return Some((user, Vec::new()));
            }
        }
        None
    }
}

/// A user as `authentication.k8s.io/v1 UserInfo`.
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
