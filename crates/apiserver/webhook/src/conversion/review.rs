//! The request of a ConversionReview.

use api_meta::tree::text;
use apiserver_webhook_client::ReviewVersion;
use serde_json::{Value, json};

/// Maximum size of the objects in one review, unless a single one is larger. A converted object may
/// be larger, and the transport limits the response.
const MAX_BATCH: usize = 2 * 1024 * 1024;

/// The group of reviews. Both versions have the same fields.
pub const GROUP: &str = "apiextensions.k8s.io";

/// Builds a review.
pub fn build_review(
    version: ReviewVersion,
    uid: &str,
    objects: &[&Value],
    api_version: &str,
) -> Value {
    json!({"kind": "ConversionReview", "apiVersion": version.api_version(GROUP),
        "request": {"uid": uid, "desiredAPIVersion": api_version, "objects": objects}})
}

/// Returns the indexes of the objects that need a conversion, in batches of a bounded size.
pub fn split_batches(objects: &[Value], api_version: &str) -> Vec<Vec<usize>> {
    let mut batches: Vec<Vec<usize>> = Vec::new();
    let mut room = 0;
    for (index, object) in objects.iter().enumerate() {
        // Upstream converts objects without content itself, which its watch cache creates.
        if text(object, "apiVersion") == api_version || is_bare(object) {
            continue;
        }
        let size = object.to_string().len();
        match batches.last_mut().filter(|_| size <= room) {
            Some(batch) => batch.push(index),
            None => {
                batches.push(vec![index]);
                room = MAX_BATCH;
            }
        }
        room = room.saturating_sub(size);
    }
    batches
}

/// Returns whether an object has nothing but its type.
fn is_bare(object: &Value) -> bool {
    object.as_object().is_some_and(|fields| {
        fields.len() == 2 && fields.contains_key("kind") && fields.contains_key("apiVersion")
    })
}
