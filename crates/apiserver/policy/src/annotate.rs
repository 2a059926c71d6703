//! Annotations that policies add to audit events.

use crate::source::Binding;
use apiserver_request::annotate_audit;
use serde_json::json;
use std::collections::BTreeMap;

const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The annotations of one policy, for all its bindings and parameters.
#[derive(Debug, Default)]
pub(crate) struct PolicyAnnotations(BTreeMap<String, Vec<String>>);

impl PolicyAnnotations {
    /// Adds annotations; a value that a key already has is dropped.
    pub(crate) fn extend(&mut self, annotations: Vec<(String, String)>) {
        for (key, value) in annotations {
            let values = self.0.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
    }

    /// Adds all to the audit events of the request, below the name of the policy.
    pub(crate) fn publish(self, policy: &str) {
        for (key, values) in self.0 {
            annotate_audit(format!("{policy}/{key}"), || values.join(", "));
        }
    }
}

/// Records a validation that does not hold, for a binding with the action Audit.
pub(crate) fn annotate_failure(policy: &str, binding: &Binding, expression: usize, message: &str) {
    annotate_audit(FAILURE, || {
        json!([{
            "message": message,
            "policy": policy,
            "binding": binding.name,
            "expressionIndex": expression,
            "validationActions": binding.actions,
        }])
        .to_string()
    });
}
