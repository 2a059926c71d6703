//! Objects in the version that a webhook or policy has asked for.

use crate::attributes::Attributes;
use crate::kinds::{GroupVersionKind, Kinds, ReviewTarget};
use api_meta::ApiError;
use serde_json::Value;
use std::sync::Arc;

/// The objects of a request in the version of one webhook, in canonical form.
#[derive(Debug)]
pub struct VersionedObjects {
    /// The object, or null.
    pub object: Value,
    /// The old object, or null.
    pub old: Value,
}

impl VersionedObjects {
    /// Converts the objects.
    ///
    /// # Errors
    /// An object that can't be converted.
    pub async fn convert(
        kinds: &dyn Kinds,
        attributes: &Attributes<'_>,
        target: &ReviewTarget,
        (object, old): (&Value, Option<&Value>),
    ) -> Result<Self, ApiError> {
        Ok(VersionedObjects {
            object: convert_to_target(kinds, attributes, target, Some(object)).await?,
            old: convert_to_target(kinds, attributes, target, old).await?,
        })
    }
}

/// The objects of one request in the versions of its webhooks. Each version is converted once,
/// because a conversion may be a call of the definition's webhook.
#[derive(Debug, Default)]
pub struct ObjectVersions(Vec<(GroupVersionKind, Arc<VersionedObjects>)>);

impl ObjectVersions {
    /// Returns the objects in the version of a target.
    ///
    /// # Errors
    /// An object that can't be converted.
    pub async fn find_or_convert(
        &mut self,
        kinds: &dyn Kinds,
        attributes: &Attributes<'_>,
        target: &ReviewTarget,
        objects: (&Value, Option<&Value>),
    ) -> Result<Arc<VersionedObjects>, ApiError> {
        let kind = &target.1;
        if let Some((_, found)) = self.0.iter().find(|(known, _)| known == kind) {
            return Ok(found.clone());
        }
        let converted = VersionedObjects::convert(kinds, attributes, target, objects).await?;
        let converted = Arc::new(converted);
        self.0.push((kind.clone(), converted.clone()));
        Ok(converted)
    }

    /// Replaces the object, which a webhook has changed in its version. Other versions are
    /// forgotten.
    pub fn replace_object(&mut self, kind: &GroupVersionKind, object: Value) {
        let known = std::mem::take(&mut self.0).into_iter();
        let mut same = known.filter(|(known, _)| known == kind);
        if let Some((kind, objects)) = same.next() {
            let old = objects.old.clone();
            let objects = Arc::new(VersionedObjects { object, old });
            self.0.push((kind, objects));
        }
    }
}

async fn convert_to_target(
    kinds: &dyn Kinds,
    attributes: &Attributes<'_>,
    (resource, kind): &ReviewTarget,
    object: Option<&Value>,
) -> Result<Value, ApiError> {
    let Some(object) = object.filter(|object| object.is_object()) else {
        return Ok(Value::Null);
    };
    // The bodies of most subresources are the same in all versions of their resource.
    let same = *resource == attributes.resource || *kind == attributes.kind;
    let object = object.clone();
    let converted = if same {
        object
    } else {
        let from = &attributes.resource;
        kinds.convert_object(object, from, resource).await?
    };
    Ok(with_type(converted, &kind.api_version(), &kind.kind))
}

/// Converts an object that a webhook or policy has changed in its version back to the version of
/// the request, and sets the defaults there.
///
/// # Errors
/// The object has no form there.
pub async fn convert_back(
    kinds: &dyn Kinds,
    attributes: &Attributes<'_>,
    target: &ReviewTarget,
    object: Value,
) -> Result<Value, ApiError> {
    if target.1 == attributes.kind {
        return Ok(object);
    }
    let to = &attributes.resource;
    let mut object = kinds.convert_object(object, &target.0, to).await?;
    kinds.default_object(to, attributes.subresource, &mut object);
    let kind = &attributes.kind;
    Ok(with_type(object, &kind.api_version(), &kind.kind))
}

/// Returns the object with the type that reviews have to name.
pub fn with_type(mut object: Value, api_version: &str, kind: &str) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert("apiVersion".into(), api_version.into());
        fields.insert("kind".into(), kind.into());
    }
    object
}
