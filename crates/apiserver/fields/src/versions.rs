//! The versions of a resource, for owners that use another one than the writer.
//!
//! This crate does no IO, and a webhook may convert the objects. A function that needs a
//! conversion returns a [`ConversionRequest`]; the caller converts, adds the result to the
//! [`Versions`], and calls the function again. A write whose owners all use the version of the
//! request needs none.

#[cfg(test)]
mod tests;

use api_kinds::Resource;
use serde_json::Value;
use std::borrow::Cow;
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
    resources: &'a [Arc<Resource>],
    group: &'a str,
    converted: Vec<(ConversionRequest, Value)>,
}

impl<'a> Versions<'a> {
    /// No version but the writer's: owners of others are dropped.
    pub const NONE: &'static Versions<'static> = &Versions::new(&[], "");

    /// Creates the versions of a group from those of a resource, which may include other groups.
    /// As upstream, an owner of another group is none of this resource.
    pub const fn new(resources: &'a [Arc<Resource>], group: &'a str) -> Self {
        Versions {
            resources,
            group,
            converted: Vec::new(),
        }
    }

    /// Adds a conversion that was requested.
    pub fn add_converted(&mut self, request: ConversionRequest, object: Value) {
        self.converted.push((request, object));
    }

    /// Returns the resource of a version.
    pub fn find(&self, api_version: &str) -> Option<&'a Arc<Resource>> {
        let mut resources = self.resources.iter();
        resources.find(|r| r.group == self.group && r.api_version() == api_version)
    }

    /// Returns the number of versions that may have owners.
    pub fn count(&self) -> usize {
        self.resources.len()
    }

    pub(crate) fn convert<'v>(
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
