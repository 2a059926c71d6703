//! Types and costs of the rules of a definition.

use crate::compile::{CompiledRule, OriginEnvironments};
use crate::declared::{Declared, Declarer, is_correlatable};
use crate::model::{Additional, ListKind, Schema, ValidationRule, ValueType};
use crate::old_rules::RuleHistory;
use crate::parse::parse_unchecked;
use crate::path::FieldPath;
use crate::problem::{FieldProblem, MAX_PROBLEMS};
use api_meta::tree::{get, list};
use serde_json::Value;

/// Limit of the estimated cost of a rule, for all places where it is evaluated.
const RULE_LIMIT: u64 = 10_000_000;
/// Limit of the estimated cost of all rules of a schema.
const SCHEMA_LIMIT: u64 = 100_000_000;
/// Number of rules that are named if the schema exceeds its limit.
const NAMED_RULES: usize = 4;

/// Compiles the rules of a schema that has no other problems, and checks types and costs.
pub fn compile_rules(
    open_api_v3: &Value,
    history: RuleHistory<'_>,
    path: &FieldPath<'_>,
) -> Vec<FieldProblem> {
    // A schema that doesn't parse was reported before.
    let Ok(schema) = parse_unchecked(open_api_v3) else {
        return Vec::new();
    };
    let mut check = RuleCheck {
        history,
        declarer: Declarer::default(),
        out: Vec::new(),
        total: 0,
        expensive: Vec::new(),
    };
    let place = Place {
        cardinality: Some(1),
        is_root: true,
        uncorrelatable: None,
    };
    check.check_node(open_api_v3, &schema, &place, path);
    check.check_total(path);
    check.out
}

/// The place of a node.
#[derive(Clone)]
struct Place {
    /// The number of times that the node may occur in an object; none without a limit.
    cardinality: Option<u64>,
    is_root: bool,
    /// Path of the outermost node whose parts have no old value.
    uncorrelatable: Option<String>,
}

struct RuleCheck<'a> {
    history: RuleHistory<'a>,
    declarer: Declarer,
    out: Vec<FieldProblem>,
    total: u64,
    expensive: Vec<(u64, String)>,
}

impl RuleCheck<'_> {
    fn check_node(&mut self, node: &Value, schema: &Schema, place: &Place, path: &FieldPath<'_>) {
        if self.out.len() >= MAX_PROBLEMS {
            return;
        }
        let below = |is_root, breaks: bool| {
            let limit = count_elements(schema);
            Place {
                cardinality: place
                    .cardinality
                    .zip(limit)
                    .map(|(outer, inner)| outer.saturating_mul(inner)),
                is_root,
                uncorrelatable: match &place.uncorrelatable {
                    None if breaks => Some(path.to_string()),
                    known => known.clone(),
                },
            }
        };
        if let Some(inner) = schema.additional_schema() {
            let path = path.child("additionalProperties");
            let place = below(inner.embedded, false);
            self.check_node(get(node, "additionalProperties"), inner, &place, &path);
        }
        let all = path.child("properties");
        for property in &schema.properties {
            let inner = &property.schema;
            let place = below(inner.embedded, !is_correlatable(schema));
            let node = get(get(node, "properties"), &property.name);
            self.check_node(node, inner, &place, &all.key(&property.name));
        }
        if let Some(items) = &schema.items {
            let place = below(items.embedded, schema.list_type != Some(ListKind::Map));
            self.check_node(get(node, "items"), items, &place, &path.child("items"));
        }
        self.check_own(node, schema, place, path);
    }

    fn check_own(&mut self, node: &Value, schema: &Schema, place: &Place, path: &FieldPath<'_>) {
        let rules = schema.validation_rules();
        if rules.is_empty() {
            return;
        }
        let path = path.child("x-kubernetes-validations");
        let Some(declared) = self.declarer.declare(schema, place.is_root) else {
            let detail = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations";
            return self.out.push(FieldProblem::invalid(&path, "", detail));
        };
        let environments = OriginEnvironments::new(&declared, self.history);
        for (i, rule) in rules.iter().enumerate() {
            if self.out.len() >= MAX_PROBLEMS {
                return;
            }
            let path = path.index(i);
            let compiled = environments.compile(rule, schema, self.history);
            let cost = multiply_cost(&compiled, place, &declared);
            self.check_cost(cost, "estimated rule cost", &path.child("rule"));
            let raw = list(node, "x-kubernetes-validations").get(i);
            self.check_compiled(rule, &compiled, raw.unwrap_or(&Value::Null), place, &path);
        }
    }

    fn check_compiled(
        &mut self,
        rule: &ValidationRule,
        compiled: &CompiledRule,
        raw: &Value,
        place: &Place,
        path: &FieldPath<'_>,
    ) {
        let at = path.child("rule");
        if let Some(error) = &compiled.error {
            self.out
                .push(FieldProblem::invalid(&at, raw.clone(), error.as_str()));
        }
        let message = path.child("messageExpression");
        if let Some(error) = &compiled.message_error {
            let problem = FieldProblem::invalid(&message, raw.clone(), error.as_str());
            self.out.push(problem);
        } else if compiled.message.is_some() {
            let cost = compiled.message_max_cost;
            self.check_cost(cost, "estimated messageExpression cost", &message);
        }
        if compiled.uses_old {
            if let Some(outer) = &place.uncorrelatable {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {outer}"
                );
                self.out
                    .push(FieldProblem::invalid(&at, &*rule.rule, detail));
            }
        } else if let Some(flag) = rule.optional_old_self {
            let detail = "may not be set if oldSelf is not used in rule";
            let at = path.child("optionalOldSelf");
            self.out.push(FieldProblem::invalid(&at, flag, detail));
        }
    }

    fn check_cost(&mut self, cost: u64, name: &str, path: &FieldPath<'_>) {
        if cost > RULE_LIMIT && !self.history.is_unchanged {
            let detail = describe_excess(name, cost, RULE_LIMIT);
            self.out.push(FieldProblem::forbidden(path, detail));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= SCHEMA_LIMIT / 100 {
            self.expensive.push((cost, path.to_string()));
            self.expensive
                .sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.expensive.truncate(NAMED_RULES);
        }
    }

    fn check_total(&mut self, path: &FieldPath<'_>) {
        if self.total <= SCHEMA_LIMIT {
            return;
        }
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        for (_, path) in &self.expensive {
            let path = FieldPath::start(path);
            self.out.push(FieldProblem::forbidden(&path, detail));
        }
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = describe_excess(name, self.total, SCHEMA_LIMIT);
        self.out.push(FieldProblem::forbidden(path, detail));
    }
}

fn multiply_cost(compiled: &CompiledRule, place: &Place, declared: &Declared) -> u64 {
    let places = place
        .cardinality
        .unwrap_or_else(|| declared.max_cardinality());
    compiled.max_cost.saturating_mul(places)
}

/// Returns how many parts with the same schema a node may have; none without a limit.
fn count_elements(schema: &Schema) -> Option<u64> {
    let limit = |limit: Option<i64>| limit.map(|limit| u64::try_from(limit).unwrap_or(0));
    let checks = schema.checks.as_ref();
    match (schema.value_type, &schema.additional) {
        (Some(ValueType::Object), Some(Additional::Allowed(true) | Additional::Schema(_))) => {
            limit(checks?.max_properties)
        }
        (Some(ValueType::Array), _) => limit(checks?.max_items),
        _ => Some(1),
    }
}

fn describe_excess(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = match factor {
        factor if factor > 100.0 => "more than 100x".to_owned(),
        factor if factor < 1.5 => format!("{factor:.6}x"),
        factor => format!("{factor:.1}x"),
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::old_rules::OldRules;
    use serde_json::json;

    fn check(schema: Value) -> Vec<String> {
        check_update(&schema, &json!({}), false)
    }

    fn check_update(schema: &Value, old: &Value, is_unchanged: bool) -> Vec<String> {
        let history = RuleHistory {
            old: Some(&OldRules::collect(&[old])),
            is_unchanged,
        };
        let problems = compile_rules(schema, history, &FieldPath::start("schema"));
        problems.iter().map(ToString::to_string).collect()
    }

    fn check_one(schema: Value, part: &str) {
        let found = check(schema);
        assert!(found.len() == 1 && found[0].contains(part), "{found:?}");
    }

    #[test]
    fn valid_rules_have_no_problems() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1 && self >= oldSelf"}]},
            "list": {"type": "array", "maxItems": 10, "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "required": ["k"],
                    "properties": {"k": {"type": "string", "maxLength": 10}},
                    "x-kubernetes-validations": [{"rule": "self.k == oldSelf.k"}]}}},
            "x-kubernetes-validations": [{"rule": "self.metadata.name.size() > 1",
                "messageExpression": "'name ' + self.metadata.name"}]});
        assert_eq!(check(schema), Vec::<String>::new());
    }

    #[test]
    fn compile_errors_name_the_rule() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer", "x-kubernetes-validations": [{"rule": "self == 'x'"}]}}});
        check_one(
            schema,
            "schema.properties[n].x-kubernetes-validations[0].rule: Invalid value",
        );
        let schema = json!({"type": "object", "x-kubernetes-validations": [
            {"rule": "true", "messageExpression": "1"}]});
        check_one(schema, "messageExpression must evaluate to a string");
    }

    #[test]
    fn old_values_exist_only_where_parts_are_compared() {
        let schema = json!({"type": "object", "properties": {"l": {"type": "array", "maxItems": 3,
            "items": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > oldSelf"}]}}}});
        check_one(
            schema,
            "oldSelf cannot be used on the uncorrelatable portion of the schema within schema.properties[l]",
        );
        let schema = json!({"type": "object", "x-kubernetes-validations": [
            {"rule": "true", "optionalOldSelf": true}]});
        check_one(schema, "may not be set if oldSelf is not used in rule");
    }

    #[test]
    fn costs_count_the_places_of_a_rule() {
        let schema = |limit: Option<i64>| {
            let mut list = json!({"type": "array", "items": {"type": "string",
                "x-kubernetes-validations": [{"rule": "self.contains('x')"}]}});
            if let Some(limit) = limit {
                list["maxItems"] = limit.into();
                list["items"]["maxLength"] = 10.into();
            }
            json!({"type": "object", "properties": {"l": list}})
        };
        assert_eq!(check(schema(Some(10))), Vec::<String>::new());
        let found = check(schema(None));
        assert!(
            found[0].contains("estimated rule cost exceeds budget by factor of more than 100x")
        );
        assert!(found.last().is_some_and(|text| {
            text.contains("estimated rule cost total for entire OpenAPIv3 schema")
        }));
    }

    #[test]
    fn greatest_length_makes_a_rule_costly_and_not_free() {
        // Four bytes a character: the products are 0 and -4 in 64 bits.
        for limit in [1_i64 << 62, i64::MAX] {
            for node in [
                json!({"x-kubernetes-int-or-string": true}),
                json!({"type": "string"}),
            ] {
                let mut node = node;
                node["maxLength"] = limit.into();
                node["x-kubernetes-validations"] = json!([{"rule": "string(self).contains('x')"}]);
                let found = check(json!({"type": "object", "properties": {"n": node}}));
                let text = found.first().map(String::as_str).unwrap_or_default();
                assert!(
                    text.contains("estimated rule cost exceeds budget"),
                    "{node} {found:?}"
                );
            }
        }
    }

    #[test]
    fn rule_of_an_unchanged_schema_may_cost_more() {
        let list = |limit: Option<i64>, rule: &str| {
            let mut list = json!({"type": "array", "items": {"type": "string", "maxLength": 10,
                "x-kubernetes-validations": [{"rule": rule}]}});
            list["maxItems"] = limit.into();
            json!({"type": "object", "properties": {"l": list}})
        };
        // Above the limit of a rule, and below that of a schema.
        let costly = list(Some(3_000_000), "self.contains('x')");
        let other = list(Some(10), "self.contains('y')");
        for (old, is_unchanged, expect) in
            [(&other, false, 1), (&costly, false, 1), (&costly, true, 0)]
        {
            let found = check_update(&costly, old, is_unchanged);
            assert_eq!(found.len(), expect, "{old} {is_unchanged}: {found:?}");
        }
        let mut unlimited = list(None, "self.contains('x')");
        unlimited["properties"]["l"]["items"]["maxLength"].take();
        let found = check_update(&unlimited, &unlimited, true);
        assert!(found.last().is_some_and(|text| {
            text.contains("estimated rule cost total for entire OpenAPIv3 schema")
        }));
    }
}
