//! Conversion by the converter of a definition.

use crate::custom::coerce_converted;
use api_kinds::{Converter, ObjectSchema, Resource};
use api_meta::ApiError;
use serde_json::Value;
use std::borrow::Cow;

/// Converts custom resources of any version to `to`, in their order.
///
/// # Errors
/// The converter fails: then none is converted.
pub async fn convert_custom(
    converter: &dyn Converter,
    to: &Resource,
    objects: Vec<Value>,
) -> Result<Vec<Value>, ApiError> {
    let target = to.api_version();
    let differs: Vec<bool> = objects
        .iter()
        .map(|object| object.get("apiVersion").and_then(Value::as_str) != Some(&target))
        .collect();
    if !differs.contains(&true) {
        return Ok(objects);
    }
    let mut converted = converter.convert_objects(objects, &target).await?;
    if let ObjectSchema::Custom(schema) = &to.schema {
        let changed = converted
            .iter_mut()
            .zip(differs)
            .filter(|(_, differs)| *differs);
        changed.for_each(|(object, _)| coerce_converted(schema, object));
    }
    Ok(converted)
}

/// Converts one object from version `from` to version `to` of the same kind, by the converter if
/// the kind has one.
///
/// # Errors
/// The converter fails.
pub async fn convert_one(from: &Resource, to: &Resource, object: Value) -> Result<Value, ApiError> {
    let Some(converter) = from.schema.converter().or_else(|| to.schema.converter()) else {
        return Ok(crate::convert_object(from, to, object));
    };
    let converted = convert_custom(&**converter, to, vec![object]).await?;
    converted.into_iter().next().ok_or_else(missing_object)
}

/// Converts an object as [`convert_one`], and copies it only if its version changes.
///
/// # Errors
/// The converter fails.
pub async fn convert_to_store<'v>(
    from: &Resource,
    to: &Resource,
    object: &'v Value,
) -> Result<Cow<'v, Value>, ApiError> {
    if from.is_same_version(to) && from.schema.converter().is_none() {
        return Ok(Cow::Borrowed(object));
    }
    convert_one(from, to, object.clone()).await.map(Cow::Owned)
}

/// Converts an object for admission. Unlike [`convert_one`], it neither prunes nor defaults a
/// custom resource, as upstream: with strategy None, fields that the version of a webhook does not
/// have are not lost when the object is converted back.
///
/// # Errors
/// The converter fails.
pub async fn convert_admitted(
    from: &Resource,
    to: &Resource,
    mut object: Value,
) -> Result<Value, ApiError> {
    if !from.is_custom() || from.is_same_version(to) {
        return Ok(crate::convert_object(from, to, object));
    }
    let target = to.api_version();
    let Some(converter) = from.schema.converter().or_else(|| to.schema.converter()) else {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), target.into());
        }
        return Ok(object);
    };
    let converted = converter.convert_objects(vec![object], &target).await?;
    converted.into_iter().next().ok_or_else(missing_object)
}

fn missing_object() -> ApiError {
    ApiError::internal("the conversion returned no object")
}
