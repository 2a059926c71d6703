//! Annotations that calls of webhooks add to audit events.

use crate::hook::Hook;
use crate::response::Response;
use api_meta::names::qualified_name;
use apiserver_request::{annotate_audit, annotate_audit_content};
use serde_json::{Value, json};

/// The call of a mutating webhook: its pass, and its place among all webhooks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) round: usize,
    pub(crate) index: usize,
}

impl Place {
    fn key(self, prefix: &str) -> String {
        let Place { round, index } = self;
        format!("{prefix}.webhook.admission.k8s.io/round_{round}_index_{index}")
    }
}

/// Records whether a mutating webhook has changed the object.
pub(crate) fn annotate_mutation(place: Place, hook: &Hook, mutated: bool) {
    annotate_audit(place.key("mutation"), || {
        let (configuration, webhook) = (&hook.configuration, &hook.name);
        json!({"configuration": configuration, "webhook": webhook, "mutated": mutated}).to_string()
    });
}

/// Records the patch of a mutating webhook.
pub(crate) fn annotate_patch(place: Place, hook: &Hook, patch: &[u8]) {
    annotate_audit_content(place.key("patch"), || {
        let (configuration, webhook) = (&hook.configuration, &hook.name);
        let patch: Value = serde_json::from_slice(patch).unwrap_or_default();
        json!({"configuration": configuration, "webhook": webhook, "patch": patch, "patchType": "JSONPatch"})
            .to_string()
    });
}

/// Records that the request continues without the response of a mutating webhook.
pub(crate) fn annotate_mutation_failure(place: Place, hook: &Hook) {
    annotate_audit(place.key("failed-open.mutation"), || hook.name.clone());
}

/// Records that the request continues without the response of a validating webhook.
pub(crate) fn annotate_validation_failure(index: usize, hook: &Hook) {
    let place = Place { round: 0, index };
    annotate_audit(place.key("failed-open.validating"), || hook.name.clone());
}

/// Adds the annotations of a response, below the name of the webhook.
pub(crate) fn annotate_response(hook: &Hook, response: &Response) {
    for (key, value) in &response.annotations {
        let key = format!("{}/{key}", hook.name);
        // As upstream: the key has one slash.
        if qualified_name(&key).is_empty() {
            annotate_audit(key, || value.clone());
        } else {
            tracing::warn!(
                webhook = hook.name,
                key,
                "audit annotation with a key that is not valid"
            );
        }
    }
}
