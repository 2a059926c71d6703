//! Parses the content of a file.

use crate::error::{ConfigFileError, read_file};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

/// Versions of the group, whose files have the same fields.
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

/// Parses YAML or JSON strictly: an unknown or repeated field is an error, since a misspelt rule
/// would restrict nothing. `T` has to deny unknown fields.
///
/// # Errors
/// The content is not of this kind and group, or has a field that can't be read.
pub fn parse_config<T: DeserializeOwned>(content: &[u8], kind: &str) -> Result<T, String> {
    if content.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let (mut tree, problems) = api_codec::yaml::parse(content).map_err(|e| e.to_string())?;
    if let Some(problem) = problems.first() {
        return Err(format!("strict decoding error: {problem}"));
    }
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != kind || !VERSIONS.contains(&text("apiVersion")) {
        return Err(format!("it is not an {kind} of {}", VERSIONS[0]));
    }
    drop_nulls(&mut tree);
    serde_json::from_value(tree).map_err(|error| format!("strict decoding error: {error}"))
}

/// Reads a file of YAML or JSON of any kind.
///
/// # Errors
/// The file can't be read or parsed.
pub fn read_config(path: &Path) -> Result<Value, ConfigFileError> {
    let parsed = api_codec::yaml::parse(&read_file(path)?);
    let (config, _) = parsed.map_err(|e| ConfigFileError::content(path, e.to_string()))?;
    Ok(config)
}

/// Removes fields that are null, which Go takes for absent ones.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
