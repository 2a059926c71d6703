//! The AuthorizationConfiguration of `apiserver.config.k8s.io`, whose versions have the same
//! fields.

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// An AuthorizationConfiguration.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuthorizationConfiguration {
    /// Group and version; checked by the parser.
    #[serde(rename = "apiVersion")]
    pub _api_version: String,
    /// `AuthorizationConfiguration`; checked by the parser.
    #[serde(rename = "kind")]
    pub _kind: String,
    /// The authorizers, in order.
    #[serde(default)]
    pub authorizers: Vec<AuthorizerConfig>,
}

/// An authorizer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AuthorizerConfig {
    /// The type.
    #[serde(rename = "type")]
    pub mode: String,
    /// The name in metrics.
    pub name: String,
    /// The webhook, if it is one.
    pub webhook: Option<WebhookConfig>,
}

/// A webhook.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WebhookConfig {
    /// Time for which a permission is reused.
    #[serde(rename = "authorizedTTL")]
    pub authorized_ttl: Nanoseconds,
    /// Permissions are reused.
    pub cache_authorized_requests: Option<bool>,
    /// Time for which any other decision is reused.
    #[serde(rename = "unauthorizedTTL")]
    pub unauthorized_ttl: Nanoseconds,
    /// Other decisions are reused.
    pub cache_unauthorized_requests: Option<bool>,
    /// Time for a call.
    pub timeout: Nanoseconds,
    /// Version of the review.
    pub subject_access_review_version: String,
    /// Version of the review that expressions see.
    pub match_condition_subject_access_review_version: String,
    /// `Deny` or `NoOpinion`: the decision if the webhook has none.
    pub failure_policy: String,
    /// The server.
    pub connection_info: ConnectionInfo,
    /// Conditions of a call.
    pub match_conditions: Vec<ConditionConfig>,
}

/// The server of a webhook.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ConnectionInfo {
    /// `KubeConfigFile`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The file.
    pub kube_config_file: Option<String>,
}

/// A condition of a call.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConditionConfig {
    /// An expression over `request`.
    pub expression: String,
}

/// A duration in Go's notation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nanoseconds(pub i64);

impl<'de> Deserialize<'de> for Nanoseconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        base_duration::parse_duration(&text)
            .map(Nanoseconds)
            .map_err(D::Error::custom)
    }
}
