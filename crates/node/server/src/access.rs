//! Authentication and authorization: client certificates of the cluster's CA, tokens by
//! TokenReview, permissions by SubjectAccessReview. Results of reviews are cached for a short time.

use base_tls::ClientCa;
use client::Client;
use component::{AnswerLifetimes, DelegatedAccess};
use http::StatusCode;
use http::request::Parts;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReviewSpec};
use std::error::Error as _;
use std::path::PathBuf;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::backend::Failure;
use crate::route::{Permission, Segments};

/// Options of authentication and authorization.
#[derive(Clone, Debug)]
pub struct AccessOptions {
    /// CA that signs client certificates.
    pub client_ca: Option<PathBuf>,
    /// Accept requests without credentials as `system:anonymous`.
    pub anonymous: bool,
    /// Authenticate bearer tokens by TokenReview.
    pub tokens: bool,
    /// Authorize by SubjectAccessReview; without it every authenticated client may do everything.
    pub authorize: bool,
    /// Lifetimes of cached review results.
    pub answer_lifetimes: AnswerLifetimes,
    /// Name of this node.
    pub node: String,
}

/// Authenticates and authorizes requests.
pub struct Access {
    options: AccessOptions,
    ca: Option<ClientCa>,
    reviews: Option<DelegatedAccess>,
}

impl Access {
    /// Creates the access check; without a `client` no review is possible.
    ///
    /// # Errors
    /// The CA file can't be used.
    pub fn new(options: AccessOptions, client: Option<Client>) -> Result<Self, base_tls::TlsError> {
        let ca = options
            .client_ca
            .as_deref()
            .map(ClientCa::load)
            .transpose()?;
        let lifetimes = options.answer_lifetimes;
        let reviews = client.map(|client| DelegatedAccess::new(client.clone(), client, lifetimes));
        Ok(Access {
            options,
            ca,
            reviews,
        })
    }

    /// Authenticates and authorizes a request whose path is `segments`.
    pub(crate) async fn check_access(
        &self,
        parts: &Parts,
        segments: &Segments,
    ) -> Result<(), Failure> {
        let user = self
            .authenticate(parts)
            .await
            .ok_or_else(|| Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized"))?;
        if !self.options.authorize {
            return Ok(());
        }
        let Permission { verb, subresource } = segments.required_permission(&parts.method);
        // The fine-grained permission first (KEP-2862); `nodes/proxy` covers everything for roles
        // of older clusters.
        if self.is_allowed(&user, verb, subresource).await?
            || self.is_allowed(&user, verb, "proxy").await?
        {
            return Ok(());
        }
        let message = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresource} proxy])",
            user.user.as_deref().unwrap_or_default()
        );
        Err(Failure::new(StatusCode::FORBIDDEN, message))
    }

    /// Returns the user as the subject of a review of permissions.
    async fn authenticate(&self, parts: &Parts) -> Option<SubjectAccessReviewSpec> {
        let peer = parts.extensions.get::<base_serve::Peer>();
        if let (Some(ca), Some(peer)) = (&self.ca, peer.filter(|p| !p.certificates.is_empty()))
            // A certificate of another CA is no error: the client may have a token as well.
            && ca.verify(&peer.certificates)
        {
            return peer
                .certificates
                .first()
                .and_then(|leaf| read_certificate_user(leaf));
        }
        let header = parts
            .headers
            .get(http::header::AUTHORIZATION)
            .and_then(|h| h.to_str().ok());
        if let Some(token) = header.and_then(|h| h.strip_prefix("Bearer ")) {
            // A token that is not accepted does not become an anonymous request.
            return self.authenticate_token(token.trim()).await;
        }
        self.options.anonymous.then(|| SubjectAccessReviewSpec {
            user: Some("system:anonymous".into()),
            groups: Some(vec!["system:unauthenticated".into()]),
            ..SubjectAccessReviewSpec::default()
        })
    }

    async fn authenticate_token(&self, token: &str) -> Option<SubjectAccessReviewSpec> {
        if !self.options.tokens || token.is_empty() {
            return None;
        }
        self.reviews.as_ref()?.authenticate(token).await
    }

    async fn is_allowed(
        &self,
        user: &SubjectAccessReviewSpec,
        verb: &str,
        subresource: &str,
    ) -> Result<bool, Failure> {
        let unavailable = |why: &str| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Authorization error: {why}"),
            )
        };
        let Some(reviews) = &self.reviews else {
            return Err(unavailable("no API server to ask"));
        };
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            version: Some("v1".into()),
            resource: Some("nodes".into()),
            subresource: Some(subresource.to_owned()),
            name: Some(self.options.node.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
            ..user.clone()
        };
        reviews.authorize(spec).await.map_err(|error| {
            // The cause stays in the log: it may name addresses that clients need not know.
            tracing::warn!(%error, reason = ?error.source(), "access can't be reviewed");
            unavailable("the API server can't be asked")
        })
    }
}

fn read_certificate_user(leaf: &[u8]) -> Option<SubjectAccessReviewSpec> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .map(str::to_owned)
        .collect();
    // The API server adds this group to its own clients; a certificate that is verified here has it
    // only from this line.
    groups.push("system:authenticated".into());
    Some(SubjectAccessReviewSpec {
        user: Some(name),
        groups: Some(groups),
        ..SubjectAccessReviewSpec::default()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use http::Request;
    use std::time::Duration;

    /// Returns the status of a rejected request without a client certificate and without an API
    /// server for reviews; None if it is allowed.
    async fn status(anonymous: bool, authorize: bool, token: Option<&str>) -> Option<u16> {
        let lifetime = Duration::from_secs(1);
        let options = AccessOptions {
            client_ca: None,
            anonymous,
            tokens: true,
            authorize,
            answer_lifetimes: AnswerLifetimes {
                tokens: lifetime,
                authorized: lifetime,
                unauthorized: lifetime,
            },
            node: "n1".into(),
        };
        let mut request = Request::get("/pods");
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let access = Access::new(options, None).unwrap();
        let checked = access
            .check_access(&parts, &Segments::decode("/pods"))
            .await;
        checked.err().map(|failure| failure.status.as_u16())
    }

    #[tokio::test]
    async fn request_without_credentials_needs_anonymous_access() {
        assert_eq!(status(false, false, None).await, Some(401));
        assert_eq!(status(true, false, None).await, None);
    }

    /// An invalid token must not be downgraded to an anonymous request.
    #[tokio::test]
    async fn token_that_cannot_be_reviewed_is_unauthorized() {
        for token in ["t", ""] {
            assert_eq!(
                status(true, false, Some(token)).await,
                Some(401),
                "{token:?}"
            );
        }
    }

    #[tokio::test]
    async fn request_that_cannot_be_authorized_fails() {
        assert_eq!(status(true, true, None).await, Some(500));
    }
}
