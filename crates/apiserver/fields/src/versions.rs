//! The versions of a resource, for owners that use another one than the writer.
//!
//! This crate does no IO, and a webhook may convert the objects. A function that needs a
//! conversion returns a [`ConversionRequest`]; the caller converts, adds the result to the
//! [`Versions`], and calls the function again. A write whose owners all use the version of the
//! request needs none.

#[cfg(test)]
mod tests;

use crate::compare::{Comparison, compare_objects};
use crate::managers::{Entry, Identity};
use crate::reconcile::reconcile_set;
use crate::set::FieldSet;
use crate::shape::Shape;
use crate::track::{Writer, considered_fields, default_fields};
use api_kinds::{ObjectSchema, Resource};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A conversion that a function needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversionRequest {
    /// The object, in the version that its `apiVersion` names.
    pub object: Value,
    /// The `apiVersion` to convert to; a version of the same resource.
    pub api_version: String,
}

/// The versions of a resource that may have owners, and the conversions made so far.
#[derive(Clone, Debug)]
pub struct Versions<'a> {
    rows: &'a [Arc<Resource>],
    group: &'a str,
    converted: Vec<(ConversionRequest, Value)>,
}

impl<'a> Versions<'a> {
    /// No version but the writer's: owners of others are dropped.
    pub const NONE: &'static Versions<'static> = &Versions::new(&[], "");

    /// Creates the versions of a group from the rows of a resource, which may include other groups.
    /// As upstream, an owner of another group is none of this resource.
    pub const fn new(rows: &'a [Arc<Resource>], group: &'a str) -> Self {
        Versions {
            rows,
            group,
            converted: Vec::new(),
        }
    }

    /// Adds a conversion that was requested.
    pub fn add_converted(&mut self, request: ConversionRequest, object: Value) {
        self.converted.push((request, object));
    }

    /// Returns the row of a version.
    pub fn find(&self, api_version: &str) -> Option<&'a Arc<Resource>> {
        let mut rows = self.rows.iter();
        rows.find(|row| row.group == self.group && row.api_version() == api_version)
    }

    fn convert<'v>(
        &'v self,
        object: &'v Value,
        api_version: &str,
    ) -> Result<Cow<'v, Value>, ConversionRequest> {
        if object.get("apiVersion").and_then(Value::as_str) == Some(api_version) {
            return Ok(Cow::Borrowed(object));
        }
        let known = self
            .converted
            .iter()
            .find(|(request, _)| request.api_version == api_version && request.object == *object);
        match known {
            Some((_, converted)) => Ok(Cow::Borrowed(converted)),
            None => Err(ConversionRequest {
                object: object.clone(),
                api_version: api_version.to_owned(),
            }),
        }
    }
}

impl<'a> Writer<'a> {
    /// Returns the schema of a version; `None` if the version does not exist any more.
    pub(crate) fn find_schema(&self, api_version: &str) -> Option<&'a ObjectSchema> {
        if api_version == self.api_version {
            return Some(self.schema);
        }
        self.versions.find(api_version).map(|row| &row.schema)
    }

    /// Converts an object of the resource.
    pub(crate) fn convert<'v>(
        &'v self,
        object: &'v Value,
        from: &str,
        to: &str,
    ) -> Result<Cow<'v, Value>, ConversionRequest> {
        if from == to {
            return Ok(Cow::Borrowed(object));
        }
        self.versions.convert(object, to)
    }
}

/// Drops the owners of versions that do not exist any more, and fits the sets of the others to the
/// schema, which may have changed since they were written.
pub(crate) fn update_entries(writer: &Writer<'_>, entries: &mut Vec<Entry>) {
    entries.retain_mut(|entry| {
        let schema = writer.find_schema(&entry.identity.api_version);
        if let Some(schema) = schema {
            reconcile_set(Shape::of_object(schema), &mut entry.fields);
        }
        schema.is_some()
    });
}

/// The changes of a write, in each version that has owners.
pub(crate) struct Changes {
    by_version: BTreeMap<String, Comparison>,
}

impl Changes {
    /// Returns the changes in a version.
    pub(crate) fn find(&self, api_version: &str) -> Option<&Comparison> {
        self.by_version.get(api_version)
    }
}

/// Compares the old and the new object in the version of the writer, and in those of the other
/// owners. Without an old object, the new one is compared with the defaults.
pub(crate) fn compare_versions(
    writer: &Writer<'_>,
    entries: &[Entry],
    own: &Identity,
    old: Option<&Value>,
    new: &Value,
) -> Result<Changes, ConversionRequest> {
    let mut by_version = BTreeMap::new();
    let foreign = entries
        .iter()
        .filter(|entry| !entry.identity.is_same_owner(own))
        .map(|entry| entry.identity.api_version.as_str());
    for version in foreign.chain([writer.api_version]) {
        if by_version.contains_key(version) {
            continue;
        }
        let Some(schema) = writer.find_schema(version) else {
            continue;
        };
        let before = match old {
            Some(old) => writer.convert(old, writer.api_version, version)?,
            None => Cow::Owned(default_fields(schema)),
        };
        let after = writer.convert(new, writer.api_version, version)?;
        let difference = compare_objects(
            Shape::of_object(schema),
            &considered_fields(writer, &before),
            &considered_fields(writer, &after),
        );
        by_version.insert(version.to_owned(), difference);
    }
    Ok(Changes { by_version })
}

/// Returns the fields of the owners but one, by version.
pub(crate) fn fields_of_others(entries: &[Entry], own: &Identity) -> BTreeMap<String, FieldSet> {
    let mut by_version: BTreeMap<String, FieldSet> = BTreeMap::new();
    for entry in entries {
        if !entry.identity.is_same_owner(own) {
            let fields = by_version
                .entry(entry.identity.api_version.clone())
                .or_default();
            *fields = std::mem::take(fields).union(&entry.fields);
        }
    }
    by_version
}
