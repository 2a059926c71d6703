//! Authentication and authorization: client certificates of the cluster's CA, tokens by
//! TokenReview, permissions by SubjectAccessReview. Results of reviews are cached for a short time.

use base_tls::ClientCa;
use client::Client;
use http::StatusCode;
use http::request::Parts;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::backend::Failure;
use crate::route::{Right, Segments};

const KEPT: usize = 4096;

/// Lifetimes of cached review results.
#[derive(Clone, Copy, Debug)]
pub struct AnswersKept {
    /// TokenReview results.
    pub tokens: Duration,
    /// Allowed SubjectAccessReviews.
    pub allowed: Duration,
    /// Denied SubjectAccessReviews.
    pub denied: Duration,
}

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
    pub kept: AnswersKept,
    /// Name of this node.
    pub node: String,
}

/// An authenticated client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct User {
    name: String,
    uid: String,
    groups: Vec<String>,
}

type Question = (User, &'static str, &'static str);

/// Authenticates and authorizes requests.
pub struct Access {
    options: AccessOptions,
    ca: Option<ClientCa>,
    client: Option<Client>,
    tokens: Mutex<HashMap<String, (Instant, Option<User>)>>,
    answers: Mutex<HashMap<Question, (Instant, bool)>>,
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
        Ok(Access {
            options,
            ca,
            client,
            tokens: Mutex::default(),
            answers: Mutex::default(),
        })
    }

    /// Authenticates and authorizes a request whose path is `segments`.
    pub(crate) async fn check(&self, parts: &Parts, segments: &Segments) -> Result<(), Failure> {
        let user = self
            .user(parts)
            .await
            .ok_or_else(|| Failure::new(StatusCode::UNAUTHORIZED, "Unauthorized"))?;
        if !self.options.authorize {
            return Ok(());
        }
        let Right { verb, subresource } = segments.right(&parts.method);
        if self.allowed(&user, verb, subresource).await?
            || self.allowed(&user, verb, "proxy").await?
        {
            return Ok(());
        }
        let message = format!(
            "Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)=[{subresource} proxy])",
            user.name
        );
        Err(Failure::new(StatusCode::FORBIDDEN, message))
    }

    async fn user(&self, parts: &Parts) -> Option<User> {
        let peer = parts.extensions.get::<base_serve::Peer>();
        if let (Some(ca), Some(peer)) = (&self.ca, peer.filter(|p| !p.certificates.is_empty()))
            && ca.verify(&peer.certificates)
        {
            return peer
                .certificates
                .first()
                .and_then(|leaf| of_certificate(leaf));
        }
        let header = parts
            .headers
            .get(http::header::AUTHORIZATION)
            .and_then(|h| h.to_str().ok());
        if let Some(token) = header.and_then(|h| h.strip_prefix("Bearer ")) {
            return self.of_token(token.trim()).await;
        }
        self.options.anonymous.then(|| User {
            name: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
            ..User::default()
        })
    }

    async fn of_token(&self, token: &str) -> Option<User> {
        if !self.options.tokens || token.is_empty() {
            return None;
        }
        if let Some((at, user)) = self.tokens.lock().get(token)
            && at.elapsed() < self.options.kept.tokens
        {
            return user.clone();
        }
        let spec = TokenReviewSpec {
            token: token.to_owned(),
            audiences: None,
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let answer = self
            .client
            .as_ref()?
            .api::<TokenReview>()
            .review(&review)
            .await;
        let status = answer
            .map_err(|e| tracing::warn!(error = %e, "a token can't be reviewed"))
            .ok()?
            .status?;
        let user = status
            .user
            .filter(|_| status.authenticated == Some(true))
            .map(|u| User {
                name: u.username.unwrap_or_default(),
                uid: u.uid.unwrap_or_default(),
                groups: u.groups.unwrap_or_default(),
            });
        keep(&self.tokens, token.to_owned(), user.clone());
        user
    }

    async fn allowed(
        &self,
        user: &User,
        verb: &'static str,
        subresource: &'static str,
    ) -> Result<bool, Failure> {
        let question = (user.clone(), verb, subresource);
        if let Some((at, allowed)) = self.answers.lock().get(&question)
            && at.elapsed()
                < if *allowed {
                    self.options.kept.allowed
                } else {
                    self.options.kept.denied
                }
        {
            return Ok(*allowed);
        }
        let unavailable = |why: String| {
            Failure::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("Authorization error: {why}"),
            )
        };
        let client = self
            .client
            .as_ref()
            .ok_or_else(|| unavailable("no API server to ask".into()))?;
        let answer = client
            .api::<SubjectAccessReview>()
            .review(&self.review(user, verb, subresource))
            .await;
        let allowed = match answer {
            Ok(review) => review.status.is_some_and(|s| s.allowed),
            Err(e) => {
                tracing::warn!(error = %e, "access can't be reviewed");
                return Err(unavailable("the API server can't be asked".into()));
            }
        };
        keep(&self.answers, question, allowed);
        Ok(allowed)
    }

    fn review(&self, user: &User, verb: &str, subresource: &str) -> SubjectAccessReview {
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.name.clone()),
                uid: Some(user.uid.clone()).filter(|u| !u.is_empty()),
                groups: Some(user.groups.clone()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.to_owned()),
                    version: Some("v1".into()),
                    resource: Some("nodes".into()),
                    subresource: Some(subresource.to_owned()),
                    name: Some(self.options.node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }
}

fn keep<K: std::hash::Hash + Eq, V>(map: &Mutex<HashMap<K, (Instant, V)>>, key: K, value: V) {
    let mut map = map.lock();
    if map.len() >= KEPT {
        map.clear();
    }
    map.insert(key, (Instant::now(), value));
}

fn of_certificate(leaf: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(leaf).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let mut groups: Vec<String> = subject
        .iter_organization()
        .filter_map(|o| o.as_str().ok())
        .map(str::to_owned)
        .collect();
    groups.push("system:authenticated".into());
    Some(User {
        name,
        uid: String::new(),
        groups,
    })
}
