//! Structural schemas of custom resources: the model, the checks of the schema itself, and what the
//! server does with a custom resource: pruning, defaulting, embedded metadata, validation.
//!
//! Invariants: everything is pure (no clock, no IO). Field paths, reasons and messages are
//! upstream's, because clients and users match them. Recursion is bounded by the depth of the
//! schema, which [`parse_schema`] limits, and the number of reported problems by a constant.
//!
//! A schema is parsed once per version of a CustomResourceDefinition and shared. Equal sub-trees
//! and names are stored once: schemas repeat the types of Kubernetes, such as pods, many times.

mod column;
mod compile;
mod correlate;
mod declared;
mod default_check;
mod defaults;
mod duplicates;
mod embedded;
mod format;
mod json_path;
mod keywords;
mod list_type;
mod model;
mod number;
mod old_rules;
mod parse;
mod path;
mod pattern;
mod problem;
mod prune;
mod rule_check;
mod rule_set;
mod rules;
mod scale;
mod schema_check;
mod schema_path;
mod structure;
mod value;
mod visit;

pub use column::{Column, print_text, read_cell};
pub use correlate::Correlation;
pub use default_check::{check_defaults, has_unpruned_defaults};
pub use defaults::{apply_defaults, prune_nulls};
pub use duplicates::list_duplicate_fields;
pub use embedded::{MetadataCheck, coerce_metadata, validate_embedded};
pub use format::{NumberFormat, StringFormat};
pub use json_path::{JsonPath, PathError};
pub use list_type::validate_lists;
pub use model::{
    Additional, Checks, ListKind, MapKind, Property, Schema, ValidationRule, ValueType,
};
pub use old_rules::{OldRules, RuleHistory};
pub use parse::{parse_schema, parse_unchecked};
pub use path::FieldPath;
pub use pattern::{Pattern, PatternError};
pub use problem::{FieldProblem, ProblemKind};
pub use prune::{prune, report_unknown_fields};
pub use rule_check::compile_rules;
pub use rule_set::{RuleOutcome, RuleSet};
pub use scale::{ScalePaths, find_nested, validate_scale};
pub use schema_check::{SchemaOptions, check_schema, list_unrecognized_formats};
pub use schema_path::{PathSyntax, resolve_field_path};
pub use structure::check_structure;
pub use value::{validate_part, validate_value};
pub use visit::visit_schemas;
