//! Authenticates and authorizes readers of metrics through the API server.

use client::Client;
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

/// Sends TokenReviews and SubjectAccessReviews.
#[derive(Debug)]
pub struct Reviewer {
    client: Client,
}

impl Reviewer {
    /// Creates a reviewer that uses `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Returns OK, UNAUTHORIZED or FORBIDDEN for a GET of `path`.
    pub async fn judge(&self, headers: &HeaderMap, path: &str) -> StatusCode {
        let value = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let Some(token) = value.and_then(|v| v.strip_prefix("Bearer ")) else { return StatusCode::UNAUTHORIZED };
        let Some(spec) = self.who(token).await else { return StatusCode::UNAUTHORIZED };
        if self.may(spec, path).await { StatusCode::OK } else { StatusCode::FORBIDDEN }
    }

    async fn who(&self, token: &str) -> Option<SubjectAccessReviewSpec> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = TokenReview { spec, ..TokenReview::default() };
        let status = self.client.api::<TokenReview>().review(&review).await.ok()?.status?;
        let user = status.user.filter(|_| status.authenticated == Some(true))?;
        Some(SubjectAccessReviewSpec {
            user: user.username,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra,
            ..SubjectAccessReviewSpec::default()
        })
    }

    async fn may(&self, spec: SubjectAccessReviewSpec, path: &str) -> bool {
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..spec };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let answer = self.client.api::<SubjectAccessReview>().review(&review).await;
        answer.ok().and_then(|r| r.status).is_some_and(|s| s.allowed)
    }
}
