//! Match conditions: expressions over the review, which decide whether a webhook is called.

use super::review::{field_requirements, label_requirements};
use api_cel::cost::PER_CALL_LIMIT;
use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::identity::{REQUEST, REVIEW_SHAPE, create_review};
use api_cel::program::{Environment, Program};
use api_cel::{Budget, Type, Value as CelValue};
use apiserver_request::Attributes;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Files may come from any version, so that all functions are known.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| create_review(STORED_EXPRESSIONS));

/// A compiled condition with its source, for the log.
#[derive(Clone, Debug)]
pub struct MatchCondition {
    source: String,
    program: Program,
}

impl MatchCondition {
    /// Compiles a condition.
    ///
    /// # Errors
    /// It does not compile, or is no `bool`; the text is for the operator.
    pub fn compile(source: &str) -> Result<Self, String> {
        let program = ENVIRONMENT
            .compile(source)
            .map_err(|error| format!("compilation failed: {error}"))?;
        if *program.output_type() != Type::Bool {
            return Err(format!(
                "must evaluate to bool but got {}",
                program.output_type()
            ));
        }
        let source = source.to_owned();
        Ok(MatchCondition { source, program })
    }

    fn evaluate(&self, request: &CelValue<'_>) -> Result<bool, String> {
        let variables = [(REQUEST, request.clone())];
        let mut budget = Budget::new(PER_CALL_LIMIT);
        let failed = |why: String| format!("expression '{}' resulted in error: {why}", self.source);
        match self.program.evaluate(&variables, &mut budget) {
            Ok(CelValue::Bool(holds)) => Ok(holds),
            Ok(_) => Err(failed("the value is no bool".to_owned())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

/// Returns whether all conditions hold. One that is false wins over the errors of others.
///
/// # Errors
/// None is false, and at least one can't be evaluated.
pub fn match_conditions(
    conditions: &[MatchCondition],
    attributes: &Attributes,
) -> Result<bool, String> {
    let review = build_request(attributes);
    let request = CelValue::from_json(&review, Some(&**REVIEW_SHAPE));
    let mut first_error = None;
    for condition in conditions {
        match condition.evaluate(&request) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        Some(error) => Err(error),
        None => Ok(true),
    }
}

/// Builds the variable `request`: unlike the review, it has the empty fields, so that expressions
/// need not test for them.
fn build_request(a: &Attributes) -> Value {
    let user = &a.user;
    let mut request = json!({"user": user.name, "uid": user.uid, "groups": user.groups,
        "extra": user.extra});
    if !a.is_resource {
        request["nonResourceAttributes"] = json!({"path": a.path, "verb": a.verb});
        return request;
    }
    let mut resource = json!({"namespace": a.namespace, "verb": a.verb, "group": a.group,
        "version": a.version, "resource": a.resource, "subresource": a.subresource,
        "name": a.name});
    for (name, requirements) in [
        ("fieldSelector", field_requirements(&a.field_selector)),
        ("labelSelector", label_requirements(&a.label_selector)),
    ] {
        if !requirements.is_empty() {
            resource[name] = json!({"requirements": requirements});
        }
    }
    request["resourceAttributes"] = resource;
    request
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use apiserver_request::User;

    fn matches(sources: &[&str]) -> Result<bool, String> {
        let conditions: Vec<MatchCondition> = sources
            .iter()
            .map(|source| MatchCondition::compile(source).unwrap())
            .collect();
        let attributes = Attributes {
            user: User {
                name: "jane".into(),
                groups: vec!["dev".into()],
                ..User::default()
            },
            verb: "list".into(),
            resource: "pods".into(),
            is_resource: true,
            label_selector: "app=a".into(),
            ..Attributes::default()
        };
        match_conditions(&conditions, &attributes)
    }

    #[test]
    fn conditions_see_the_review() {
        for (source, expect) in [
            ("request.user == 'jane' && 'dev' in request.groups", true),
            ("request.uid == '' && request.extra.size() == 0", true),
            ("has(request.resourceAttributes)", true),
            ("has(request.nonResourceAttributes)", false),
            ("request.resourceAttributes.namespace == ''", true),
            ("request.resourceAttributes.resource in ['pods']", true),
            (
                "request.resourceAttributes.labelSelector.requirements.exists(r, \
                 r.key == 'app' && r.operator == 'In' && r.values == ['a'])",
                true,
            ),
            ("has(request.resourceAttributes.fieldSelector)", false),
            (
                "request.?resourceAttributes.?fieldSelector.hasValue()",
                false,
            ),
        ] {
            assert_eq!(matches(&[source]), Ok(expect), "{source}");
        }
    }

    #[test]
    fn false_condition_wins_over_an_error() {
        let broken = "request.nonResourceAttributes.path == '/'";
        assert_eq!(matches(&[broken, "false"]), Ok(false));
        let error = matches(&[broken, "true"]).unwrap_err();
        assert!(
            error.starts_with("expression 'request.nonResource"),
            "{error}"
        );
        assert_eq!(matches(&[]), Ok(true));
    }

    #[test]
    fn condition_that_is_no_bool_does_not_compile() {
        for source in [
            "request.user",
            "request.namespace == ''",
            "user",
            "1 +",
            "dyn(true)",
        ] {
            assert!(MatchCondition::compile(source).is_err(), "{source}");
        }
    }
}
