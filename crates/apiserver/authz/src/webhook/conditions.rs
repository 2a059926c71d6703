//! Match conditions: expressions over the review, which decide whether a webhook is called.

use super::review::{EmptyValues, Selectors};
use api_cel::cost::PER_CALL_LIMIT;
use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::identity::{REQUEST, REVIEW_SHAPE, create_review};
use api_cel::program::{Environment, Program};
use api_cel::{Budget, EvalError, Type, Value as CelValue};
use apiserver_request::Attributes;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Files may come from any version, so that all functions are known.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| create_review(STORED_EXPRESSIONS));

/// Cost of all conditions for one request, as upstream limits those of admission.
const REQUEST_LIMIT: u64 = 5 * PER_CALL_LIMIT / 2;
/// Longest expression in the log, in characters.
const MAX_LOGGED: usize = 256;

/// Conditions that can't be evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionError {
    /// The expression and the kind of error, without values of the request.
    pub why: String,
    /// True if the cost limit was exceeded: clients can bring that about by large requests.
    pub is_limit: bool,
}

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

    fn evaluate(
        &self,
        request: &CelValue<'_>,
        budget: &mut Budget,
    ) -> Result<bool, ConditionError> {
        let variables = [(REQUEST, request.clone())];
        let limit = PER_CALL_LIMIT.min(budget.remaining());
        let (result, cost) =
            budget.limit_call(limit, |budget| self.program.evaluate(&variables, budget));
        // An exceeded limit is the error of the evaluation as well.
        let charged = budget.charge(cost);
        match result {
            Ok(CelValue::Bool(holds)) if charged.is_ok() => Ok(holds),
            Ok(CelValue::Bool(_)) => Err(self.build_error("cost limit exceeded", true)),
            Ok(_) => Err(self.build_error("the value is no bool", false)),
            Err(error) => Err(self.build_error(error_kind(&error), error.is_cancellation())),
        }
    }

    fn build_error(&self, kind: &str, is_limit: bool) -> ConditionError {
        let source: String = self.source.chars().take(MAX_LOGGED).collect();
        let why = format!("expression '{source}' resulted in error: {kind}");
        ConditionError { why, is_limit }
    }
}

/// Returns the kind of an error. Its text may quote values of the request.
fn error_kind(error: &EvalError) -> &'static str {
    match error {
        EvalError::NoSuchOverload => "no such overload",
        EvalError::NoSuchKey(_) => "no such key",
        EvalError::NoSuchAttribute(_) => "no such attribute",
        EvalError::IndexOutOfBounds(_) => "index out of bounds",
        EvalError::Overflow(_) => "overflow",
        EvalError::DivisionByZero => "division by zero",
        EvalError::ModulusByZero => "modulus by zero",
        EvalError::CostLimitExceeded => "cost limit exceeded",
        _ => "a function has failed",
    }
}

/// Returns whether all conditions hold. One that is false wins over the errors of others.
///
/// # Errors
/// None is false, and at least one can't be evaluated. An exceeded limit wins over other errors.
pub fn match_conditions(
    conditions: &[MatchCondition],
    attributes: &Attributes,
    selectors: &Selectors,
) -> Result<bool, ConditionError> {
    let review = build_request(attributes, selectors);
    let request = CelValue::from_json(&review, Some(&**REVIEW_SHAPE));
    let mut budget = Budget::new(REQUEST_LIMIT);
    let mut found_error: Option<ConditionError> = None;
    for condition in conditions {
        match condition.evaluate(&request, &mut budget) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(error)
                if found_error
                    .as_ref()
                    .is_none_or(|found_error| error.is_limit && !found_error.is_limit) =>
            {
                found_error = Some(error);
            }
            Err(_) => {}
        }
    }
    match found_error {
        Some(error) => Err(error),
        None => Ok(true),
    }
}

/// Builds the variable `request`: unlike the review, it has the empty fields, so that expressions
/// need not test for them.
fn build_request(a: &Attributes, selectors: &Selectors) -> Value {
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
    for (name, requirements) in selectors.build_fields(EmptyValues::Kept) {
        resource[name] = requirements;
    }
    request["resourceAttributes"] = resource;
    request
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use apiserver_request::User;

    fn matches(sources: &[&str]) -> Result<bool, ConditionError> {
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
            label_selector: "app=a,!old".into(),
            ..Attributes::default()
        };
        let selectors = Selectors::parse(&attributes).unwrap();
        match_conditions(&conditions, &attributes, &selectors)
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
            (
                "request.resourceAttributes.labelSelector.requirements.exists(r, \
                 r.operator == 'DoesNotExist' && has(r.values) && r.values.size() == 0)",
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
            error.why.starts_with("expression 'request.nonResource") && !error.is_limit,
            "{error:?}"
        );
        assert_eq!(matches(&[]), Ok(true));
    }

    #[test]
    fn error_names_no_value_of_the_request() {
        let error = matches(&["request.extra[request.user] == ['a']"]).unwrap_err();
        assert!(error.why.ends_with(": no such key"), "{error:?}");
    }

    #[test]
    fn conditions_share_a_cost_limit_and_exceeding_it_wins_over_other_errors() {
        let list = "[1,2,3,4,5,6,7,8,9,10]";
        let mut costly = "true".to_owned();
        for name in ["a", "b", "c", "d", "e"] {
            costly = format!("{list}.all({name}, {costly})");
        }
        let single = matches(&[&costly]);
        let broken = "request.nonResourceAttributes.path == '/'";
        let mut all = vec![broken];
        all.extend([costly.as_str(); 10]);
        let error = matches(&all).unwrap_err();
        assert!(error.is_limit, "{error:?} {single:?}");
        assert_eq!(single, Ok(true));
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
