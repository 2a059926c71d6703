//! Delegated authentication and authorization: the API server reviews tokens and permissions.
//!
//! Answers are cached as by upstream's delegating authenticator and authorizer, so that a client of
//! `/metrics` costs the API server two requests in 10 s. Invariants: only answers are cached, never
//! failures to get one; the caches have a bounded number of entries of bounded keys; tokens are not
//! kept in memory, only their HMAC.

use std::collections::{HashMap, VecDeque};
use std::error::Error as _;
use std::time::Duration;

use client::Client;
use http::{HeaderMap, StatusCode, header};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use parking_lot::Mutex;
use ring::hmac;
use tokio::time::Instant;

/// Entries of each cache. Upstream has 8,192 decisions and more tokens, for components with more
/// callers.
const MAX_ENTRIES: usize = 4096;

/// Lifetimes of cached answers; zero caches nothing.
#[derive(Clone, Copy, Debug)]
pub struct AnswerLifetimes {
    /// User of a token, or that it has none.
    pub tokens: Duration,
    /// A permission.
    pub authorized: Duration,
    /// A denial.
    pub unauthorized: Duration,
}

impl Default for AnswerLifetimes {
    /// Returns upstream's lifetimes, 10 s each.
    fn default() -> Self {
        let each = Duration::from_secs(10);
        Self {
            tokens: each,
            authorized: each,
            unauthorized: each,
        }
    }
}

/// Reasons why there is no decision on a permission.
#[derive(Debug, thiserror::Error)]
pub enum ReviewError {
    /// The API server can't be reached, or returned an error.
    #[error("the SubjectAccessReview failed")]
    Request(#[source] client::Error),
    /// The response has no status.
    #[error("the SubjectAccessReview came back without a status")]
    NoStatus,
    /// The attributes can't be encoded.
    #[error("the SubjectAccessReview can't be encoded")]
    Encode(#[source] serde_json::Error),
}

/// Checks requests by reviews of the API server.
#[derive(Debug)]
pub struct DelegatedAccess {
    authentication: Client,
    authorization: Client,
    lifetimes: AnswerLifetimes,
    secret: hmac::Key,
    users: Mutex<ExpiringCache<Option<SubjectAccessReviewSpec>>>,
    decisions: Mutex<ExpiringCache<bool>>,
}

impl DelegatedAccess {
    /// Returns a check that reviews tokens through one client and permissions through the other.
    pub fn new(authentication: Client, authorization: Client, lifetimes: AnswerLifetimes) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &rand::random::<[u8; 32]>());
        let (users, decisions) = (Mutex::default(), Mutex::default());
        Self {
            authentication,
            authorization,
            lifetimes,
            secret,
            users,
            decisions,
        }
    }

    /// Returns 200, 401 or 403 for a GET of a path that is no resource.
    pub async fn check_path(&self, headers: &HeaderMap, path: &str) -> StatusCode {
        let value = headers
            .get(header::AUTHORIZATION)
            .and_then(|value| value.to_str().ok());
        // Other schemes are not supported, and a certificate is not requested from callers of
        // metrics.
        let Some(token) = value.and_then(|value| value.strip_prefix("Bearer ")) else {
            return StatusCode::UNAUTHORIZED;
        };
        let Some(user) = self.authenticate(token).await else {
            return StatusCode::UNAUTHORIZED;
        };
        let attributes = NonResourceAttributes {
            path: Some(path.to_owned()),
            verb: Some("get".to_owned()),
        };
        let spec = SubjectAccessReviewSpec {
            non_resource_attributes: Some(attributes),
            ..user
        };
        match self.authorize(spec).await {
            Ok(true) => StatusCode::OK,
            Ok(false) => StatusCode::FORBIDDEN,
            Err(error) => {
                // Closed on failure: an API server that cannot be reached must not open the metrics
                // of all components.
                tracing::warn!(%error, reason = ?error.source(), "a permission can't be reviewed");
                StatusCode::FORBIDDEN
            }
        }
    }

    /// Returns the user of a bearer token, as the subject of a review of permissions. Returns
    /// `None` if the token has no user or can't be reviewed.
    pub async fn authenticate(&self, token: &str) -> Option<SubjectAccessReviewSpec> {
        // The key is an HMAC with a secret of this process: a dump of memory shows neither tokens
        // nor hashes that could be searched for.
        let key = self.cache_key(token.as_bytes());
        if let Some(user) = self.users.lock().get(&key, Instant::now()) {
            return user;
        }
        let spec = TokenReviewSpec {
            token: token.to_owned(),
            ..TokenReviewSpec::default()
        };
        let review = TokenReview {
            spec,
            ..TokenReview::default()
        };
        let answer = self
            .authentication
            .api::<TokenReview>()
            .review(&review)
            .await;
        let status = answer
            .inspect_err(|error| tracing::warn!(%error, "a token can't be reviewed"))
            .ok()?
            .status?;
        let user = status
            .user
            // The answer that a token has no user is cached, too. Otherwise a misconfigured scraper
            // costs one review per request.
            .filter(|_| status.authenticated == Some(true))
            .map(|user| SubjectAccessReviewSpec {
                user: user.username,
                groups: user.groups,
                uid: user.uid,
                extra: user.extra,
                ..SubjectAccessReviewSpec::default()
            });
        self.users
            .lock()
            .insert(key, user.clone(), Instant::now() + self.lifetimes.tokens);
        user
    }

    /// Returns whether the subject has the permission that `spec` describes.
    ///
    /// # Errors
    /// There is no decision; it is not cached that there is none.
    pub async fn authorize(&self, spec: SubjectAccessReviewSpec) -> Result<bool, ReviewError> {
        let question = serde_json::to_vec(&spec).map_err(ReviewError::Encode)?;
        let key = self.cache_key(&question);
        if let Some(allowed) = self.decisions.lock().get(&key, Instant::now()) {
            return Ok(allowed);
        }
        let review = SubjectAccessReview {
            spec,
            ..SubjectAccessReview::default()
        };
        let answer = self
            .authorization
            .api::<SubjectAccessReview>()
            .review(&review)
            .await;
        // Failures are not cached: the next request may succeed, and a decision that does not exist
        // must not last.
        let status = answer.map_err(ReviewError::Request)?.status;
        let allowed = status.ok_or(ReviewError::NoStatus)?.allowed;
        // Denials have a lifetime of their own: a new RoleBinding should not take long to be
        // effective.
        let lifetime = if allowed {
            self.lifetimes.authorized
        } else {
            self.lifetimes.unauthorized
        };
        self.decisions
            .lock()
            .insert(key, allowed, Instant::now() + lifetime);
        Ok(allowed)
    }

    fn cache_key(&self, question: &[u8]) -> Key {
        let mut key = Key::default();
        key.copy_from_slice(hmac::sign(&self.secret, question).as_ref());
        key
    }
}

type Key = [u8; 32];

/// At most [`MAX_ENTRIES`] values until they expire; the first ones make room.
#[derive(Debug)]
struct ExpiringCache<V> {
    entries: HashMap<Key, (Instant, V)>,
    order: VecDeque<Key>,
}

impl<V> Default for ExpiringCache<V> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: VecDeque::new(),
        }
    }
}

impl<V: Clone> ExpiringCache<V> {
    fn get(&self, key: &Key, now: Instant) -> Option<V> {
        self.entries
            .get(key)
            .filter(|(expiry, _)| now < *expiry)
            .map(|(_, value)| value.clone())
    }

    fn insert(&mut self, key: Key, value: V, expiry: Instant) {
        // A renewed entry keeps its place in the order, so that the order has each key once.
        if self.entries.insert(key, (expiry, value)).is_none() {
            self.order.push_back(key);
        }
        // Callers choose the tokens, so that the number of entries must be bounded.
        if self.order.len() > MAX_ENTRIES
            && let Some(first) = self.order.pop_front()
        {
            self.entries.remove(&first);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        let mut key = Key::default();
        key[..8].copy_from_slice(&number.to_le_bytes());
        key
    }

    #[test]
    fn cached_answer_expires() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut cache = ExpiringCache::default();
        cache.insert(key(1), true, now + second);
        assert_eq!(cache.get(&key(1), now), Some(true));
        assert_eq!(cache.get(&key(1), now + second), None);
        cache.insert(key(1), false, now + 2 * second);
        assert_eq!(cache.get(&key(1), now + second), Some(false));
        assert_eq!((cache.entries.len(), cache.order.len()), (1, 1));
    }

    #[test]
    fn first_values_make_room_when_the_cache_is_full() {
        let now = Instant::now();
        let mut cache = ExpiringCache::default();
        for number in 0..2 * MAX_ENTRIES {
            cache.insert(key(number), number, now + Duration::from_secs(1));
        }
        assert_eq!(
            (cache.entries.len(), cache.order.len()),
            (MAX_ENTRIES, MAX_ENTRIES)
        );
        assert_eq!(cache.get(&key(0), now), None);
        assert_eq!(cache.get(&key(MAX_ENTRIES), now), Some(MAX_ENTRIES));
    }
}
