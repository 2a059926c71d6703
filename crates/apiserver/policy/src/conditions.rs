//! Match conditions of webhooks and policies.

use crate::activation::{Activation, ComposedVariables, Input};
use crate::authorizer::UserCheck;
use crate::evaluate::{Allowance, Expression};
use api_cel::Value as CelValue;
use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::policy::{PolicyCompiler, Purpose};
use api_cel::library::authorizer::CheckResource;
use api_meta::tree::{get, text};
use apiserver_request::Authorizer;
use apiserver_webhook::{ConditionCompiler, ConditionInput, ConditionVerdict, Conditions};
use serde_json::Value;
use std::sync::Arc;
use std::time::Instant;

/// Cost limit of all match conditions of one webhook or policy for one request.
// Upstream's `RuntimeCELCostBudgetMatchConditions`, about a quarter of a second.
const CONDITIONS_BUDGET: u64 = 2_500_000;

/// Compiles the match conditions of webhooks.
pub struct MatchConditions(Arc<dyn Authorizer>);

impl MatchConditions {
    /// Creates a compiler whose conditions ask this authorizer.
    pub fn new(authorizer: Arc<dyn Authorizer>) -> Self {
        MatchConditions(authorizer)
    }
}

impl ConditionCompiler for MatchConditions {
    fn compile_conditions(&self, conditions: &[Value]) -> Result<Arc<dyn Conditions>, String> {
        Ok(Arc::new(WebhookConditions {
            conditions: compile_conditions(conditions, &PolicyCompiler::new(false)),
            authorizer: self.0.clone(),
        }))
    }
}

/// Compiles match conditions. One that does not compile fails when it is evaluated.
pub fn compile_conditions(conditions: &[Value], compiler: &PolicyCompiler) -> Vec<Expression> {
    let compile = |condition: &Value| {
        // The environment of stored expressions: after a downgrade, conditions of the newer server
        // must still compile.
        let source = text(condition, "expression");
        Expression::compile(compiler, Purpose::Condition, source, STORED_EXPRESSIONS)
    };
    conditions.iter().map(compile).collect()
}

/// Evaluates match conditions. They have no `namespaceObject`: it is null.
pub fn match_conditions(
    conditions: &[Expression],
    composed: &ComposedVariables,
    input: &Input<'_>,
    allowance: &mut Allowance,
) -> ConditionVerdict {
    let begun = Instant::now();
    let mut failed = 0;
    let holds = evaluate_conditions(conditions, composed, input, allowance, &mut failed);
    ConditionVerdict {
        holds,
        failed,
        elapsed: begun.elapsed(),
    }
}

/// Returns whether no condition is false, and counts those that fail.
///
/// # Errors
/// No condition is false, and at least one could not be evaluated.
fn evaluate_conditions(
    conditions: &[Expression],
    composed: &ComposedVariables,
    input: &Input<'_>,
    allowance: &mut Allowance,
    failed: &mut u64,
) -> Result<bool, String> {
    // Upstream's matcher passes no namespace, neither for webhooks nor for policies.
    let input = Input {
        namespace: &Value::Null,
        ..input.clone()
    };
    let activation = Activation::new(&input, composed, true);
    allowance.begin(CONDITIONS_BUDGET);
    let mut results = Vec::with_capacity(conditions.len());
    // All are evaluated first: a budget that does not suffice for all is an error.
    for condition in conditions {
        results.push(condition.evaluate(&activation, allowance)?.value);
    }
    let mut errors: Vec<String> = Vec::new();
    for result in results {
        *failed += u64::from(result.is_err());
        match result {
            Ok(CelValue::Bool(false)) => return Ok(false),
            Ok(_) => {}
            // Upstream's `utilerrors.NewAggregate` prints equal messages once, and brackets only
            // several.
            Err(error) if errors.contains(&error) => {}
            Err(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

/// The compiled conditions of one webhook.
struct WebhookConditions {
    conditions: Vec<Expression>,
    authorizer: Arc<dyn Authorizer>,
}

#[async_trait::async_trait]
impl Conditions for WebhookConditions {
    async fn matches(&self, input: &ConditionInput<'_>) -> ConditionVerdict {
        let check = Arc::new(UserCheck::new(self.authorizer.clone(), input.user));
        let input = Input {
            request: input.request,
            object: input.object,
            old_object: input.old_object,
            namespace: &Value::Null,
            params: &Value::Null,
            check: check.clone(),
            resource: request_resource(input.request),
        };
        let (none, mut allowance) = (ComposedVariables::default(), Allowance::new());
        let evaluation = |allowance: &mut Allowance| {
            match_conditions(&self.conditions, &none, &input, allowance)
        };
        check.evaluate(&mut allowance, evaluation).await
    }
}

/// Returns the resource of the request, for `authorizer.requestResource`.
pub fn request_resource(request: &Value) -> CheckResource {
    // As upstream, the resource that the client requested, not the equivalent one that a rule
    // matched.
    let resource = get(request, "requestResource");
    CheckResource {
        group: text(resource, "group").to_owned(),
        resource: text(resource, "resource").to_owned(),
        subresource: text(request, "requestSubResource").to_owned(),
        namespace: text(request, "namespace").to_owned(),
        name: text(request, "name").to_owned(),
        ..CheckResource::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use apiserver_request::{Attributes, Decision, LocalAuthorizer, User};
    use serde_json::json;

    /// Allows `get` of the config map `n/m`, and the path `/ok`.
    struct One;

    impl LocalAuthorizer for One {
        fn decide(&self, asked: &Attributes) -> Decision {
            let resource = asked.verb == "get"
                && asked.resource == "configmaps"
                && asked.namespace == "n"
                && asked.name == "m";
            if asked.path == "/ok" || resource {
                Decision::Allow(String::new())
            } else {
                Decision::NoOpinion("not yours".to_owned())
            }
        }
    }

    fn matches(expressions: &[&str], object: &Value) -> Result<bool, String> {
        find_verdict(expressions, object).holds
    }

    fn find_verdict(expressions: &[&str], object: &Value) -> ConditionVerdict {
        let conditions: Vec<Value> = expressions
            .iter()
            .enumerate()
            .map(|(i, expression)| json!({"name": format!("c{i}"), "expression": expression}))
            .collect();
        let compiled = MatchConditions::new(Arc::new(One)).compile_conditions(&conditions);
        let request = json!({"operation": "UPDATE", "name": "m", "namespace": "n", "dryRun": false,
            "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
            "userInfo": {"username": "jane", "groups": ["dev"]}});
        let (compiled, user) = (compiled.unwrap(), User::default());
        let input = ConditionInput {
            request: &request,
            object,
            old_object: &Value::Null,
            user: &user,
        };
        let verdict = compiled.matches(&input);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        runtime.unwrap().block_on(verdict)
    }

    #[test]
    fn all_conditions_have_to_hold() {
        let object = json!({"data": {"a": "1"}});
        for (expressions, expect) in [
            (vec!["true"], true),
            (vec!["true", "false"], false),
            (vec!["object.data.a == '1'", "oldObject == null"], true),
            (
                vec!["request.operation == 'UPDATE' && !request.dryRun"],
                true,
            ),
            (vec!["'dev' in request.userInfo.groups"], true),
            (vec!["request.userInfo.username == 'joe'"], false),
            (
                vec!["authorizer.requestResource.check('get').allowed()"],
                true,
            ),
            (
                vec!["authorizer.requestResource.check('put').allowed()"],
                false,
            ),
            (vec!["authorizer.path('/ok').check('get').allowed()"], true),
            (vec!["namespaceObject == null"], true),
        ] {
            assert_eq!(
                matches(&expressions, &object),
                Ok(expect),
                "{expressions:?}"
            );
        }
    }

    #[test]
    fn false_condition_wins_over_errors() {
        let broken = "object.none.at.all == 1";
        assert_eq!(matches(&[broken, "false"], &json!({})), Ok(false));
        let error = matches(&[broken, "true"], &json!({})).unwrap_err();
        let expect = "expression 'object.none.at.all == 1' resulted in error: no such key: none";
        assert_eq!(error, expect);
        let other = "object.x > 1";
        let error = matches(&[broken, other, broken], &json!({})).unwrap_err();
        let second = "expression 'object.x > 1' resulted in error: no such key: x";
        assert_eq!(error, format!("[{expect}, {second}]"));
    }

    #[test]
    fn failed_conditions_are_counted_up_to_a_false_one() {
        let broken = "object.none == 1";
        for (expressions, expect) in [
            (vec!["true"], 0),
            (vec![broken, "true", broken], 2),
            (vec![broken, "false", broken], 1),
            (vec!["false", broken], 0),
        ] {
            let found = find_verdict(&expressions, &json!({})).failed;
            assert_eq!(found, expect, "{expressions:?}");
        }
    }

    #[test]
    fn stored_condition_that_does_not_compile_is_an_error() {
        let error = matches(&["object.", "true"], &json!({})).unwrap_err();
        assert!(
            error.starts_with("compilation error: compilation failed: "),
            "{error}"
        );
        assert_eq!(matches(&["object.", "false"], &json!({})), Ok(false));
    }

    #[test]
    fn costs_are_bounded_for_each_condition_and_for_all() {
        let object = json!({"list": vec![1; 2000]});
        let square = "object.list.all(x, object.list.all(y, x == y))";
        let error = matches(&[square], &object).unwrap_err();
        assert!(
            error.ends_with("operation cancelled: actual cost limit exceeded"),
            "{error}"
        );
        let error = matches(&[square, square, square, "false"], &object).unwrap_err();
        assert_eq!(error, crate::evaluate::OUT_OF_BUDGET);
    }
}
