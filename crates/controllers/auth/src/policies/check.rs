//! The check of a policy's expressions against the types of the kinds that it matches.

use std::fmt::Write as _;

use api_cel::hosts::STORED_EXPRESSIONS;
use api_cel::hosts::admission::ObjectTypes;
use api_cel::hosts::policy::PolicyCompiler;
use k8s_openapi::api::admissionregistration::v1::{
    ExpressionWarning, ValidatingAdmissionPolicySpec,
};

use super::select::ServedKind;

/// All warnings of a policy have at most this many bytes: what follows is left out, so that the
/// status can be stored beside the largest policy.
const MAX_WARNINGS: usize = 256 * 1024;

/// A kind and the types of its objects.
#[derive(Clone)]
pub struct CheckedKind {
    /// The kind.
    pub kind: ServedKind,
    /// The types.
    pub types: ObjectTypes,
}

/// Returns the errors of validations and of their messages, by kind.
pub fn check_expressions(
    spec: &ValidatingAdmissionPolicySpec,
    kinds: &[CheckedKind],
) -> Vec<ExpressionWarning> {
    let compilers: Vec<_> = kinds
        .iter()
        .map(|checked| (&checked.kind, declare_variables(spec, &checked.types)))
        .collect();
    let mut warnings = Vec::new();
    let mut size = 0;
    for (index, validation) in spec.validations.iter().flatten().enumerate() {
        let message = validation.message_expression.as_deref();
        let expressions = [
            ("expression", Some(&*validation.expression)),
            ("messageExpression", message.filter(|text| !text.is_empty())),
        ];
        for (field, expression) in expressions {
            let Some(expression) = expression else {
                continue;
            };
            let warning = check_expression(expression, &compilers);
            if warning.is_empty() {
                continue;
            }
            size += warning.len();
            if size > MAX_WARNINGS {
                return warnings;
            }
            warnings.push(ExpressionWarning {
                field_ref: format!("spec.validations[{index}].{field}"),
                warning,
            });
        }
    }
    warnings
}

/// Returns a compiler that knows the variables of the policy. Their own errors are no warnings: the
/// status has no place for them.
fn declare_variables(spec: &ValidatingAdmissionPolicySpec, types: &ObjectTypes) -> PolicyCompiler {
    let mut compiler = PolicyCompiler::with_types(spec.param_kind.is_some(), types.clone());
    for variable in spec.variables.iter().flatten() {
        let _ = compiler.compile_variable(&variable.name, &variable.expression, STORED_EXPRESSIONS);
    }
    compiler
}

fn check_expression(expression: &str, compilers: &[(&ServedKind, PolicyCompiler)]) -> String {
    let mut warning = String::new();
    for (kind, compiler) in compilers {
        if let Err(error) = compiler.check_types(expression, STORED_EXPRESSIONS) {
            let separator = if warning.is_empty() { "" } else { "\n" };
            // Writing to a string can't fail.
            let _ = writeln!(warning, "{separator}{kind}: {error}");
        }
    }
    warning
}
