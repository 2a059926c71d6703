//! Expressions of webhooks, policies and device selectors.

use crate::field::{Errors, Path};
use api_cel::Type;
use api_cel::hosts::device::{DeviceSizes, SELECTOR_LIMIT, create_device_environment};
use api_cel::hosts::policy::{ExpressionError, PolicyCompiler, Purpose};
use api_cel::hosts::{NEW_EXPRESSIONS, STORED_EXPRESSIONS};
use api_meta::tree::{list, text};
use serde_json::Value;

/// The expressions of one policy or webhook, and the object before an update.
pub struct Expressions<'a> {
    /// The spec or the webhook.
    pub new: &'a Value,
    /// It may have been written before. Its expressions may use all that this version knows.
    pub old: &'a [&'a Value],
}

/// A field of an expression in the elements of a list.
pub struct ExpressionField {
    /// The list.
    pub list: &'static str,
    /// The place of the expression in an element.
    pub path: &'static [&'static str],
    /// Its purpose.
    pub purpose: Purpose,
    /// Space around the expression is dropped before it is compiled.
    pub is_trimmed: bool,
    /// Member of the element, and the value with which the expression is compiled. As upstream,
    /// expressions of another form of mutation are not looked at.
    pub only_for: Option<(&'static str, &'static str)>,
}

/// The match conditions of a webhook or policy.
pub const MATCH_CONDITIONS: ExpressionField = ExpressionField {
    list: "matchConditions",
    path: &["expression"],
    purpose: Purpose::Condition,
    is_trimmed: true,
    only_for: None,
};

fn find_text<'a>(item: &'a Value, path: &[&str]) -> &'a str {
    let Some((last, parents)) = path.split_last() else {
        return "";
    };
    let parent = parents
        .iter()
        .try_fold(item, |parent, field| parent.get(field));
    parent.map_or("", |parent| text(parent, last))
}

impl Expressions<'_> {
    /// Returns the version whose environment checks an expression.
    fn minor(&self, field: &ExpressionField, source: &str) -> u16 {
        // Any expression of the old list counts, so that reordered elements keep their environment.
        let is_stored = self.old.iter().any(|old| {
            let items = list(old, field.list);
            items
                .iter()
                .any(|item| find_text(item, field.path) == source)
        });
        if is_stored {
            STORED_EXPRESSIONS
        } else {
            NEW_EXPRESSIONS
        }
    }

    /// Compiles the variables of a policy.
    pub fn validate_variables(
        &self,
        compiler: &mut PolicyCompiler,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        let field = ExpressionField {
            list: "variables",
            path: &["expression"],
            purpose: Purpose::Variable,
            is_trimmed: false,
            only_for: None,
        };
        let at = path.child(field.list);
        for (i, variable) in list(self.new, field.list).iter().enumerate() {
            let source = text(variable, "expression");
            // The missing expression has its own error, from the check of the required fields.
            if source.trim().is_empty() {
                continue;
            }
            let minor = self.minor(&field, source);
            if let Err(error) = compiler.compile_variable(text(variable, "name"), source, minor) {
                report(&error, source, &at.index(i).child("expression"), errors);
            }
        }
    }

    /// Compiles one expression of each element of a list.
    pub fn validate(
        &self,
        compiler: &PolicyCompiler,
        field: &ExpressionField,
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        let at = path.child(field.list);
        for (i, item) in list(self.new, field.list).iter().enumerate() {
            // An element of the other type may contain the field, but has an error for it already.
            if field
                .only_for
                .is_some_and(|(member, value)| text(item, member) != value)
            {
                continue;
            }
            let stored = find_text(item, field.path);
            let source = if field.is_trimmed {
                stored.trim()
            } else {
                stored
            };
            if source.trim().is_empty() {
                continue;
            }
            // The stored form is compared untrimmed, since that is what the old object contains.
            let minor = self.minor(field, stored);
            if let Err(error) = compiler.compile(field.purpose, source, minor) {
                let item = at.index(i);
                report_below(&error, source, field.path, &item, errors);
            }
        }
    }
}

fn report_below(
    error: &ExpressionError,
    source: &str,
    fields: &[&str],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    match fields.split_first() {
        Some((first, rest)) => report_below(error, source, rest, &path.child(first), errors),
        None => report(error, source, path, errors),
    }
}

fn report(error: &ExpressionError, source: &str, path: &Path<'_>, errors: &mut Errors) {
    match error {
        ExpressionError::Invalid(detail) => errors.invalid(path, source, detail.as_str()),
        // Upstream's type for these is `InternalError`: the source compiles, but no program can be
        // made of it.
        ExpressionError::Instantiation(detail) => errors.internal(path, detail.as_str()),
    }
}

/// Compiles the expression of a device selector and bounds its cost.
pub fn validate_device_expression(expression: &str, path: &Path<'_>, errors: &mut Errors) {
    let program = match create_device_environment(NEW_EXPRESSIONS).compile(expression) {
        Ok(program) => program,
        Err(error) if error.is_instantiation => {
            return errors.internal(path, format!("program instantiation failed: {error}"));
        }
        Err(error) => {
            return errors.invalid(path, expression, format!("compilation failed: {error}"));
        }
    };
    match program.output_type() {
        Type::Bool | Type::Dyn => {}
        other => {
            let other = other.runtime_name();
            let detail = format!("must evaluate to bool or the unknown type, not {other}");
            return errors.invalid(path, expression, detail);
        }
    }
    // The scheduler evaluates selectors for each device and node. Without a bound, one claim could
    // stall it for all tenants.
    if program.estimate_cost(&DeviceSizes).max > SELECTOR_LIMIT {
        errors.forbidden(path, "too complex, exceeds cost limit");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn validate(new: &Value, old: &[&Value]) -> Vec<String> {
        let mut errors = Errors::default();
        let compiler = PolicyCompiler::new(false);
        let expressions = Expressions { new, old };
        expressions.validate(&compiler, &MATCH_CONDITIONS, &Path::ROOT, &mut errors);
        errors.0.iter().map(ToString::to_string).collect()
    }

    fn conditions(expression: &str) -> Value {
        json!({"matchConditions": [{"name": "a", "expression": expression}]})
    }

    #[test]
    fn expressions_are_compiled_and_typed() {
        for good in [
            "true",
            " object.spec.replicas <= 3 ",
            "optional.of(1).orValue(2) == 1 && object.?spec.?name.orValue('') != ''",
            "object.url == 'http://x' // nothing.here (",
            "object.m.map(k, object.m[k]) == [] ? true : 'a'.matches(r'\\d')",
            "sets.contains(['a'], object.l) && ip.isCanonical('10.0.0.1')",
            "!format.dns1123Label().validate(object.name).hasValue()",
            "",
        ] {
            assert_eq!(validate(&conditions(good), &[]), [""; 0], "{good}");
        }
        for (bad, expect) in [
            ("object.spec.(", "compilation failed: ERROR: <input>:1:13: "),
            ("nothing", "undeclared reference to 'nothing'"),
            ("1 + 1", "must evaluate to bool but got int"),
            ("params.x == 1", "undeclared reference to 'params'"),
        ] {
            let found = validate(&conditions(bad), &[]);
            assert_eq!(found.len(), 1, "{bad}");
            let found = found.concat();
            let place = "matchConditions[0].expression: Invalid value: ";
            assert!(
                found.starts_with(place) && found.contains(expect),
                "{found}"
            );
        }
    }

    #[test]
    fn stored_expressions_are_checked_as_those_of_the_newest_version() {
        let new = conditions("true");
        let all = Expressions {
            new: &new,
            old: &[],
        };
        assert_eq!(all.minor(&MATCH_CONDITIONS, "true"), NEW_EXPRESSIONS);
        let all = Expressions {
            new: &new,
            old: &[&new],
        };
        assert_eq!(all.minor(&MATCH_CONDITIONS, "true"), STORED_EXPRESSIONS);
        assert_eq!(all.minor(&MATCH_CONDITIONS, "false"), NEW_EXPRESSIONS);
    }

    #[test]
    fn device_selectors_have_a_type_and_a_bounded_cost() {
        for (expression, expect) in [
            ("device.driver == 'a'", ""),
            ("device.attributes['a'].b", ""),
            ("device.other", "undefined field 'other'"),
            ("1", "must evaluate to bool or the unknown type, not int"),
        ] {
            let mut errors = Errors::default();
            validate_device_expression(expression, &Path::ROOT, &mut errors);
            let found: String = errors.0.iter().map(ToString::to_string).collect();
            assert_eq!(expect.is_empty(), found.is_empty(), "{expression} {found}");
            assert!(found.contains(expect), "{found}");
        }
    }
}
