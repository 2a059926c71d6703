//! Admission webhooks: configurations, matching, reviews, dispatch; and the client of conversion
//! webhooks.
//!
//! Decisions are pure: which webhooks match (`rules`, `matching`), the review (`review`), what a
//! response means (`response`, `outcome`). IO is in the crate `apiserver-webhook-client`, which
//! knows nothing of admission.
//!
//! Invariant: a webhook that matches and can't be called rejects the request, unless its
//! `failurePolicy` is Ignore. No content of a request or of a `caBundle` is logged.

mod annotate;
mod attributes;
mod condition_metrics;
mod conditions;
mod conversion;
mod dispatch;
mod file;
mod hook;
mod kinds;
mod labels;
mod matching;
mod metrics;
mod mutating;
mod outcome;
mod patch;
mod plugin;
mod response;
mod review;
mod rules;
mod select;
mod source;
#[cfg(test)]
mod tests;
mod validating;
mod versioned;

pub use attributes::Attributes;
pub use condition_metrics::{ConditionLabels, MatchConditionMetrics};
pub use conditions::{ConditionCompiler, ConditionInput, ConditionVerdict, Conditions};
pub use conversion::{ConversionClient, ConversionError, ConversionMetrics, ConversionWebhook};
pub use file::{PluginConfig, WebhookConfig, read_plugin_configs};
pub use hook::SelectorField;
pub use kinds::{GroupVersionKind, GroupVersionResource, Kinds, ReviewTarget};
pub use labels::{NamespaceLabels, matches_objects, read_namespace};
pub use metrics::WebhookMetrics;
pub use mutating::MutatingWebhooks;
pub use patch::bound_mutation;
pub use plugin::Setup;
pub use review::build_request;
pub use rules::{Rule, RuleTarget};
pub use validating::ValidatingWebhooks;
pub use versioned::{ObjectVersions, VersionedObjects, convert_back, with_type};
