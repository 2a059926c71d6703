//! Compilation of one rule of a custom resource.

use crate::declared::{Declared, DeclaredSizes, DeclaredTypes};
use crate::model::{Schema, ValidationRule};
use crate::old_rules::RuleHistory;
use crate::path::FieldPath;
use crate::schema_path::{PathSyntax, resolve_field_path};
use api_cel::hosts::{OLD_SELF, SELF, create_base};
use api_cel::{Environment, Program, Type};
use std::sync::{Arc, LazyLock};

/// The libraries, of which an environment takes a tenth of a millisecond.
static STORED: LazyLock<Environment> =
    LazyLock::new(|| create_base(api_cel::hosts::STORED_EXPRESSIONS));
static NEW: LazyLock<Environment> = LazyLock::new(|| create_base(api_cel::hosts::NEW_EXPRESSIONS));

/// Rules of a definition that is written may use less than those that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Written,
    Stored,
}

/// A compiled rule.
#[derive(Debug, Default)]
pub(crate) struct CompiledRule {
    /// The rule; none if it is empty or has an error.
    pub(crate) program: Option<Program>,
    pub(crate) error: Option<String>,
    pub(crate) message: Option<Program>,
    pub(crate) message_error: Option<String>,
    pub(crate) uses_old: bool,
    pub(crate) max_cost: u64,
    pub(crate) message_max_cost: u64,
    /// `fieldPath` as it follows the path of the node.
    pub(crate) field_path: Option<Box<str>>,
}

/// The environments of the rules of a node.
pub(crate) struct NodeEnvironment<'n> {
    declared: &'n Arc<Declared>,
    plain: Environment,
    optional: Environment,
}

impl<'n> NodeEnvironment<'n> {
    pub(crate) fn new(declared: &'n Arc<Declared>, origin: Origin) -> Self {
        let base = match origin {
            Origin::Written => &*NEW,
            Origin::Stored => &*STORED,
        };
        let own = declared.value_type.clone();
        let types = Arc::new(DeclaredTypes::new(declared));
        let plain = base.with(|declarations| {
            declarations.add_variable(SELF, own.clone());
            declarations.add_variable(OLD_SELF, own.clone());
            declarations.set_provider(types);
        });
        let optional = plain.with_variable(OLD_SELF, Type::optional(own));
        Self {
            declared,
            plain,
            optional,
        }
    }

    fn select(&self, rule: &ValidationRule) -> &Environment {
        match rule.optional_old_self {
            Some(true) => &self.optional,
            _ => &self.plain,
        }
    }

    /// Compiles a rule of the node.
    pub(crate) fn compile(&self, rule: &ValidationRule, schema: &Schema) -> CompiledRule {
        self.compile_with(self, rule, schema)
    }

    /// Compiles a rule of the node, whose message has another environment.
    pub(crate) fn compile_with(
        &self,
        messages: &NodeEnvironment<'_>,
        rule: &ValidationRule,
        schema: &Schema,
    ) -> CompiledRule {
        let mut compiled = CompiledRule::default();
        if rule.rule.trim().is_empty() {
            return compiled;
        }
        let program = match compile_typed(self.select(rule), &rule.rule, &Type::Bool, "") {
            Ok(program) => program,
            Err(text) => {
                compiled.error = Some(text);
                return compiled;
            }
        };
        let sizes = DeclaredSizes(self.declared);
        compiled.uses_old = program.uses_variable(OLD_SELF);
        compiled.max_cost = program.estimate_cost(&sizes).max;
        compiled.program = Some(program);
        if !rule.message_expression.is_empty() {
            let source = &rule.message_expression;
            match compile_typed(
                messages.select(rule),
                source,
                &Type::String,
                "messageExpression ",
            ) {
                Ok(program) => {
                    compiled.message_max_cost = program.estimate_cost(&sizes).max;
                    compiled.message = Some(program);
                }
                Err(text) => compiled.message_error = Some(text),
            }
        }
        compiled.field_path = normalize_path(&rule.field_path, schema);
        compiled
    }
}

/// The environments of a node for rules that are new, and for those of the old definition.
pub(crate) struct OriginEnvironments<'n> {
    written: NodeEnvironment<'n>,
    stored: Option<NodeEnvironment<'n>>,
}

impl<'n> OriginEnvironments<'n> {
    pub(crate) fn new(declared: &'n Arc<Declared>, history: RuleHistory<'_>) -> Self {
        Self {
            written: NodeEnvironment::new(declared, Origin::Written),
            stored: history
                .old
                .map(|_| NodeEnvironment::new(declared, Origin::Stored)),
        }
    }

    /// Compiles a rule of a definition.
    pub(crate) fn compile(
        &self,
        rule: &ValidationRule,
        schema: &Schema,
        history: RuleHistory<'_>,
    ) -> CompiledRule {
        let select = |is_old: bool| match &self.stored {
            Some(stored) if is_old => stored,
            _ => &self.written,
        };
        let messages = select(history.has_message(&rule.message_expression));
        select(history.has_rule(&rule.rule)).compile_with(messages, rule, schema)
    }
}

fn compile_typed(
    environment: &Environment,
    source: &str,
    wanted: &Type,
    subject: &str,
) -> Result<Program, String> {
    let program = environment
        .compile(source)
        .map_err(|error| format!("{subject}compilation failed: {error}"))?;
    if program.output_type() == wanted {
        return Ok(program);
    }
    Err(match wanted {
        Type::Bool => "cel expression must evaluate to a bool".to_owned(),
        _ => "messageExpression must evaluate to a string".to_owned(),
    })
}

/// Returns the path in the form of field errors: `spec.a[key]`.
fn normalize_path(path: &str, schema: &Schema) -> Option<Box<str>> {
    if path.is_empty() {
        return None;
    }
    let (segments, _) = resolve_field_path(path, schema, PathSyntax::DotsAndBrackets).ok()?;
    let mut out = String::new();
    let mut at = Some(schema);
    for segment in &segments {
        let parent = FieldPath::start(&out);
        let is_field = at.is_none_or(|schema| !schema.properties.is_empty());
        let text = match is_field && out.is_empty() {
            true => segment.clone(),
            false if is_field => parent.child(segment).to_string(),
            false => parent.key(segment).to_string(),
        };
        at = at.and_then(|schema| schema.member(segment));
        out = text;
    }
    Some(out.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::declared::Declarer;
    use crate::parse::parse_unchecked;
    use serde_json::json;

    fn compile(rule: &str, message: &str) -> CompiledRule {
        let schema = parse_unchecked(&json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "a-b": {"type": "string", "maxLength": 5},
            "namespace": {"type": "string", "maxLength": 5},
            "list": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 4}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}}}}))
        .unwrap();
        let declared = Declarer::default().declare(&schema, true).unwrap();
        let environment = NodeEnvironment::new(&declared, Origin::Written);
        let rule = ValidationRule {
            rule: rule.into(),
            message_expression: message.into(),
            field_path: ".map['x']".into(),
            ..ValidationRule::default()
        };
        environment.compile(&rule, &schema)
    }

    #[test]
    fn rules_see_the_fields_of_the_schema() {
        for rule in [
            "self.n > 1",
            "self.a__dash__b == 'x'",
            "self.__namespace__.size() < 3",
            "self.list.all(x, x.startsWith('a'))",
            "self.map.all(k, self.map[k] > 0)",
            "has(self.n) && self.metadata.name == 'a' && self.kind != ''",
            "self.n >= oldSelf.n",
        ] {
            let compiled = compile(rule, "");
            assert_eq!(compiled.error, None, "{rule}");
            assert_eq!(compiled.uses_old, rule.contains("oldSelf"), "{rule}");
            assert!(compiled.max_cost > 0, "{rule}");
            assert_eq!(compiled.field_path.as_deref(), Some("map[x]"));
        }
    }

    #[test]
    fn wrong_types_and_unknown_fields_are_errors() {
        for (rule, part) in [
            ("self.nope > 1", "compilation failed: ERROR"),
            ("self.n == 'x'", "compilation failed: ERROR"),
            (
                "self.metadata.labels.size() > 0",
                "compilation failed: ERROR",
            ),
            ("self.n", "cel expression must evaluate to a bool"),
            ("self.n >", "compilation failed: ERROR"),
        ] {
            let error = compile(rule, "").error.unwrap();
            assert!(error.contains(part), "{rule}: {error}");
        }
        assert_eq!(
            compile("true", "1").message_error.as_deref(),
            Some("messageExpression must evaluate to a string")
        );
    }

    #[test]
    fn limits_of_the_schema_bound_the_cost() {
        let bounded = compile("self.list.all(x, x == 'a')", "").max_cost;
        let unbounded = compile("self.map.all(k, k == 'a')", "").max_cost;
        assert!(
            bounded < 100 && unbounded > 100_000,
            "{bounded} {unbounded}"
        );
    }
}
