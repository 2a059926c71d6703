//! Attributes by which an index selects objects.

use crate::{Entry, Selection};
use api_meta::Selector;
use api_meta::fields::FieldSelector;
use api_meta::labels::Operator;

/// Number of attributes of one selection that are considered: a selector may have thousands.
const MAX_CONSIDERED: usize = 4;

/// A label or a selectable field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attribute {
    /// The label with this key.
    Label(Box<str>),
    /// The selectable field with this name.
    Field(Box<str>),
}

impl Attribute {
    /// Returns the value of an entry; `None` if it has no such label.
    pub(crate) fn read_value<'a>(&self, entry: &'a Entry) -> Option<&'a str> {
        match self {
            Attribute::Label(key) => entry.label(key),
            // An absent field equals its zero value.
            Attribute::Field(name) => Some(entry.field(name).unwrap_or_default()),
        }
    }
}

/// An attribute with the values that a selection requires.
pub(crate) struct RequiredValues<'a> {
    /// The label or field.
    pub(crate) attribute: Attribute,
    /// The object must have one of these.
    pub(crate) values: Vec<&'a str>,
}

/// Returns the attributes whose values a selection lists. Fields come first: they tend to select
/// fewer objects.
pub(crate) fn required_values(selection: &Selection) -> Vec<RequiredValues<'_>> {
    let fields = field_values(&selection.fields);
    let labels = label_values(&selection.labels);
    fields.chain(labels).take(MAX_CONSIDERED).collect()
}

fn field_values(selector: &FieldSelector) -> impl Iterator<Item = RequiredValues<'_>> {
    let terms = selector.terms.iter();
    // Names and namespaces are parts of the key.
    let terms = terms.filter(|term| !term.negated && !term.field.starts_with("metadata."));
    terms.map(|term| RequiredValues {
        attribute: Attribute::Field(term.field.as_str().into()),
        values: vec![&term.value],
    })
}

fn label_values(selector: &Selector) -> impl Iterator<Item = RequiredValues<'_>> {
    let requirements = selector.requirements.iter();
    let listed = requirements.filter(|requirement| requirement.operator == Operator::In);
    listed.map(|requirement| RequiredValues {
        attribute: Attribute::Label(requirement.key.as_str().into()),
        values: requirement.values.iter().map(String::as_str).collect(),
    })
}
