//! Annotations that calls of webhooks add to audit events.

use crate::hook::Hook;
use crate::response::Response;
use api_meta::names::qualified_name;
use apiserver_request::{annotate_audit, annotate_audit_content};
use serde_json::{Value, json};

/// The round and the index of a webhook call, as in upstream's annotation keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallIndex {
    pub(crate) round: usize,
    pub(crate) index: usize,
}

impl CallIndex {
    fn key(self, prefix: &str) -> String {
        let CallIndex { round, index } = self;
        format!("{prefix}.webhook.admission.k8s.io/round_{round}_index_{index}")
    }
}

/// Records whether a mutating webhook has changed the object.
pub(crate) fn annotate_mutation(call: CallIndex, hook: &Hook, mutated: bool) {
    annotate_audit(call.key("mutation"), || {
        let (configuration, webhook) = (&hook.configuration, &hook.name);
        json!({"configuration": configuration, "webhook": webhook, "mutated": mutated}).to_string()
    });
}

/// Records the patch of a mutating webhook.
pub(crate) fn annotate_patch(call: CallIndex, hook: &Hook, patch: &[u8]) {
    annotate_audit_content(call.key("patch"), || {
        let (configuration, webhook) = (&hook.configuration, &hook.name);
        let patch: Value = serde_json::from_slice(patch).unwrap_or_default();
        json!({"configuration": configuration, "webhook": webhook, "patch": patch, "patchType": "JSONPatch"})
            .to_string()
    });
}

/// Records that the request continues without the response of a mutating webhook.
pub(crate) fn annotate_mutation_failure(call: CallIndex, hook: &Hook) {
    annotate_audit(call.key("failed-open.mutation"), || hook.name.clone());
}

/// Records that the request continues without the response of a validating webhook.
pub(crate) fn annotate_validation_failure(index: usize, hook: &Hook) {
    let call = CallIndex { round: 0, index };
    annotate_audit(call.key("failed-open.validating"), || hook.name.clone());
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
                "dropped an audit annotation with an invalid key"
            );
        }
    }
}
