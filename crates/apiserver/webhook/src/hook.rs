//! One webhook, compiled from its configuration.

use crate::conditions::{ConditionCompiler, Conditions};
use crate::rules::Rule;
use api_meta::tree::{get, int, list, text, texts};
use api_meta::{Meta, Selector};
use apiserver_webhook_client::{Endpoint, ReviewVersion};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A webhook.
pub struct Hook {
    /// Distinguishes webhooks of one name: `configuration/name/number`.
    pub id: String,
    /// Name of the configuration.
    pub configuration: String,
    /// Name.
    pub name: String,
    pub endpoint: Result<Endpoint, String>,
    pub rules: Vec<Rule>,
    /// `failurePolicy: Ignore`.
    pub ignores_failure: bool,
    /// `matchPolicy: Equivalent`.
    pub is_equivalent: bool,
    pub namespaces: SelectorField,
    pub objects: SelectorField,
    /// A dry run has no effects outside the cluster.
    pub allows_dry_run: bool,
    pub timeout: Duration,
    /// The first known version of `admissionReviewVersions`.
    pub review: Option<ReviewVersion>,
    /// `reinvocationPolicy: IfNeeded`.
    pub is_reinvocable: bool,
    pub conditions: Option<Result<Arc<dyn Conditions>, String>>,
}

/// A selector of a webhook.
pub enum SelectorField {
    /// Absent or empty.
    Everything,
    /// A selector with requirements.
    Some(Selector),
    /// With the reason.
    Invalid(String),
}

impl SelectorField {
    /// Reads a selector.
    pub fn parse(selector: &Value) -> Self {
        let is_empty = |field: &str| match get(selector, field) {
            Value::Object(map) => map.is_empty(),
            Value::Array(list) => list.is_empty(),
            // An absent selector is defaulted to an empty one, which selects everything.
            _ => true,
        };
        if is_empty("matchLabels") && is_empty("matchExpressions") {
            return SelectorField::Everything;
        }
        match Selector::from_label_selector(selector) {
            Ok(Some(selector)) => SelectorField::Some(selector),
            Ok(None) => SelectorField::Everything,
            Err(error) => SelectorField::Invalid(error.to_string()),
        }
    }
}

/// Compiles the webhooks of one configuration in their order.
pub fn compile_hooks(configuration: &Value, compiler: &dyn ConditionCompiler) -> Vec<Hook> {
    // Names need not be unique in stored configurations.
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut all = Vec::new();
    for hook in list(configuration, "webhooks") {
        let number = seen.entry(text(hook, "name")).or_default();
        all.push(compile_hook(configuration.name(), hook, *number, compiler));
        *number += 1;
    }
    all
}

fn compile_hook(
    configuration: &str,
    hook: &Value,
    number: usize,
    compiler: &dyn ConditionCompiler,
) -> Hook {
    let name = text(hook, "name");
    let conditions = list(hook, "matchConditions");
    // The default of v1, and the range that validation admits: one webhook must not hold a request
    // for longer.
    let seconds = int(hook, "timeoutSeconds").unwrap_or(10).clamp(1, 30);
    Hook {
        // The form of upstream's UID of a webhook, with a number for equal names.
        id: format!("{configuration}/{name}/{number}"),
        configuration: configuration.to_owned(),
        name: name.to_owned(),
        // An error is kept until a request matches: the failure policy of the webhook decides then.
        endpoint: Endpoint::parse(get(hook, "clientConfig")),
        rules: list(hook, "rules").iter().map(Rule::parse).collect(),
        // Defaults are those of v1: an absent policy must not let requests through.
        ignores_failure: text(hook, "failurePolicy") == "Ignore",
        is_equivalent: text(hook, "matchPolicy") != "Exact",
        namespaces: SelectorField::parse(get(hook, "namespaceSelector")),
        objects: SelectorField::parse(get(hook, "objectSelector")),
        // `Unknown` and `Some` are left in configurations of v1beta1: such a webhook may have
        // effects in a dry run.
        allows_dry_run: matches!(text(hook, "sideEffects"), "None" | "NoneOnDryRun"),
        timeout: Duration::from_secs(seconds.unsigned_abs()),
        review: texts(hook, "admissionReviewVersions")
            .into_iter()
            .find_map(ReviewVersion::from_name),
        is_reinvocable: text(hook, "reinvocationPolicy") == "IfNeeded",
        conditions: (!conditions.is_empty()).then(|| compiler.compile_conditions(conditions)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conditions::NoConditions;
    use serde_json::json;

    fn compile(hook: Value) -> Hook {
        let configuration = json!({"metadata": {"name": "c"}, "webhooks": [hook]});
        compile_hooks(&configuration, &NoConditions).remove(0)
    }

    #[test]
    fn defaults_are_those_of_v1() {
        let hook = compile(json!({"name": "a"}));
        assert!(!hook.ignores_failure && hook.is_equivalent && !hook.is_reinvocable);
        assert!(!hook.allows_dry_run, "unknown side effects");
        assert_eq!(hook.timeout, Duration::from_secs(10));
        assert!(matches!(hook.namespaces, SelectorField::Everything));
        assert!(hook.endpoint.is_err() && hook.review.is_none());
    }

    #[test]
    fn timeout_is_between_one_and_thirty_seconds() {
        for (seconds, expect) in [(0, 1), (1, 1), (30, 30), (600, 30), (-5, 1)] {
            let hook = compile(json!({"name": "a", "timeoutSeconds": seconds}));
            assert_eq!(hook.timeout, Duration::from_secs(expect), "{seconds}");
        }
    }

    #[test]
    fn first_known_review_version_is_used() {
        for (versions, expect) in [
            (json!(["v1", "v1beta1"]), Some(ReviewVersion::V1)),
            (json!(["v2", "v1beta1", "v1"]), Some(ReviewVersion::V1beta1)),
            (json!(["v2"]), None),
        ] {
            let hook = compile(json!({"name": "a", "admissionReviewVersions": versions}));
            assert_eq!(hook.review, expect, "{versions}");
        }
    }

    #[test]
    fn webhooks_of_one_name_have_different_ids() {
        let configuration =
            json!({"metadata": {"name": "c"}, "webhooks": [{"name": "a"}, {"name": "a"}]});
        let hooks = compile_hooks(&configuration, &NoConditions);
        let ids: Vec<&str> = hooks.iter().map(|hook| hook.id.as_str()).collect();
        assert_eq!(ids, ["c/a/0", "c/a/1"]);
    }

    #[test]
    fn conditions_are_never_ignored() {
        let conditions = json!([{"name": "x", "expression": "true"}]);
        let hook = compile(json!({"name": "a", "matchConditions": conditions}));
        assert!(matches!(hook.conditions, Some(Err(_))));
        assert!(compile(json!({"name": "a"})).conditions.is_none());
    }

    #[test]
    fn selector_that_is_invalid_is_not_everything() {
        let selector = json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]});
        let hook = compile(json!({"name": "a", "objectSelector": selector}));
        assert!(matches!(hook.objects, SelectorField::Invalid(_)));
        let empty = json!({"matchLabels": {}, "matchExpressions": []});
        let hook = compile(json!({"name": "a", "objectSelector": empty}));
        assert!(matches!(hook.objects, SelectorField::Everything));
    }
}
