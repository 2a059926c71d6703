//! The settings of a webhook.

use super::conditions::MatchCondition;
use apiserver_webhook_client::ReviewVersion;
use std::path::PathBuf;
use std::time::Duration;

/// A webhook of the chain.
#[derive(Clone, Debug)]
pub struct WebhookSpec {
    /// Time for which a permission is reused; zero for never.
    pub authorized_ttl: Duration,
    /// Time for which any other decision is reused; zero for never.
    pub unauthorized_ttl: Duration,
    /// Time for a call.
    pub timeout: Duration,
    /// Version of the review.
    pub version: ReviewVersion,
    /// A request is denied if the webhook can't decide; otherwise the next authorizer decides.
    pub denies_on_error: bool,
    /// File with the server and the credentials.
    pub kubeconfig: PathBuf,
    /// Conditions of a call.
    pub conditions: Vec<MatchCondition>,
}

impl WebhookSpec {
    /// Creates the webhook of the flags, with the policy and timeout that upstream gives it.
    pub fn from_flags(
        kubeconfig: PathBuf,
        version: ReviewVersion,
        authorized_ttl: Duration,
        unauthorized_ttl: Duration,
    ) -> Self {
        WebhookSpec {
            authorized_ttl,
            unauthorized_ttl,
            timeout: Duration::from_secs(30),
            version,
            denies_on_error: false,
            kubeconfig,
            conditions: Vec::new(),
        }
    }
}
