//! Webhook configurations and admission policies.

use api_meta::tree::{at_mut, each_mut, fill, has, make};
use serde_json::{Value, json};

/// Sets the defaults of a kind of this group.
pub fn default_admission_kind(kind: &str, object: &mut Value) {
    match kind {
        "ValidatingWebhookConfiguration" => each_mut(object, "webhooks").for_each(default_webhook),
        "MutatingWebhookConfiguration" => {
            for hook in each_mut(object, "webhooks") {
                default_webhook(hook);
                fill(hook, "reinvocationPolicy", "Never");
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            let Some(spec) = make(object, "spec") else {
                return;
            };
            fill(spec, "failurePolicy", "Fail");
            if let Some(constraints) = at_mut(spec, "matchConstraints") {
                default_match_resources(constraints);
            }
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding" => {
            if let Some(resources) =
                at_mut(object, "spec").and_then(|s| at_mut(s, "matchResources"))
            {
                default_match_resources(resources);
            }
        }
        _ => {}
    }
}

fn default_selectors(target: &mut Value) {
    // Otherwise a request in another version of the same resource would bypass the rules.
    fill(target, "matchPolicy", "Equivalent");
    fill(target, "namespaceSelector", json!({}));
    fill(target, "objectSelector", json!({}));
}

fn default_match_resources(resources: &mut Value) {
    default_selectors(resources);
    for list in ["resourceRules", "excludeResourceRules"] {
        each_mut(resources, list).for_each(|rule| fill(rule, "scope", "*"));
    }
}

fn default_webhook(hook: &mut Value) {
    // Objects must not pass unchecked while a webhook is down. In v1beta1 the default was Ignore.
    fill(hook, "failurePolicy", "Fail");
    fill(hook, "timeoutSeconds", 10);
    default_selectors(hook);
    each_mut(hook, "rules").for_each(|rule| fill(rule, "scope", "*"));
    if let Some(client) = at_mut(hook, "clientConfig")
        && has(client, "service")
        && let Some(service) = at_mut(client, "service")
    {
        fill(service, "port", 443);
    }
}
