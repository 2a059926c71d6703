//! Evaluation of `x-kubernetes-validations`.

use crate::compile::{CompiledRule, NodeEnvironment, Origin};
use crate::correlate::Correlation;
use crate::declared::{Declared, Declarer, is_correlatable};
use crate::model::{Schema, ValidationRule, ValueType};
use crate::path::FieldPath;
use crate::problem::{FieldProblem, MAX_PROBLEMS, ProblemKind, quote};
use api_cel::cost::{PER_CALL_LIMIT, RUNTIME_BUDGET};
use api_cel::hosts::{OLD_SELF, SELF};
use api_cel::{Budget, EvalError, Program, Value as Cel, Variables};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Longest result of a `messageExpression`, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
/// Upstream's error if other errors make rules meaningless.
const BLOCKED: &str = "some validation rules were not checked because the object was invalid; \
    correct the existing errors to complete validation";

/// The compiled rules of a schema.
#[derive(Debug, Default)]
pub struct RuleSet {
    root: Option<RuleNode>,
}

#[derive(Debug)]
struct RuleNode {
    schema: Arc<Schema>,
    declared: Arc<Declared>,
    rules: Arc<[ValidationRule]>,
    compiled: Box<[CompiledRule]>,
    items: Option<Box<RuleNode>>,
    additional: Option<Box<RuleNode>>,
    properties: Box<[(Arc<str>, RuleNode)]>,
    all_of: Box<[RuleNode]>,
}

impl RuleSet {
    /// Compiles the rules of a schema. Only nodes with rules, and those above them, are kept.
    pub fn compile(schema: &Arc<Schema>) -> Self {
        let mut declarer = Declarer::default();
        Self {
            root: compile_node(schema, schema, true, &mut declarer),
        }
    }

    /// Evaluates the rules. `others` are the problems that were found before; some of them prevent
    /// the evaluation. Problems of unchanged parts become warnings.
    pub fn validate(
        &self,
        object: &Value,
        old: Option<&Value>,
        others: impl IntoIterator<Item = ProblemKind>,
    ) -> RuleOutcome {
        let mut outcome = RuleOutcome::default();
        let Some(root) = &self.root else {
            return outcome;
        };
        // The estimate of the costs relies on the limits of the schema. An object that violates
        // them could cost far more.
        if others.into_iter().any(ProblemKind::blocks_rules) {
            let problem = FieldProblem::new(
                ProblemKind::Invalid,
                &FieldPath::ROOT,
                Some(Value::Null),
                BLOCKED,
            );
            outcome.problems.push(problem);
            return outcome;
        }
        let ratchet = Ratchet {
            current: old.map(|old| Correlation {
                schema: &root.schema,
                new: object,
                old,
            }),
            parent: None,
        };
        let mut evaluation = Evaluation {
            outcome,
            // One budget for the whole object: a list of a thousand elements evaluates each of its
            // rules a thousand times.
            remaining: RUNTIME_BUDGET,
            work: Budget::new(RUNTIME_BUDGET),
        };
        // An exhausted budget has added its problem.
        let _ = evaluation.validate_node(root, object, old, ratchet, &FieldPath::ROOT);
        evaluation.outcome
    }
}

/// Problems of an object, and warnings about those that an update has not caused.
#[derive(Debug, Default)]
pub struct RuleOutcome {
    /// Problems that reject the object.
    pub problems: Vec<FieldProblem>,
    /// Texts of the others.
    pub warnings: Vec<String>,
}

fn compile_node(
    rules: &Arc<Schema>,
    schema: &Arc<Schema>,
    is_root: bool,
    declarer: &mut Declarer,
) -> Option<RuleNode> {
    let declared = declarer.declare(schema, is_root)?;
    let compiled = match rules.validation_rules() {
        [] => Box::default(),
        all => {
            // Stored rules may use all libraries that this release knows. Only new rules are held
            // to older ones.
            let environment = NodeEnvironment::new(&declared, Origin::Stored);
            let compile = |rule| environment.compile(rule, schema);
            all.iter().map(compile).collect()
        }
    };
    let items = pair(&rules.items, &schema.items)
        .and_then(|(rules, items)| compile_node(rules, items, items.embedded, declarer));
    let additional = rules
        .additional_schema()
        .zip(schema.additional_schema())
        .and_then(|(rules, values)| compile_node(rules, values, values.embedded, declarer));
    let properties = rules.properties.iter().filter_map(|property| {
        let inner = schema.property(&property.name)?;
        let node = compile_node(&property.schema, inner, inner.embedded, declarer)?;
        Some((property.name.clone(), node))
    });
    let properties: Box<[_]> = properties.collect();
    // Rules below `allOf` see the value with the schema of the parent, which is the complete one.
    let all_of = rules.checks.iter().flat_map(|checks| &checks.all_of);
    let all_of: Box<[_]> = all_of
        .filter_map(|rules| compile_node(rules, schema, is_root, declarer))
        .collect();
    let node = RuleNode {
        rules: rules.rules.clone().unwrap_or_default(),
        compiled,
        items: items.map(Box::new),
        additional: additional.map(Box::new),
        properties,
        all_of,
        schema: schema.clone(),
        declared,
    };
    (!node.is_empty()).then_some(node)
}

fn pair<'s>(
    a: &'s Option<Arc<Schema>>,
    b: &'s Option<Arc<Schema>>,
) -> Option<(&'s Arc<Schema>, &'s Arc<Schema>)> {
    a.as_ref().zip(b.as_ref())
}

impl RuleNode {
    fn is_empty(&self) -> bool {
        self.compiled.is_empty()
            && self.items.is_none()
            && self.additional.is_none()
            && self.properties.is_empty()
            && self.all_of.is_empty()
    }

    fn type_text(&self) -> Value {
        self.schema.value_type.map_or("", ValueType::name).into()
    }
}

/// The facts that decide whether a failed rule is ratcheted.
#[derive(Clone, Copy, Default)]
struct Ratchet<'a> {
    current: Option<Correlation<'a>>,
    parent: Option<Correlation<'a>>,
}

impl<'a> Ratchet<'a> {
    fn applies(&self) -> bool {
        // A new field below an unchanged parent can't exist, so the parent decides for parts that
        // can't be correlated.
        self.current
            .or(self.parent)
            .is_some_and(|correlation| correlation.is_unchanged())
    }

    fn member(self, name: &str) -> Self {
        let Some(current) = self.current else {
            return self;
        };
        // Both objects were converted to the same type, so that a change can't be seen.
        if self.parent.is_none() && matches!(name, "apiVersion" | "kind") {
            return Self::default();
        }
        self.below(current.member(name))
    }

    fn below(self, inner: Option<Correlation<'a>>) -> Self {
        match self.current {
            None => self,
            parent => Self {
                current: inner,
                parent,
            },
        }
    }
}

/// The budget is exhausted.
struct Exhausted;

struct Evaluation {
    outcome: RuleOutcome,
    remaining: u64,
    work: Budget,
}

struct RuleVariables<'v> {
    own: Cel<'v>,
    old: Option<Cel<'v>>,
}

impl<'v> Variables<'v> for RuleVariables<'v> {
    fn find(&self, name: &str, _: &mut Budget) -> Option<Result<Cel<'v>, EvalError>> {
        match name {
            SELF => Some(Ok(self.own.clone())),
            OLD_SELF => self.old.clone().map(Ok),
            _ => None,
        }
    }
}

impl Evaluation {
    fn validate_node<'a>(
        &mut self,
        node: &'a RuleNode,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
        path: &FieldPath<'_>,
    ) -> Result<(), Exhausted> {
        // A rule about absence or null belongs to the node above.
        if value.is_null() {
            return Ok(());
        }
        // A null in the old object equals an absent field, so a rule about changes is not
        // evaluated.
        let old = old.filter(|old| !old.is_null());
        self.evaluate_rules(node, value, old, ratchet, path)?;
        let unratcheted = Ratchet {
            current: None,
            parent: ratchet.parent,
        };
        for part in &node.all_of {
            self.validate_node(part, value, old, unratcheted, path)?;
        }
        match value {
            Value::Array(all) => self.validate_elements(node, value, all, old, ratchet, path),
            Value::Object(map) => {
                let old = old.and_then(Value::as_object);
                let old = old.filter(|_| is_correlatable(&node.schema));
                self.validate_members(node, map, old, ratchet, path)
            }
            _ => Ok(()),
        }
    }

    fn validate_elements<'a>(
        &mut self,
        node: &'a RuleNode,
        list: &'a Value,
        all: &'a [Value],
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
        path: &FieldPath<'_>,
    ) -> Result<(), Exhausted> {
        let Some(items) = &node.items else {
            return Ok(());
        };
        // Old elements are indexed once for each list, since a search for each element would be
        // quadratic.
        let before = old.map(|old| {
            Correlation {
                schema: &node.schema,
                new: list,
                old,
            }
            .elements()
        });
        let correlated = ratchet.current.map(|current| current.elements());
        for (i, value) in all.iter().enumerate() {
            let old = before.as_ref().and_then(|before| before.find(value));
            let inner = correlated.as_ref().and_then(|all| all.find(value));
            let ratchet = ratchet.below(inner);
            self.validate_node(items, value, old.map(|c| c.old), ratchet, &path.index(i))?;
        }
        Ok(())
    }

    fn validate_members<'a>(
        &mut self,
        node: &'a RuleNode,
        map: &'a Map<String, Value>,
        old: Option<&'a Map<String, Value>>,
        ratchet: Ratchet<'a>,
        path: &FieldPath<'_>,
    ) -> Result<(), Exhausted> {
        if let Some(values) = &node.additional {
            for (key, value) in map {
                let old = old.and_then(|old| old.get(key));
                self.validate_node(values, value, old, ratchet.member(key), &path.key(key))?;
            }
        }
        for (name, inner) in &node.properties {
            if let Some(value) = map.get(&**name) {
                let old = old.and_then(|old| old.get(&**name));
                self.validate_node(inner, value, old, ratchet.member(name), &path.child(name))?;
            }
        }
        Ok(())
    }

    fn evaluate_rules<'a>(
        &mut self,
        node: &'a RuleNode,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'a>,
        path: &FieldPath<'_>,
    ) -> Result<(), Exhausted> {
        if node.compiled.is_empty() {
            return Ok(());
        }
        if self.remaining == 0 {
            return self.exhaust(FieldProblem::invalid(path, node.type_text(), OUT_OF_BUDGET));
        }
        for (rule, compiled) in node.rules.iter().zip(&node.compiled) {
            // A definition may have been stored by an older release that accepted the rule. Its
            // error concerns each object, not the definition's author.
            if let Some(error) = &compiled.error {
                let detail = format!("rule compile error: {error}");
                self.add(FieldProblem::invalid(path, node.type_text(), detail));
                continue;
            }
            let is_optional = rule.optional_old_self == Some(true);
            let Some(program) = &compiled.program else {
                continue;
            };
            // Rules about changes need a value to compare with.
            if compiled.uses_old && old.is_none() && !is_optional {
                continue;
            }
            let read = |value| Cel::from_json(value, Some(&*node.declared));
            let variables = RuleVariables {
                own: read(value),
                old: match is_optional {
                    true => Some(Cel::optional(old.map(read))),
                    false => old.map(read),
                },
            };
            if self.evaluate_rule(node, rule, program, &variables, path)? {
                continue;
            }
            let problem = self.describe_failure(node, rule, compiled, &variables, value, path);
            let (problem, ends) = match problem {
                Ok(problem) => (problem, false),
                Err(problem) => (problem, true),
            };
            // A rule with `oldSelf` is about the change itself, so it is never ratcheted.
            self.add_ratcheted(problem, !compiled.uses_old && ratchet.applies());
            if ends {
                return Err(Exhausted);
            }
        }
        Ok(())
    }

    /// Returns whether the rule holds. An error is added and returned as `true`: it has no message.
    fn evaluate_rule(
        &mut self,
        node: &RuleNode,
        rule: &ValidationRule,
        program: &Program,
        variables: &RuleVariables<'_>,
        path: &FieldPath<'_>,
    ) -> Result<bool, Exhausted> {
        // The limit of the call ends the evaluation while it runs. The sum of all calls is checked
        // afterwards.
        let (result, cost) = self
            .work
            .limit_call(PER_CALL_LIMIT, |budget| program.evaluate(variables, budget));
        if cost > self.remaining {
            return self
                .exhaust(FieldProblem::invalid(path, node.type_text(), OUT_OF_BUDGET))
                .map(|()| true);
        }
        self.remaining -= cost;
        let error = match result {
            Ok(Cel::Bool(true)) => return Ok(true),
            Ok(_) => return Ok(false),
            Err(error) => error,
        };
        let text = error.to_string();
        let shown = show_rule(rule);
        // The remaining rules are skipped: a rule that exceeds its limit would do so for each
        // element of a list.
        if error.is_cancellation() {
            let detail = format!(
                "'{text}': no further validation rules will be run due to call cost exceeds limit for rule: {shown}"
            );
            return self
                .exhaust(FieldProblem::invalid(path, node.type_text(), detail))
                .map(|()| true);
        }
        // Upstream adds the hint about macros for this error, because a misspelt macro is a
        // function that does not exist.
        let detail = match text.starts_with("no such overload") {
            true => format!(
                "'{text}': call arguments did not match a supported operator, function or macro signature for rule: {shown}"
            ),
            false => format!("{text} evaluating rule: {shown}"),
        };
        self.add(FieldProblem::invalid(path, node.type_text(), detail));
        Ok(true)
    }

    /// Returns the problem of a rule that does not hold; as an error if the budget is exhausted.
    fn describe_failure(
        &mut self,
        node: &RuleNode,
        rule: &ValidationRule,
        compiled: &CompiledRule,
        variables: &RuleVariables<'_>,
        value: &Value,
        path: &FieldPath<'_>,
    ) -> Result<FieldProblem, FieldProblem> {
        let extended;
        // The field path of a rule names a field below the value, so that forms can show the
        // message beside it.
        let path = match &compiled.field_path {
            None => path,
            Some(inner) => {
                extended = path.child(inner);
                &extended
            }
        };
        let message = match &compiled.message {
            None => None,
            Some(program) => self
                .evaluate_message(program, rule, variables)
                .map_err(|detail| FieldProblem::invalid(path, node.type_text(), detail))?,
        };
        // An expression that fails must not hide the failed rule, so the fixed message stands in
        // for it.
        let detail = message.unwrap_or_else(|| match &*rule.message {
            "" => format!("failed rule: {}", show_rule(rule)),
            message => message.trim().to_owned(),
        });
        let is_compound = matches!(
            node.schema.value_type,
            Some(ValueType::Array | ValueType::Object)
        );
        // Objects and lists would make messages long.
        let value = (!is_compound).then(|| value.clone());
        Ok(match rule.reason.as_deref() {
            Some("FieldValueForbidden") => FieldProblem::forbidden(path, detail),
            Some("FieldValueRequired") => FieldProblem::required(path, detail),
            Some("FieldValueDuplicate") => {
                FieldProblem::new(ProblemKind::Duplicate, path, value, "")
            }
            _ => FieldProblem::new(ProblemKind::Invalid, path, value, detail),
        })
    }

    /// Returns the message; none if it can't be used, an error if the budget is exhausted.
    fn evaluate_message(
        &mut self,
        program: &Program,
        rule: &ValidationRule,
        variables: &RuleVariables<'_>,
    ) -> Result<Option<String>, String> {
        let (result, cost) = self
            .work
            .limit_call(PER_CALL_LIMIT, |budget| program.evaluate(variables, budget));
        // Messages are charged as well: otherwise, a cheap rule could have an expensive message.
        if cost > self.remaining {
            return Err("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned());
        }
        match result {
            Err(error) if error.is_cancellation() => {
                let source = quote(&rule.message_expression);
                Err(format!(
                    "no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"
                ))
            }
            other => {
                self.remaining -= cost;
                let text = other.ok().and_then(|text| text.as_str().map(str::to_owned));
                Ok(text.map(|text| text.trim().to_owned()).filter(|text| {
                    !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n')
                }))
            }
        }
    }

    fn add(&mut self, problem: FieldProblem) {
        if self.outcome.problems.len() < MAX_PROBLEMS {
            self.outcome.problems.push(problem);
        }
    }

    fn add_ratcheted(&mut self, problem: FieldProblem, is_ratcheted: bool) {
        if !is_ratcheted {
            self.add(problem);
        } else if self.outcome.warnings.len() < MAX_PROBLEMS {
            self.outcome.warnings.push(problem.to_string());
        }
    }

    fn exhaust(&mut self, problem: FieldProblem) -> Result<(), Exhausted> {
        self.add(problem);
        Err(Exhausted)
    }
}

fn show_rule(rule: &ValidationRule) -> &str {
    match &*rule.message {
        "" => rule.rule.trim(),
        message => message.trim(),
    }
}

#[cfg(test)]
mod tests;
