//! The scope and selectors of a list or watch.

use crate::Entry;
use api_meta::Selector;
use api_meta::fields::FieldSelector;
use std::borrow::Cow;

/// Scope and selectors; all must match.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// One namespace; `None` for all, and for cluster scope.
    pub namespace: Option<String>,
    /// One name.
    pub name: Option<String>,
    /// Label selector.
    pub labels: Selector,
    /// Field selector.
    pub fields: FieldSelector,
    /// Field selector that needs the object in the version of the request, which only a converter
    /// can build. Readers apply it after the conversion.
    pub converted_fields: FieldSelector,
}

impl Selection {
    /// Returns whether the entry is selected, before the conversion.
    pub fn matches(&self, entry: &Entry) -> bool {
        self.namespace
            .as_deref()
            .is_none_or(|namespace| namespace == entry.namespace())
            && self.name.as_deref().is_none_or(|name| name == entry.name())
            && self.labels.matches(|key| entry.label(key))
            && self
                .fields
                .matches(|field| entry.field(field).map(Cow::Borrowed))
    }

    /// Returns whether the converted entry is selected.
    pub fn matches_converted(&self, entry: &Entry) -> bool {
        self.converted_fields
            .matches(|field| entry.field(field).map(Cow::Borrowed))
    }

    /// Returns whether the whole scope is selected.
    pub fn is_whole_scope(&self) -> bool {
        self.name.is_none()
            && self.labels.is_empty()
            && self.fields.is_empty()
            && self.converted_fields.is_empty()
    }

    /// Returns the common prefix of the keys that can match.
    pub fn key_prefix(&self) -> String {
        self.namespace
            .as_ref()
            // With the slash, so that `team` does not include `team-b`.
            .map(|namespace| format!("{namespace}/"))
            .unwrap_or_default()
    }
}
