//! A webhook that decides about requests: a server that reviews them.
//!
//! Invariant: a webhook that can't be asked never allows a request. Its failure policy decides
//! whether the next authorizer may. No content of a review is logged.

mod cache;
mod conditions;
mod places;
mod review;
mod server;
mod spec;
#[cfg(test)]
mod tests;

pub use conditions::MatchCondition;
pub use review::ReviewVersion;
pub use server::{ConnectServer, ReviewServer, WebhookConnections};
pub use spec::WebhookSpec;

use crate::metrics::{AuthzMetrics, CallResult};
use apiserver_request::{Attributes, Decision, Failure, UserRules};
use apiserver_webhook_client::CallError;
use bytes::Bytes;
use cache::{DecisionCache, Key};
use conditions::match_conditions;
use parking_lot::Mutex;
use places::CallPlaces;
use rand::Rng;
use review::{build_spec, encode_review, is_cacheable, read_response};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Attempts of a call, and the wait before the second one, with upstream's values.
const ATTEMPTS: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const WAIT_FACTOR: f64 = 1.5;
const WAIT_JITTER: f64 = 0.2;
/// Maximum size of a review in bytes. Headers and a path are much smaller; the attributes in a body
/// of a SelfSubjectAccessReview are not, and would be held as long as a webhook is silent.
const MAX_REVIEW: usize = 512 * 1024;
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
    /// The decision: a kept one, or that of the match conditions.
    Decided(Decision),
    /// The server has to be called.
    Call(Box<ReviewCall>),
}

/// A call of a webhook.
pub struct ReviewCall {
    webhook: Arc<WebhookAuthorizer>,
    review: Bytes,
    /// The key of the decision, if it may be kept.
    key: Option<Key>,
    client: String,
    is_system: bool,
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

    /// Evaluates the match conditions, and looks for a kept decision.
    pub fn prepare(self: &Arc<Self>, attributes: &Attributes) -> Prepared {
        let is_small = is_cacheable(attributes);
        if let Some(decision) = self.check_conditions(attributes, is_small) {
            return Prepared::Decided(decision);
        }
        let spec = build_spec(attributes, self.spec.version);
        let mut key = None;
        if self.cache.is_used() && is_small {
            // Equal reviews have the same text: their fields have one order.
            let digest: Key = Sha256::digest(spec.to_string()).into();
            if let Some(decision) = self.cache.find(&digest, Instant::now()) {
                return Prepared::Decided(decision);
            }
            key = Some(digest);
        }
        let review = encode_review(&spec, self.spec.version);
        if review.len() > MAX_REVIEW {
            return Prepared::Decided(self.deny("the attributes of the request are too large"));
        }
        Prepared::Call(Box::new(ReviewCall {
            webhook: self.clone(),
            review: review.into(),
            key,
            client: attributes.user.limit_name().to_owned(),
            is_system: attributes.user.is_system(),
        }))
    }

    /// Returns the decision if the webhook is not to be called.
    fn check_conditions(&self, attributes: &Attributes, is_small: bool) -> Option<Decision> {
        if self.spec.conditions.is_empty() {
            return None;
        }
        let begun = Instant::now();
        let evaluate = || match_conditions(&self.spec.conditions, attributes);
        let matched = if is_small {
            evaluate()
        } else {
            // The cost of an expression grows with the attributes, which the client chooses.
            base_task::blocking(evaluate)
        };
        let holds = matched.as_ref().ok().copied();
        self.metrics
            .record_conditions(&self.name, holds, begun.elapsed());
        match matched {
            Ok(true) => None,
            Ok(false) => Some(Decision::NoOpinion(String::new())),
            Err(why) => {
                self.log_failure(&why);
                Some(self.fail("the match conditions can't be evaluated"))
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
        self.build_failure(self.spec.denies_on_error, why)
    }

    /// Returns the decision about a request that exceeds a limit. Whatever the failure policy is: a
    /// client must not be able to skip the webhook.
    fn deny(&self, why: &str) -> Decision {
        self.build_failure(true, why)
    }

    /// Builds an error that names no address.
    fn build_failure(&self, is_denied: bool, why: &str) -> Decision {
        Decision::Failed(Failure {
            is_denied,
            reason: String::new(),
            error: format!("authorization webhook {:?}: {why}", self.name),
        })
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
        let Some(_place) = webhook.places.take(&self.client, self.is_system) else {
            return webhook.deny("too many requests wait for its response");
        };
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            match self.attempt().await {
                Ok(decision) => {
                    if let Some(key) = self.key {
                        let cache = &webhook.cache;
                        cache.insert(key, &self.client, &decision, Instant::now());
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
            why: error.to_string(),
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
