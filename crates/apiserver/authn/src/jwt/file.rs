//! Reads the file of `--authentication-config`.

use super::config::{AnonymousConfig, AuthenticationConfiguration};
use super::rules::IssuerRules;
use super::validate::validate_configuration;
use crate::anonymous::Anonymous;
use crate::options_error::{OptionsError, read_file};
use serde_json::Value;
use std::path::PathBuf;

const KIND: &str = "AuthenticationConfiguration";
const VERSIONS: [&str; 3] = [
    "apiserver.config.k8s.io/v1",
    "apiserver.config.k8s.io/v1beta1",
    "apiserver.config.k8s.io/v1alpha1",
];

/// A valid configuration.
#[derive(Clone, Debug)]
pub struct LoadedConfiguration {
    /// The content of the file.
    pub content: Vec<u8>,
    /// Requests without credentials; `None` if the file does not mention them.
    pub anonymous: Option<Anonymous>,
    /// The issuers.
    pub(super) issuers: Vec<IssuerRules>,
}

/// Reads and validates the file. `disallowed` has the issuers of ServiceAccount tokens.
///
/// # Errors
/// The file can't be read, or is no valid configuration.
pub fn read_authentication_config(
    path: &PathBuf,
    disallowed: &[String],
) -> Result<LoadedConfiguration, OptionsError> {
    let content = read_file(path)?;
    load_content(content, disallowed).map_err(|why| OptionsError::Content {
        path: path.clone(),
        why,
    })
}

/// Validates the content of a file; the error names all fields that can't be used.
pub(super) fn load_content(
    content: Vec<u8>,
    disallowed: &[String],
) -> Result<LoadedConfiguration, String> {
    let config = parse_configuration(&content)?;
    let issuers = validate_configuration(&config, disallowed).map_err(|errors| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        texts.join(", ")
    })?;
    Ok(LoadedConfiguration {
        anonymous: config.anonymous.as_ref().map(read_anonymous),
        issuers,
        content,
    })
}

/// Parses YAML or JSON strictly: an unknown or repeated field is an error, since a misspelt rule
/// would restrict nothing.
fn parse_configuration(content: &[u8]) -> Result<AuthenticationConfiguration, String> {
    if content.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let (mut tree, problems) = api_codec::yaml::parse(content).map_err(|e| e.to_string())?;
    if let Some(problem) = problems.first() {
        return Err(format!("strict decoding error: {problem}"));
    }
    let text = |field: &str| tree.get(field).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != KIND || !VERSIONS.contains(&text("apiVersion")) {
        return Err(format!("it is not an {KIND} of {}", VERSIONS[0]));
    }
    drop_nulls(&mut tree);
    serde_json::from_value(tree).map_err(|error| format!("strict decoding error: {error}"))
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

fn read_anonymous(config: &AnonymousConfig) -> Anonymous {
    let paths = config.conditions.iter();
    let paths: Vec<String> = paths.map(|condition| condition.path.clone()).collect();
    match (config.enabled, paths.is_empty()) {
        (false, _) => Anonymous::Disabled,
        (true, true) => Anonymous::AllPaths,
        (true, false) => Anonymous::Paths(paths),
    }
}
