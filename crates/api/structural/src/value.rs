//! Validation of values against a schema, with the messages of upstream's OpenAPI library.
//!
//! Of several alternatives that all fail, the problems of the one with the most positive checks are
//! reported. The counts are therefore part of the behaviour.

use crate::correlate::Correlation;
use crate::model::{Additional, Checks, Schema, ValueType};
use crate::number::{GoNumber, NumberProblem, check_number, is_whole};
use crate::path::FieldPath;
use crate::problem::{FieldProblem, MAX_PROBLEMS, ProblemKind, quote};
use serde_json::{Map, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// Validates an object. Problems of parts that haven't changed since `old` are not reported.
pub fn validate_value(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<FieldProblem> {
    validate_part(schema, object, old, "")
}

/// Validates a part of an object, such as its status. `prefix` is the path of the part; upstream's
/// messages have the path below it.
pub fn validate_part(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    prefix: &str,
) -> Vec<FieldProblem> {
    let mut validator = Validator {
        prefix,
        found: Vec::new(),
    };
    let correlation = old.map(|old| Correlation {
        schema,
        new: value,
        old,
    });
    validator.validate_field(schema, value, &FieldPath::ROOT, correlation);
    validator.into_unique()
}

/// A problem with the message by which equal problems are recognised.
struct Found {
    message: String,
    problem: FieldProblem,
}

struct Validator<'p> {
    prefix: &'p str,
    found: Vec<Found>,
}

type Old<'a> = Option<Correlation<'a>>;

impl Validator<'_> {
    fn into_unique(self) -> Vec<FieldProblem> {
        let mut seen = HashSet::new();
        let unique = self
            .found
            .into_iter()
            .filter(|found| seen.insert(found.message.clone()));
        unique.map(|found| found.problem).collect()
    }

    fn is_full(&self) -> bool {
        // Everything above this place is invalid already, so nothing more can change the result.
        self.found.len() >= MAX_PROBLEMS
    }

    /// Adds a problem of a field, with a value or without.
    fn add(
        &mut self,
        kind: ProblemKind,
        path: &FieldPath<'_>,
        value: Option<Value>,
        detail: String,
        message: String,
    ) {
        if self.is_full() {
            return;
        }
        let relative = path.to_string();
        let relative = relative.strip_prefix('.').unwrap_or(&relative);
        let field = match (self.prefix, relative) {
            ("", "") => "<nil>".to_owned(),
            (prefix, "") => prefix.to_owned(),
            ("", relative) => relative.to_owned(),
            (prefix, relative) => format!("{prefix}.{relative}"),
        };
        let problem = FieldProblem {
            kind,
            field,
            value,
            detail,
        };
        self.found.push(Found { message, problem });
    }

    /// Adds a problem whose message begins with the path.
    fn add_invalid(&mut self, path: &FieldPath<'_>, value: impl Into<Value>, text: &str) {
        let message = format!("{path} in body {text}");
        self.add(
            ProblemKind::Invalid,
            path,
            Some(value.into()),
            message.clone(),
            message,
        );
    }

    fn add_wrong_type(&mut self, path: &FieldPath<'_>, wanted: &str, found: &str) {
        let message = format!("{path} in body must be of type {wanted}: {}", quote(found));
        self.add(
            ProblemKind::TypeInvalid,
            path,
            Some(found.into()),
            message.clone(),
            message,
        );
    }

    /// Adds a problem that upstream doesn't attribute to a field.
    fn add_general(&mut self, message: String) {
        let value = Some(Value::from(""));
        self.add(
            ProblemKind::Invalid,
            &FieldPath::ROOT,
            value,
            message.clone(),
            message,
        );
    }

    /// Validates a value unless it is unchanged. Returns the number of positive checks.
    fn validate_field(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &FieldPath<'_>,
        old: Old<'_>,
    ) -> usize {
        let before = self.found.len();
        let matches = self.validate_node(schema, value, path, old);
        if self.found.len() > before && old.is_some_and(|old| old.is_unchanged()) {
            self.found.truncate(before);
        }
        matches
    }

    fn validate_node(
        &mut self,
        schema: &Schema,
        value: &Value,
        path: &FieldPath<'_>,
        old: Old<'_>,
    ) -> usize {
        if self.is_full() {
            return 0;
        }
        let checks = schema.checks.as_deref();
        if value.is_null() {
            let matches = usize::from(self.check_null(schema, path));
            self.check_enumeration(checks, value, path);
            return matches;
        }
        let mut matches = 0;
        if let Some(fits) = self.check_type(schema, value, path) {
            matches += 1 + usize::from(fits);
        }
        matches += 2 + self.validate_junctors(checks, value, path);
        match value {
            Value::String(text) => matches += 1 + self.validate_text(checks, text, path),
            Value::Number(number) => {
                self.validate_number(schema, GoNumber::from_json(number), path);
                matches += 2;
            }
            Value::Array(all) => matches += 2 + self.validate_list(schema, all, path, old),
            Value::Object(map) => {
                // The enumeration comes before the members.
                self.check_enumeration(checks, value, path);
                return matches + 3 + self.validate_map(schema, map, path, old);
            }
            _ => {}
        }
        self.check_enumeration(checks, value, path);
        matches + 2
    }

    fn check_null(&mut self, schema: &Schema, path: &FieldPath<'_>) -> bool {
        let types = list_types(schema);
        if types.is_empty() || schema.nullable {
            return true;
        }
        self.add_wrong_type(path, &join_names(types), "null");
        false
    }

    /// Checks the type. Returns nothing if the schema allows any.
    fn check_type(&mut self, schema: &Schema, value: &Value, path: &FieldPath<'_>) -> Option<bool> {
        let types = list_types(schema);
        let checks = schema.checks.as_deref();
        let format = checks.and_then(|checks| checks.format.as_deref());
        if types.is_empty() && format.is_none() {
            return None;
        }
        let (found, found_format) = describe_type(value);
        let fits = types.contains(&found)
            || types.contains(&ValueType::Integer) && value.as_f64().is_some_and(is_whole)
            || types.contains(&ValueType::Number) && found == ValueType::Integer;
        if fits {
            return Some(true);
        }
        match (format, value) {
            // Only a type is missing, and the format is one of texts.
            (Some(_), Value::String(_) | Value::Array(_)) if types.is_empty() => return Some(true),
            (Some(format), value) if !value.is_string() && !value.is_array() => {
                self.add_wrong_type(path, format, found_format);
            }
            _ => self.add_wrong_type(path, &join_names(types), found.name()),
        }
        Some(false)
    }

    fn check_enumeration(&mut self, checks: Option<&Checks>, value: &Value, path: &FieldPath<'_>) {
        let Some(known) = checks
            .map(|checks| &checks.enumeration)
            .filter(|all| !all.is_empty())
        else {
            return;
        };
        // A null never equals a value of an enumeration, even if that is null.
        let equal = |known: &Value| match (known, value) {
            (Value::Number(a), Value::Number(b)) => {
                a == b || GoNumber::from_json(a).to_float() == GoNumber::from_json(b).to_float()
            }
            (a, b) => a == b && !b.is_null(),
        };
        if known.iter().any(equal) {
            return;
        }
        let names: Vec<String> = known
            .iter()
            .map(|known| {
                known
                    .as_str()
                    .map_or_else(|| known.to_string(), str::to_owned)
            })
            .collect();
        let template = FieldProblem::not_supported(
            &FieldPath::ROOT,
            value.clone(),
            names.iter().map(String::as_str),
        );
        let message = format!("{path} in body should be one of [{}]", names.join(" "));
        self.add(
            template.kind,
            path,
            template.value,
            template.detail,
            message,
        );
    }

    fn validate_text(
        &mut self,
        checks: Option<&Checks>,
        text: &str,
        path: &FieldPath<'_>,
    ) -> usize {
        let Some(checks) = checks else {
            return 0;
        };
        self.validate_length_and_pattern(checks, text, path);
        let Some(format) = checks.string_format else {
            return 0;
        };
        if !format.matches(text) {
            self.add_wrong_type(path, checks.format.as_deref().unwrap_or_default(), text);
        }
        1
    }

    // The first violated check is reported.
    fn validate_length_and_pattern(&mut self, checks: &Checks, text: &str, path: &FieldPath<'_>) {
        let bounds = checks.max_length.is_some() || checks.min_length.is_some();
        let length = if bounds {
            count(text.chars().count())
        } else {
            0
        };
        if let Some(max) = checks.max_length.filter(|max| length > *max) {
            let problem = FieldProblem::too_long(path, max);
            let message = format!("{path} in body should be at most {max} chars long");
            self.add(problem.kind, path, None, problem.detail, message);
        } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
            self.add_invalid(path, text, &format!("should be at least {min} chars long"));
        } else if let Some(pattern) = &checks.pattern {
            match pattern.is_match(text) {
                Ok(true) => {}
                Ok(false) => {
                    self.add_invalid(path, text, &format!("should match '{}'", pattern.source()));
                }
                Err(error) => {
                    let source = pattern.source();
                    let detail =
                        format!("should match '{source}, but pattern is invalid: {error}'");
                    self.add_invalid(path, text, &detail);
                }
            }
        }
    }

    fn validate_number(&mut self, schema: &Schema, number: GoNumber, path: &FieldPath<'_>) {
        let value_type = schema.value_type.filter(|_| !schema.int_or_string);
        for problem in check_number(number, value_type, schema.checks.as_deref()) {
            match problem {
                NumberProblem::Field(text) => self.add_invalid(path, number.to_json(), &text),
                NumberProblem::Range(text) => self.add_general(format!("{text} in {path}")),
                NumberProblem::Factor(factor) => {
                    let message =
                        format!("factor MultipleOf declared for {path} must be positive: {factor}");
                    let value = serde_json::from_str(&factor).ok();
                    self.add(ProblemKind::Invalid, path, value, message.clone(), message);
                }
            }
        }
    }

    fn validate_list(
        &mut self,
        schema: &Schema,
        all: &[Value],
        path: &FieldPath<'_>,
        old: Old<'_>,
    ) -> usize {
        let mut matches = 0;
        if let Some(items) = &schema.items {
            let elements = old.map(|old| old.elements());
            for (i, value) in all.iter().enumerate() {
                if self.is_full() {
                    break;
                }
                // The elements of the correlation are those of the same list.
                let old = elements.as_ref().and_then(|elements| {
                    let new = old.and_then(|old| old.new.get(i))?;
                    elements.find(new)
                });
                matches += self.validate_field(items, value, &path.index(i), old);
            }
        }
        let Some(checks) = &schema.checks else {
            return matches;
        };
        let size = all.len();
        if let Some(min) = checks.min_items.filter(|min| count(size) < *min) {
            self.add_invalid(path, size, &format!("should have at least {min} items"));
        }
        if let Some(max) = checks.max_items.filter(|max| count(size) > *max) {
            let problem = FieldProblem::too_many(path, size, max);
            let message = format!("{path} in body should have at most {max} items");
            self.add(problem.kind, path, problem.value, problem.detail, message);
        }
        if checks.unique_items {
            let mut seen = HashSet::new();
            if !all.iter().all(|value| seen.insert(value.to_string())) {
                self.add_invalid(path, "", "shouldn't contain duplicates");
            }
        }
        matches
    }

    fn validate_map(
        &mut self,
        schema: &Schema,
        map: &Map<String, Value>,
        path: &FieldPath<'_>,
        old: Old<'_>,
    ) -> usize {
        let mut matches = 0;
        let checks = schema.checks.as_deref();
        self.validate_size(checks, map.len(), path);
        let is_root = path.is_root();
        let member = |name: &str| {
            // Both versions are of one type, and a change of the version isn't visible here.
            let type_meta = is_root && matches!(name, "kind" | "apiVersion");
            old.filter(|_| !type_meta).and_then(|old| old.member(name))
        };
        for (name, value) in map
            .iter()
            .filter(|(name, _)| schema.property(name).is_none())
        {
            match &schema.additional {
                None | Some(Additional::Allowed(true)) => break,
                Some(Additional::Allowed(false)) => {
                    let message = format!("{path}.{name} in body is a forbidden property");
                    let value = Some(Value::from(name.as_str()));
                    self.add(ProblemKind::Invalid, path, value, message.clone(), message);
                }
                Some(Additional::Schema(inner)) => {
                    matches += self.validate_field(inner, value, &path.entry(name), member(name));
                }
            }
            if self.is_full() {
                break;
            }
        }
        for property in &schema.properties {
            if let Some(value) = map.get(&*property.name) {
                let name = &*property.name;
                let at = path.child(name);
                matches += self.validate_field(&property.schema, value, &at, member(name));
            }
        }
        let required = checks.map(|checks| &*checks.required).unwrap_or_default();
        for name in required.iter().filter(|name| !map.contains_key(&***name)) {
            let at = path.entry(name);
            let message = format!("{at} in body is required");
            self.add(ProblemKind::Required, &at, None, String::new(), message);
        }
        matches
    }

    fn validate_size(&mut self, checks: Option<&Checks>, size: usize, path: &FieldPath<'_>) {
        let Some(checks) = checks else {
            return;
        };
        if let Some(min) = checks.min_properties.filter(|min| count(size) < *min) {
            self.add_invalid(
                path,
                size,
                &format!("should have at least {min} properties"),
            );
        }
        if let Some(max) = checks.max_properties.filter(|max| count(size) > *max) {
            let problem = FieldProblem::too_many(path, size, max);
            let message = format!("{path} in body should have at most {max} properties");
            self.add(problem.kind, path, problem.value, problem.detail, message);
        }
    }

    /// Validates the junctors. Upstream has no old values there: a part that a junctor rejects is
    /// accepted only if the whole value is unchanged.
    fn validate_junctors(
        &mut self,
        checks: Option<&Checks>,
        value: &Value,
        path: &FieldPath<'_>,
    ) -> usize {
        let Some(checks) = checks else {
            return 0;
        };
        let quoted = quote(&path.to_string());
        let mut matches = 0;
        if !checks.any_of.is_empty() {
            let tried = self.try_all(&checks.any_of, true, value, path);
            if tried.valid == 0 {
                self.add_general(format!(
                    "{quoted} must validate at least one schema (anyOf)"
                ));
            }
            matches += self.keep(tried.reported);
        }
        if !checks.one_of.is_empty() {
            let tried = self.try_all(&checks.one_of, false, value, path);
            let found = match tried.valid {
                0 => "Found none valid".to_owned(),
                n => format!("Found {n} valid alternatives"),
            };
            if tried.valid != 1 {
                let text = "must validate one and only one schema (oneOf)";
                self.add_general(format!("{quoted} {text}. {found}"));
            }
            if tried.valid < 2 {
                matches += self.keep(tried.reported);
            }
        }
        matches += self.validate_all_of(&checks.all_of, value, path, &quoted);
        if let Some(not) = &checks.not {
            let before = self.found.len();
            self.validate_node(not, value, path, None);
            let valid = self.found.len() == before;
            // The problems that the negated schema finds are no problems of the value.
            self.found.truncate(before);
            if valid {
                self.add_general(format!("{quoted} must not validate the schema (not)"));
            }
        }
        matches
    }

    fn validate_all_of(
        &mut self,
        all: &[Arc<Schema>],
        value: &Value,
        path: &FieldPath<'_>,
        quoted: &str,
    ) -> usize {
        let (mut matches, mut valid) = (0, 0);
        for schema in all {
            let before = self.found.len();
            matches += self.validate_node(schema, value, path, None);
            valid += usize::from(self.found.len() == before);
        }
        if valid != all.len() {
            let none = if valid == 0 { ". None validated" } else { "" };
            self.add_general(format!(
                "{quoted} must validate all the schemas (allOf){none}"
            ));
        }
        matches
    }

    /// Validates against alternatives, up to the first valid one if `first_only`.
    fn try_all(
        &mut self,
        all: &[Arc<Schema>],
        first_only: bool,
        value: &Value,
        path: &FieldPath<'_>,
    ) -> Tried {
        let mut tried = Tried::default();
        for schema in all {
            let before = self.found.len();
            let matches = self.validate_node(schema, value, path, None);
            let found = self.found.split_off(before);
            if found.is_empty() {
                if tried.valid == 0 {
                    tried.reported = Some((matches, found));
                }
                tried.valid += 1;
                if first_only {
                    break;
                }
            } else if tried.valid == 0
                && tried
                    .reported
                    .as_ref()
                    .is_none_or(|(best, _)| matches > *best)
            {
                tried.reported = Some((matches, found));
            }
        }
        tried
    }

    fn keep(&mut self, reported: Option<(usize, Vec<Found>)>) -> usize {
        let (matches, found) = reported.unwrap_or_default();
        let room = MAX_PROBLEMS.saturating_sub(self.found.len());
        self.found.extend(found.into_iter().take(room));
        matches
    }
}

#[derive(Default)]
struct Tried {
    valid: usize,
    /// Positive checks and problems of the first valid alternative, or else of the best one.
    reported: Option<(usize, Vec<Found>)>,
}

fn count(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

fn list_types(schema: &Schema) -> &[ValueType] {
    match schema.int_or_string {
        true => &[ValueType::Integer, ValueType::String],
        false => schema.value_type.as_slice(),
    }
}

fn join_names(types: &[ValueType]) -> String {
    types
        .iter()
        .map(|value_type| value_type.name())
        .collect::<Vec<_>>()
        .join(",")
}

/// Returns the type of a value and Go's format of it.
fn describe_type(value: &Value) -> (ValueType, &'static str) {
    match value {
        Value::Bool(_) => (ValueType::Boolean, ""),
        Value::Number(number) if number.is_i64() => (ValueType::Integer, "int64"),
        Value::Number(_) => (ValueType::Number, "float64"),
        Value::Array(_) => (ValueType::Array, ""),
        Value::Object(_) => (ValueType::Object, ""),
        Value::String(_) | Value::Null => (ValueType::String, ""),
    }
}

#[cfg(test)]
mod tests;
