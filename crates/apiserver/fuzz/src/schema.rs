//! Target: a schema of a custom resource, and an object that is pruned, defaulted and validated.

use crate::choices::Choices;
use crate::schema_document::{build_document, build_fitting};
use crate::values::{MAX_DEPTH, build_value, measure_depth};
use api_structural::{
    Column, FieldPath, RuleHistory, RuleSet, Schema, SchemaOptions, apply_defaults, check_schema,
    coerce_metadata, parse_unchecked, print_text, prune, prune_nulls, read_cell, validate_embedded,
    validate_lists, validate_value,
};
use serde_json::{Value, json};
use std::sync::Arc;

const PATHS: [&str; 8] = [
    ".spec",
    ".a.b[0]",
    ".items[*].name",
    ".items[?(@.name==\"a\")].value",
    "$..a",
    ".[",
    ".a[-1:]",
    ".spec['with.dot']",
];

/// Checks a schema, and brings an object into its form.
///
/// # Panics
/// If a result is deeper than schema and object are, or if pruning or defaulting again changes it.
pub fn run_schema(data: &[u8]) {
    let mut choices = Choices::new(data);
    let document = build_document(&mut choices);
    let metadata = |_: &Value| Vec::new();
    let problems = check_schema(
        &document,
        SchemaOptions::NEW,
        RuleHistory::default(),
        &metadata,
        &FieldPath::ROOT,
    );
    let Ok(schema) = parse_unchecked(&document) else {
        assert!(
            !problems.is_empty(),
            "accepted, but can't be parsed: {document}"
        );
        return;
    };
    // The server stores no deeper object, but schemas of such objects can be deeper.
    let object = build_fitting(&mut choices, &document, MAX_DEPTH);
    let old = choices.hits(2).then(|| build_value(&mut choices, 6));
    let object = convert_object(&schema, &document, object);
    // Only definitions without problems are established; the others are stored at most.
    if problems.is_empty() {
        validate_object(&schema, &object, old.as_ref());
    }
    read_column(&mut choices, &object);
}

fn convert_object(schema: &Schema, document: &Value, object: Value) -> Value {
    let depth = measure_depth(&object).max(measure_depth(document));
    let mut object = object;
    prune(schema, &mut object, true);
    let again = prune(schema, &mut object, true);
    assert!(again.is_empty(), "pruned twice: {again:?}: {document}");
    prune_nulls(schema, &mut object);
    apply_defaults(schema, &mut object);
    let defaulted = object.clone();
    apply_defaults(schema, &mut object);
    assert_eq!(object, defaulted, "defaulted twice: {document}");
    assert!(measure_depth(&object) <= depth, "too deep: {document}");
    // An invalid value of `metadata` becomes an empty object.
    let _ = coerce_metadata(schema, &mut object, true, true);
    assert!(
        measure_depth(&object) <= depth + 1,
        "metadata too deep: {document}"
    );
    object
}

fn validate_object(schema: &Arc<Schema>, object: &Value, old: Option<&Value>) {
    let problems = validate_value(schema, object, old);
    let _ = validate_value(schema, object, None);
    let _ = validate_lists(schema, object, &FieldPath::ROOT);
    let metadata = |_: &Value| Vec::new();
    let _ = validate_embedded(schema, object, true, &metadata, &FieldPath::ROOT);
    let kinds = problems.iter().map(|problem| problem.kind);
    let _ = RuleSet::compile(schema).validate(object, old, kinds);
}

fn read_column(choices: &mut Choices<'_>, object: &Value) {
    let path = choices.pick(&PATHS);
    let kind = choices.pick(&["string", "integer", "date", "number", "boolean"]);
    let column = json!({"name": "c", "type": kind, "jsonPath": path});
    if let Ok(column) = Column::parse(&column) {
        let _ = read_cell(&column, object, &|_| None);
    }
    let _ = print_text(object);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::random_bytes;

    #[test]
    fn many_schemas_are_accepted_and_some_objects_fit() {
        let (mut accepted, mut fitting) = (0, 0);
        for seed in 0..1_000 {
            let bytes = random_bytes(seed);
            let mut choices = Choices::new(&bytes);
            let document = build_document(&mut choices);
            let metadata = |_: &Value| Vec::new();
            let options = SchemaOptions::NEW;
            let problems = check_schema(
                &document,
                options,
                RuleHistory::default(),
                &metadata,
                &FieldPath::ROOT,
            );
            if let (true, Ok(schema)) = (problems.is_empty(), parse_unchecked(&document)) {
                accepted += 1;
                let object = build_fitting(&mut choices, &document, MAX_DEPTH);
                let object = convert_object(&schema, &document, object);
                let found = validate_value(&schema, &object, None);
                fitting += usize::from(found.is_empty() && measure_depth(&object) > 1);
            }
        }
        assert!(accepted >= 100 && fitting >= 20, "{accepted} {fitting}");
    }
}
