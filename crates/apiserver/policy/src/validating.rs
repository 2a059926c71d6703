//! A validating policy: its compiled expressions, and the decisions that follow from them.

use crate::activation::{Activation, ComposedVariables, Input};
use crate::conditions::{compile_conditions, match_conditions};
use crate::evaluate::{Allowance, Evaluated, Expression};
use crate::matching::MatchResources;
use crate::params::ParamKind;
use api_cel::Value as CelValue;
use api_cel::cost::RUNTIME_BUDGET;
use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::policy::{PolicyCompiler, Purpose};
use api_meta::Meta;
use api_meta::text::truncate_text;
use api_meta::tree::{get, list, text};
use apiserver_webhook::ConditionVerdict;
use serde_json::Value;
use std::time::Duration;

/// Longest message that an expression may compute.
// Upstream's `MaxEvaluatedMessageExpressionSizeBytes`.
const LONGEST_MESSAGE: usize = 5 * 1024;
/// Longest value of an audit annotation, as upstream.
const LONGEST_ANNOTATION: usize = 10 * 1024;

/// A compiled policy.
pub struct ValidatingPolicy {
    /// Name.
    pub name: String,
    /// `failurePolicy: Ignore`
    pub ignores_failure: bool,
    /// The requests that it applies to.
    pub constraints: MatchResources,
    /// The kind of its parameters.
    pub param_kind: Option<ParamKind>,
    conditions: Vec<Expression>,
    variables: ComposedVariables,
    validations: Vec<Validation>,
    annotations: Vec<AuditAnnotation>,
}

struct AuditAnnotation {
    key: String,
    value: Expression,
}

struct Validation {
    expression: Expression,
    computed_message: Option<Expression>,
    message: String,
    reason: String,
}

/// The verdict of one validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The validation holds.
    Admit,
    /// The validation could not be evaluated, which is ignored.
    Ignored,
    /// The validation does not hold.
    Deny,
    /// The validation could not be evaluated.
    Failed,
}

/// The decision of one validation, or of the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The message for the client.
    pub message: String,
    /// The reason for the client; empty for the default.
    pub reason: String,
    /// The time of the evaluation.
    pub elapsed: Duration,
}

/// The outcome of a policy for one parameter.
#[derive(Debug, Default)]
pub struct Outcome {
    /// One decision of each validation.
    pub decisions: Vec<Decision>,
    /// Audit annotations that could not be evaluated, if that is not ignored: the request is denied
    /// whatever the actions of the binding are.
    pub failed_annotations: Vec<Decision>,
    /// Keys and values of audit annotations.
    pub annotations: Vec<(String, String)>,
    /// The verdict of the match conditions, if there are some.
    pub conditions: Option<ConditionVerdict>,
}

impl ValidatingPolicy {
    /// Compiles a policy. Expressions that do not compile fail when they are evaluated.
    pub fn compile(object: &Value) -> Self {
        let spec = get(object, "spec");
        let param_kind = ParamKind::parse(spec);
        let mut compiler = PolicyCompiler::new(param_kind.is_some());
        let minor = STORED_EXPRESSIONS;
        let variables = ComposedVariables::compile(list(spec, "variables"), &mut compiler, minor);
        let expression =
            |purpose, source: &str| Expression::compile(&compiler, purpose, source, minor);
        let validation = |validation: &Value| {
            let message = text(validation, "messageExpression");
            Validation {
                expression: expression(Purpose::Condition, text(validation, "expression")),
                computed_message: (!message.is_empty())
                    .then(|| expression(Purpose::Message, message)),
                message: text(validation, "message").to_owned(),
                reason: text(validation, "reason").to_owned(),
            }
        };
        let annotation = |annotation: &Value| AuditAnnotation {
            key: text(annotation, "key").to_owned(),
            value: expression(
                Purpose::AuditAnnotation,
                text(annotation, "valueExpression"),
            ),
        };
        ValidatingPolicy {
            name: object.name().to_owned(),
            ignores_failure: text(spec, "failurePolicy") == "Ignore",
            constraints: MatchResources::parse(get(spec, "matchConstraints")),
            param_kind,
            conditions: compile_conditions(list(spec, "matchConditions"), &compiler),
            validations: list(spec, "validations").iter().map(validation).collect(),
            annotations: list(spec, "auditAnnotations")
                .iter()
                .map(annotation)
                .collect(),
            variables,
        }
    }

    /// Evaluates the policy for one parameter.
    pub fn evaluate(&self, input: &Input<'_>, allowance: &mut Allowance) -> Outcome {
        if !self.conditions.is_empty() {
            let verdict = match_conditions(&self.conditions, &self.variables, input, allowance);
            let mut outcome = match &verdict.holds {
                Ok(true) => self.evaluate_matched(input, allowance),
                Ok(false) => Outcome::default(),
                Err(why) => self.fail(why),
            };
            outcome.conditions = Some(verdict);
            return outcome;
        }
        self.evaluate_matched(input, allowance)
    }

    /// Evaluates the policy for a parameter with which its match conditions hold.
    fn evaluate_matched(&self, input: &Input<'_>, allowance: &mut Allowance) -> Outcome {
        allowance.begin(RUNTIME_BUDGET);
        let decisions = match self.evaluate_validations(input, allowance) {
            Ok(decisions) => decisions,
            Err(why) => return self.fail(why),
        };
        // A new budget, as upstream passes `runtimeCELCostBudget` to the annotations again.
        allowance.begin(RUNTIME_BUDGET);
        match self.evaluate_annotations(input, allowance) {
            Ok(annotated) => Outcome {
                decisions,
                ..annotated
            },
            // The decisions of the validations are dropped: upstream returns the error alone.
            Err(why) => self.fail(why),
        }
    }

    fn fail(&self, why: &str) -> Outcome {
        Outcome {
            decisions: vec![self.error_decision(why.to_owned(), Duration::ZERO)],
            ..Outcome::default()
        }
    }

    fn error_decision(&self, message: String, elapsed: Duration) -> Decision {
        Decision {
            verdict: match self.ignores_failure {
                true => Verdict::Ignored,
                false => Verdict::Failed,
            },
            message,
            reason: String::new(),
            elapsed,
        }
    }

    fn evaluate_validations(
        &self,
        input: &Input<'_>,
        allowance: &mut Allowance,
    ) -> Result<Vec<Decision>, &'static str> {
        // One activation for all validations, so that each variable is evaluated once.
        let activation = Activation::new(input, &self.variables, true);
        let mut results = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            results.push(validation.expression.evaluate(&activation, allowance)?);
        }
        let messages = self.evaluate_messages(input, allowance);
        let decide = |(index, result): (usize, Evaluated<'_>)| {
            let validation = self.validations.get(index)?;
            let message = match &messages {
                Ok(messages) => Ok(messages.get(index).cloned().flatten()),
                Err(why) => Err(*why),
            };
            Some(self.decide(validation, result, message))
        };
        Ok(results.into_iter().enumerate().filter_map(decide).collect())
    }

    /// Evaluates the messages of all validations, as upstream: they have what is left of the
    /// budget.
    fn evaluate_messages(
        &self,
        input: &Input<'_>,
        allowance: &mut Allowance,
    ) -> Result<Vec<Option<String>>, &'static str> {
        // Variables are evaluated again, because those that use the authorizer must fail here.
        let activation = Activation::new(input, &self.variables, false);
        let mut messages = Vec::with_capacity(self.validations.len());
        for validation in &self.validations {
            let Some(expression) = &validation.computed_message else {
                messages.push(None);
                continue;
            };
            let message = match expression.evaluate(&activation, allowance)?.value {
                Ok(value) => value.as_str().and_then(usable_message),
                Err(error) => {
                    tracing::debug!(policy = self.name, error, "messageExpression failed");
                    None
                }
            };
            messages.push(message);
        }
        Ok(messages)
    }

    fn decide(
        &self,
        validation: &Validation,
        result: Evaluated<'_>,
        message: Result<Option<String>, &'static str>,
    ) -> Decision {
        let elapsed = result.elapsed;
        let value = match (result.value, &message) {
            (Err(error), _) => return self.error_decision(error, elapsed),
            // As upstream, exhausted messages fail even validations that hold.
            (Ok(_), Err(why)) => {
                let message = format!("failed messageExpression: {why}");
                return self.error_decision(message, elapsed);
            }
            (Ok(value), Ok(_)) => value,
        };
        // Any other value denies, as upstream compares with `celtypes.True`.
        if matches!(value, CelValue::Bool(true)) {
            return Decision {
                verdict: Verdict::Admit,
                message: String::new(),
                reason: String::new(),
                elapsed,
            };
        }
        let fixed = validation.message.trim();
        let message = match message.ok().flatten() {
            Some(message) => message,
            None if !fixed.is_empty() => fixed.to_owned(),
            None => format!(
                "failed expression: {}",
                validation.expression.source().trim()
            ),
        };
        Decision {
            verdict: Verdict::Deny,
            message,
            reason: validation.reason.clone(),
            elapsed,
        }
    }

    /// Evaluates the audit annotations. One that fails denies the request, unless that is ignored.
    fn evaluate_annotations(
        &self,
        input: &Input<'_>,
        allowance: &mut Allowance,
    ) -> Result<Outcome, &'static str> {
        let activation = Activation::new(input, &self.variables, false);
        let mut outcome = Outcome::default();
        for annotation in &self.annotations {
            let result = annotation.value.evaluate(&activation, allowance)?;
            match result.value {
                Ok(value) => {
                    // Null and blanks leave the annotation out.
                    let value = value.as_str().unwrap_or_default().trim();
                    if !value.is_empty() {
                        let value = truncate_text(value, LONGEST_ANNOTATION).to_owned();
                        outcome.annotations.push((annotation.key.clone(), value));
                    }
                }
                Err(error) if !self.ignores_failure => {
                    let failed = self.error_decision(error, result.elapsed);
                    outcome.failed_annotations.push(failed);
                }
                Err(_) => {}
            }
        }
        Ok(outcome)
    }
}

/// Returns a computed message unless it is empty, too long or of several lines.
fn usable_message(message: &str) -> Option<String> {
    let message = message.trim();
    // The rules that the API documents for `messageExpression`; otherwise, the fixed message is
    // used.
    let usable = !message.is_empty() && message.len() <= LONGEST_MESSAGE && !message.contains('\n');
    usable.then(|| message.to_owned())
}
