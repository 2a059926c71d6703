//! A webhook that decides about requests: a server that reviews them.
//!
//! Invariant: a webhook that can't be called never allows a request. Its failure policy decides
//! whether the next authorizer may. Neither reviews nor responses are logged.

mod cache;
mod conditions;
mod digest;
mod places;
mod review;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use conditions::MatchCondition;
pub use server::{ConnectServer, ReviewServer, WebhookConnections};
pub use spec::WebhookSpec;

use crate::metrics::{AuthzMetrics, CallResult};
use apiserver_request::{Attributes, Decision, Failure, UserRules};
use apiserver_webhook_client::CallError;
use bytes::Bytes;
use cache::{CacheClient, DecisionCache};
use conditions::{ConditionError, match_conditions};
use digest::{Key, digest_client, digest_request};
use parking_lot::Mutex;
use places::CallPlaces;
use rand::Rng;
use review::{Selectors, build_spec, count_bytes, encode_review, is_cacheable, read_response};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts of a call, and the wait before the second one, with upstream's values.
const ATTEMPTS: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const WAIT_FACTOR: f64 = 1.5;
const WAIT_JITTER: f64 = 0.2;
/// Maximum size of the attributes in bytes. Headers are smaller; the attributes in the body of an
/// access review are not, and the objects built of them are a multiple of their text.
const MAX_ATTRIBUTES: usize = 128 * 1024;
/// Maximum size of a review in bytes, in which characters may be escaped. It is held as long as a
/// webhook is silent.
const MAX_REVIEW: usize = 2 * MAX_ATTRIBUTES;
/// Size of the attributes in bytes above which they are processed beside the runtime's tasks.
const MAX_INLINE: usize = 16 * 1024;
/// Time between two log lines of one webhook: every request of a client may fail.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A webhook of the configuration.
pub struct WebhookAuthorizer {
    name: String,
    spec: WebhookSpec,
    server: Arc<dyn ReviewServer>,
    cache: DecisionCache,
    places: Arc<CallPlaces>,
    metrics: Arc<AuthzMetrics>,
    logged: Mutex<Option<Instant>>,
}

/// The part of an authorization without IO.
pub enum Prepared {
    /// The decision: a cached one, or that of the match conditions.
    Decided(Decision),
    /// The server has to be called.
    Call(Box<ReviewCall>),
}

/// A call of a webhook.
pub struct ReviewCall {
    webhook: Arc<WebhookAuthorizer>,
    review: Bytes,
    /// The key of the decision, if it may be cached.
    key: Option<Key>,
    /// The caller, by the digest of its name, which may be long.
    client: CacheClient,
}

impl WebhookAuthorizer {
    /// Creates the authorizer of a webhook.
    pub fn new(
        name: String,
        spec: WebhookSpec,
        server: Arc<dyn ReviewServer>,
        metrics: Arc<AuthzMetrics>,
    ) -> Arc<Self> {
        Arc::new(WebhookAuthorizer {
            cache: DecisionCache::new(spec.authorized_ttl, spec.unauthorized_ttl),
            name,
            spec,
            server,
            places: Arc::default(),
            metrics,
            logged: Mutex::default(),
        })
    }

    /// Evaluates the match conditions, and looks for a cached decision.
    pub fn prepare(self: &Arc<Self>, attributes: &Attributes) -> Prepared {
        // Before anything is built of them.
        let size = count_bytes(attributes);
        if size > MAX_ATTRIBUTES {
            return Prepared::Decided(self.deny("the attributes of the request are too large"));
        }
        if size <= MAX_INLINE {
            return self.prepare_bounded(attributes);
        }
        // The work grows with the attributes, which the client chooses.
        base_task::blocking(|| self.prepare_bounded(attributes))
    }

    fn prepare_bounded(self: &Arc<Self>, attributes: &Attributes) -> Prepared {
        let Some(selectors) = Selectors::parse(attributes) else {
            return Prepared::Decided(self.deny("the selectors have too many requirements"));
        };
        if let Some(decision) = self.check_conditions(attributes, &selectors) {
            return Prepared::Decided(decision);
        }
        let mut key = None;
        if self.cache.is_used() && is_cacheable(attributes) {
            let digest = digest_request(attributes);
            if let Some(decision) = self.cache.find(&digest, Instant::now()) {
                return Prepared::Decided(decision);
            }
            key = Some(digest);
        }
        let spec = build_spec(attributes, &selectors, self.spec.version);
        let review = encode_review(spec, self.spec.version);
        if review.len() > MAX_REVIEW {
            return Prepared::Decided(self.deny("the attributes of the request are too large"));
        }
        let client = CacheClient {
            key: digest_client(attributes),
            is_system: attributes.caller().is_system(),
        };
        Prepared::Call(Box::new(ReviewCall {
            webhook: self.clone(),
            review: review.into(),
            key,
            client,
        }))
    }

    /// Returns the decision if the webhook is not to be called.
    fn check_conditions(&self, attributes: &Attributes, selectors: &Selectors) -> Option<Decision> {
        if self.spec.conditions.is_empty() {
            return None;
        }
        let begun = Instant::now();
        let matched = match_conditions(&self.spec.conditions, attributes, selectors);
        let holds = matched.as_ref().ok().copied();
        self.metrics
            .record_conditions(&self.name, holds, begun.elapsed());
        match matched {
            Ok(true) => None,
            Ok(false) => Some(Decision::NoOpinion(String::new())),
            Err(ConditionError { why, is_limit }) => {
                self.log_failure(&why);
                Some(if is_limit {
                    self.deny("the match conditions cost too much for the request")
                } else {
                    self.fail("the match conditions can't be evaluated")
                })
            }
        }
    }

    /// Returns no rules: a webhook can't list them.
    pub fn list_rules(&self) -> UserRules {
        UserRules {
            incomplete: true,
            errors: vec!["webhook authorizer does not support user rule resolution".to_owned()],
            ..UserRules::default()
        }
    }

    /// Returns the decision of the failure policy.
    fn fail(&self, why: &str) -> Decision {
        Decision::Failed(self.build_failure(self.spec.denies_on_error, why))
    }

    /// Returns the decision about a request that exceeds a limit. Whatever the failure policy is: a
    /// client must not be able to skip the webhook.
    fn deny(&self, why: &str) -> Decision {
        Decision::Failed(self.deny_limited(why))
    }

    /// Returns the decision about a request for which no place is free now.
    fn deny_overloaded(&self) -> Decision {
        Decision::Failed(Failure {
            is_overloaded: true,
            ..self.deny_limited("too many requests wait for its response")
        })
    }

    fn deny_limited(&self, why: &str) -> Failure {
        self.metrics.record_limited(&self.name);
        self.log_failure(why);
        self.build_failure(true, why)
    }

    /// Builds an error that names no address.
    fn build_failure(&self, is_denied: bool, why: &str) -> Failure {
        Failure {
            is_denied,
            is_overloaded: false,
            reason: String::new(),
            error: format!("authorization webhook {:?}: {why}", self.name),
        }
    }

    fn log_failure(&self, why: &str) {
        let mut logged = self.logged.lock();
        if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::error!(webhook = self.name, why, "an authorization webhook failed");
        }
    }
}

impl ReviewCall {
    /// Calls the server, again after errors that may pass.
    pub async fn send(self) -> Decision {
        let webhook = &*self.webhook;
        let Some(_place) = webhook.places.take(self.client.key, self.client.is_system) else {
            return webhook.deny_overloaded();
        };
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            match self.attempt().await {
                Ok(decision) => {
                    if let Some(key) = self.key {
                        let cache = &webhook.cache;
                        cache.insert(key, self.client, &decision, Instant::now());
                    }
                    return decision;
                }
                Err(error) if attempt < ATTEMPTS && error.is_transient => {
                    tokio::time::sleep(add_jitter(wait)).await;
                    wait = wait.mul_f64(WAIT_FACTOR);
                }
                Err(error) => {
                    webhook.log_failure(&error.why);
                    if !webhook.spec.denies_on_error {
                        webhook
                            .metrics
                            .record_fail_open(&webhook.name, error.result);
                    }
                    return webhook.fail(error.summary());
                }
            }
        }
        webhook.fail("no response")
    }

    async fn attempt(&self) -> Result<Decision, AttemptError> {
        let webhook = &*self.webhook;
        let mut record = CallRecord {
            webhook,
            begun: Instant::now(),
            // Dropped without a result if the request ends.
            result: CallResult::Canceled,
        };
        let timeout = webhook.spec.timeout;
        let posted = webhook.server.post_review(self.review.clone(), timeout);
        let read = posted.await.map_err(AttemptError::from).and_then(|body| {
            read_response(&body).map_err(|why| AttemptError {
                result: CallResult::Error,
                why: format!("the response {why}"),
                is_transient: false,
            })
        });
        record.result = match &read {
            Ok(_) => CallResult::Success,
            Err(error) => error.result,
        };
        read
    }
}

/// An attempt without a decision.
struct AttemptError {
    result: CallResult,
    /// For the log.
    why: String,
    is_transient: bool,
}

impl AttemptError {
    /// Returns the error for clients.
    fn summary(&self) -> &'static str {
        match self.result {
            CallResult::Timeout => "no response in time",
            _ => "no usable response",
        }
    }
}

impl From<CallError> for AttemptError {
    fn from(error: CallError) -> Self {
        let is_timeout = matches!(
            error,
            CallError::Deadline { .. } | CallError::Status { code: 504, .. }
        );
        AttemptError {
            result: if is_timeout {
                CallResult::Timeout
            } else {
                CallResult::Error
            },
            why: match &error {
                // Its text quotes the response, which may repeat the review.
                CallError::Status { code, .. } => format!("the response has the status {code}"),
                error => error.to_string(),
            },
            is_transient: error.is_transient(),
        }
    }
}

/// Records an attempt when it ends.
struct CallRecord<'a> {
    webhook: &'a WebhookAuthorizer,
    begun: Instant,
    result: CallResult,
}

impl Drop for CallRecord<'_> {
    fn drop(&mut self) {
        let metrics = &self.webhook.metrics;
        metrics.record_call(&self.webhook.name, self.result, self.begun.elapsed());
    }
}

fn add_jitter(wait: Duration) -> Duration {
    wait.mul_f64(1.0 + WAIT_JITTER * rand::rng().random::<f64>())
}
