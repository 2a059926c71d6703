//! Admission policies.

use super::rule::{validate_match_resources, validate_mutating_operations};
use super::validate_condition_names;
use crate::cel::{ExpressionField, Expressions, MATCH_CONDITIONS};
use crate::conditions::validate_conditions;
use crate::field::{Errors, Path};
use crate::kind_rules::{Rules, accept_subresource};
use crate::metadata::NameRule;
use crate::rules;
use api_cel::escaping::RESERVED;
use api_cel::hosts::policy::{PolicyCompiler, Purpose};
use api_meta::names;
use api_meta::tree::{get, has, list, opt_text, same, text};
use serde_json::Value;
use std::collections::HashSet;

/// Rules of validating policies.
pub const VALIDATING_POLICY: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_validating_policy(object, None, errors),
    update: |new, old, errors| validate_validating_policy(new, Some(old), errors),
    sub: |_, new, _, errors| validate_policy_status(new, errors),
};
/// Rules of mutating policies.
pub const MUTATING_POLICY: Rules = Rules {
    name: NameRule::Subdomain,
    create: |object, errors| validate_mutating_policy(object, None, errors),
    update: |new, old, errors| validate_mutating_policy(new, Some(old), errors),
    sub: accept_subresource,
};

const FAILURE: [&str; 2] = ["Fail", "Ignore"];
// The API's documentation also lists `Unauthorized`, but upstream's validation has never accepted
// it.
const REASONS: [&str; 3] = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
const REINVOCATION: [&str; 2] = ["IfNeeded", "Never"];
const PATCHES: [(&str, &str); 2] = [
    ("ApplyConfiguration", "applyConfiguration"),
    ("JSONPatch", "jsonPatch"),
];
// The values go into the audit event of each request that matches, so their number is limited.
const MOST_ANNOTATIONS: usize = 20;
// A value is cut at 10 KiB. The expression has half of that, because concatenation usually makes
// the value longer than its expression.
const LONGEST_ANNOTATION: usize = 5 * 1024;

fn validate_validating_policy(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_policy(spec, old, &path, errors);
    let (validations, annotations) = (list(spec, "validations"), list(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        // The error is on both fields, since the author can repair the policy with either.
        for field in ["validations", "auditAnnotations"] {
            let detail = "validations or auditAnnotations must contain at least one item";
            errors.required(&path.child(field), detail);
        }
    }
    let at = path.child("validations");
    for (i, validation) in validations.iter().enumerate() {
        validate_validation(validation, &at.index(i), errors);
    }
    let name = text(get(object, "metadata"), "name");
    validate_audit_annotations(annotations, name, &path.child("auditAnnotations"), errors);
    validate_expressions(spec, old, &path, errors);
}

fn validate_mutating_policy(object: &Value, old: Option<&Value>, errors: &mut Errors) {
    let (spec, path) = (get(object, "spec"), Path::ROOT.child("spec"));
    validate_policy(spec, old, &path, errors);
    let at = path.child("matchConstraints");
    validate_mutating_operations(get(spec, "matchConstraints"), &at, errors);
    let mutations = list(spec, "mutations");
    let at = path.child("mutations");
    if mutations.is_empty() {
        errors.required(&at, "mutations must contain at least one item");
    }
    for (i, mutation) in mutations.iter().enumerate() {
        validate_mutation(mutation, &at.index(i), errors);
    }
    rules::validate_required_one_of(spec, "reinvocationPolicy", &REINVOCATION, &path, errors);
    validate_expressions(spec, old, &path, errors);
}

/// Validates what policies of both kinds have in common.
fn validate_policy(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    match opt_text(spec, "failurePolicy") {
        None => errors.required(&path.child("failurePolicy"), ""),
        Some(_) => rules::validate_one_of(spec, "failurePolicy", &FAILURE, path, errors),
    }
    if has(spec, "paramKind") {
        validate_param_kind(get(spec, "paramKind"), &path.child("paramKind"), errors);
    }
    // A policy without constraints would never be evaluated, although its author expects
    // protection.
    let at = path.child("matchConstraints");
    let constraints = get(spec, "matchConstraints");
    if constraints.is_null() {
        errors.required(&at, "");
    } else {
        validate_match_resources(constraints, &at, errors);
        if list(constraints, "resourceRules").is_empty() {
            errors.required(&at.child("resourceRules"), "");
        }
    }
    if !has_same_conditions(spec, old) {
        validate_condition_names(spec, path, errors);
    }
    let at = path.child("variables");
    for (i, variable) in list(spec, "variables").iter().enumerate() {
        validate_variable(variable, &at.index(i), errors);
    }
}

/// Returns whether an update keeps the match conditions and what they depend on.
fn has_same_conditions(spec: &Value, old: Option<&Value>) -> bool {
    // Cost limits and the CEL libraries may have become stricter since the conditions were stored.
    // A client that changes another field must not be rejected for them.
    old.is_some_and(|old| {
        let old = get(old, "spec");
        same(old, spec, "paramKind") && same(old, spec, "matchConditions")
    })
}

fn validate_param_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
    let version = text(kind, "apiVersion");
    let at = path.child("apiVersion");
    // A version without a group is of the core group: ConfigMaps are common parameters.
    let (group, last) = version.split_once('/').unwrap_or(("", version));
    if version.is_empty() {
        errors.required(&at, "");
    } else if last.contains('/') {
        let detail = format!("unexpected GroupVersion string: {version}");
        errors.invalid(&at, version, detail);
    } else {
        let problems = names::dns1123_subdomain(group);
        if !group.is_empty() && !problems.is_empty() {
            errors.invalid(&at, group, problems.join(","));
        }
        let problems = names::dns1035_label(last);
        if last.is_empty() {
            errors.invalid(&at, version, "version must be specified");
        } else if !problems.is_empty() {
            errors.invalid(&at, last, problems.join(","));
        }
    }
    let name = text(kind, "kind");
    // Kinds are in camel case. Only the lower-case form can be compared with the rule for labels.
    let problems = names::dns1035_label(&name.to_lowercase());
    if name.is_empty() {
        errors.required(&path.child("kind"), "");
    } else if !problems.is_empty() {
        let detail = format!(
            "may have mixed case, but should otherwise match: {}",
            problems.join(",")
        );
        errors.invalid(&path.child("kind"), name, detail);
    }
}

fn validate_variable(variable: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(variable, "name");
    // CEL reads a variable as a field of `variables`, which only works for an identifier.
    if name.trim().is_empty() {
        errors.required(&path.child("name"), "name is not specified");
    } else if !is_identifier(name) {
        errors.invalid(&path.child("name"), name, "must be a valid CEL identifier");
    }
    if text(variable, "expression").trim().is_empty() {
        errors.required(&path.child("expression"), "expression is not specified");
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !RESERVED.contains(&name)
}

fn validate_validation(validation: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(validation, "expression").trim().is_empty() {
        errors.required(&path.child("expression"), "expression is not specified");
    }
    // With the action `Warn` the message is sent in an HTTP header, which can't contain a line
    // break. If the expression yields one, `message` replaces its result.
    for field in ["messageExpression", "message"] {
        let value = text(validation, field);
        if !value.is_empty() && value.trim().is_empty() {
            errors.invalid(&path.child(field), value, "must be non-empty if specified");
        } else if field == "message" && value.trim().contains(['\n', '\r']) {
            errors.invalid(&path.child(field), value, "must not contain line breaks");
        }
    }
    rules::validate_one_of(validation, "reason", &REASONS, path, errors);
}

fn validate_audit_annotations(all: &[Value], policy: &str, path: &Path<'_>, errors: &mut Errors) {
    if all.len() > MOST_ANNOTATIONS {
        let detail = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        errors.invalid(path, all.to_vec(), detail);
    }
    let mut seen = HashSet::new();
    for (i, annotation) in all.iter().enumerate() {
        let at = path.index(i);
        let key = text(annotation, "key");
        // The policy's name is the prefix, so that policies don't overwrite each other's.
        let full = format!("{policy}/{key}");
        if policy.is_empty() {
            errors.invalid(&at.child("key"), key, "requires metadata.name be non-empty");
        } else {
            errors.invalid_each(&at.child("key"), &full, names::qualified_name(&full));
        }
        let expression = text(annotation, "valueExpression").trim();
        let place = at.child("valueExpression");
        if expression.is_empty() {
            errors.required(&place, "valueExpression is not specified");
        } else if expression.len() > LONGEST_ANNOTATION {
            let detail = format!("must not exceed {LONGEST_ANNOTATION} bytes in length");
            // Upstream reports an expression that is too long with the type `Required`.
            errors.required(&place, detail);
        }
        if !seen.insert(key) {
            errors.duplicate(&at.child("key"), key);
        }
    }
}

fn validate_mutation(mutation: &Value, path: &Path<'_>, errors: &mut Errors) {
    let kind = text(mutation, "patchType");
    if kind.is_empty() {
        return errors.required(&path.child("patchType"), "");
    }
    let known = PATCHES.map(|(kind, _)| kind);
    // An unknown type doesn't say which of the fields it needs, so there is nothing else to check.
    if !known.contains(&kind) {
        return errors.not_supported(&path.child("patchType"), kind, &known);
    }
    for (patch, field) in PATCHES {
        let (value, at) = (get(mutation, field), path.child(field));
        match (patch == kind, value.is_null()) {
            (true, true) => {
                errors.required(&at, format!("must be specified when patchType is {kind}"));
            }
            (true, false) if text(value, "expression").trim().is_empty() => {
                errors.required(&at.child("expression"), "");
            }
            (false, false) => errors.invalid(
                &at,
                format!("{{{field}}}"),
                format!("must not be specified when patchType is {kind}"),
            ),
            _ => {}
        }
    }
}

/// The expressions of policies; those that a policy of one kind can't have are absent.
const EXPRESSIONS: [ExpressionField; 5] = [
    ExpressionField {
        list: "validations",
        path: &["expression"],
        purpose: Purpose::Condition,
        is_trimmed: false,
        only_for: None,
    },
    ExpressionField {
        list: "validations",
        path: &["messageExpression"],
        purpose: Purpose::Message,
        is_trimmed: false,
        only_for: None,
    },
    ExpressionField {
        list: "auditAnnotations",
        path: &["valueExpression"],
        purpose: Purpose::AuditAnnotation,
        is_trimmed: true,
        only_for: None,
    },
    ExpressionField {
        list: "mutations",
        path: &["applyConfiguration", "expression"],
        purpose: Purpose::ApplyConfiguration,
        is_trimmed: true,
        only_for: Some(("patchType", "ApplyConfiguration")),
    },
    ExpressionField {
        list: "mutations",
        path: &["jsonPatch", "expression"],
        purpose: Purpose::JsonPatch,
        is_trimmed: true,
        only_for: Some(("patchType", "JSONPatch")),
    },
];

/// Compiles all expressions of a policy.
fn validate_expressions(spec: &Value, old: Option<&Value>, path: &Path<'_>, errors: &mut Errors) {
    // Without `paramKind` the variable `params` is not declared, so that a use of it fails here
    // instead of in each request.
    let mut compiler = PolicyCompiler::new(has(spec, "paramKind"));
    let stored: Vec<&Value> = old.into_iter().map(|old| get(old, "spec")).collect();
    let expressions = Expressions {
        new: spec,
        old: &stored,
    };
    // As upstream, a condition is checked without the variables, although it may use them once it
    // is stored.
    if !has_same_conditions(spec, old) {
        expressions.validate(&compiler, &MATCH_CONDITIONS, path, errors);
    }
    // Each variable is added to the environment after it is compiled. It can use the earlier ones
    // only, which excludes cycles.
    expressions.validate_variables(&mut compiler, path, errors);
    for field in &EXPRESSIONS {
        expressions.validate(&compiler, field, path, errors);
    }
}

fn validate_policy_status(object: &Value, errors: &mut Errors) {
    let (status, path) = (get(object, "status"), Path::ROOT.child("status"));
    let at = path.child("typeChecking");
    let at = at.child("expressionWarnings");
    let warnings = list(get(status, "typeChecking"), "expressionWarnings");
    for (i, warning) in warnings.iter().enumerate() {
        for field in ["warning", "fieldRef"] {
            if text(warning, field).trim().is_empty() {
                errors.required(&at.index(i).child(field), "");
            }
        }
    }
    validate_conditions(status, &path.child("conditions"), errors);
}
