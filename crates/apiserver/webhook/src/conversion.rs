//! Converts custom resources by the webhook of their definition.
//!
//! Invariant: of the metadata, a webhook changes labels and annotations only. A response for other
//! objects, or for another request, is an error.

mod metrics;
mod response;
mod review;

pub use metrics::ConversionMetrics;
pub use response::ConversionError;

use api_meta::Meta;
use api_meta::tree::{get, text, texts};
use apiserver_webhook_client::{Endpoint, ReviewVersion, Transport};
use bytes::Bytes;
use metrics::Failure;
use response::{check_converted, parse_response};
use review::{build_review, split_batches};
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Timeout of a call, as upstream's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Concurrent calls for one definition, so that a slow webhook holds a bounded part of the memory.
const CALLS: usize = 16;

/// The conversion webhook of a definition.
pub struct ConversionWebhook {
    definition: String,
    endpoint: Result<Endpoint, String>,
    /// The first known version of `conversionReviewVersions`.
    version: Option<ReviewVersion>,
    calls: Semaphore,
}

impl ConversionWebhook {
    /// Reads a definition; `None` unless its strategy is Webhook.
    pub fn parse(definition: &Value) -> Option<Self> {
        let conversion = get(get(definition, "spec"), "conversion");
        if text(conversion, "strategy") != "Webhook" {
            return None;
        }
        let webhook = get(conversion, "webhook");
        let mut versions = texts(webhook, "conversionReviewVersions").into_iter();
        Some(ConversionWebhook {
            definition: definition.name().to_owned(),
            // Kept until a conversion fails with it: objects in the storage version need none.
            endpoint: Endpoint::parse(get(webhook, "clientConfig")),
            // Upstream takes the first version it knows, not the newest: the author of the webhook
            // orders them.
            version: versions.find_map(ReviewVersion::from_name),
            calls: Semaphore::new(CALLS),
        })
    }
}

/// Calls conversion webhooks.
pub struct ConversionClient {
    transport: Arc<Transport>,
    metrics: Arc<ConversionMetrics>,
}

impl ConversionClient {
    /// Creates a client over a transport.
    pub fn new(transport: Arc<Transport>, metrics: Arc<ConversionMetrics>) -> Self {
        ConversionClient { transport, metrics }
    }

    /// Converts objects of one kind to an `apiVersion`, in their order. Those that have it already
    /// are not sent.
    ///
    /// # Errors
    /// The webhook can't be called, or its response is not valid. The message is upstream's.
    pub async fn convert_objects(
        &self,
        webhook: &ConversionWebhook,
        mut objects: Vec<Value>,
        api_version: &str,
    ) -> Result<Vec<Value>, ConversionError> {
        for batch in split_batches(&objects, api_version) {
            let sent: Vec<&Value> = batch.iter().filter_map(|at| objects.get(*at)).collect();
            let begun = Instant::now();
            let converted = self.convert_batch(webhook, &sent, api_version).await;
            let failure = converted.as_ref().err().map(|(failure, _)| *failure);
            self.metrics.record_call(begun.elapsed(), failure);
            // A list may hold several versions, and the label has room for one.
            let from = sent.first().map_or("", |object| text(object, "apiVersion"));
            self.metrics.record_conversion(
                [
                    &webhook.definition,
                    version_name(from),
                    version_name(api_version),
                ],
                failure.is_none(),
                begun.elapsed(),
            );
            let converted = converted.map_err(|(_, error)| error)?;
            for (at, object) in batch.iter().zip(converted) {
                if let Some(place) = objects.get_mut(*at) {
                    *place = object;
                }
            }
        }
        Ok(objects)
    }

    async fn convert_batch(
        &self,
        webhook: &ConversionWebhook,
        objects: &[&Value],
        api_version: &str,
    ) -> Result<Vec<Value>, (Failure, ConversionError)> {
        let kind = objects.first().map(|object| describe_kind(object));
        let kind = kind.unwrap_or_default();
        let failed = |failure: Failure, why: String| (failure, ConversionError::call(&kind, &why));
        let call_failed = |why: String| failed(Failure::Call, why);
        let version = webhook
            .version
            .ok_or_else(|| call_failed("no supported conversion review versions".into()))?;
        let endpoint = webhook
            .endpoint
            .as_ref()
            .map_err(|why| call_failed(why.clone()))?;
        // Ties the response to this review, so that a confused webhook cannot return the objects of
        // another one.
        let uid = uuid::Uuid::new_v4().to_string();
        // The wait is a part of the timeout: requests must not pile up behind a webhook that hangs.
        let exchange = async {
            let permit = webhook.calls.acquire().await;
            let _permit = permit.map_err(|e| e.to_string())?;
            let review = build_review(version, &uid, objects, api_version);
            let body = Bytes::from(review.to_string());
            let posted = self.transport.post_json(endpoint, body, TIMEOUT).await;
            posted.map_err(|e| e.to_string())
        };
        let body = tokio::time::timeout(TIMEOUT, exchange)
            .await
            .map_err(|_| {
                call_failed(format!(
                    "Post {:?}: context deadline exceeded",
                    endpoint.url()
                ))
            })?
            .map_err(call_failed)?;
        let converted = parse_response(version, &uid, &body)
            .map_err(|why| failed(Failure::MalformedResponse, why))?;
        // Objects are matched by position: with another number, one could get the content of
        // another.
        if converted.len() != objects.len() {
            let error = ConversionError::count(&kind, converted.len(), objects.len());
            return Err((Failure::PartialResponse, error));
        }
        let pairs = objects.iter().zip(converted).enumerate();
        pairs
            .map(|(index, (original, object))| {
                check_converted(original, object, api_version).map_err(|why| {
                    let error = ConversionError::object(&kind, index, &why);
                    (Failure::InvalidObject, error)
                })
            })
            .collect()
    }
}

fn version_name(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or_default()
}

/// Returns `group/version, Kind=Kind`.
fn describe_kind(object: &Value) -> String {
    format!(
        "{}, Kind={}",
        text(object, "apiVersion"),
        text(object, "kind")
    )
}

#[cfg(test)]
mod tests;
