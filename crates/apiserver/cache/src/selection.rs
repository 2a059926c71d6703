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

/// The keys that a selection can match.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyScope {
    /// Their common prefix.
    pub(crate) prefix: String,
    /// The prefix is a complete key.
    pub(crate) is_key: bool,
}

impl Selection {
    /// Returns the keys that can match, also by the field selector.
    pub(crate) fn key_scope(&self, is_namespaced: bool) -> KeyScope {
        let field = |name| self.fields.exact(name);
        let namespace = self
            .namespace
            .as_deref()
            .or_else(|| field("metadata.namespace"))
            .filter(|namespace| !namespace.is_empty());
        let name = self.name.as_deref().or_else(|| field("metadata.name"));
        let (prefix, is_key) = match (namespace, name) {
            (Some(namespace), Some(name)) => (format!("{namespace}/{name}"), true),
            (Some(namespace), None) => (namespace_prefix(namespace), false),
            // The name is the key of an object of cluster scope only.
            (None, Some(name)) if !is_namespaced => (name.to_owned(), true),
            (None, _) => (String::new(), false),
        };
        KeyScope { prefix, is_key }
    }

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

    /// Returns whether the scope and one label or field decide. An index of it then holds exactly
    /// the keys of the selected objects.
    pub(crate) fn has_one_requirement(&self) -> bool {
        let is_named = self.name.is_some() || self.namespace.as_deref() == Some("");
        !is_named && self.labels.requirements.len() + self.fields.terms.len() == 1
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
            .as_deref()
            .map(namespace_prefix)
            .unwrap_or_default()
    }
}

fn namespace_prefix(namespace: &str) -> String {
    // With the slash, so that `team` does not include `team-b`.
    format!("{namespace}/")
}
