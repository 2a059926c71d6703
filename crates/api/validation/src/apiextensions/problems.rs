//! Conversion of the problems that `api-structural` finds.

use crate::field::{ErrorKind, Errors, FieldError, Path};
use crate::metadata::{NameRule, validate_metadata};
use api_meta::Kind;
use api_meta::tree::{at_mut, fill_text, get, text};
use api_structural::{FieldProblem, ProblemKind};
use serde_json::Value;

/// Adds problems of a schema or of a custom resource.
pub(crate) fn add_problems(problems: Vec<FieldProblem>, errors: &mut Errors) {
    errors.0.extend(problems.into_iter().map(convert_problem));
}

fn convert_problem(problem: FieldProblem) -> FieldError {
    let kind = match problem.kind {
        ProblemKind::Required => ErrorKind::Required,
        ProblemKind::Duplicate => ErrorKind::Duplicate,
        ProblemKind::Invalid => ErrorKind::Invalid,
        ProblemKind::NotSupported => ErrorKind::NotSupported,
        ProblemKind::Forbidden => ErrorKind::Forbidden,
        ProblemKind::TooLong => ErrorKind::TooLong,
        ProblemKind::TooMany => ErrorKind::TooMany,
        ProblemKind::TypeInvalid => ErrorKind::TypeInvalid,
    };
    FieldError {
        kind,
        field: problem.field,
        value: problem.value,
        detail: problem.detail,
    }
}

/// Checks the metadata of an embedded resource. A name and a namespace are optional there.
pub(crate) fn check_embedded_metadata(object: &Value) -> Vec<FieldProblem> {
    let mut named = serde_json::json!({"metadata": get(object, "metadata")});
    if let Some(metadata) = at_mut(&mut named, "metadata") {
        fill_text(metadata, "name", "fakename");
    }
    // Whether the embedded kind has a namespace is unknown, so both forms have to pass.
    let kind = Kind {
        group: "",
        version: "",
        kind: "",
        namespaced: !text(get(&named, "metadata"), "namespace").is_empty(),
    };
    let mut errors = Errors::default();
    let path = Path::ROOT.child("metadata");
    // The rule for names of the embedded kind is unknown too; this is the weakest one.
    validate_metadata(&named, kind, NameRule::PathSegment, &path, &mut errors);
    errors.0.into_iter().map(convert_error).collect()
}

fn convert_error(error: FieldError) -> FieldProblem {
    let kind = match error.kind {
        ErrorKind::Required => ProblemKind::Required,
        ErrorKind::Duplicate => ProblemKind::Duplicate,
        ErrorKind::NotSupported => ProblemKind::NotSupported,
        ErrorKind::Forbidden => ProblemKind::Forbidden,
        ErrorKind::TooLong => ProblemKind::TooLong,
        ErrorKind::TooMany => ProblemKind::TooMany,
        ErrorKind::TypeInvalid => ProblemKind::TypeInvalid,
        // Rules of metadata refer to no other objects.
        ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Internal => ProblemKind::Invalid,
    };
    FieldProblem {
        kind,
        field: error.field,
        value: error.value,
        detail: error.detail,
    }
}
