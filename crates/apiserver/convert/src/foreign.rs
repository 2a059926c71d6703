//! Conversion by the converter of a definition.

use crate::custom::coerce_converted;
use api_kinds::{Converter, ObjectSchema, Resource};
use api_meta::ApiError;
use serde_json::Value;

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
    let missing = || ApiError::internal("the conversion returned no object");
    converted.into_iter().next().ok_or_else(missing)
}
